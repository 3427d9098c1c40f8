// Rotary position embedding by tables, and its gradient: which halves of a row nodes have, and the op
// that both become.

#ifndef METAL_OPS_GRAPH_TURN_H_
#define METAL_OPS_GRAPH_TURN_H_

#include <cstdint>
#include <optional>

#include "graph/expression.h"

namespace metal_ops::fusion {

// The elements of a row that a tensor has: `begin`, `begin + stride`, ..., half of them.
struct Part {
  int64_t begin, stride;
  bool operator==(const Part& other) const {
    return begin == other.begin && stride == other.stride;
  }
};

// The halves of a row of `size` elements, or its even and odd ones.
inline Part HalfOf(int64_t size, bool neighbours, int half) {
  return neighbours ? Part{half, 2} : Part{half * size / 2, 1};
}

// The part of a row that a StridedSlice takes, or a StridedSliceGrad gives to one.
std::optional<Part> SlicePart(const Facts& facts, const NodeView& slice, int rank, int64_t size);
// The part of x that `value` has, by Split or StridedSlice.
std::optional<Part> PartOf(const Facts& facts, const Value& value, const Value& x, int rank,
                           int64_t size);
// Whether an axis is the dimension `from_last` before the last.
bool IsAxis(int64_t axis, int rank, int from_last);

// MetalRopeTables in place of the region, which has bound "cos", "sin" and maybe "neighbours".
Outcome BecomeTurn(Chain* chain, const Region& region, const Value& x, bool backward);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_TURN_H_
