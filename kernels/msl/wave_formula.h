// Sine and cosine of a phase in turns: one text for shaders and for the CPU's vectors
// (kernels/msl/formula.h or kernels/simd/vector-inl.h first). No guard: included within the
// namespace of an instruction set.

// A phase in turns, as a sum: whole turns can be dropped exactly.
template <typename V>
struct Turns {
  V high, low;
};

// x times a number of turns, which is a sum as well.
template <typename V>
METAL_OPS_FORMULA Turns<V> turns_of(V x, V high, V low) {
  const V product = x * high;
  return {product, fma(x, low, exact_fms(x, high, product))};
}

template <typename V>
struct Wave {
  V sine, cosine;
};

// Sine or cosine of 2 pi u: whole turns dropped, then quarters, then Taylor's series up to pi / 4,
// where the first term left out is below 2^-28.
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
