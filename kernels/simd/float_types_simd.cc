// float16 and bfloat16 to float32 and back, vectorised.

#include <cstring>

#include "kernels/simd/float_types.h"
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/float_types_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/simd/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<uint32_t>;
using D1 = hn::CappedTag<float, 1>;  // for the remainder

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
    const D1 d1;
    for (; i + lanes <= n; i += lanes) hn::StoreU(LoadHalves(df, from + i), df, to + i);
    for (; i < n; ++i) hn::StoreU(LoadHalves(d1, from + i), d1, to + i);
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
    const DF df;
    const D1 d1;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
    for (; i + lanes <= n; i += lanes) StoreHalves(df, hn::LoadU(df, from + i), to + i);
    for (; i < n; ++i) StoreHalves(d1, hn::LoadU(d1, from + i), to + i);
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
