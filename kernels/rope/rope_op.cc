// Rope: rotary position embedding. Its gradient is itself, turning back.

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void Check(OpCall& call) {
  const int64_t sequences = call.Size("sequences"), batch = call.Size("batch");
  call.shapes.Require(sequences < 0 || sequences == 1 || batch < 0 || sequences == batch,
                      "positions must have shape [1, length] or [batch, length] with batch = " +
                          std::to_string(batch) + " as in x, got " + ToText(call.in_shapes[1]) +
                          ".");
  const int64_t pairs = call.Size("pairs"), size = call.Size("size");
  call.shapes.Require(pairs < 0 || size < 0 || pairs <= size / 2,
                      "turns must have at most half as many pairs as x has elements in its last "
                      "dimension, " +
                          std::to_string(size) + ", got " + std::to_string(pairs) + " pairs.");
}

DECLARE_OP("Rope")
    .Doc(R"doc(
Rotary position embedding: pairs of elements are turned by angles that are proportional to their position.

(a, b) becomes (a cos w - b sin w, a sin w + b cos w), w = 2 pi position turns, in float32 whatever T. Elements behind the last pair stay as they are.)doc")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("interleaved: bool = false",
          "Whether a pair are neighbours, elements 2 i and 2 i + 1; else i and i + pairs.")
    .Attr("inverse: bool = false", "Whether it turns back, which is the gradient.")
    .Input("x: T", "[batch, heads, length, size]", "[batch, heads, length, size].")
    .Input("positions: int32", "[sequences, length]",
           "Positions of each element of a sequence, [1, length] or [batch, length]; exact up to "
           "2^24.")
    .Input("turns: float", "[2, pairs]",
           "How far a pair is turned a position, in whole turns: the sum of two numbers, of which "
           "the second is the first's rounding error.")
    .Output("y: T", "like x", "Shaped like x.")
    .Check(Check)
    .Reuses(0);

DECLARE_GRADIENT("Rope", "x = Rope(d y, positions, turns; inverse=!inverse)");

}  // namespace
}  // namespace metal_ops
