// ScaleSlope, ScaleSlopeSum: the backward pass of losses that made their derivative on the way
// forwards.

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckIncoming(OpCall& call) {
  const ArgShape &incoming = call.in_shapes[0], &slope = call.in_shapes[1];
  if (incoming.rank() < 0 || slope.rank() < 0) return;
  bool fits = incoming.rank() == slope.rank() || incoming.rank() + 1 == slope.rank();
  for (int i = 0; fits && i < incoming.rank(); ++i) {
    fits = incoming.dims[i] < 0 || slope.dims[i] < 0 || incoming.dims[i] == slope.dims[i];
  }
  call.shapes.Require(fits, "incoming must be shaped like slope, " + ToText(slope) +
                                ", or that without the last dimension, got " + ToText(incoming) +
                                ".");
}

void CheckParameter(OpCall& call) {
  CheckIncoming(call);
  const ArgShape &slope = call.in_shapes[1], &parameter = call.in_shapes[2];
  if (slope.rank() < 0 || parameter.rank() <= 0) return;
  const int64_t channels = slope.rank() > 0 ? slope.dims.back() : 1;
  call.shapes.Require(parameter.rank() == 1 &&
                          (channels < 0 || parameter.dims[0] < 0 || parameter.dims[0] == channels),
                      "parameter must be a scalar or a vector of slope's last dimension, " +
                          std::to_string(channels) + ", got shape " + ToText(parameter) + ".");
}

DECLARE_OP("ScaleSlope")
    .Doc(
        "The product of slope with incoming, each value of which belongs to an element of slope "
        "or to a row of it.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Input("incoming: T", "any", "Shaped like slope, or without its last dimension.")
    .Input("slope: T", "any", "The derivative of a loss.")
    .Output("gradient: T", "like slope",
            "Shaped like slope. Not differentiable: the slope's own derivative is not known.")
    .Check(CheckIncoming)
    .Reuses(1)
    .NotDifferentiable();

DECLARE_OP("ScaleSlopeSum")
    .Doc("ScaleSlope summed up for a parameter that many elements share, always in the same order.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Input("incoming: T", "any", "Shaped like slope, or without its last dimension.")
    .Input("slope: T", "any",
           "The derivative of each element's loss with respect to the parameter.")
    .Input("parameter: float", "any",
           "A scalar, or a vector of slope's last dimension. Only its shape matters.")
    .Output("gradient: float", "like parameter",
            "Shaped like parameter: the sum over all elements, or over all but the last dimension. "
            "Not differentiable.")
    .Check(CheckParameter)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
