// Fused Adam and SGD: each element of variable, gradient and moments is touched once. Every element
// is one thread's, so results do not depend on the order of threads.

#include <metal_stdlib>

#include "kernels/fused_optimizer/fused_optimizer_params.h"
#include "kernels/msl/formula.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#include "kernels/fused_optimizer/fused_optimizer_formula.h"

// A rule takes element i of the variable, x, to its next value, and its state with it. State that a
// rule does not have is bound to nothing.
template <bool Amsgrad>
struct adam {
  static float next(float x, float g, ulong i, device float* m, device float* v, device float* hat,
                    constant FusedUpdateParams& params) {
    AdamState<float> at = {x, m[i], v[i], Amsgrad ? hat[i] : 0.0f};
    at = adam_next(at, g, params.adam, Amsgrad);
    m[i] = at.m;
    v[i] = at.v;
    if (Amsgrad) hat[i] = at.hat;
    return at.x;
  }
};

template <bool Momentum, bool Nesterov>
struct sgd {
  static float next(float x, float g, ulong i, device float* m, device float*, device float*,
                    constant FusedUpdateParams& params) {
    SgdState<float> at = {x, Momentum ? m[i] : 0.0f};
    at = sgd_next(at, g, params.sgd, Momentum, Nesterov);
    if (Momentum) m[i] = at.m;
    return at.x;
  }
};

template <typename T, typename Rule>
kernel void fused_update(device T* x [[buffer(0)]], device const T* gradient [[buffer(1)]],
                         constant FusedUpdateParams& params [[buffer(2)]],
                         device float* m [[buffer(3)]], device float* v [[buffer(4)]],
                         device float* hat [[buffer(5)]],
                         uint2 position [[thread_position_in_grid]],
                         uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_elements) return;
  x[i] = T(Rule::next(float(x[i]), float(gradient[i]), i, m, v, hat, params));
}

template <typename T>
inline bool row_is_used(device const T* gradient, ulong first, ulong row) {
  for (ulong i = first; i < first + row; ++i) {
    if (float(gradient[i]) != 0.0f) return true;
  }
  return false;
}

// A thread per row, for the short rows of hash tables: rows without a gradient stay as they are.
template <typename T, typename Rule>
kernel void fused_update_short_rows(device T* x [[buffer(0)]],
                                    device const T* gradient [[buffer(1)]],
                                    constant FusedUpdateParams& params [[buffer(2)]],
                                    device float* m [[buffer(3)]], device float* v [[buffer(4)]],
                                    device float* hat [[buffer(5)]],
                                    uint2 position [[thread_position_in_grid]],
                                    uint2 threads [[threads_per_grid]]) {
  const ulong first = flat_index(position, threads) * params.row;
  if (first >= params.n_elements || !row_is_used(gradient, first, params.row)) return;
  for (ulong i = first; i < first + params.row; ++i) {
    x[i] = T(Rule::next(float(x[i]), float(gradient[i]), i, m, v, hat, params));
  }
}

// For long rows: which have a gradient ...
template <typename T>
kernel void fused_used_rows(device const T* gradient [[buffer(0)]],
                            constant FusedUpdateParams& params [[buffer(1)]],
                            device uchar* used [[buffer(2)]],
                            uint2 position [[thread_position_in_grid]],
                            uint2 threads [[threads_per_grid]]) {
  const ulong r = flat_index(position, threads);
  if (r * params.row >= params.n_elements) return;
  used[r] = row_is_used(gradient, r * params.row, params.row) ? 1 : 0;
}

// ... and a thread per element of those.
template <typename T, typename Rule>
kernel void fused_update_long_rows(device T* x [[buffer(0)]],
                                   device const T* gradient [[buffer(1)]],
                                   constant FusedUpdateParams& params [[buffer(2)]],
                                   device float* m [[buffer(3)]], device float* v [[buffer(4)]],
                                   device float* hat [[buffer(5)]],
                                   device const uchar* used [[buffer(6)]],
                                   uint2 position [[thread_position_in_grid]]) {
  if (used[position.y] == 0) return;
  const ulong i = ulong(position.y) * params.row + position.x;
  x[i] = T(Rule::next(float(x[i]), float(gradient[i]), i, m, v, hat, params));
}

using adam_rule = adam<false>;
using amsgrad_rule = adam<true>;
using sgd_rule = sgd<false, false>;
using momentum_rule = sgd<true, false>;
using nesterov_rule = sgd<true, true>;

#define UPDATE(rule, type)                                                               \
  INSTANTIATE_KERNEL("fused_" #rule "_" #type, fused_update, type, rule##_rule)          \
  INSTANTIATE_KERNEL("fused_" #rule "_short_rows_" #type, fused_update_short_rows, type, \
                     rule##_rule)                                                        \
  INSTANTIATE_KERNEL("fused_" #rule "_long_rows_" #type, fused_update_long_rows, type, rule##_rule)
#define UPDATES(type)    \
  UPDATE(adam, type)     \
  UPDATE(amsgrad, type)  \
  UPDATE(sgd, type)      \
  UPDATE(momentum, type) \
  UPDATE(nesterov, type) \
  INSTANTIATE_KERNEL("fused_used_rows_" #type, fused_used_rows, type)
UPDATES(float)
UPDATES(half)
IF_BFLOAT(UPDATES(bfloat))
