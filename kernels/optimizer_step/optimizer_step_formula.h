// One element's step, in the order of Keras' elementary ops: one text for the shader and for the CPU's
// vectors. No guard: included within the namespace of an instruction set.

// The variable and up to three values of its state; absent ones have any value.
template <typename V>
struct StepState {
  V x, a, b, c;
};

// Kingma and Ba 2015, alpha and epsilon as at the end of section 2: a is m, b is v. AMSGrad's maximum
// (Reddi et al. 2018) is c.
template <typename V>
struct AdamStep {
  V alpha, one_minus_beta1, one_minus_beta2, epsilon;
};

template <typename V>
METAL_OPS_FORMULA StepState<V> optimizer_step(StepState<V> at, V g, AdamStep<V> with, bool amsgrad,
                                              bool) {
  at.a = fma(g - at.a, with.one_minus_beta1, at.a);
  at.b = fma(g * g - at.b, with.one_minus_beta2, at.b);
  // A NaN in either must not be dropped.
  if (amsgrad) at.c = select(at.c, at.b, at.c < at.b || at.b != at.b);
  at.x = at.x - at.a * with.alpha / (sqrt(amsgrad ? at.c : at.b) + with.epsilon);
  return at;
}

// Tieleman and Hinton 2012; centred, Graves 2013 (equations 38 - 41): a is the mean of squares, b that
// of gradients, c the momentum.
template <typename V>
struct RmspropStep {
  V rate, rho, one_minus_rho, epsilon, momentum;
};

template <typename V>
METAL_OPS_FORMULA StepState<V> optimizer_step(StepState<V> at, V g, RmspropStep<V> with,
                                              bool centered, bool momentum) {
  at.a = fma(with.rho, at.a, with.one_minus_rho * (g * g));
  V size = at.a;
  if (centered) {
    at.b = fma(with.rho, at.b, with.one_minus_rho * g);
    size = size - at.b * at.b;
  }
  const V step = with.rate * g / sqrt(size + with.epsilon);
  if (momentum) at.c = fma(with.momentum, at.c, step);
  at.x = at.x - (momentum ? at.c : step);
  return at;
}

// Duchi et al. 2011: a is the sum of squares.
template <typename V>
struct AdagradStep {
  V rate, epsilon;
};

template <typename V>
METAL_OPS_FORMULA StepState<V> optimizer_step(StepState<V> at, V g, AdagradStep<V> with, bool,
                                              bool) {
  at.a = fma(g, g, at.a);
  at.x = at.x - with.rate * g / sqrt(at.a + with.epsilon);
  return at;
}
