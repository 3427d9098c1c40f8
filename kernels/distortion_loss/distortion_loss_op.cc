// DistortionLoss (mip-NeRF 360) with its derivative, and ScaleRays, its backward pass.

#include "kernels/rays/packed_samples.h"
#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckSamples(OpCall& call) {
  const std::vector<ArgShape>& in = call.in_shapes;
  const std::vector<std::string> samples = ExpectSamples(&call.shapes, "weights", in[0], in[3]);
  if (samples.empty()) return;
  call.shapes.Expect("t_starts", in[1], samples);
  call.shapes.Expect("t_ends", in[2], samples);
}

void CheckSlope(OpCall& call) {
  const std::vector<ArgShape>& in = call.in_shapes;
  if (ExpectSamples(&call.shapes, "slope", in[1], in[2]).empty()) return;
  call.shapes.Expect("incoming", in[0], {"rays"});
}

DECLARE_OP("DistortionLoss")
    .Doc(R"doc(
The distortion of each ray's weights (Barron et al. 2022, mip-NeRF 360, equation 15), with its derivative.

sum_ij w_i w_j |m_i - m_j| + 1/3 sum_i w_i^2 (t_end_i - t_start_i), m the samples' middles, in time linear in the samples.

Samples out of order are an error on the CPU. The Metal device works asynchronously, and answers with NaN for such a ray:
an error would make every call wait.)doc")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("t_gradients: bool = false", "Whether the last two outputs are made.")
    .Input("weights: float", "any", "[samples] packed ray after ray, or [rays, samples].")
    .Input("t_starts: float", "any",
           "Where each sample begins along its ray, ascending, shaped like weights.")
    .Input("t_ends: float", "any", "Where it ends.")
    .Input("packed_info: Tindices", "any",
           "First sample and number of samples of each ray, [rays, 2], in order and without "
           "overlap; [0, 2] if the samples are dense.",
           Memory::kHost)
    .Output("loss: float", "[rays]", "[rays].")
    .Output("slope: float", "like weights",
            "d loss / d weights, shaped like them. Not differentiable, like the next two.")
    .Output("t_starts_slope: float", "like weights if t_gradients", "d loss / d t_starts, or [0].")
    .Output("t_ends_slope: float", "like weights if t_gradients", "d loss / d t_ends, or [0].")
    .Check(CheckSamples);

DECLARE_OP("ScaleRays")
    .Doc("The product of each sample's slope with its ray's incoming gradient.")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Input("incoming: float", "any", "[rays].")
    .Input("slope: float", "any", "[samples] packed ray after ray, or [rays, samples].")
    .Input("packed_info: Tindices", "any", "As given to the loss.", Memory::kHost)
    .Output("gradient: float", "like slope",
            "Shaped like slope; 0 for samples of no ray. Not differentiable: the slope's own "
            "derivative is not known.")
    .Check(CheckSlope)
    .NotDifferentiable();

DECLARE_GRADIENT("DistortionLoss", "weights = ScaleRays(d loss, slope, packed_info)",
                 "t_starts = ScaleRays(d loss, t_starts_slope, packed_info) if t_gradients",
                 "t_ends = ScaleRays(d loss, t_ends_slope, packed_info) if t_gradients");

}  // namespace
}  // namespace metal_ops
