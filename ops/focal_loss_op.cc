// SigmoidFocalLoss, SoftmaxFocalLoss: the focal loss (Lin et al. 2017) with its derivative.

#include <vector>

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/focal_loss/focal_loss_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status CheckAttrs(InferenceContext* c, ArgShapes* shapes) {
  float gamma, label_smoothing;
  TF_RETURN_IF_ERROR(c->GetAttr("gamma", &gamma));
  TF_RETURN_IF_ERROR(c->GetAttr("label_smoothing", &label_smoothing));
  CheckFocalAttrs(shapes, gamma, label_smoothing);
  return ToStatus(*shapes);
}

Status SigmoidFocalLossShape(InferenceContext* c) {
  ArgShapes shapes("SigmoidFocalLoss");
  TF_RETURN_IF_ERROR(CheckAttrs(c, &shapes));
  bool reduce_last;
  TF_RETURN_IF_ERROR(c->GetAttr("reduce_last", &reduce_last));
  CheckSigmoidFocal(&shapes, InputShapes(c), reduce_last);
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
  return tensorflow::OkStatus();
}

Status SoftmaxFocalLossShape(InferenceContext* c) {
  ArgShapes shapes("SoftmaxFocalLoss");
  TF_RETURN_IF_ERROR(CheckAttrs(c, &shapes));
  tensorflow::DataType targets;
  TF_RETURN_IF_ERROR(c->GetAttr("Ttargets", &targets));
  CheckSoftmaxFocal(&shapes, InputShapes(c), targets != tensorflow::DT_FLOAT);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  c->set_output(0, ToShape(c, {shapes.Size("rows")}));
  c->set_output(1, c->input(0));
  return tensorflow::OkStatus();
}

REGISTER_OP("SigmoidFocalLoss")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("alpha: float = 0.25")
    .Attr("gamma: float = 2.0")
    .Attr("label_smoothing: float = 0.0")
    .Attr("balanced: bool = false")
    .Attr("reduce_last: bool = false")
    .Input("logits: T")
    .Input("targets: T")
    .Output("loss: T")
    .Output("slope: T")
    .SetShapeFn(SigmoidFocalLossShape)
    .Doc(R"doc(
The focal loss of independent binary classes (Lin et al. 2017, equations 4 and 5), with its derivative, in float32.

logits: Of any shape.
targets: Shaped like logits, in [0, 1].
loss: Shaped like logits, or without their last dimension.
slope: d loss / d logits. Not differentiable.
alpha: Weight of the positive class where balanced, 1 - alpha being that of the negative one.
gamma: Strength of the focus on what is far from its target; 0 for the cross entropy.
label_smoothing: Moves targets towards 1/2 by this part of the way.
balanced: Whether alpha weighs the classes.
reduce_last: Whether the loss is the mean over the last dimension.
)doc");

REGISTER_OP("SoftmaxFocalLoss")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Ttargets: {float, int32, int64} = DT_FLOAT")
    .Attr("alpha: float = 0.25")
    .Attr("gamma: float = 2.0")
    .Attr("label_smoothing: float = 0.0")
    .Input("logits: T")
    .Input("targets: Ttargets")
    .Output("loss: T")
    .Output("slope: T")
    .SetShapeFn(SoftmaxFocalLossShape)
    .Doc(R"doc(
The focal loss of exclusive classes (Lin et al. 2017), with its derivative, in float32.

logits: [rows, classes].
targets: Probabilities of the classes, [rows, classes], or the classes' numbers, [rows].
loss: - alpha sum_c targets_c (1 - p_c)^gamma log p_c with p = softmax(logits), [rows].
slope: d loss / d logits. Not differentiable.
alpha: A factor.
gamma: Strength of the focus on what is far from its target; 0 for the cross entropy.
label_smoothing: Moves targets towards 1 / classes by this part of the way.
)doc");

}  // namespace
}  // namespace metal_ops
