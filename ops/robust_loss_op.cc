// RobustLoss: Barron's general and adaptive robust loss with its derivatives.

#include <vector>

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/robust_loss/robust_loss_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status RobustLossShape(InferenceContext* c) {
  bool reduce_last, parameter_gradients;
  TF_RETURN_IF_ERROR(c->GetAttr("reduce_last", &reduce_last));
  TF_RETURN_IF_ERROR(c->GetAttr("parameter_gradients", &parameter_gradients));
  ArgShapes shapes("RobustLoss");
  CheckRobustLoss(&shapes, InputShapes(c), reduce_last);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  tensorflow::shape_inference::ShapeHandle loss = c->input(0);
  if (reduce_last) {
    if (c->RankKnown(loss)) {
      TF_RETURN_IF_ERROR(c->Subshape(loss, 0, -1, &loss));
    } else {
      loss = c->UnknownShape();
    }
  }
  c->set_output(0, loss);
  c->set_output(1, c->input(0));
  for (int i = 2; i < 4; ++i) c->set_output(i, parameter_gradients ? c->input(0) : c->Vector(0));
  return tensorflow::OkStatus();
}

REGISTER_OP("RobustLoss")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("reduce_last: bool = false")
    .Attr("parameter_gradients: bool = false")
    .Input("predictions: T")
    .Input("targets: T")
    .Input("alpha: float")
    .Input("scale: float")
    .Output("loss: T")
    .Output("slope: T")
    .Output("slope_alpha: T")
    .Output("slope_scale: T")
    .SetShapeFn(RobustLossShape)
    .Doc(R"doc(
The general robust loss (Barron, CVPR 2019, equation 8) of predictions - targets, with its derivatives, in float32.

predictions: Of any shape.
targets: Shaped like predictions; or [0] for none.
alpha: Shape of the loss, any number or infinity: a scalar, or a vector of predictions' last dimension.
scale: Size of a residual from which on alpha matters, above 0; likewise.
loss: Shaped like predictions, or without their last dimension.
slope: d loss / d predictions. Not differentiable, like the next two.
slope_alpha: d loss / d alpha of each element, or [0].
slope_scale: d loss / d scale of each element, or [0].
reduce_last: Whether the loss is the mean over the last dimension.
parameter_gradients: Whether the last two outputs are made.
)doc");

}  // namespace
}  // namespace metal_ops
