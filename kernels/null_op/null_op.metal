// NullOp's shader. Part 4 of 6.
//
// Rules that Apple's compiler enforces and ours too: every pointer and reference has an address
// space (device: buffers; constant: read-only parameters; thread: locals), no C++ standard library,
// no double, no recursion, no exceptions, no virtual functions.

#include <metal_stdlib>

#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/null_op/null_op_params.h"

using namespace metal;

// One thread an element. The buffer numbers are the places in the host's argument list. Compute in
// float: half and bfloat are for storing.
template <typename T>
kernel void null_op(device const T* x [[buffer(0)]], device T* y [[buffer(1)]],
                    constant NullOpParams& params [[buffer(2)]],
                    uint2 position [[thread_position_in_grid]],
                    uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i < params.n_elements) y[i] = T(float(x[i]) * params.scale);
}

// One named kernel a dtype; null_op_metal.mm asks for them by these names.
INSTANTIATE_KERNEL("null_op_float", null_op, float)
INSTANTIATE_KERNEL("null_op_half", null_op, half)
INSTANTIATE_KERNEL("null_op_bfloat", null_op, bfloat)
