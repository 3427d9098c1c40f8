// Shared by shaders of products of a few rows: elements as float32, and sums over lanes and
// simdgroups.

#ifndef METAL_OPS_KERNELS_GEMM_FEW_ROWS_METAL_H_
#define METAL_OPS_KERNELS_GEMM_FEW_ROWS_METAL_H_

#include <metal_stdlib>

using namespace metal;

// Loops over arrays that are to be registers; a processor has too few.
#if defined(__METAL_CPU__)
#define FEW_UNROLL
#define FEW_INLINE
#else
#define FEW_UNROLL _Pragma("clang loop unroll(full)")
#define FEW_INLINE __attribute__((always_inline))
#endif

// 16 bytes, and the elements in them.
using FewWords = uint4;
template <typename T>
constexpr constant int kFewWide = 16 / int(sizeof(T));

FEW_INLINE inline void few_floats(uint4 from, device const float*, thread float (&to)[4]) {
  const float4 four = as_type<float4>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
FEW_INLINE inline void few_floats(uint4 from, device const half*, thread float (&to)[8]) {
  FEW_UNROLL
  for (int i = 0; i < 4; ++i) {
    const half2 two = as_type<half2>(uint(from[i]));
    to[2 * i] = float(two.x), to[2 * i + 1] = float(two.y);
  }
}
#if __METAL_VERSION__ >= 310
FEW_INLINE inline void few_floats(uint4 from, device const bfloat*, thread float (&to)[8]) {
  FEW_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = as_type<float>(from[i] << 16),
           to[2 * i + 1] = as_type<float>(from[i] & 0xffff0000u);
  }
}
#endif

// Sums of each of kValues numbers over the lanes, or, with kLast, over the lanes of which only the
// bits from kLast on differ. Half of the numbers go to half of the lanes, as long as there are
// several: lane l is left with kValues / (32 / kLast) of them, of which the first is number
// l / kLast * that, or with one.
template <int kValues, int kLast, int kApart = 16>
struct FewSum {
  FEW_INLINE static void run(thread float* values, uint lane) {
    if constexpr (kApart >= kLast) {
      if constexpr (kValues > 1) {
        const bool upper = (lane & kApart) != 0;
        FEW_UNROLL
        for (int i = 0; i < kValues / 2; ++i) {
          const float low = values[i], high = values[i + kValues / 2];
          values[i] = (upper ? high : low) + metal::simd_shuffle_xor(upper ? low : high, kApart);
        }
      } else {
        values[0] += metal::simd_shuffle_xor(values[0], kApart);
      }
      FewSum<(kValues > 1 ? kValues / 2 : 1), kLast, kApart / 2>::run(values, lane);
    }
  }
};
template <int kValues, int kLast>
struct FewSum<kValues, kLast, 0> {
  FEW_INLINE static void run(thread float*, uint) {}
};

// A simdgroup's sums, of which there are at most 32, to its part of `space`.
template <int kSums>
FEW_INLINE inline void few_share(thread float (&sums)[kSums], threadgroup float* space,
                                 uint simdgroup, uint lane) {
  FewSum<kSums, 1>::run(sums, lane);
  constexpr uint kLanes = 32 / kSums;
  if (lane % kLanes == 0) space[simdgroup * kSums + lane / kLanes] = sums[0];
}
// The i-th sum of a threadgroup whose simdgroups, `splits` of them at a time, have shared terms.
template <int kSums>
FEW_INLINE inline float few_total(threadgroup const float* space, uint splits, uint i) {
  float sum = 0.0f;
  for (uint p = 0; p < splits; ++p) sum += space[(i / kSums * splits + p) * kSums + i % kSums];
  return sum;
}

#endif  // METAL_OPS_KERNELS_GEMM_FEW_ROWS_METAL_H_
