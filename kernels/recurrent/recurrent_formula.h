// One unit of one step of each cell, forward and back: one text for the shaders and for the CPU's
// vectors. x: the input's part, h: the state's part. No guard: included within the namespace of an
// instruction set.

template <typename V>
METAL_OPS_FORMULA V recurrent_sigmoid(V x) {
  return V(1.0f) / (V(1.0f) + precise_exp(-x));
}

// Through -2 |x|, whose exponential never overflows.
template <typename V>
METAL_OPS_FORMULA V recurrent_tanh(V x) {
  const V e = precise_expm1(V(-2.0f) * fabs(x));
  return copysign(-e / (V(2.0f) + e), x);
}

// Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000: c' = f c + i g and
// m = o tanh(c').
template <typename V>
struct LstmStep {
  V i, f, g, o, cell, out;
};
template <typename V>
METAL_OPS_FORMULA LstmStep<V> lstm_step(V i, V f, V g, V o, V cell) {
  LstmStep<V> s;
  s.i = recurrent_sigmoid(i);
  s.f = recurrent_sigmoid(f);
  s.g = recurrent_tanh(g);
  s.o = recurrent_sigmoid(o);
  s.cell = fma(s.f, cell, s.i * s.g);
  s.out = s.o * recurrent_tanh(s.cell);
  return s;
}

// `cell` before and `next` after the step; slopes of m and of c'.
template <typename V>
struct LstmSlopes {
  V i, f, g, o, cell;
};
template <typename V>
METAL_OPS_FORMULA LstmSlopes<V> lstm_slopes(V i, V f, V g, V o, V cell, V next, V d_out, V d_next) {
  const V one = V(1.0f), t = recurrent_tanh(next);
  const V d = fma(d_out * o, fnma(t, t, one), d_next);
  LstmSlopes<V> s;
  s.i = d * g * (i * (one - i));
  s.f = d * cell * (f * (one - f));
  s.g = d * i * fnma(g, g, one);
  s.o = d_out * t * (o * (one - o));
  s.cell = d * f;
  return s;
}

// Cho et al. 2014: h' = z h + (1 - z) n. With the reset gate behind the product, n = tanh(x + r seen),
// as cuDNN and Keras' reset_after have it; else n = tanh(x + (r h) R), whose `seen` is that product
// and is not multiplied.
template <typename V>
METAL_OPS_FORMULA V recurrent_mix(V keep, V state, V next) {
  return fma(keep, state - next, next);
}

template <typename V>
struct GruSlopes {
  V z, r, n, seen, state;
};
template <typename V>
METAL_OPS_FORMULA GruSlopes<V> gru_slopes(V z, V r, V n, V seen, V state, V d_out) {
  const V one = V(1.0f);
  GruSlopes<V> s;
  s.z = d_out * (state - n) * (z * (one - z));
  s.n = d_out * (one - z) * fnma(n, n, one);
  s.seen = s.n * r;
  s.r = s.n * seen * (r * (one - r));
  s.state = d_out * z;
  return s;
}

// Cells whose candidate n sees the state through a gate that stands before the product: their slopes
// up to n, then, with `d_seen` that of gate * state, the rest.
template <typename V>
METAL_OPS_FORMULA V gate_slope(V gate, V d) {
  return d * (gate * (V(1.0f) - gate));
}
template <typename V>
METAL_OPS_FORMULA V candidate_slope(V n, V d) {
  return d * fnma(n, n, V(1.0f));
}

// JANET, van der Westhuizen & Lasenby 2018, eq. 5 to 8: h' = sigmoid(s) h + (1 - sigmoid(s - beta)) n.
template <typename V>
struct ForgetStep {
  V f, n, out;
};
template <typename V>
METAL_OPS_FORMULA ForgetStep<V> forget_step(V s, V n, V state, V beta) {
  ForgetStep<V> to;
  to.f = recurrent_sigmoid(s);
  to.n = recurrent_tanh(n);
  // 1 - sigmoid(u) is sigmoid(-u), which does not cancel.
  to.out = fma(to.f, state, recurrent_sigmoid(beta - s) * to.n);
  return to;
}

// 1 - sigmoid(s - beta) of f = sigmoid(s): (1 - f) / (1 - f + f e^-beta).
template <typename V>
struct ForgetSlopes {
  V f, n, state;
};
template <typename V>
METAL_OPS_FORMULA ForgetSlopes<V> forget_slopes(V f, V n, V state, V exp_minus_beta, V d_out) {
  const V one = V(1.0f), rest = one - f;
  const V input = rest / fma(f, exp_minus_beta, rest);
  ForgetSlopes<V> s;
  s.f = d_out * fnma(n * input, one - input, state * (f * rest));
  s.n = d_out * input * fnma(n, n, one);
  s.state = d_out * f;
  return s;
}
