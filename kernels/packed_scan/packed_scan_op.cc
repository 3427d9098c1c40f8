// PackedScan, its gradient for products, and PackRayIndices: running sums and products along rays.

#include "kernels/rays/packed_samples.h"
#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

// inputs, packed_info; or gradients, inputs, packed_info.
void CheckSamples(OpCall& call) {
  const std::vector<ArgShape>& in = call.in_shapes;
  const size_t n = in.size();
  const std::vector<std::string> samples =
      ExpectSamples(&call.shapes, "inputs", in[n - 2], in[n - 1]);
  if (n > 2 && !samples.empty()) call.shapes.Expect("gradients", in[0], samples);
}

DECLARE_OP("PackedScan")
    .Doc(R"doc(
Running sums or products along each ray. Accumulated in higher precision than T and rounded once.

CPU kernels run in float64, Metal kernels in a pair of float32 with 48 bits, as shaders have no float64: their sums stay
infinite once they are beyond float32's range. packed_info is read in host memory.)doc")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("reduction: {'sum', 'prod'} = 'sum'", "'sum' or 'prod'.")
    .Attr("exclusive: bool = false",
          "Without the sample itself: a ray's first result is 0 ('sum') or 1 ('prod').")
    .Attr("reverse: bool = false", "From each ray's end.")
    .Input("inputs: T", "any", "[samples] packed ray after ray, or [rays, samples].")
    .Input("packed_info: Tindices", "any",
           "First sample and number of samples of each ray, [rays, 2], in order and without "
           "overlap; [0, 2] if the inputs are dense. Results of samples of no ray are 0.",
           Memory::kHost)
    .Output("outputs: T", "like inputs", "Shaped like inputs.")
    .Check(CheckSamples)
    // A shader clears the samples of no ray beforehand, and would clear its input.
    .Reuses(0, /*on_metal=*/false);

DECLARE_OP("PackedProdGrad")
    .Doc(
        "The gradient of PackedScan's products. Divides by nothing, so it is right where inputs "
        "are zero.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("exclusive: bool = false")
    .Attr("reverse: bool = false")
    .Input("gradients: T", "any", "Gradient of the loss with respect to PackedScan's outputs.")
    .Input("inputs: T", "any", "As given to PackedScan; so packed_info, exclusive and reverse.")
    .Input("packed_info: Tindices", "any", "", Memory::kHost)
    .Output("inputs_gradient: T", "like inputs", "Shaped like inputs.")
    .Check(CheckSamples)
    .Reuses(0, /*on_metal=*/false)
    .NotDifferentiable();

DECLARE_OP("PackRayIndices")
    .Doc(R"doc(
First sample and number of samples of each ray, from the ray of each sample.

On the Metal device too, it runs in host memory, where the ops that take packed_info want it.)doc")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Input("ray_indices: Tindices", "[samples]",
           "The ray that each sample belongs to, [samples], ascending, in [0, n_rays).",
           Memory::kHost)
    .Input("n_rays: Tindices", "[]", "Number of rays, a scalar.", Memory::kHost)
    .Output("packed_info: Tindices", "[n_rays, 2]",
            "(start, count) of each ray, [n_rays, 2]. A ray without samples starts where the next "
            "one does.",
            Memory::kHost);

DECLARE_GRADIENT("PackedScan",
                 "inputs = PackedScan(d outputs, packed_info; reverse=!reverse) if reduction=sum",
                 "inputs = PackedProdGrad(d outputs, inputs, packed_info) if reduction=prod");

}  // namespace
}  // namespace metal_ops
