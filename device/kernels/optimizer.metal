// Optimizer steps on variables, in place: of all elements, and of the rows that indices name. Kingma and Ba,
// "Adam", 2015, Algorithm 1 with the step size of its section 2, and Algorithm 2 (AdaMax); Reddi et al., "On the
// convergence of Adam", 2018 (AMSGrad); Duchi et al., "Adaptive subgradient methods", 2011, of which AdagradDA is the
// dual averaging; Zeiler, "Adadelta", 2012; Hinton's RMSProp; Sutskever et al. 2013 (Nesterov's momentum); McMahan
// et al., "Ad click prediction", 2013 (FTRL-proximal); Bello et al., "Neural optimizer search", 2017 (AddSign,
// PowerSign); Duchi and Singer, "Forward-backward splitting", 2009 (the proximal steps). Arguments are called as the
// ops' inputs are.

#include "device/kernels/complex.metal.h"
#include "device/kernels/scatter.metal.h"
#include "device/kernels/strided.metal.h"

using namespace metal;

inline float sign_of(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }  // NaN stays

// Makes |w| smaller by `by`, to 0 at most, and divides it.
inline float shrink(float w, float by, float divisor) {
  const float size = fabs(w) - by;
  return by > 0.0f ? sign_of(w) * (size < 0.0f ? 0.0f : size) / divisor : w / divisor;
}

// Linear steps: of complex weights, too.
template <typename T, typename Wide>
inline void gradient_descent_step(device T& var, Wide g, Wide alpha) {
  var = T(Wide(var) - times(alpha, g));
}

template <typename T>
kernel void apply_gradient_descent(device T* var [[buffer(0)]], device const T* alpha [[buffer(1)]],
                                   device const T* delta [[buffer(2)]],
                                   uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  gradient_descent_step<T>(var[i], Wide(delta[i]), Wide(alpha[0]));
}

template <typename T, bool Nesterov>
inline void adam_step(device T& var, device T& m, device T& v, float g, float beta1_power,
                      float beta2_power, float lr, float beta1, float beta2, float epsilon) {
  const float step = lr * sqrt(1.0f - beta2_power) / (1.0f - beta1_power);
  const float first = float(m) + (g - float(m)) * (1.0f - beta1);
  const float second = float(v) + (g * g - float(v)) * (1.0f - beta2);
  const float direction = Nesterov ? g * (1.0f - beta1) + beta1 * first : first;
  m = T(first);
  v = T(second);
  var = T(float(var) - step * direction / (sqrt(second) + epsilon));
}

template <typename T, bool Nesterov>
kernel void apply_adam(device T* var [[buffer(0)]], device T* m [[buffer(1)]],
                       device T* v [[buffer(2)]], device const T* beta1_power [[buffer(3)]],
                       device const T* beta2_power [[buffer(4)]], device const T* lr [[buffer(5)]],
                       device const T* beta1 [[buffer(6)]], device const T* beta2 [[buffer(7)]],
                       device const T* epsilon [[buffer(8)]], device const T* grad [[buffer(9)]],
                       uint i [[thread_position_in_grid]]) {
  adam_step<T, Nesterov>(var[i], m[i], v[i], float(grad[i]), float(beta1_power[0]),
                         float(beta2_power[0]), float(lr[0]), float(beta1[0]), float(beta2[0]),
                         float(epsilon[0]));
}

template <typename T>
inline void adam_with_amsgrad_step(device T& var, device T& m, device T& v, device T& vhat, float g,
                                   float beta1_power, float beta2_power, float lr, float beta1,
                                   float beta2, float epsilon) {
  const float step = lr * sqrt(1.0f - beta2_power) / (1.0f - beta1_power);
  const float first = float(m) + (g - float(m)) * (1.0f - beta1);
  const float second = float(v) + (g * g - float(v)) * (1.0f - beta2);
  const float before = float(vhat);
  // NaN stays, of either.
  const float most = second > before || second != second ? second : before;
  m = T(first);
  v = T(second);
  vhat = T(most);
  var = T(float(var) - step * first / (sqrt(most) + epsilon));
}

template <typename T>
kernel void apply_adam_with_amsgrad(
    device T* var [[buffer(0)]], device T* m [[buffer(1)]], device T* v [[buffer(2)]],
    device T* vhat [[buffer(3)]], device const T* beta1_power [[buffer(4)]],
    device const T* beta2_power [[buffer(5)]], device const T* lr [[buffer(6)]],
    device const T* beta1 [[buffer(7)]], device const T* beta2 [[buffer(8)]],
    device const T* epsilon [[buffer(9)]], device const T* grad [[buffer(10)]],
    uint i [[thread_position_in_grid]]) {
  adam_with_amsgrad_step<T>(var[i], m[i], v[i], vhat[i], float(grad[i]), float(beta1_power[0]),
                            float(beta2_power[0]), float(lr[0]), float(beta1[0]), float(beta2[0]),
                            float(epsilon[0]));
}

template <typename T>
inline void ada_max_step(device T& var, device T& m, device T& v, float g, float beta1_power,
                         float lr, float beta1, float beta2, float epsilon) {
  const float first = float(m) + (g - float(m)) * (1.0f - beta1);
  const float before = beta2 * float(v), size = fabs(g);
  const float most = size > before || size != size ? size : before;
  m = T(first);
  v = T(most);
  var = T(float(var) - lr / (1.0f - beta1_power) * first / (most + epsilon));
}

template <typename T>
kernel void apply_ada_max(device T* var [[buffer(0)]], device T* m [[buffer(1)]],
                          device T* v [[buffer(2)]], device const T* beta1_power [[buffer(3)]],
                          device const T* lr [[buffer(4)]], device const T* beta1 [[buffer(5)]],
                          device const T* beta2 [[buffer(6)]],
                          device const T* epsilon [[buffer(7)]], device const T* grad [[buffer(8)]],
                          uint i [[thread_position_in_grid]]) {
  ada_max_step<T>(var[i], m[i], v[i], float(grad[i]), float(beta1_power[0]), float(lr[0]),
                  float(beta1[0]), float(beta2[0]), float(epsilon[0]));
}

template <typename T>
inline void add_sign_step(device T& var, device T& m, float g, float lr, float alpha,
                          float sign_decay, float beta) {
  const float mean = float(m) + (g - float(m)) * (1.0f - beta);
  m = T(mean);
  var = T(float(var) - lr * (alpha + sign_decay * sign_of(g) * sign_of(mean)) * g);
}

template <typename T>
kernel void apply_add_sign(device T* var [[buffer(0)]], device T* m [[buffer(1)]],
                           device const T* lr [[buffer(2)]], device const T* alpha [[buffer(3)]],
                           device const T* sign_decay [[buffer(4)]],
                           device const T* beta [[buffer(5)]], device const T* grad [[buffer(6)]],
                           uint i [[thread_position_in_grid]]) {
  add_sign_step<T>(var[i], m[i], float(grad[i]), float(lr[0]), float(alpha[0]),
                   float(sign_decay[0]), float(beta[0]));
}

template <typename T>
inline void power_sign_step(device T& var, device T& m, float g, float lr, float logbase,
                            float sign_decay, float beta) {
  const float mean = float(m) + (g - float(m)) * (1.0f - beta);
  m = T(mean);
  var = T(float(var) - lr * exp(logbase * sign_decay * sign_of(g) * sign_of(mean)) * g);
}

template <typename T>
kernel void apply_power_sign(device T* var [[buffer(0)]], device T* m [[buffer(1)]],
                             device const T* lr [[buffer(2)]],
                             device const T* logbase [[buffer(3)]],
                             device const T* sign_decay [[buffer(4)]],
                             device const T* beta [[buffer(5)]], device const T* grad [[buffer(6)]],
                             uint i [[thread_position_in_grid]]) {
  power_sign_step<T>(var[i], m[i], float(grad[i]), float(lr[0]), float(logbase[0]),
                     float(sign_decay[0]), float(beta[0]));
}

template <typename T, bool Nesterov, typename Wide>
inline void momentum_step(device T& var, device T& accum, Wide g, Wide lr, Wide momentum) {
  const Wide sum = times(Wide(accum), momentum) + g;
  accum = T(sum);
  var = T(Wide(var) - times(lr, Nesterov ? g + times(momentum, sum) : sum));
}

template <typename T, bool Nesterov>
kernel void apply_momentum(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                           device const T* lr [[buffer(2)]], device const T* momentum [[buffer(3)]],
                           device const T* grad [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  momentum_step<T, Nesterov>(var[i], accum[i], Wide(grad[i]), Wide(lr[0]), Wide(momentum[0]));
}

template <typename T, typename I, bool Nesterov>
kernel void sparse_momentum(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                            device const T* lr [[buffer(2)]],
                            device const T* momentum [[buffer(3)]],
                            device const T* grad [[buffer(4)]],
                            device const I* indices [[buffer(5)]],
                            constant ScatterParams& p [[buffer(6)]],
                            uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      momentum_step<T, Nesterov>(var[part.at + k], accum[part.at + k], Wide(grad[part.from + k]),
                                 Wide(lr[0]), Wide(momentum[0]));
    }
  }
}

// The rate is part of the sum.
template <typename T, bool Nesterov, typename Wide>
inline void keras_momentum_step(device T& var, device T& accum, Wide g, Wide lr, Wide momentum) {
  const Wide step = times(lr, g);
  const Wide sum = times(Wide(accum), momentum) - step;
  accum = T(sum);
  var = T(Wide(var) + (Nesterov ? times(momentum, sum) - step : sum));
}

template <typename T, bool Nesterov>
kernel void apply_keras_momentum(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                                 device const T* lr [[buffer(2)]],
                                 device const T* momentum [[buffer(3)]],
                                 device const T* grad [[buffer(4)]],
                                 uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  keras_momentum_step<T, Nesterov>(var[i], accum[i], Wide(grad[i]), Wide(lr[0]), Wide(momentum[0]));
}

template <typename T, typename I, bool Nesterov>
kernel void sparse_keras_momentum(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                                  device const T* lr [[buffer(2)]],
                                  device const T* momentum [[buffer(3)]],
                                  device const T* grad [[buffer(4)]],
                                  device const I* indices [[buffer(5)]],
                                  constant ScatterParams& p [[buffer(6)]],
                                  uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      keras_momentum_step<T, Nesterov>(var[part.at + k], accum[part.at + k],
                                       Wide(grad[part.from + k]), Wide(lr[0]), Wide(momentum[0]));
    }
  }
}

template <typename T, bool UpdateSlots>
inline void adagrad_step(device T& var, device T& accum, float g, float lr) {
  const float sum = float(accum) + (UpdateSlots ? g * g : 0.0f);
  if (UpdateSlots) accum = T(sum);
  var = T(float(var) - lr * g / sqrt(sum));
}

template <typename T, bool UpdateSlots>
kernel void apply_adagrad(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                          device const T* lr [[buffer(2)]], device const T* grad [[buffer(3)]],
                          uint i [[thread_position_in_grid]]) {
  adagrad_step<T, UpdateSlots>(var[i], accum[i], float(grad[i]), float(lr[0]));
}

template <typename T, typename I, bool UpdateSlots>
kernel void sparse_adagrad(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                           device const T* lr [[buffer(2)]], device const T* grad [[buffer(3)]],
                           device const I* indices [[buffer(4)]],
                           constant ScatterParams& p [[buffer(5)]],
                           uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      adagrad_step<T, UpdateSlots>(var[part.at + k], accum[part.at + k], float(grad[part.from + k]),
                                   float(lr[0]));
    }
  }
}

template <typename T, bool UpdateSlots>
inline void adagrad_v2_step(device T& var, device T& accum, float g, float lr, float epsilon) {
  const float sum = float(accum) + (UpdateSlots ? g * g : 0.0f);
  if (UpdateSlots) accum = T(sum);
  var = T(float(var) - lr * g / (sqrt(sum) + epsilon));
}

template <typename T, bool UpdateSlots>
kernel void apply_adagrad_v2(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                             device const T* lr [[buffer(2)]],
                             device const T* epsilon [[buffer(3)]],
                             device const T* grad [[buffer(4)]],
                             uint i [[thread_position_in_grid]]) {
  adagrad_v2_step<T, UpdateSlots>(var[i], accum[i], float(grad[i]), float(lr[0]),
                                  float(epsilon[0]));
}

template <typename T, typename I, bool UpdateSlots>
kernel void sparse_adagrad_v2(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                              device const T* lr [[buffer(2)]],
                              device const T* epsilon [[buffer(3)]],
                              device const T* grad [[buffer(4)]],
                              device const I* indices [[buffer(5)]],
                              constant ScatterParams& p [[buffer(6)]],
                              uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      adagrad_v2_step<T, UpdateSlots>(var[part.at + k], accum[part.at + k],
                                      float(grad[part.from + k]), float(lr[0]), float(epsilon[0]));
    }
  }
}

template <typename T>
inline void adadelta_step(device T& var, device T& accum, device T& accum_update, float g, float lr,
                          float rho, float epsilon) {
  const float square = float(accum) * rho + g * g * (1.0f - rho);
  const float updates = float(accum_update);
  const float update = sqrt(updates + epsilon) / sqrt(square + epsilon) * g;
  accum = T(square);
  accum_update = T(updates * rho + update * update * (1.0f - rho));
  var = T(float(var) - update * lr);
}

template <typename T>
kernel void apply_adadelta(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                           device T* accum_update [[buffer(2)]], device const T* lr [[buffer(3)]],
                           device const T* rho [[buffer(4)]], device const T* epsilon [[buffer(5)]],
                           device const T* grad [[buffer(6)]], uint i [[thread_position_in_grid]]) {
  adadelta_step<T>(var[i], accum[i], accum_update[i], float(grad[i]), float(lr[0]), float(rho[0]),
                   float(epsilon[0]));
}

template <typename T, typename I>
kernel void sparse_adadelta(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                            device T* accum_update [[buffer(2)]], device const T* lr [[buffer(3)]],
                            device const T* rho [[buffer(4)]],
                            device const T* epsilon [[buffer(5)]],
                            device const T* grad [[buffer(6)]],
                            device const I* indices [[buffer(7)]],
                            constant ScatterParams& p [[buffer(8)]],
                            uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      adadelta_step<T>(var[part.at + k], accum[part.at + k], accum_update[part.at + k],
                       float(grad[part.from + k]), float(lr[0]), float(rho[0]), float(epsilon[0]));
    }
  }
}

template <typename T>
inline void rms_prop_step(device T& var, device T& ms, device T& mom, float g, float lr, float rho,
                          float momentum, float epsilon) {
  const float square = float(ms) + (g * g - float(ms)) * (1.0f - rho);
  const float step = float(mom) * momentum + lr * g / sqrt(square + epsilon);
  ms = T(square);
  mom = T(step);
  var = T(float(var) - step);
}

template <typename T>
kernel void apply_rms_prop(device T* var [[buffer(0)]], device T* ms [[buffer(1)]],
                           device T* mom [[buffer(2)]], device const T* lr [[buffer(3)]],
                           device const T* rho [[buffer(4)]],
                           device const T* momentum [[buffer(5)]],
                           device const T* epsilon [[buffer(6)]],
                           device const T* grad [[buffer(7)]], uint i [[thread_position_in_grid]]) {
  rms_prop_step<T>(var[i], ms[i], mom[i], float(grad[i]), float(lr[0]), float(rho[0]),
                   float(momentum[0]), float(epsilon[0]));
}

template <typename T, typename I>
kernel void sparse_rms_prop(
    device T* var [[buffer(0)]], device T* ms [[buffer(1)]], device T* mom [[buffer(2)]],
    device const T* lr [[buffer(3)]], device const T* rho [[buffer(4)]],
    device const T* momentum [[buffer(5)]], device const T* epsilon [[buffer(6)]],
    device const T* grad [[buffer(7)]], device const I* indices [[buffer(8)]],
    constant ScatterParams& p [[buffer(9)]], uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      rms_prop_step<T>(var[part.at + k], ms[part.at + k], mom[part.at + k],
                       float(grad[part.from + k]), float(lr[0]), float(rho[0]), float(momentum[0]),
                       float(epsilon[0]));
    }
  }
}

template <typename T>
inline void centered_rms_prop_step(device T& var, device T& mg, device T& ms, device T& mom,
                                   float g, float lr, float rho, float momentum, float epsilon) {
  const float square = float(ms) + (g * g - float(ms)) * (1.0f - rho);
  const float mean = float(mg) + (g - float(mg)) * (1.0f - rho);
  const float step = float(mom) * momentum + lr * g / sqrt(square - mean * mean + epsilon);
  ms = T(square);
  mg = T(mean);
  mom = T(step);
  var = T(float(var) - step);
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
  centered_rms_prop_step<T>(var[i], mg[i], ms[i], mom[i], float(grad[i]), float(lr[0]),
                            float(rho[0]), float(momentum[0]), float(epsilon[0]));
}

template <typename T, typename I>
kernel void sparse_centered_rms_prop(
    device T* var [[buffer(0)]], device T* mg [[buffer(1)]], device T* ms [[buffer(2)]],
    device T* mom [[buffer(3)]], device const T* lr [[buffer(4)]],
    device const T* rho [[buffer(5)]], device const T* momentum [[buffer(6)]],
    device const T* epsilon [[buffer(7)]], device const T* grad [[buffer(8)]],
    device const I* indices [[buffer(9)]], constant ScatterParams& p [[buffer(10)]],
    uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      centered_rms_prop_step<T>(var[part.at + k], mg[part.at + k], ms[part.at + k],
                                mom[part.at + k], float(grad[part.from + k]), float(lr[0]),
                                float(rho[0]), float(momentum[0]), float(epsilon[0]));
    }
  }
}

template <typename T>
inline void proximal_gradient_descent_step(device T& var, float g, float alpha, float l1,
                                           float l2) {
  var = T(shrink(float(var) - alpha * g, alpha * l1, 1.0f + alpha * l2));
}

template <typename T>
kernel void apply_proximal_gradient_descent(device T* var [[buffer(0)]],
                                            device const T* alpha [[buffer(1)]],
                                            device const T* l1 [[buffer(2)]],
                                            device const T* l2 [[buffer(3)]],
                                            device const T* delta [[buffer(4)]],
                                            uint i [[thread_position_in_grid]]) {
  proximal_gradient_descent_step<T>(var[i], float(delta[i]), float(alpha[0]), float(l1[0]),
                                    float(l2[0]));
}

template <typename T, typename I>
kernel void sparse_proximal_gradient_descent(
    device T* var [[buffer(0)]], device const T* alpha [[buffer(1)]],
    device const T* l1 [[buffer(2)]], device const T* l2 [[buffer(3)]],
    device const T* grad [[buffer(4)]], device const I* indices [[buffer(5)]],
    constant ScatterParams& p [[buffer(6)]], uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      proximal_gradient_descent_step<T>(var[part.at + k], float(grad[part.from + k]),
                                        float(alpha[0]), float(l1[0]), float(l2[0]));
    }
  }
}

template <typename T>
inline void proximal_adagrad_step(device T& var, device T& accum, float g, float lr, float l1,
                                  float l2) {
  const float sum = float(accum) + g * g, rate = lr / sqrt(sum);
  accum = T(sum);
  var = T(shrink(float(var) - rate * g, rate * l1, 1.0f + rate * l2));
}

template <typename T>
kernel void apply_proximal_adagrad(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                                   device const T* lr [[buffer(2)]],
                                   device const T* l1 [[buffer(3)]],
                                   device const T* l2 [[buffer(4)]],
                                   device const T* grad [[buffer(5)]],
                                   uint i [[thread_position_in_grid]]) {
  proximal_adagrad_step<T>(var[i], accum[i], float(grad[i]), float(lr[0]), float(l1[0]),
                           float(l2[0]));
}

template <typename T, typename I>
kernel void sparse_proximal_adagrad(
    device T* var [[buffer(0)]], device T* accum [[buffer(1)]], device const T* lr [[buffer(2)]],
    device const T* l1 [[buffer(3)]], device const T* l2 [[buffer(4)]],
    device const T* grad [[buffer(5)]], device const I* indices [[buffer(6)]],
    constant ScatterParams& p [[buffer(7)]], uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      proximal_adagrad_step<T>(var[part.at + k], accum[part.at + k], float(grad[part.from + k]),
                               float(lr[0]), float(l1[0]), float(l2[0]));
    }
  }
}

template <typename T>
inline void adagrad_da_step(device T& var, device T& gradient_accumulator,
                            device T& gradient_squared_accumulator, float g, float lr, float l1,
                            float l2, float global_step) {
  const float sum = float(gradient_accumulator) + g;
  const float squares = float(gradient_squared_accumulator) + g * g;
  gradient_accumulator = T(sum);
  gradient_squared_accumulator = T(squares);
  var = T(-lr * shrink(sum, l1 * global_step, l2 * global_step * lr + sqrt(squares)));
}

template <typename T>
kernel void apply_adagrad_da(device T* var [[buffer(0)]],
                             device T* gradient_accumulator [[buffer(1)]],
                             device T* gradient_squared_accumulator [[buffer(2)]],
                             device const T* lr [[buffer(3)]], device const T* l1 [[buffer(4)]],
                             device const T* l2 [[buffer(5)]],
                             device const long* global_step [[buffer(6)]],
                             device const T* grad [[buffer(7)]],
                             uint i [[thread_position_in_grid]]) {
  adagrad_da_step<T>(var[i], gradient_accumulator[i], gradient_squared_accumulator[i],
                     float(grad[i]), float(lr[0]), float(l1[0]), float(l2[0]),
                     float(global_step[0]));
}

template <typename T, typename I>
kernel void sparse_adagrad_da(
    device T* var [[buffer(0)]], device T* gradient_accumulator [[buffer(1)]],
    device T* gradient_squared_accumulator [[buffer(2)]], device const T* lr [[buffer(3)]],
    device const T* l1 [[buffer(4)]], device const T* l2 [[buffer(5)]],
    device const long* global_step [[buffer(6)]], device const T* grad [[buffer(7)]],
    device const I* indices [[buffer(8)]], constant ScatterParams& p [[buffer(9)]],
    uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; ++k) {
      adagrad_da_step<T>(var[part.at + k], gradient_accumulator[part.at + k],
                         gradient_squared_accumulator[part.at + k], float(grad[part.from + k]),
                         float(lr[0]), float(l1[0]), float(l2[0]), float(global_step[0]));
    }
  }
}

// A step of `elements` neighbours. `Scaled`: the sum is multiplied by the rate, so that the rate may be 0. The usual
// power is a root without a call, asked for once: several elements run at a time.
template <typename T, bool Scaled, bool Root>
inline void ftrl_steps(device T* var, device T* accum, device T* linear, device const T* grad,
                       ulong elements, float lr, float l1, float l2, float l2_shrinkage,
                       float lr_power) {
  const float rate = Scaled ? lr : 1.0f, divisor = Scaled ? 1.0f : lr, most = l1 * rate;
  for (ulong i = 0; i < elements; ++i) {
    const float g = float(grad[i]), before = float(accum[i]), squares = before + g * g;
    const float power = Root ? sqrt(squares) : pow(squares, -lr_power);
    const float grown = power - (Root ? sqrt(before) : pow(before, -lr_power));
    const float w = float(var[i]), shrunk = g + 2.0f * l2_shrinkage * w;
    const float sum = float(linear[i]) + shrunk * rate - grown / divisor * w;
    accum[i] = T(squares);
    linear[i] = T(sum);
    const float step = (most * sign_of(sum) - sum) / (power / divisor + 2.0f * l2 * rate);
    var[i] = T(fabs(sum) > most ? step : 0.0f);
  }
}
template <typename T, bool Scaled>
inline void ftrl_steps(device T* var, device T* accum, device T* linear, device const T* grad,
                       ulong elements, float lr, float l1, float l2, float l2_shrinkage,
                       float lr_power) {
  if (lr_power == -0.5f) {
    ftrl_steps<T, Scaled, true>(var, accum, linear, grad, elements, lr, l1, l2, l2_shrinkage,
                                lr_power);
  } else {
    ftrl_steps<T, Scaled, false>(var, accum, linear, grad, elements, lr, l1, l2, l2_shrinkage,
                                 lr_power);
  }
}

// A thread has `part` elements of `n`.
template <typename T, bool Scaled>
kernel void apply_ftrl(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                       device T* linear [[buffer(2)]], device const T* lr [[buffer(3)]],
                       device const T* l1 [[buffer(4)]], device const T* l2 [[buffer(5)]],
                       device const T* lr_power [[buffer(6)]], device const T* grad [[buffer(7)]],
                       constant ulong& n [[buffer(8)]], constant uint& part [[buffer(9)]],
                       uint position [[thread_position_in_grid]]) {
  const ulong first = ulong(position) * part, elements = min(ulong(part), n - first);
  ftrl_steps<T, Scaled>(var + first, accum + first, linear + first, grad + first, elements,
                        float(lr[0]), float(l1[0]), float(l2[0]), 0.0f, float(lr_power[0]));
}

template <typename T, typename I, bool Scaled>
kernel void sparse_ftrl(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                        device T* linear [[buffer(2)]], device const T* lr [[buffer(3)]],
                        device const T* l1 [[buffer(4)]], device const T* l2 [[buffer(5)]],
                        device const T* lr_power [[buffer(6)]], device const T* grad [[buffer(7)]],
                        device const I* indices [[buffer(8)]],
                        constant ScatterParams& p [[buffer(9)]],
                        uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    ftrl_steps<T, Scaled>(var + part.at, accum + part.at, linear + part.at, grad + part.from,
                          part.elements, float(lr[0]), float(l1[0]), float(l2[0]), 0.0f,
                          float(lr_power[0]));
  }
}

template <typename T, bool Scaled>
kernel void apply_ftrl_v2(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                          device T* linear [[buffer(2)]], device const T* lr [[buffer(3)]],
                          device const T* l1 [[buffer(4)]], device const T* l2 [[buffer(5)]],
                          device const T* l2_shrinkage [[buffer(6)]],
                          device const T* lr_power [[buffer(7)]],
                          device const T* grad [[buffer(8)]], constant ulong& n [[buffer(9)]],
                          constant uint& part [[buffer(10)]],
                          uint position [[thread_position_in_grid]]) {
  const ulong first = ulong(position) * part, elements = min(ulong(part), n - first);
  ftrl_steps<T, Scaled>(var + first, accum + first, linear + first, grad + first, elements,
                        float(lr[0]), float(l1[0]), float(l2[0]), float(l2_shrinkage[0]),
                        float(lr_power[0]));
}

template <typename T, typename I, bool Scaled>
kernel void sparse_ftrl_v2(device T* var [[buffer(0)]], device T* accum [[buffer(1)]],
                           device T* linear [[buffer(2)]], device const T* lr [[buffer(3)]],
                           device const T* l1 [[buffer(4)]], device const T* l2 [[buffer(5)]],
                           device const T* l2_shrinkage [[buffer(6)]],
                           device const T* lr_power [[buffer(7)]],
                           device const T* grad [[buffer(8)]],
                           device const I* indices [[buffer(9)]],
                           constant ScatterParams& p [[buffer(10)]],
                           uint2 position [[thread_position_in_grid]]) {
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    ftrl_steps<T, Scaled>(var + part.at, accum + part.at, linear + part.at, grad + part.from,
                          part.elements, float(lr[0]), float(l1[0]), float(l2[0]),
                          float(l2_shrinkage[0]), float(lr_power[0]));
  }
}

#define SPARSE_LINEAR(type, index)                                                               \
  INSTANTIATE_KERNEL("sparse_momentum_" #type "_" #index, sparse_momentum, type, index, false)   \
  INSTANTIATE_KERNEL("sparse_momentum_nesterov_" #type "_" #index, sparse_momentum, type, index, \
                     true)                                                                       \
  INSTANTIATE_KERNEL("sparse_keras_momentum_" #type "_" #index, sparse_keras_momentum, type,     \
                     index, false)                                                               \
  INSTANTIATE_KERNEL("sparse_keras_momentum_nesterov_" #type "_" #index, sparse_keras_momentum,  \
                     type, index, true)
#define LINEAR(type)                                                                     \
  INSTANTIATE_KERNEL("gradient_descent_" #type, apply_gradient_descent, type)            \
  INSTANTIATE_KERNEL("momentum_" #type, apply_momentum, type, false)                     \
  INSTANTIATE_KERNEL("momentum_nesterov_" #type, apply_momentum, type, true)             \
  INSTANTIATE_KERNEL("keras_momentum_" #type, apply_keras_momentum, type, false)         \
  INSTANTIATE_KERNEL("keras_momentum_nesterov_" #type, apply_keras_momentum, type, true) \
  SPARSE_LINEAR(type, int)                                                               \
  SPARSE_LINEAR(type, long)
#define SPARSE(type, index)                                                                        \
  INSTANTIATE_KERNEL("sparse_adagrad_" #type "_" #index, sparse_adagrad, type, index, true)        \
  INSTANTIATE_KERNEL("sparse_adagrad_fixed_" #type "_" #index, sparse_adagrad, type, index, false) \
  INSTANTIATE_KERNEL("sparse_adagrad_v2_" #type "_" #index, sparse_adagrad_v2, type, index, true)  \
  INSTANTIATE_KERNEL("sparse_adagrad_v2_fixed_" #type "_" #index, sparse_adagrad_v2, type, index,  \
                     false)                                                                        \
  INSTANTIATE_KERNEL("sparse_adadelta_" #type "_" #index, sparse_adadelta, type, index)            \
  INSTANTIATE_KERNEL("sparse_rms_prop_" #type "_" #index, sparse_rms_prop, type, index)            \
  INSTANTIATE_KERNEL("sparse_centered_rms_prop_" #type "_" #index, sparse_centered_rms_prop, type, \
                     index)                                                                        \
  INSTANTIATE_KERNEL("sparse_proximal_gradient_descent_" #type "_" #index,                         \
                     sparse_proximal_gradient_descent, type, index)                                \
  INSTANTIATE_KERNEL("sparse_proximal_adagrad_" #type "_" #index, sparse_proximal_adagrad, type,   \
                     index)                                                                        \
  INSTANTIATE_KERNEL("sparse_adagrad_da_" #type "_" #index, sparse_adagrad_da, type, index)        \
  INSTANTIATE_KERNEL("sparse_ftrl_" #type "_" #index, sparse_ftrl, type, index, false)             \
  INSTANTIATE_KERNEL("sparse_ftrl_scaled_" #type "_" #index, sparse_ftrl, type, index, true)       \
  INSTANTIATE_KERNEL("sparse_ftrl_v2_" #type "_" #index, sparse_ftrl_v2, type, index, false)       \
  INSTANTIATE_KERNEL("sparse_ftrl_v2_scaled_" #type "_" #index, sparse_ftrl_v2, type, index, true)
#define OPTIMIZER(type)                                                                         \
  LINEAR(type)                                                                                  \
  INSTANTIATE_KERNEL("adam_" #type, apply_adam, type, false)                                    \
  INSTANTIATE_KERNEL("adam_nesterov_" #type, apply_adam, type, true)                            \
  INSTANTIATE_KERNEL("adam_with_amsgrad_" #type, apply_adam_with_amsgrad, type)                 \
  INSTANTIATE_KERNEL("ada_max_" #type, apply_ada_max, type)                                     \
  INSTANTIATE_KERNEL("add_sign_" #type, apply_add_sign, type)                                   \
  INSTANTIATE_KERNEL("power_sign_" #type, apply_power_sign, type)                               \
  INSTANTIATE_KERNEL("adagrad_" #type, apply_adagrad, type, true)                               \
  INSTANTIATE_KERNEL("adagrad_fixed_" #type, apply_adagrad, type, false)                        \
  INSTANTIATE_KERNEL("adagrad_v2_" #type, apply_adagrad_v2, type, true)                         \
  INSTANTIATE_KERNEL("adagrad_v2_fixed_" #type, apply_adagrad_v2, type, false)                  \
  INSTANTIATE_KERNEL("adadelta_" #type, apply_adadelta, type)                                   \
  INSTANTIATE_KERNEL("rms_prop_" #type, apply_rms_prop, type)                                   \
  INSTANTIATE_KERNEL("centered_rms_prop_" #type, apply_centered_rms_prop, type)                 \
  INSTANTIATE_KERNEL("proximal_gradient_descent_" #type, apply_proximal_gradient_descent, type) \
  INSTANTIATE_KERNEL("proximal_adagrad_" #type, apply_proximal_adagrad, type)                   \
  INSTANTIATE_KERNEL("adagrad_da_" #type, apply_adagrad_da, type)                               \
  INSTANTIATE_KERNEL("ftrl_" #type, apply_ftrl, type, false)                                    \
  INSTANTIATE_KERNEL("ftrl_scaled_" #type, apply_ftrl, type, true)                              \
  INSTANTIATE_KERNEL("ftrl_v2_" #type, apply_ftrl_v2, type, false)                              \
  INSTANTIATE_KERNEL("ftrl_v2_scaled_" #type, apply_ftrl_v2, type, true)                        \
  SPARSE(type, int)                                                                             \
  SPARSE(type, long)
OPTIMIZER(float)
OPTIMIZER(half)
IF_BFLOAT(OPTIMIZER(bfloat))
LINEAR(float2)  // complex
