// Atomic adds that kernels share. Relaxed: the order between threads is open, so float sums differ
// in their last bits from run to run; a kernel that uses this needs another path under op
// determinism.

#ifndef METAL_OPS_KERNELS_MSL_ATOMICS_H_
#define METAL_OPS_KERNELS_MSL_ATOMICS_H_

#include <metal_stdlib>

inline void atomic_add(device metal::atomic_float* sum, float value) {
  metal::atomic_fetch_add_explicit(sum, value, metal::memory_order_relaxed);
}

#endif  // METAL_OPS_KERNELS_MSL_ATOMICS_H_
