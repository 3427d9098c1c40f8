// Adam, RMSprop and Adagrad as graphs write them: every element of a variable is one thread's.

#include <metal_stdlib>

#include "kernels/msl/formula.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/optimizer_step/optimizer_step_params.h"

using namespace metal;

#include "kernels/optimizer_step/optimizer_step_formula.h"

// Absent tensors are bound to nothing.
template <typename T, typename Step>
inline void step_element(device T* x, device const T* gradient,
                         constant OptimizerStepParams& params, device T* a, device T* b,
                         device T* c, ulong i, bool has_second, bool has_third, Step with) {
  StepState<float> at = {float(x[i]), float(a[i]), has_second ? float(b[i]) : 0.0f,
                         has_third ? float(c[i]) : 0.0f};
  at = optimizer_step(at, float(gradient[i]), with, params.second != 0, params.momentum != 0);
  x[i] = T(at.x);
  a[i] = T(at.a);
  if (has_second) b[i] = T(at.b);
  if (has_third) c[i] = T(at.c);
}

template <typename T>
kernel void adam_step(device T* x [[buffer(0)]], device const T* gradient [[buffer(1)]],
                      constant OptimizerStepParams& params [[buffer(2)]], device T* m [[buffer(3)]],
                      device T* v [[buffer(4)]], device T* hat [[buffer(5)]],
                      device const T* alpha [[buffer(6)]],
                      device const T* one_minus_beta1 [[buffer(7)]],
                      device const T* one_minus_beta2 [[buffer(8)]],
                      device const T* epsilon [[buffer(9)]],
                      uint2 position [[thread_position_in_grid]],
                      uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_elements) return;
  const AdamStep<float> with = {float(*alpha), float(*one_minus_beta1), float(*one_minus_beta2),
                                float(*epsilon)};
  step_element(x, gradient, params, m, v, hat, i, true, params.second != 0, with);
}

template <typename T>
kernel void rmsprop_step(
    device T* x [[buffer(0)]], device const T* gradient [[buffer(1)]],
    constant OptimizerStepParams& params [[buffer(2)]], device T* velocity [[buffer(3)]],
    device T* average [[buffer(4)]], device T* m [[buffer(5)]], device const T* rate [[buffer(6)]],
    device const T* rho [[buffer(7)]], device const T* one_minus_rho [[buffer(8)]],
    device const T* epsilon [[buffer(9)]], device const T* momentum [[buffer(10)]],
    uint2 position [[thread_position_in_grid]], uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_elements) return;
  const RmspropStep<float> with = {float(*rate), float(*rho), float(*one_minus_rho),
                                   float(*epsilon), params.momentum ? float(*momentum) : 0.0f};
  step_element(x, gradient, params, velocity, average, m, i, params.second != 0,
               params.momentum != 0, with);
}

template <typename T>
kernel void adagrad_step(device T* x [[buffer(0)]], device const T* gradient [[buffer(1)]],
                         constant OptimizerStepParams& params [[buffer(2)]],
                         device T* sum [[buffer(3)]], device const T* rate [[buffer(4)]],
                         device const T* epsilon [[buffer(5)]],
                         uint2 position [[thread_position_in_grid]],
                         uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_elements) return;
  const AdagradStep<float> with = {float(*rate), float(*epsilon)};
  step_element(x, gradient, params, sum, sum, sum, i, false, false, with);
}

#define STEPS(type)                                             \
  INSTANTIATE_KERNEL("adam_step_" #type, adam_step, type)       \
  INSTANTIATE_KERNEL("rmsprop_step_" #type, rmsprop_step, type) \
  INSTANTIATE_KERNEL("adagrad_step_" #type, adagrad_step, type)
STEPS(float)
STEPS(half)
IF_BFLOAT(STEPS(bfloat))
