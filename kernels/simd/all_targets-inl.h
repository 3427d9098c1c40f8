// Highway and the code written with it, for a source that is compiled once per instruction set. The
// source defines HWY_TARGET_INCLUDE, its own path, before. No guard: included by every turn.

#include "kernels/simd/simd_targets.h"
// Highway wants this order.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/vector-inl.h"

// CPU_KERNEL of kernels/runtime/op.h for a kernel in HWY_NAMESPACE: the instruction set is chosen
// when it runs. In metal_ops, within #if HWY_ONCE.
#undef SIMD_KERNEL
#define SIMD_KERNEL(op, function) \
  HWY_EXPORT(function);           \
  CPU_KERNEL(op, [](CpuCall& call) { HWY_DYNAMIC_DISPATCH(function)(call); })
