// Spherical harmonics and their gradient, which sh_encode_params.h says in words: one text for the
// shader and for the CPU's vectors. No guard: included within the namespace of an instruction set.

// A step of the recurrences, at z.
template <typename V>
struct ShColumn {
  V before, q, slope_before, slope;  // q_{l-1}, q_l and their derivatives
};

template <typename V>
METAL_OPS_FORMULA ShColumn<V> sh_next(ShColumn<V> from, V z, float up, float down) {
  ShColumn<V> to;
  to.before = from.q;
  to.q = fms(up * z, from.q, down * from.before);
  to.slope_before = from.slope;
  to.slope = fms(V(up), fma(z, from.slope, from.q), down * from.slope_before);
  return to;
}

template <typename V>
struct ShPower {
  V re, im;  // (x + iy)^m
};

template <typename V>
METAL_OPS_FORMULA ShPower<V> sh_next_power(ShPower<V> power, V x, V y) {
  return {fms(x, power.re, y * power.im), fma(x, power.im, y * power.re)};
}

// to.set(l^2 + l + m, Y_l^m) for all bands below `degree`.
template <typename V, typename To>
METAL_OPS_FORMULA void sh_coefficients(METAL_OPS_CONSTANT const ShEncodeParams& p, int degree, V x,
                                       V y, V z, To to) {
  ShPower<V> power = {1.0f, 0.0f};
  for (int m = 0; m < degree; ++m) {
    ShColumn<V> at = {0.0f, p.first[m], 0.0f, 0.0f};
    for (int l = m; l < degree; ++l) {
      if (l > m) at = sh_next(at, z, p.up[m][l], p.down[m][l]);
      to.set(l * l + l + m, at.q * power.re);
      if (m > 0) to.set(l * l + l - m, at.q * power.im);
    }
    power = sh_next_power(power, x, y);
  }
}

template <typename V>
struct ShGradient {
  V x, y, z;
};

// The derivative of the sum of g.get(i) times coefficient i: d (x + iy)^m / dx = m (x + iy)^{m-1},
// / dy = i times that.
template <typename V, typename From>
METAL_OPS_FORMULA ShGradient<V> sh_gradient(METAL_OPS_CONSTANT const ShEncodeParams& p, int degree,
                                            V x, V y, V z, From g) {
  ShGradient<V> to = {0.0f, 0.0f, 0.0f};
  ShPower<V> power = {1.0f, 0.0f}, before = {0.0f, 0.0f};  // m (x + iy)^{m-1}
  for (int m = 0; m < degree; ++m) {
    ShColumn<V> at = {0.0f, p.first[m], 0.0f, 0.0f};
    V sum_re = 0.0f, sum_im = 0.0f;  // sum over l of g q
    for (int l = m; l < degree; ++l) {
      if (l > m) at = sh_next(at, z, p.up[m][l], p.down[m][l]);
      const V g_re = g.get(l * l + l + m);
      V along = g_re * power.re;
      sum_re = fma(g_re, at.q, sum_re);
      if (m > 0) {
        const V g_im = g.get(l * l + l - m);
        along = fma(g_im, power.im, along);
        sum_im = fma(g_im, at.q, sum_im);
      }
      to.z = fma(at.slope, along, to.z);
    }
    if (m > 0) {
      to.x = fma(sum_re, before.re, fma(sum_im, before.im, to.x));
      to.y = fma(sum_im, before.re, fnma(sum_re, before.im, to.y));
    }
    before.re = float(m + 1) * power.re;
    before.im = float(m + 1) * power.im;
    power = sh_next_power(power, x, y);
  }
  return to;
}
