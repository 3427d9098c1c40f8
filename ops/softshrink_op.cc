// Softshrink and its gradient: a first activation function of one's own.

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/softshrink/softshrink_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status SoftshrinkShape(InferenceContext* c) {
  const bool gradient = c->num_inputs() == 2;
  ArgShapes shapes(gradient ? "SoftshrinkGrad" : "Softshrink");
  float lambda;
  TF_RETURN_IF_ERROR(c->GetAttr("lambd", &lambda));
  CheckSoftshrinkLambda(&shapes, lambda);
  if (gradient) CheckSoftshrinkGrad(&shapes, InputShapes(c));
  c->set_output(0, c->input(c->num_inputs() - 1));
  return ToStatus(shapes);
}

REGISTER_OP("Softshrink")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("lambd: float = 0.5")
    .Input("features: T")
    .Output("activations: T")
    .SetShapeFn(SoftshrinkShape)
    .Doc(R"doc(
Shrinks towards zero: x - lambd above lambd, x + lambd below -lambd, 0 between. NaN stays NaN.

features: x, of any shape.
activations: Of the same shape.
lambd: Half the width of what becomes 0, at least 0.
)doc");

REGISTER_OP("SoftshrinkGrad")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("lambd: float = 0.5")
    .Input("gradients: T")
    .Input("features: T")
    .Output("backprops: T")
    .SetShapeFn(SoftshrinkShape)
    .Doc(R"doc(
The gradient of Softshrink: gradients where |features| > lambd (or features are NaN), else 0.

gradients: Gradient of the loss with respect to the activations.
features: As given to Softshrink.
backprops: Of the same shape.
)doc");

}  // namespace
}  // namespace metal_ops
