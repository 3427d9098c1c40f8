// MetalRopeTables: rotary position embedding by tables of cosines and sines, which the fusion pass
// makes of elementary ops.

#include <algorithm>

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

// The size that both broadcast to, -1 if it is not known yet; -2: there is none.
int64_t Joined(int64_t a, int64_t b) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  if (a < 0) return b;
  return b < 0 ? a : -2;
}

void Check(OpCall& call) {
  static const char* const kNames[] = {"x", "cosines", "sines"};
  int rank = 1;
  for (int i = 0; i < 3; ++i) {
    const ArgShape& shape = call.in_shapes[i];
    if (!shape.known_rank) return;
    call.shapes.Require(shape.rank() >= 1 && shape.rank() <= 4,
                        std::string(kNames[i]) +
                            " must have between one and four dimensions, got " + ToText(shape) +
                            ".");
    if (shape.rank() < 1) return;
    rank = std::max(rank, shape.rank());
  }
  const int64_t size = call.in_shapes[0].dims.back();
  call.shapes.Require(size < 0 || size % 2 == 0,
                      "x must have an even last dimension, got " + ToText(call.in_shapes[0]) + ".");
  ArgShape y(std::vector<int64_t>(rank, 1));
  for (int i = 0; i < 3; ++i) {
    const ArgShape& shape = call.in_shapes[i];
    const int64_t last = shape.dims.back();
    call.shapes.Require(size < 0 || last < 0 || last == size,
                        std::string(kNames[i]) + " must have x's last dimension, " +
                            std::to_string(size) + ", got " + ToText(shape) + ".");
    for (int dim = 0; dim < shape.rank(); ++dim) {
      int64_t& joined = y.dims[rank - shape.rank() + dim];
      if (dim == shape.rank() - 1) {
        joined = i == 0 || joined < 0 ? last : joined;
        continue;
      }
      joined = Joined(joined, shape.dims[dim]);
      call.shapes.Require(joined != -2, std::string(kNames[i]) + " of shape " + ToText(shape) +
                                            " does not broadcast with the others.");
      if (joined == -2) return;
    }
  }
  call.out_shapes[0] = y;
}

DECLARE_OP("MetalRopeTables")
    .Doc(R"doc(
Rotary position embedding by tables: x cosines + r(x) sines, r(x) = [-x2, x1] of the halves x1 and x2 of a row.

The three broadcast in all dimensions but the last. In float32 whatever T. Backward it is the gradient of that, of
what is given as x: x cosines + s(x sines), s(z) = [z2, -z1].)doc")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("interleaved: bool = false",
          "Whether x1 and x2 are elements 2 i and 2 i + 1 of a row, and r(x) has them so; else its "
          "halves.")
    .Attr("backward: bool = false",
          "Whether x is the gradient of such an embedding, and y that of its input.")
    .Input("x: T", "any", "[..., size], of four dimensions at most.")
    .Input("cosines: T", "any", "[..., size].")
    .Input("sines: T", "any", "[..., size].")
    .Output("y: T", "any", "Has the shape to which x, cosines and sines broadcast.")
    .Check(Check)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
