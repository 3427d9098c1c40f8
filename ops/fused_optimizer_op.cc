// ResourceFusedAdam, ResourceFusedSgd: an optimizer's update of a variable in one pass over memory.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

// `first` scalars follow the variables; the gradient is last.
Status UpdateShape(InferenceContext* c, int n_variables) {
  tensorflow::shape_inference::ShapeHandle shape = c->input(c->num_inputs() - 1);
  for (int i = 0; i < n_variables; ++i) {
    const auto* handle = c->input_handle_shapes_and_types(i);
    if (handle == nullptr || handle->empty()) continue;
    TF_RETURN_WITH_CONTEXT_IF_ERROR(c->Merge(shape, (*handle)[0].shape, &shape),
                                    "the variables must have the gradient's shape");
  }
  for (int i = n_variables; i < c->num_inputs() - 1; ++i) {
    tensorflow::shape_inference::ShapeHandle unused;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &unused));
  }
  return tensorflow::OkStatus();
}

Status FusedAdamShape(InferenceContext* c) {
  int n_hats;
  TF_RETURN_IF_ERROR(c->GetAttr("n_hats", &n_hats));
  return UpdateShape(c, 3 + n_hats);
}

Status FusedSgdShape(InferenceContext* c) {
  int n_momenta;
  TF_RETURN_IF_ERROR(c->GetAttr("n_momenta", &n_momenta));
  return UpdateShape(c, 1 + n_momenta);
}

REGISTER_OP("ResourceFusedAdam")
    .Attr("T: {float, half, bfloat16, double}")
    .Attr("n_hats: int >= 0 = 0")
    .Attr("skip_zero_rows: bool = false")
    .Attr("float32_powers: bool = false")
    .Input("var: resource")
    .Input("m: resource")
    .Input("v: resource")
    .Input("hats: n_hats * resource")
    .Input("step: int64")
    .Input("lr: double")
    .Input("beta1: double")
    .Input("beta2: double")
    .Input("epsilon: double")
    .Input("weight_decay: double")
    .Input("gradient: T")
    .SetIsStateful()
    .SetShapeFn(FusedAdamShape)
    .Doc(R"doc(
Updates a variable by Adam with decoupled weight decay and, with a `hats`, by AMSGrad.

var -= lr weight_decay var; m += (gradient - m) (1 - beta1); v += (gradient^2 - v) (1 - beta2); hat = max(hat, v);
var -= lr sqrt(1 - beta2^step) / (1 - beta1^step) m / (sqrt(hat or v) + epsilon).

var: The variable, of dtype T.
m: First moment, float32 (float64 if T is), shaped like var.
v: Second moment, likewise.
hats: None, or AMSGrad's maximum of the second moment.
step: 1 for the first update.
lr: Learning rate.
epsilon: Added to the square root.
weight_decay: Part of lr by which the variable shrinks.
gradient: Shaped like var.
skip_zero_rows: Leaves rows (of all but the first dimension) whose gradient is all zero as they are, moments included.
float32_powers: Rounds beta^step to float32, which makes 1 - 0.999^2 wrong by 1e-5 of it, as Keras does. Not if T is double.
)doc");

REGISTER_OP("ResourceFusedSgd")
    .Attr("T: {float, half, bfloat16, double}")
    .Attr("n_momenta: int >= 0 = 0")
    .Attr("nesterov: bool = false")
    .Attr("skip_zero_rows: bool = false")
    .Input("var: resource")
    .Input("momenta: n_momenta * resource")
    .Input("lr: double")
    .Input("momentum: double")
    .Input("weight_decay: double")
    .Input("gradient: T")
    .SetIsStateful()
    .SetShapeFn(FusedSgdShape)
    .Doc(R"doc(
Updates a variable by gradient descent with momentum and decoupled weight decay.

var -= lr weight_decay var; m = momentum m - lr gradient; var += m (Nesterov: momentum m - lr gradient). Without momenta:
var -= lr gradient.

var: The variable, of dtype T.
momenta: None, or m, float32 (float64 if T is), shaped like var.
lr: Learning rate.
weight_decay: Part of lr by which the variable shrinks.
gradient: Shaped like var.
nesterov: Nesterov's momentum.
skip_zero_rows: Leaves rows (of all but the first dimension) whose gradient is all zero as they are, momentum included.
)doc");

}  // namespace
}  // namespace metal_ops
