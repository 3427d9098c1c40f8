// Sines and cosines of octaves, which frequency_encode_params.h says in words: one text for the
// shader and for the CPU's vectors. No guard: included within the namespace of an instruction set.

// A phase in turns, as a sum. The octaves follow by doubling, which is exact.
template <typename V>
struct Turns {
  V high, low;
};

template <typename V>
METAL_OPS_FORMULA Turns<V> first_turns(METAL_OPS_CONSTANT const FrequencyEncodeParams& p, V x) {
  const V high = x * p.turns_high;
  return {high, fma(x, V(p.turns_low), exact_fms(x, V(p.turns_high), high))};
}

template <typename V>
METAL_OPS_FORMULA Turns<V> twice(Turns<V> u) {
  return {u.high + u.high, u.low + u.low};
}

template <typename V>
struct Wave {
  V sine, cosine;
};

// Of 2 pi u: whole turns dropped, then quarters, then Taylor's series up to pi / 4, where the first
// term left out is below 2^-28.
template <typename V>
METAL_OPS_FORMULA Wave<V> wave(Turns<V> u) {
  V r = (u.high - rint(u.high)) + u.low;
  r = r - rint(r);
  const V quarters = rint(4.0f * r);  // -2 .. 2
  const V t = fnma(quarters, V(0.25f), r) * 6.283185307179586f;
  const V t2 = t * t;
  V s = 1.0f / 362880.0f;
  s = fma(s, t2, -1.0f / 5040.0f);
  s = fma(s, t2, 1.0f / 120.0f);
  s = fma(s, t2, -1.0f / 6.0f);
  s = fma(s * t2, t, t);
  V c = -1.0f / 3628800.0f;
  c = fma(c, t2, 1.0f / 40320.0f);
  c = fma(c, t2, -1.0f / 720.0f);
  c = fma(c, t2, 1.0f / 24.0f);
  c = fma(c, t2, -0.5f);
  c = fma(c, t2, 1.0f);
  // An odd number of quarters swaps them; two or more change the sign.
  const auto odd = fabs(quarters) == 1.0f, half_turn = fabs(quarters) == 2.0f;
  const V sine = select(s, c, odd), cosine = select(c, s, odd);
  return {select(sine, -sine, half_turn || quarters == -1.0f),
          select(cosine, -cosine, half_turn || quarters == 1.0f)};
}

// What the gradient of an octave adds, before its slope 2^k w_0.
template <typename V>
METAL_OPS_FORMULA V along_wave(Wave<V> at, V d_sine, V d_cosine) {
  return fms(d_sine, at.cosine, d_cosine * at.sine);
}
