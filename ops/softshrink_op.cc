// Softshrink and its gradient: a first activation function of one's own.

#include <cmath>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

Status CheckLambda(InferenceContext* c) {
  float lambda;
  TF_RETURN_IF_ERROR(c->GetAttr("lambd", &lambda));
  if (lambda >= 0) return tensorflow::OkStatus();
  return tensorflow::errors::InvalidArgument("Softshrink: lambd must be 0 or more, got ", lambda,
                                             ".");
}

REGISTER_OP("Softshrink")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("lambd: float = 0.5")
    .Input("features: T")
    .Output("activations: T")
    .SetShapeFn([](InferenceContext* c) -> Status {
      TF_RETURN_IF_ERROR(CheckLambda(c));
      return tensorflow::shape_inference::UnchangedShape(c);
    })
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
    .SetShapeFn([](InferenceContext* c) -> Status {
      TF_RETURN_IF_ERROR(CheckLambda(c));
      ShapeHandle shape;
      if (!c->Merge(c->input(0), c->input(1), &shape).ok()) {
        return tensorflow::errors::InvalidArgument(
            "SoftshrinkGrad: gradients must be shaped like features, ", c->DebugString(c->input(1)),
            ", got ", c->DebugString(c->input(0)), ".");
      }
      c->set_output(0, shape);
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
The gradient of Softshrink: gradients where |features| > lambd (or features are NaN), else 0.

gradients: Gradient of the loss with respect to the activations.
features: As given to Softshrink.
backprops: Of the same shape.
)doc");

}  // namespace
}  // namespace metal_ops
