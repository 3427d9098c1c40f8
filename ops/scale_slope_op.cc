// ScaleSlope, ScaleSlopeSum: the backward pass of losses that made their derivative on the way
// forwards.

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/scale_slope/scale_slope_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("ScaleSlope")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Input("incoming: T")
    .Input("slope: T")
    .Output("gradient: T")
    .SetShapeFn([](InferenceContext* c) {
      ArgShapes shapes("ScaleSlope");
      CheckScaleSlope(&shapes, InputShapes(c));
      c->set_output(0, c->input(1));
      return ToStatus(shapes);
    })
    .Doc(R"doc(
The product of slope with incoming, each value of which belongs to an element of slope or to a row of it.

incoming: Shaped like slope, or without its last dimension.
slope: The derivative of a loss.
gradient: Shaped like slope. Not differentiable: the slope's own derivative is not known.
)doc");

REGISTER_OP("ScaleSlopeSum")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Input("incoming: T")
    .Input("slope: T")
    .Input("parameter: float")
    .Output("gradient: float")
    .SetShapeFn([](InferenceContext* c) {
      ArgShapes shapes("ScaleSlopeSum");
      CheckScaleSlopeSum(&shapes, InputShapes(c));
      c->set_output(0, c->input(2));
      return ToStatus(shapes);
    })
    .Doc(R"doc(
ScaleSlope summed up for a parameter that many elements share, always in the same order.

incoming: Shaped like slope, or without its last dimension.
slope: The derivative of each element's loss with respect to the parameter.
parameter: A scalar, or a vector of slope's last dimension. Only its shape matters.
gradient: Shaped like parameter: the sum over all elements, or over all but the last dimension. Not differentiable.
)doc");

}  // namespace
}  // namespace metal_ops
