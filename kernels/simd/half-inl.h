// float16 to float32 and back, a vector at a time. Where the processor has no instruction for it,
// Highway's substitutes turn infinities into numbers and round towards 0; these do not. Compiled
// once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_SIMD_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_SIMD_HALF_INL_H_
#undef METAL_OPS_KERNELS_SIMD_HALF_INL_H_
#else
#define METAL_OPS_KERNELS_SIMD_HALF_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#undef METAL_OPS_NATIVE_HALF
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || \
    HWY_TARGET == HWY_NEON
#define METAL_OPS_NATIVE_HALF 1
#else
#define METAL_OPS_NATIVE_HALF 0
#endif

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// As many halves as DF has floats. NaN keeps its upper bits and becomes a quiet one, as in
// hardware.
template <class DF>
HWY_INLINE hn::Vec<DF> LoadHalves(DF df, const uint16_t* from) {
#if METAL_OPS_NATIVE_HALF
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> d16;
  const auto half = hn::PromoteTo(di, hn::LoadU(d16, from));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(di, 0x8000)));
  const auto magnitude = hn::And(half, hn::Set(di, 0x7FFF));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  // Below 2^-14 they count 2^-24. Made from an integer: TensorFlow's threads flush float32
  // subnormals to 0.
  const auto small =
      hn::BitCast(di, hn::Mul(hn::ConvertTo(df, magnitude), hn::Set(df, 5.9604644775390625e-8f)));
  const auto normal = hn::Add(shifted, hn::Set(di, 112 << 23));
  const auto quiet =
      hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(di, 0x7C00)), hn::Set(di, 0x400000));
  const auto special = hn::Or(hn::Or(shifted, hn::Set(di, 0x7F800000)), quiet);
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x400)), small, normal);
  const auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x7C00)), finite, special);
  return hn::BitCast(df, hn::Or(sign, bits));
#endif
}

// Rounds to nearest even.
template <class DF>
HWY_INLINE void StoreHalves(DF df, hn::Vec<DF> v, uint16_t* to) {
#if METAL_OPS_NATIVE_HALF
  const hn::Rebind<hwy::float16_t, DF> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(to));
#else
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> d16;
  const auto bits = hn::BitCast(di, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto shifted = hn::ShiftRight<13>(magnitude);
  // Just less than half a step more, and half a step where the last bit that stays is odd.
  const auto odd = hn::And(shifted, hn::Set(di, 1));
  const auto rounding = hn::Sub(hn::Set(di, 0xFFF), hn::Set(di, 112 << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, rounding), odd));
  // Below 2^-14 they count 2^-24, a float32's step from 0.5 on: the addition rounds.
  const auto half = hn::Set(df, 0.5f);
  const auto small =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(di, half));
  const auto nan = hn::Or(hn::And(shifted, hn::Set(di, 0x3FF)), hn::Set(di, 0x7E00));
  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), small, normal);
  result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x477FF000)), result,
                          hn::Set(di, 0x7C00));  // from 65520 on
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), nan, result);
  hn::StoreU(hn::DemoteTo(d16, hn::Or(result, sign)), d16, to);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_SIMD_HALF_INL_H_
