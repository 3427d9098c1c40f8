// float16 and bfloat16 to float32 and back, vectorised.

#include <cstring>

#include "kernels/common/float_types.h"
#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/float_types_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<uint32_t>;

// One value at a time, in integers: needs no hardware support.
HWY_INLINE float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t significand = half & 0x3FFu;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7F800000u | (significand << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (significand << 13);
  } else {
    const float magnitude = static_cast<float>(significand) * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&bits, &magnitude, 4);
    bits |= sign;
  }
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

HWY_INLINE uint16_t FloatToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // past 65504
  if (magnitude < 0x33000001u) return static_cast<uint16_t>(sign);  // at most half of 2^-24
  const uint32_t exponent = magnitude >> 23;
  // Subnormal halves keep fewer bits of the significand, whose leading bit is explicit there.
  const uint32_t dropped = exponent < 113 ? 126 - exponent : 13;
  const uint32_t significand =
      exponent < 113 ? (magnitude & 0x7FFFFFu) | 0x800000u : magnitude - (112u << 23);
  const uint32_t odd = (significand >> dropped) & 1u;
  return static_cast<uint16_t>(sign |
                               ((significand + ((1u << (dropped - 1)) - 1) + odd) >> dropped));
}

HWY_INLINE uint16_t FloatToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

void Widen(FloatType type, const void* data, int64_t n, float* to) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const uint16_t* from = static_cast<const uint16_t*>(data);
  int64_t i = 0;
  if (type == FloatType::kHalf) {
#if HWY_TARGET != HWY_SCALAR
    const hn::Rebind<hwy::float16_t, DF> dh;
    for (; i + lanes <= n; i += lanes) {
      const auto half = hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from + i));
      hn::StoreU(hn::PromoteTo(df, half), df, to + i);
    }
#endif
    for (; i < n; ++i) to[i] = HalfToFloat(from[i]);
  } else if (type == FloatType::kBfloat16) {
    const hn::Rebind<uint16_t, DF> d16;
    const DU du;
    for (; i + lanes <= n; i += lanes) {
      const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from + i)));
      hn::StoreU(hn::BitCast(df, bits), df, to + i);
    }
    for (; i < n; ++i) {
      const uint32_t bits = uint32_t{from[i]} << 16;
      std::memcpy(to + i, &bits, 4);
    }
  } else {
    std::memcpy(to, data, n * sizeof(float));
  }
}

void Narrow(FloatType type, const float* from, int64_t n, void* data) {
  uint16_t* to = static_cast<uint16_t*>(data);
  int64_t i = 0;
  if (type == FloatType::kHalf) {
#if HWY_TARGET != HWY_SCALAR
    const DF df;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
    const hn::Rebind<hwy::float16_t, DF> dh;
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::DemoteTo(dh, hn::LoadU(df, from + i)), dh,
                 reinterpret_cast<hwy::float16_t*>(to + i));
    }
#endif
    for (; i < n; ++i) to[i] = FloatToHalf(from[i]);
  } else if (type == FloatType::kBfloat16) {
    for (; i < n; ++i) to[i] = FloatToBfloat16(from[i]);  // vectorised by the compiler
  } else {
    std::memcpy(data, from, n * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void WidenFloats(FloatType type, const void* from, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(type, from, n, to);
}

void NarrowFloats(FloatType type, const float* from, int64_t n, void* to) {
  HWY_DYNAMIC_DISPATCH(Narrow)(type, from, n, to);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
