// Plans a loop over strided tensors: broadcasting, merging of dimensions, and the grid that runs
// it.

#ifndef METAL_OPS_DEVICE_KERNELS_STRIDED_H_
#define METAL_OPS_DEVICE_KERNELS_STRIDED_H_

#include <string>
#include <vector>

#include "device/kernels/strided_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// The dimensions from `first` on, before `last`.
inline Shape Dims(const Shape& shape, size_t first, size_t last) {
  return Shape(shape.begin() + static_cast<int64_t>(first),
               shape.begin() + static_cast<int64_t>(last));
}

// Strides of a dense tensor, in elements.
std::vector<int64_t> DenseStrides(const Shape& shape);

// One of the tensors that a loop walks over: the step along each of the loop's dimensions, 0 where
// it is repeated.
struct Walk {
  std::vector<int64_t> strides;
  int64_t offset = 0;
};

// Strides that repeat a tensor of `shape` over `target`, to which it must be broadcastable.
Walk Broadcast(const Shape& shape, const Shape& target);

struct Loop {
  StridedParams params = {};
  Grid grid{0};
  StridedOperand fourth = {};  // of four walks
  // The choice of shader: "rows_" and every input's inner step, where there are STRIDED_ROW_DIMS
  // dimensions at most and those steps are 0 or 1 (of copies: or -1, or n for another); else
  // "strided". The output is the last walk.
  std::string variant;
};

// Merges dimensions that are contiguous for all walks. `op` names the kernel in the error for a
// loop that still has more than STRIDED_DIMS dimensions.
Status PlanLoop(const std::string& op, const Shape& shape, const std::vector<Walk>& walks,
                Loop* loop);

// NumPy's broadcasting rule.
Status BroadcastShape(const std::string& op, const Shape& a, const Shape& b, Shape* result);

// Copies walk[0] of `in` to walk[1] of `out` over `shape`, whatever the dtype.
Status EncodeCopy(Encoder& encoder, const std::string& op, const Shape& shape, const Value& in,
                  const Walk& from, const Tensor& out, const Walk& to);

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_STRIDED_H_
