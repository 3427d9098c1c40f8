// One element's update, which fused_optimizer_params.h says in words: one text for the shader and
// for the CPU's vectors. No guard: included within the namespace of an instruction set.

template <typename V>
struct AdamState {
  V x, m, v, hat;
};

template <typename V, typename Real>
METAL_OPS_FORMULA AdamState<V> adam_next(AdamState<V> at, V g,
                                         METAL_OPS_CONSTANT const AdamParams<Real>& p,
                                         bool amsgrad) {
  at.m = fma(g - at.m, V(p.one_minus_beta1), at.m);
  at.v = fma(g * g - at.v, V(p.one_minus_beta2), at.v);
  // A NaN in either must not be dropped.
  if (amsgrad) at.hat = select(at.hat, at.v, at.hat < at.v || at.v != at.v);
  const V size = sqrt(amsgrad ? at.hat : at.v) + p.epsilon;
  at.x = fnma(at.x, V(p.decay), at.x) - at.m * p.alpha / size;
  return at;
}

template <typename V>
struct SgdState {
  V x, m;
};

template <typename V, typename Real>
METAL_OPS_FORMULA SgdState<V> sgd_next(SgdState<V> at, V g,
                                       METAL_OPS_CONSTANT const SgdParams<Real>& p, bool momentum,
                                       bool nesterov) {
  const V kept = fnma(at.x, V(p.decay), at.x), step = g * p.lr;
  at.m = momentum ? fms(at.m, V(p.momentum), step) : -step;
  at.x = kept + (nesterov ? fms(at.m, V(p.momentum), step) : at.m);
  return at;
}
