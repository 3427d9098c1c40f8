// PackedScan, its gradient for products, and PackRayIndices: running sums and products along rays.

#include <vector>

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/packed_scan/packed_scan_checks.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/tensor.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status PackedScanShape(InferenceContext* c) {
  ArgShapes shapes("PackedScan");
  CheckPackedScan(&shapes, InputShapes(c));
  c->set_output(0, c->input(0));
  return ToStatus(shapes);
}

Status PackedProdGradShape(InferenceContext* c) {
  ArgShapes shapes("PackedProdGrad");
  CheckPackedScan(&shapes, InputShapes(c));
  c->set_output(0, c->input(1));
  return ToStatus(shapes);
}

Status PackRayIndicesShape(InferenceContext* c) {
  ArgShapes shapes("PackRayIndices");
  CheckPackRayIndices(&shapes, InputShapes(c));
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  tensorflow::shape_inference::DimensionHandle n_rays;
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(1, &n_rays));
  c->set_output(0, c->Matrix(n_rays, 2));
  return tensorflow::OkStatus();
}

REGISTER_OP("PackedScan")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("reduction: {'sum', 'prod'} = 'sum'")
    .Attr("exclusive: bool = false")
    .Attr("reverse: bool = false")
    .Input("inputs: T")
    .Input("packed_info: Tindices")
    .Output("outputs: T")
    .SetShapeFn(PackedScanShape)
    .Doc(R"doc(
Running sums or products along each ray. Accumulated in higher precision than T and rounded once.

CPU kernels run in float64, Metal kernels in a pair of float32 with 48 bits, as shaders have no float64: their sums stay
infinite once they are beyond float32's range. packed_info is read in host memory.

inputs: [samples] packed ray after ray, or [rays, samples].
packed_info: First sample and number of samples of each ray, [rays, 2], in order and without overlap; [0, 2] if the inputs
  are dense. Results of samples of no ray are 0.
reduction: 'sum' or 'prod'.
exclusive: Without the sample itself: a ray's first result is 0 ('sum') or 1 ('prod').
reverse: From each ray's end.
outputs: Shaped like inputs.
)doc");

REGISTER_OP("PackedProdGrad")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("exclusive: bool = false")
    .Attr("reverse: bool = false")
    .Input("gradients: T")
    .Input("inputs: T")
    .Input("packed_info: Tindices")
    .Output("inputs_gradient: T")
    .SetShapeFn(PackedProdGradShape)
    .Doc(R"doc(
The gradient of PackedScan's products. Divides by nothing, so it is right where inputs are zero.

gradients: Gradient of the loss with respect to PackedScan's outputs.
inputs: As given to PackedScan; so packed_info, exclusive and reverse.
inputs_gradient: Shaped like inputs.
)doc");

REGISTER_OP("PackRayIndices")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Input("ray_indices: Tindices")
    .Input("n_rays: Tindices")
    .Output("packed_info: Tindices")
    .SetShapeFn(PackRayIndicesShape)
    .Doc(R"doc(
First sample and number of samples of each ray, from the ray of each sample.

On the Metal device too, it runs in host memory, where the ops that take packed_info want it.

ray_indices: The ray that each sample belongs to, [samples], ascending, in [0, n_rays).
n_rays: Number of rays, a scalar.
packed_info: (start, count) of each ray, [n_rays, 2]. A ray without samples starts where the next one does.
)doc");

}  // namespace
}  // namespace metal_ops
