// Atomic adds that kernels share. Relaxed: the order between threads is open, so float sums differ
// in their last bits from run to run; a kernel that uses this needs another path under op
// determinism.

#ifndef METAL_OPS_KERNELS_MSL_ATOMICS_H_
#define METAL_OPS_KERNELS_MSL_ATOMICS_H_

#include <metal_stdlib>

inline void atomic_add(device metal::atomic_float* sum, float value) {
  metal::atomic_fetch_add_explicit(sum, value, metal::memory_order_relaxed);
}

#if defined(__HAVE_ATOMIC_FLOAT_VECTOR__)
// Neighbours in one instruction; the address is a multiple of their size.
inline void atomic_add2(device metal::atomic_float* sums, float a, float b) {
  _msl::atomic_add2(sums, a, b);
}
inline void atomic_add4(device metal::atomic_float* sums, float a, float b, float c, float d) {
  _msl::atomic_add4(sums, a, b, c, d);
}
#endif

#endif  // METAL_OPS_KERNELS_MSL_ATOMICS_H_
