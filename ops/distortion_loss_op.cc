// DistortionLoss (mip-NeRF 360) with its derivative, and ScaleRays, its backward pass.

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/distortion_loss/distortion_loss_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status DistortionLossShape(InferenceContext* c) {
  bool t_gradients;
  TF_RETURN_IF_ERROR(c->GetAttr("t_gradients", &t_gradients));
  ArgShapes shapes("DistortionLoss");
  CheckDistortionLoss(&shapes, InputShapes(c));
  c->set_output(0, ToShape(c, {shapes.Size("rays")}));
  c->set_output(1, c->input(0));
  for (int i = 2; i < 4; ++i) c->set_output(i, t_gradients ? c->input(0) : c->Vector(0));
  return ToStatus(shapes);
}

Status ScaleRaysShape(InferenceContext* c) {
  ArgShapes shapes("ScaleRays");
  CheckScaleRays(&shapes, InputShapes(c));
  c->set_output(0, c->input(1));
  return ToStatus(shapes);
}

REGISTER_OP("DistortionLoss")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("t_gradients: bool = false")
    .Input("weights: float")
    .Input("t_starts: float")
    .Input("t_ends: float")
    .Input("packed_info: Tindices")
    .Output("loss: float")
    .Output("slope: float")
    .Output("t_starts_slope: float")
    .Output("t_ends_slope: float")
    .SetShapeFn(DistortionLossShape)
    .Doc(R"doc(
The distortion of each ray's weights (Barron et al. 2022, mip-NeRF 360, equation 15), with its derivative.

sum_ij w_i w_j |m_i - m_j| + 1/3 sum_i w_i^2 (t_end_i - t_start_i), m the samples' middles, in time linear in the samples.

Samples out of order are an error on the CPU. The Metal device works asynchronously, and answers with NaN for such a ray:
an error would make every call wait.

weights: [samples] packed ray after ray, or [rays, samples].
t_starts: Where each sample begins along its ray, ascending, shaped like weights.
t_ends: Where it ends.
packed_info: First sample and number of samples of each ray, [rays, 2], in order and without overlap; [0, 2] if the samples
  are dense.
loss: [rays].
slope: d loss / d weights, shaped like them. Not differentiable, like the next two.
t_starts_slope: d loss / d t_starts, or [0].
t_ends_slope: d loss / d t_ends, or [0].
t_gradients: Whether the last two outputs are made.
)doc");

REGISTER_OP("ScaleRays")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Input("incoming: float")
    .Input("slope: float")
    .Input("packed_info: Tindices")
    .Output("gradient: float")
    .SetShapeFn(ScaleRaysShape)
    .Doc(R"doc(
The product of each sample's slope with its ray's incoming gradient.

incoming: [rays].
slope: [samples] packed ray after ray, or [rays, samples].
packed_info: As given to the loss.
gradient: Shaped like slope; 0 for samples of no ray. Not differentiable: the slope's own derivative is not known.
)doc");

}  // namespace
}  // namespace metal_ops
