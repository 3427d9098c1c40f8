// Fences beyond a threadgroup. Metal has them from 3.2 on, which macOS 14 does not: they are where
// hostmetal compiles. A host asks FencesReachDevice() (kernels/runtime/platform.h) before it launches
// a shader that needs one.

#ifndef METAL_OPS_KERNELS_MSL_FENCE_H_
#define METAL_OPS_KERNELS_MSL_FENCE_H_

#include <metal_stdlib>

#if defined(__METAL_CPU__) || defined(__METAL_NVPTX__)
inline void fence_device() {
  metal::atomic_thread_fence(metal::mem_flags::mem_device, metal::memory_order_acq_rel,
                             metal::thread_scope_device);
}
// hostmetal has devices that read each other's memory.
inline void fence_all_devices() {
  metal::atomic_thread_fence(metal::mem_flags::mem_device, metal::memory_order_seq_cst,
                             metal::thread_scope_system);
}
#else
inline void fence_device() {}
inline void fence_all_devices() {}
#endif

#endif  // METAL_OPS_KERNELS_MSL_FENCE_H_
