// The choice of the shader that copies rows, for the ops that do so by their indices.

#ifndef METAL_OPS_DEVICE_KERNELS_GATHER_H_
#define METAL_OPS_DEVICE_KERNELS_GATHER_H_

#include <cstdint>
#include <string>

#include "device/kernels/gather_params.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {

struct RowShader {
  std::string stem;
  int64_t blocks;  // that a row has; 0 where a thread has an element
};

// For rows of `inner` elements of `bytes` each; `stem` is the shader whose threads have an element.
inline RowShader RowShaderOf(const std::string& stem, int64_t inner, int64_t bytes) {
  const int64_t many = GATHER_MANY_BYTES / bytes;
  if (!ThreadgroupsRunAtOnce() && inner >= many) {
    return {stem + "_rows_many", (inner + many - 1) / many};
  }
  if (inner >= GATHER_BLOCK) return {stem + "_rows", (inner + GATHER_BLOCK - 1) / GATHER_BLOCK};
  return {stem, 0};
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_GATHER_H_
