// Swiglu, a gated linear unit, and its gradient.

#include "kernels/runtime/gradient.h"
#include "kernels/swiglu/swiglu_call.h"

namespace metal_ops {
namespace {

// The shape of silu(gate) up; unknown where those are.
ArgShape ResultShape(OpCall& call, int first) {
  const ArgShape &gate = call.in_shapes[first], &up = call.in_shapes[first + 1];
  if (!gate.known_rank || !up.known_rank) return ArgShape();
  if (!GateHoldsUp(gate, up)) {
    call.shapes.ExpectLike("up", up, "gate", gate);
    return gate;
  }
  const bool even = gate.rank() > 0 && (gate.dims.back() < 0 || gate.dims.back() % 2 == 0);
  call.shapes.Require(even,
                      "gate must have an even last dimension, gates and then what they are "
                      "multiplied with, where up is [0], got " +
                          ToText(gate) + ".");
  if (!even) return ArgShape();
  ArgShape half = gate;
  if (half.dims.back() > 0) half.dims.back() /= 2;
  return half;
}

void SetOutput(OpCall& call) { call.out_shapes[0] = ResultShape(call, 0); }

void CheckGradients(OpCall& call) {
  call.shapes.ExpectLike("gradients", call.in_shapes[0], "the result", ResultShape(call, 1));
}

DECLARE_OP("Swiglu")
    .Doc("silu(gate) up, silu(x) = x / (1 + e^-x), in float32 whatever T.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Input("gate: T", "any", "Any shape; or [..., 2 columns], gate and up in halves.")
    .Input("up: T", "any", "Shaped like gate; or [0] where gate holds both.")
    .Output("y: T", "any", "Shaped like gate, or [..., columns].")
    .Check(SetOutput)
    .Reuses(0);

DECLARE_OP("SwigluGrad")
    .Doc("The gradient of Swiglu.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Input("gradients: T", "any", "Gradient of the loss with respect to y.")
    .Input("gate: T", "any", "As given to Swiglu.")
    .Input("up: T", "any", "The same.")
    .Output("d_gate: T", "like gate", "Shaped like gate; both gradients where it holds both.")
    .Output("d_up: T", "like up", "Shaped like up.")
    .Check(CheckGradients)
    .NotDifferentiable();

DECLARE_GRADIENT("Swiglu", "gate, up = SwigluGrad(d y, gate, up)");

}  // namespace
}  // namespace metal_ops
