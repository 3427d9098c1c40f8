// Sums of floats that do not depend on the order of the terms: for gradients under op determinism.
//
// Terms are turned into 64-bit integers in units of 2^(peak's exponent - 61 + bits of the count),
// and integer addition is associative. A term loses less than 2^-38 of the largest term even for
// 2^24 terms: less than float32 sums lose. Two passes over the terms: first meet(), then add().

#ifndef METAL_OPS_KERNELS_MSL_EXACT_SUM_H_
#define METAL_OPS_KERNELS_MSL_EXACT_SUM_H_

#include <metal_stdlib>

struct ExactSum {
  float peak;       // largest finite |term|
  uint count;       // terms
  uint not_finite;  // 1: +inf seen, 2: -inf seen, 4: NaN seen
  int shift;        // after begin_adding: terms are scaled by 2^shift
  long sum;
};

inline ExactSum exact_sum_zero() {
  ExactSum s;
  s.peak = 0.0f;
  s.count = 0;
  s.not_finite = 0;
  s.shift = 0;
  s.sum = 0;
  return s;
}

inline void exact_sum_meet(thread ExactSum& s, float term) {
  ++s.count;
  const float size = metal::fabs(term);
  if (size <= 3.402823466e38f) {
    s.peak = metal::max(s.peak, size);
  } else {
    s.not_finite |= term > 0.0f ? 1u : (term < 0.0f ? 2u : 4u);
  }
}

inline void exact_sum_begin_adding(thread ExactSum& s) {
  int exponent = 0;  // peak < 2^exponent
  metal::frexp(s.peak, exponent);
  const int count_bits = 32 - int(metal::clz(s.count));  // count < 2^count_bits
  s.shift = 62 - exponent - count_bits;
}

inline void exact_sum_add(thread ExactSum& s, float term) {
  // In two steps: 2^shift alone may be larger than a float.
  const int half_shift = s.shift / 2;
  if (s.not_finite == 0)
    s.sum += long(metal::ldexp(metal::ldexp(term, half_shift), s.shift - half_shift));
}

inline float exact_sum_result(thread const ExactSum& s) {
  if (s.not_finite == 1) return INFINITY;
  if (s.not_finite == 2) return -INFINITY;
  if (s.not_finite != 0) return NAN;
  const int half_shift = s.shift / 2;
  return metal::ldexp(metal::ldexp(float(s.sum), -half_shift), half_shift - s.shift);
}

#endif  // METAL_OPS_KERNELS_MSL_EXACT_SUM_H_
