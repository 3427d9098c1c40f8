// The focal losses and their derivatives, which focal_loss_params.h says in words: one text for the
// shader and for the CPU's vectors. No guard: included within the namespace of an instruction set.

// q^gamma for q >= 0. gamma = 0: 1; 0^gamma = 0 otherwise.
template <typename V>
METAL_OPS_FORMULA V focal_power(V q, float gamma) {
  if (gamma == 0.0f) return select(q, V(1.0f), q == q);
  if (gamma == 1.0f) return q;
  if (gamma == 2.0f) return q * q;
  // Subnormal numbers, which a device may take for 0 and which have no logarithm in vectors, are as
  // good as 0.
  const auto vanishes = q < 1.17549435e-38f;
  const V power = precise_exp(gamma * precise_log(select(q, V(1.0f), vanishes)));
  return select(q, select(power, V(0.0f), vanishes), q == q);
}

template <typename V>
struct FocalTerm {
  V loss, slope;
};

template <typename V>
METAL_OPS_FORMULA FocalTerm<V> sigmoid_focal(METAL_OPS_CONSTANT const FocalLossParams& p, V x,
                                             V hard) {
  const V y = fma(V(p.label_smoothing), 0.5f - hard, hard);  // y (1 - s) + s / 2
  const V not_y = 1.0f - y;
  const V e = precise_exp(-fabs(x));
  const V large = 1.0f / (1.0f + e), small = e * large;
  const auto positive = x >= 0.0f;
  const V prob = select(small, large, positive);      // sigmoid(x)
  const V not_prob = select(large, small, positive);  // sigmoid(-x)
  const V q = fma(y, not_prob, not_y * prob);
  const V entropy = fnma(x, y, max(x, V(0.0f))) + precise_log1p(e);
  V weighted = focal_power(q, p.gamma);
  if (p.balanced != 0) weighted = fma(y, V(p.alpha), not_y * (1.0f - p.alpha)) * weighted;
  // q vanishes only with p (1 - p), and then so does q^gamma (p - y).
  const V ratio = select((not_y - y) * prob * not_prob / q, V(0.0f), q == 0.0f);
  // y (p - 1) + (1 - y) p = p - y, without cancelling where p is near y
  const V error = fms(not_y, prob, y * not_prob);
  FocalTerm<V> to;
  to.loss = select(x, weighted * entropy, x == x);
  to.slope = select(x, weighted * fma(p.gamma * entropy, ratio, error), x == x);
  return to;
}

// Softmax: a class's term of the loss, and h, both over alpha.
template <typename V>
METAL_OPS_FORMULA FocalTerm<V> softmax_focal(float gamma, V target, V prob, V not_prob,
                                             V log_prob) {
  const V weight = target * focal_power(not_prob, gamma);
  // gamma p (1 - p)^(gamma - 1) log p: log p vanishes with 1 - p.
  const V ratio = select(log_prob / not_prob, V(-1.0f), not_prob == 0.0f);
  FocalTerm<V> to;
  to.loss = -(weight * log_prob);
  to.slope = weight * fms(gamma * prob, ratio, 1.0f);
  return to;
}
