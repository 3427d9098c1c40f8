// The robust loss and its derivatives, which robust_loss_params.h says in words: one text for the
// shader and for the CPU's vectors. No guard: included within the namespace of an instruction set.

// (y e^y - e^y + 1) / y^2: the sum of (n + 1) / (n + 2)! y^n where y is small.
template <typename V>
METAL_OPS_FORMULA V robust_psi(V y, V exp_y, V expm1_y) {
  V series = 8.0f / 362880.0f;
  series = fma(series, y, 7.0f / 40320.0f);
  series = fma(series, y, 6.0f / 5040.0f);
  series = fma(series, y, 5.0f / 720.0f);
  series = fma(series, y, 4.0f / 120.0f);
  series = fma(series, y, 3.0f / 24.0f);
  series = fma(series, y, 2.0f / 6.0f);
  series = fma(series, y, 0.5f);
  return select(fms(y, exp_y, expm1_y) / (y * y), series, fabs(y) < 0.5f);
}

// d rho / d alpha for small z: the terms z^3 and on of the series of rho, with the product
// Q_n = (a - 2) ... (a - n + 1), a = alpha / 2, and its derivative carried along.
template <typename V>
METAL_OPS_FORMULA V robust_alpha_series(V z, V b, V alpha, V s) {
  const V a = 0.5f * alpha, s_per_b = s / b, u = z / b;
  V q = a - 2.0f, q_slope = 0.5f;
  V power = z * z * (u * (1.0f / 6.0f));  // z^n b^(2-n) / n! = z^2 u^(n-2) / n!
  V sum = 0.0f;
  for (int n = 3; n < 3 + ROBUST_LOSS_SERIES_TERMS; ++n) {
    sum = fma(power, fma(float(n - 2) * s_per_b, q, q_slope), sum);
    const V factor = a - float(n);
    q_slope = fma(q_slope, factor, 0.5f * q);
    q = q * factor;
    power = power * (u * (1.0f / float(n + 1)));
  }
  return -0.25f * s * sum;
}

// Shared by the loss and its slopes.
template <typename V>
struct RobustTerms {
  V z, b, u, log1p_u, y, expm1_y;
};

template <typename V>
METAL_OPS_FORMULA V robust_slope_alpha(RobustTerms<V> t, V alpha, V loss) {
  const V s = copysign(V(1.0f), 2.0f - alpha), b = t.b, log_u = t.log1p_u;
  const auto is_limit = alpha == 2.0f || fabs(alpha) >= ROBUST_LOSS_INFINITE;
  const auto is_small = t.z <= ROBUST_LOSS_SERIES_Z && t.u <= ROBUST_LOSS_SERIES_U;
  const auto is_near_zero = fabs(alpha) < 1.0f, is_below = alpha <= -1.0f;
  const V half_per_alpha = 0.5f / alpha;
  V slope = 0.0f;
  // NaN is of this form.
  if (any_of(!(is_limit || is_small || is_near_zero || is_below))) {
    const V half_log = 0.5f * log_u, rise = precise_expm1(s * b * half_log);
    slope = loss * fnma(alpha + 2.0f, half_per_alpha, half_log);
    slope = fma(b * log_u, half_per_alpha, slope);
    slope = fma(0.5f * s, fma(alpha, loss, b) * rise / (b + t.z), slope);
  }
  if (any_of(is_below && !is_small)) {
    V bracket = fnma(alpha + 2.0f, 1.0f / alpha, log_u) * half_per_alpha;
    bracket = bracket - 0.5f / (b + t.z);
    const V below = fma(b * precise_exp(t.y), bracket, 8.0f * (half_per_alpha * half_per_alpha));
    slope = select(slope, below, is_below);
  }
  if (any_of(is_near_zero && !is_small)) {
    const V exp_y = precise_exp(t.y), w = t.z / (b + t.z);
    const V psi = robust_psi(t.y, exp_y, t.expm1_y);
    slope = select(slope, 0.5f * fms(psi, log_u * log_u, exp_y * (log_u - w)), is_near_zero);
  }
  if (any_of(is_small)) slope = select(slope, robust_alpha_series(t.z, b, alpha, s), is_small);
  slope = select(slope, V(0.0f), is_limit);
  return select(t.z, slope, t.z == t.z);  // NaN in, NaN out
}

// rho and its derivatives by x, alpha and c; the last two only if kParameters.
template <typename V>
struct RobustLossValues {
  V loss, slope, slope_alpha, slope_scale;
};

template <bool kParameters, typename V>
METAL_OPS_FORMULA RobustLossValues<V> robust_loss_values(V x, V alpha, V scale) {
  const V per_scale = 1.0f / scale, t = x * per_scale;
  RobustTerms<V> terms;
  terms.z = t * t;
  terms.b = fabs(alpha - 2.0f);
  terms.u = terms.z / terms.b;
  terms.log1p_u = precise_log1p(terms.u);
  // Where u is no float its logarithm is one. log1p handles infinity.
  const V size = fabs(t);
  const auto is_beyond = terms.u > 1e37f && size <= 3.40282347e38f;
  if (any_of(is_beyond)) {
    const V beyond = 2.0f * precise_log(size) - precise_log(terms.b);
    terms.log1p_u = select(terms.log1p_u, beyond, is_beyond);
  }
  terms.y = 0.5f * alpha * terms.log1p_u;
  terms.expm1_y = precise_expm1(terms.y);
  // y below 2^-26: e^y - 1 is y to all digits.
  const auto vanishes = fabs(terms.y) < 1e-8f || alpha == 0.0f;
  RobustLossValues<V> to;
  to.loss = select(terms.b / alpha * terms.expm1_y, 0.5f * terms.b * terms.log1p_u, vanishes);
  V factor = precise_exp(fms(V(0.5f), alpha, 1.0f) * terms.log1p_u);
  const auto is_two = alpha == 2.0f, is_infinite = fabs(alpha) >= ROBUST_LOSS_INFINITE;
  if (any_of(is_two || is_infinite)) {
    const V half_z = 0.5f * terms.z, signed_z = copysign(half_z, alpha);
    to.loss = select(to.loss, half_z, is_two);
    to.loss = select(to.loss, copysign(V(1.0f), alpha) * precise_expm1(signed_z), is_infinite);
    factor = select(factor, V(1.0f), is_two);
    factor = select(factor, precise_exp(signed_z), is_infinite);
    // 0 / 0 where alpha is 2 and x is 0 has been replaced, NaN in x has to be put back.
    to.loss = select(terms.z, to.loss, terms.z == terms.z);
  }
  to.slope = t * per_scale * factor;
  // There the factor may be no float, but x times it is one.
  const auto is_far = terms.u > 1e17f && !(is_two || is_infinite);
  if (any_of(is_far)) {
    const V grows = select((alpha - 1.0f) * terms.log1p_u, V(0.0f), alpha == 1.0f);
    const V far = copysign(per_scale * precise_exp(0.5f * (grows + precise_log(terms.b))), t);
    to.slope = select(to.slope, far, is_far);
  }
  to.slope_scale = -(t * to.slope);
  // As a part of a sum that it is the most of.
  terms.z = select(terms.z, V(1e38f), terms.z > 1e38f);
  to.slope_alpha = kParameters ? robust_slope_alpha(terms, alpha, to.loss) : to.loss;
  return to;
}
