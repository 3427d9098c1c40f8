// Optimizer steps on variables, in place. Kingma and Ba, "Adam", 2015, Algorithm 1 with the step
// size of its section 2.

#include "device/kernels/strided.metal.h"

using namespace metal;

template <typename T>
kernel void apply_gradient_descent(device T* var [[buffer(0)]], device const T* rate [[buffer(1)]],
                                   device const T* gradient [[buffer(2)]],
                                   uint i [[thread_position_in_grid]]) {
  var[i] = T(float(var[i]) - float(rate[0]) * float(gradient[i]));
}

template <typename T, bool Nesterov>
kernel void apply_adam(device T* var [[buffer(0)]], device T* m [[buffer(1)]],
                       device T* v [[buffer(2)]], device const T* beta1_power [[buffer(3)]],
                       device const T* beta2_power [[buffer(4)]],
                       device const T* rate [[buffer(5)]], device const T* beta1 [[buffer(6)]],
                       device const T* beta2 [[buffer(7)]], device const T* epsilon [[buffer(8)]],
                       device const T* gradient [[buffer(9)]], uint i [[thread_position_in_grid]]) {
  const float b1 = float(beta1[0]);
  const float step =
      float(rate[0]) * sqrt(1.0f - float(beta2_power[0])) / (1.0f - float(beta1_power[0]));
  const float g = float(gradient[i]);
  const float first = float(m[i]) + (g - float(m[i])) * (1.0f - b1);
  const float second = float(v[i]) + (g * g - float(v[i])) * (1.0f - float(beta2[0]));
  const float direction = Nesterov ? g * (1.0f - b1) + b1 * first : first;
  m[i] = T(first);
  v[i] = T(second);
  var[i] = T(float(var[i]) - step * direction / (sqrt(second) + float(epsilon[0])));
}

#define OPTIMIZER(type)                                                       \
  INSTANTIATE_KERNEL("gradient_descent_" #type, apply_gradient_descent, type) \
  INSTANTIATE_KERNEL("adam_" #type, apply_adam, type, false)                  \
  INSTANTIATE_KERNEL("adam_nesterov_" #type, apply_adam, type, true)
OPTIMIZER(float)
OPTIMIZER(half)
OPTIMIZER(bfloat)
