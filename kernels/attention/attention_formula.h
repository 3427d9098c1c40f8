// Scores of attention, and the random numbers by which weights are dropped: templates over the value
// type, for shaders and vectors. No guard: included once per instruction set.

template <typename V>
METAL_OPS_FORMULA V attention_tanh(V x) {
  const V e = precise_expm1(fabs(x) * -2.0f);
  return copysign(e / (e + 2.0f), x);
}

// The score of a product of query and key that is scaled already.
template <typename V>
METAL_OPS_FORMULA V attention_capped(float soft_cap, V x) {
  return attention_tanh(x * (1.0f / soft_cap)) * soft_cap;
}

// The derivative of that, by its value.
template <typename V>
METAL_OPS_FORMULA V attention_cap_slope(float soft_cap, V capped) {
  const V ratio = capped * (1.0f / soft_cap);
  return fnma(ratio, ratio, 1.0f);
}

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): four random
// words of a counter and a key. Words multiply modulo 2^32; multiply_high is the upper half.
template <typename W>
struct AttentionRandom {
  W word[4];
};
template <typename W>
METAL_OPS_FORMULA AttentionRandom<W> attention_random(W c0, W c1, W c2, W c3, uint32_t k0,
                                                      uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const W m0 = W(0xD2511F53u), m1 = W(0xCD9E8D57u);
    const W high0 = multiply_high(m0, c0), low0 = m0 * c0;
    const W high1 = multiply_high(m1, c2), low1 = m1 * c2;
    c0 = high1 ^ c1 ^ W(k0);
    c1 = low1;
    c2 = high0 ^ c3 ^ W(k1);
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  AttentionRandom<W> random;
  random.word[0] = c0;
  random.word[1] = c1;
  random.word[2] = c2;
  random.word[3] = c3;
  return random;
}
