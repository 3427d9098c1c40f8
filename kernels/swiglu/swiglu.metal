// The shaders of Swiglu and SwigluGrad.

#include <metal_stdlib>

#include "kernels/msl/formula.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/swiglu/swiglu_params.h"

using namespace metal;

#include "kernels/swiglu/swiglu_formula.h"

// Grid: the elements of y; its rows are y's where one tensor holds gate and up.
inline ulong swiglu_gate(constant SwigluParams& p, ulong i, uint row) {
  return i + (p.up_offset > 0 ? ulong(row) * ulong(p.columns) : 0);
}

template <typename T>
[[kernel]] void swiglu(device const T* gate [[buffer(0)]], device const T* up [[buffer(1)]],
                       device T* y [[buffer(2)]], constant SwigluParams& params [[buffer(3)]],
                       uint2 position [[thread_position_in_grid]],
                       uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= ulong(params.rows * params.columns)) return;
  const ulong at = swiglu_gate(params, i, position.y);
  y[i] = T(swiglu_value(float(gate[at]), float(up[at + params.up_offset])));
}

template <typename T>
[[kernel]] void swiglu_grad(device const T* d_y [[buffer(0)]], device const T* gate [[buffer(1)]],
                            device const T* up [[buffer(2)]], device T* d_gate [[buffer(3)]],
                            device T* d_up [[buffer(4)]],
                            constant SwigluParams& params [[buffer(5)]],
                            uint2 position [[thread_position_in_grid]],
                            uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= ulong(params.rows * params.columns)) return;
  const ulong at = swiglu_gate(params, i, position.y);
  const SwigluSlopes<float> slopes =
      swiglu_slopes(float(d_y[i]), float(gate[at]), float(up[at + params.up_offset]));
  d_gate[at] = T(slopes.gate);
  d_up[at + params.up_offset] = T(slopes.up);
}

#define INSTANTIATE(T)                        \
  INSTANTIATE_KERNEL("swiglu_" #T, swiglu, T) \
  INSTANTIATE_KERNEL("swiglu_grad_" #T, swiglu_grad, T)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
