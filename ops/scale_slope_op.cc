// ScaleSlope: the backward pass of losses that made their derivative on the way forwards.

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

}  // namespace
}  // namespace metal_ops
