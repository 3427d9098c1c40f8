// Optimizer steps on variables, in place. Kingma and Ba, "Adam", 2015, Algorithm 1 with the step
// size of its section 2; Reddi et al., "On the convergence of Adam", 2018 (AMSGrad); Duchi et al., "Adaptive
// subgradient methods", 2011; Zeiler, "Adadelta", 2012; Hinton's RMSProp; Sutskever et al. 2013 (Nesterov's
// momentum). Arguments are called as the ops' inputs are.

#include "device/kernels/strided.metal.h"

using namespace metal;

template <typename T>
kernel void apply_gradient_descent(device T* var [[buffer(0)]], device const T* alpha [[buffer(1)]],
                                   device const T* delta [[buffer(2)]],
                                   uint i [[thread_position_in_grid]]) {
  var[i] = T(float(var[i]) - float(alpha[0]) * float(delta[i]));
}

template <typename T, bool Nesterov>
kernel void apply_adam(device T* var [[buffer(0)]], device T* m [[buffer(1)]],
                       device T* v [[buffer(2)]], device const T* beta1_power [[buffer(3)]],
                       device const T* beta2_power [[buffer(4)]], device const T* lr [[buffer(5)]],
                       device const T* beta1 [[buffer(6)]], device const T* beta2 [[buffer(7)]],
                       device const T* epsilon [[buffer(8)]], device const T* grad [[buffer(9)]],
                       uint i [[thread_position_in_grid]]) {
  const float b1 = float(beta1[0]);
  const float step =
      float(lr[0]) * sqrt(1.0f - float(beta2_power[0])) / (1.0f - float(beta1_power[0]));
  const float g = float(grad[i]);
  const float first = float(m[i]) + (g - float(m[i])) * (1.0f - b1);
  const float second = float(v[i]) + (g * g - float(v[i])) * (1.0f - float(beta2[0]));
  const float direction = Nesterov ? g * (1.0f - b1) + b1 * first : first;
  m[i] = T(first);
  v[i] = T(second);
  var[i] = T(float(var[i]) - step * direction / (sqrt(second) + float(epsilon[0])));
}

template <typename T>
kernel void apply_adam_with_amsgrad(
    device T* var [[buffer(0)]], device T* m [[buffer(1)]], device T* v [[buffer(2)]],
    device T* vhat [[buffer(3)]], device const T* beta1_power [[buffer(4)]],
    device const T* beta2_power [[buffer(5)]], device const T* lr [[buffer(6)]],
    device const T* beta1 [[buffer(7)]], device const T* beta2 [[buffer(8)]],
    device const T* epsilon [[buffer(9)]], device const T* grad [[buffer(10)]],
    uint i [[thread_position_in_grid]]) {
  const float step =
      float(lr[0]) * sqrt(1.0f - float(beta2_power[0])) / (1.0f - float(beta1_power[0]));
  const float g = float(grad[i]);
  const float first = float(m[i]) + (g - float(m[i])) * (1.0f - float(beta1[0]));
  const float second = float(v[i]) + (g * g - float(v[i])) * (1.0f - float(beta2[0]));
  const float before = float(vhat[i]);
  // NaN stays, of either.
  const float most = second > before || second != second ? second : before;
  m[i] = T(first);
  v[i] = T(second);
  vhat[i] = T(most);
  var[i] = T(float(var[i]) - step * first / (sqrt(most) + float(epsilon[0])));
}

template <typename T, bool Nesterov>
kernel void apply_momentum(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                           device const T* lr [[buffer(2)]], device const T* grad [[buffer(3)]],
                           device const T* momentum [[buffer(4)]],
                           uint i [[thread_position_in_grid]]) {
  const float rate = float(lr[0]), kept = float(momentum[0]), g = float(grad[i]);
  const float sum = float(accum[i]) * kept + g;
  accum[i] = T(sum);
  var[i] = T(float(var[i]) - rate * (Nesterov ? g + kept * sum : sum));
}

// The rate is in what is summed.
template <typename T, bool Nesterov>
kernel void apply_keras_momentum(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                                 device const T* lr [[buffer(2)]],
                                 device const T* grad [[buffer(3)]],
                                 device const T* momentum [[buffer(4)]],
                                 uint i [[thread_position_in_grid]]) {
  const float kept = float(momentum[0]), step = float(lr[0]) * float(grad[i]);
  const float sum = float(accum[i]) * kept - step;
  accum[i] = T(sum);
  var[i] = T(float(var[i]) + (Nesterov ? kept * sum - step : sum));
}

template <typename T, bool UpdateSlots>
kernel void apply_adagrad(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                          device const T* lr [[buffer(2)]], device const T* grad [[buffer(3)]],
                          uint i [[thread_position_in_grid]]) {
  const float g = float(grad[i]);
  const float sum = float(accum[i]) + (UpdateSlots ? g * g : 0.0f);
  if (UpdateSlots) accum[i] = T(sum);
  var[i] = T(float(var[i]) - float(lr[0]) * g / sqrt(sum));
}

template <typename T, bool UpdateSlots>
kernel void apply_adagrad_v2(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                             device const T* lr [[buffer(2)]],
                             device const T* epsilon [[buffer(3)]],
                             device const T* grad [[buffer(4)]],
                             uint i [[thread_position_in_grid]]) {
  const float g = float(grad[i]);
  const float sum = float(accum[i]) + (UpdateSlots ? g * g : 0.0f);
  if (UpdateSlots) accum[i] = T(sum);
  var[i] = T(float(var[i]) - float(lr[0]) * g / (sqrt(sum) + float(epsilon[0])));
}

template <typename T>
kernel void apply_adadelta(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                           device T* accum_update [[buffer(2)]], device const T* lr [[buffer(3)]],
                           device const T* rho [[buffer(4)]], device const T* epsilon [[buffer(5)]],
                           device const T* grad [[buffer(6)]], uint i [[thread_position_in_grid]]) {
  const float kept = float(rho[0]), small = float(epsilon[0]), g = float(grad[i]);
  const float square = float(accum[i]) * kept + g * g * (1.0f - kept);
  const float updates = float(accum_update[i]);
  const float update = sqrt(updates + small) / sqrt(square + small) * g;
  accum[i] = T(square);
  accum_update[i] = T(updates * kept + update * update * (1.0f - kept));
  var[i] = T(float(var[i]) - update * float(lr[0]));
}

template <typename T>
kernel void apply_rms_prop(device T* var [[buffer(0)]], device T* ms [[buffer(1)]],
                           device T* mom [[buffer(2)]], device const T* lr [[buffer(3)]],
                           device const T* rho [[buffer(4)]],
                           device const T* momentum [[buffer(5)]],
                           device const T* epsilon [[buffer(6)]],
                           device const T* grad [[buffer(7)]], uint i [[thread_position_in_grid]]) {
  const float g = float(grad[i]);
  const float square = float(ms[i]) + (g * g - float(ms[i])) * (1.0f - float(rho[0]));
  const float step =
      float(mom[i]) * float(momentum[0]) + float(lr[0]) * g / sqrt(square + float(epsilon[0]));
  ms[i] = T(square);
  mom[i] = T(step);
  var[i] = T(float(var[i]) - step);
}

template <typename T>
kernel void apply_centered_rms_prop(device T* var [[buffer(0)]], device T* mg [[buffer(1)]],
                                    device T* ms [[buffer(2)]], device T* mom [[buffer(3)]],
                                    device const T* lr [[buffer(4)]],
                                    device const T* rho [[buffer(5)]],
                                    device const T* momentum [[buffer(6)]],
                                    device const T* epsilon [[buffer(7)]],
                                    device const T* grad [[buffer(8)]],
                                    uint i [[thread_position_in_grid]]) {
  const float g = float(grad[i]), fresh = 1.0f - float(rho[0]);
  const float square = float(ms[i]) + (g * g - float(ms[i])) * fresh;
  const float mean = float(mg[i]) + (g - float(mg[i])) * fresh;
  const float step = float(mom[i]) * float(momentum[0]) +
                     float(lr[0]) * g / sqrt(square - mean * mean + float(epsilon[0]));
  ms[i] = T(square);
  mg[i] = T(mean);
  mom[i] = T(step);
  var[i] = T(float(var[i]) - step);
}

#define OPTIMIZER(type)                                                                  \
  INSTANTIATE_KERNEL("gradient_descent_" #type, apply_gradient_descent, type)            \
  INSTANTIATE_KERNEL("adam_" #type, apply_adam, type, false)                             \
  INSTANTIATE_KERNEL("adam_nesterov_" #type, apply_adam, type, true)                     \
  INSTANTIATE_KERNEL("adam_with_amsgrad_" #type, apply_adam_with_amsgrad, type)          \
  INSTANTIATE_KERNEL("momentum_" #type, apply_momentum, type, false)                     \
  INSTANTIATE_KERNEL("momentum_nesterov_" #type, apply_momentum, type, true)             \
  INSTANTIATE_KERNEL("keras_momentum_" #type, apply_keras_momentum, type, false)         \
  INSTANTIATE_KERNEL("keras_momentum_nesterov_" #type, apply_keras_momentum, type, true) \
  INSTANTIATE_KERNEL("adagrad_" #type, apply_adagrad, type, true)                        \
  INSTANTIATE_KERNEL("adagrad_fixed_" #type, apply_adagrad, type, false)                 \
  INSTANTIATE_KERNEL("adagrad_v2_" #type, apply_adagrad_v2, type, true)                  \
  INSTANTIATE_KERNEL("adagrad_v2_fixed_" #type, apply_adagrad_v2, type, false)           \
  INSTANTIATE_KERNEL("adadelta_" #type, apply_adadelta, type)                            \
  INSTANTIATE_KERNEL("rms_prop_" #type, apply_rms_prop, type)                            \
  INSTANTIATE_KERNEL("centered_rms_prop_" #type, apply_centered_rms_prop, type)
OPTIMIZER(float)
OPTIMIZER(half)
OPTIMIZER(bfloat)
