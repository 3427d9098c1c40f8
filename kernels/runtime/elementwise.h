// Launches the shaders of elementwise.metal.h.

#ifndef METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_H_
#define METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/runtime/encoder.h"

namespace metal_ops {

// out[i] = formula(a[i], b[i]) for n elements, any number: `arguments` are a, b where there are two
// inputs, and out. A formula without values of its own gets Nothing().
inline Status LaunchElementwise(Encoder& encoder, const Shader& shader, int64_t n,
                                std::vector<Argument> arguments, const Value& formula = Nothing(),
                                const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  constexpr int64_t kPiece = int64_t{1} << 30;  // a grid has 2^32 threads at most
  uint64_t first = 0;
  arguments.push_back({"first", first});
  arguments.push_back({"formula", formula});
  for (; static_cast<int64_t>(first) < n; first += kPiece) {
    const Grid grid(std::min(kPiece, n - static_cast<int64_t>(first)));
    RETURN_IF_ERROR(encoder.Launch(shader, grid, arguments, file, line));
  }
  return Status();
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_H_
