// Sines and cosines of octaves, which frequency_encode_params.h says in words: one text for the
// shader and for the CPU's vectors. No guard: included within the namespace of an instruction set.

#include "kernels/msl/wave_formula.h"

template <typename V>
METAL_OPS_FORMULA Turns<V> first_turns(METAL_OPS_CONSTANT const FrequencyEncodeParams& p, V x) {
  return turns_of(x, V(p.turns_high), V(p.turns_low));
}

// The octaves follow by doubling, which is exact.
template <typename V>
METAL_OPS_FORMULA Turns<V> twice(Turns<V> u) {
  return {u.high + u.high, u.low + u.low};
}

// The gradient of an octave before its slope 2^k w_0.
template <typename V>
METAL_OPS_FORMULA V along_wave(Wave<V> at, V d_sine, V d_cosine) {
  return fms(d_sine, at.cosine, d_cosine * at.sine);
}
