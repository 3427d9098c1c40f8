// RowNorm, which is layer norm and RMS norm, and its gradient.

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckOffset(OpCall& call) {
  const ArgShape& offset = call.in_shapes[2];
  if (offset.rank() == 1 && offset.dims[0] == 0) return;
  call.shapes.Expect("offset", offset, {"columns"}, "[0] stands for none.");
}

void Attrs(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("epsilon: float = 1e-6", "Added to the mean square.", AtLeast(0))
      .Attr("center: bool = true",
            "Whether rows lose their mean first: layer norm. Without it is RMS norm.");
}

DECLARE_OP("RowNorm")
    .Doc(R"doc(
Rows divided by the root of their mean square, with their mean subtracted before or not.

y = (x - mean) factor scale + offset, factor = 1 / sqrt(mean((x - mean)^2) + epsilon). Computed in float32 whatever T.)doc")
    .With(Attrs)
    .Input("x: T", "[rows, columns]", "[rows, columns].")
    .Input("scale: T", "[columns]", "[columns].")
    .Input("offset: T", "any", "[columns], or [0] for none.")
    .Output("y: T", "like x", "[rows, columns].")
    .Output("mean: float", "[rows]", "Mean of each row, 0 without center. Not differentiable.")
    .Output("factor: float", "[rows]", "Factor of each row. Not differentiable.")
    .Check(CheckOffset);

DECLARE_OP("RowNormGrad")
    .Doc("The gradient of RowNorm. Deterministic.")
    .With(Attrs)
    .Input("gradients: T", "like x", "Gradient of the loss with respect to y.")
    .Input("x: T", "[rows, columns]", "As given to RowNorm.")
    .Input("scale: T", "[columns]", "As given to RowNorm.")
    .Input("mean: float", "[rows]", "As RowNorm gave it.")
    .Input("factor: float", "[rows]", "The same.")
    .Output("d_x: T", "like x", "[rows, columns].")
    .Output("d_scale: T", "like scale", "[columns].")
    .Output("d_offset: T", "like scale", "[columns].")
    .NotDifferentiable();

DECLARE_GRADIENT("RowNorm", "x, scale, offset = RowNormGrad(d y, x, scale, mean, factor)");

}  // namespace
}  // namespace metal_ops
