// Tiles of products: a register for every two or so elements, b streamed past them.

#include "kernels/fused_matmul/fused_gemm_simd.h"

#include "kernels/gemm/epilogue_params.h"
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_matmul/fused_gemm_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of 16 floats at most, two per row; rows such that the sums fill the registers except a
// few.
using DF = hn::CappedTag<float, kMaxTileColumns / 2>;
using VF = hn::Vec<DF>;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int kRows = 6;  // of 16 registers
#else
constexpr int kRows = 12;  // of 32 registers
#endif
static_assert(kRows <= kMaxTileRows, "");

GemmTileSize Size() {
  const DF df;
  return {kRows, 2 * static_cast<int>(hn::Lanes(df))};
}

// So many terms are summed one after the other, and such sums in pairs: rounding errors then hardly
// grow with a row's length, and stay below those of Eigen's products, whose pieces are as long.
constexpr int64_t kTerms = 256;
constexpr int kLevels = 40;  // of pairs of pairs: for 2^48 terms

// The two columns of registers are a struct of arrays that the compiler takes apart: all loops over
// r have constant bounds.
template <bool kNarrow>
HWY_INLINE void SumPieces(const float* const* a, int64_t runs, int64_t run, const float* b,
                          int64_t b_row, float* tile) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  HWY_ALIGN float pending[kLevels][kMaxTileRows * kMaxTileColumns];
  int64_t q = 0, i = 0;
  int64_t n_pieces = 0;
  int n_pending = 0;
  do {
    VF left[kRows], right[kRows];
    for (int r = 0; r < kRows; ++r) left[r] = right[r] = hn::Zero(df);
    for (int64_t terms = kTerms; terms > 0 && q < runs;) {
      const float* rows[kRows];
      for (int r = 0; r < kRows; ++r) rows[r] = a[q * kRows + r];
      const int64_t end = HWY_MIN(run, i + terms);
      terms -= end - i;
      for (; i < end; ++i, b += b_row) {
        const VF b0 = hn::LoadU(df, b), b1 = kNarrow ? b0 : hn::LoadU(df, b + lanes);
        for (int r = 0; r < kRows; ++r) {
          const VF x = hn::Set(df, rows[r][i]);
          left[r] = hn::MulAdd(x, b0, left[r]);
          if (!kNarrow) right[r] = hn::MulAdd(x, b1, right[r]);
        }
      }
      if (i == run) i = 0, ++q;
    }
    // Sums of as many pieces each are added, as a binary counter carries; in the end all that are
    // left.
    const bool last = q == runs;
    for (int64_t carry = n_pieces++; n_pending > 0 && (last || (carry & 1) != 0); carry >>= 1) {
      const float* from = pending[--n_pending];
      for (int r = 0; r < kRows; ++r, from += 2 * lanes) {
        left[r] = hn::Add(hn::Load(df, from), left[r]);
        if (!kNarrow) right[r] = hn::Add(hn::Load(df, from + lanes), right[r]);
      }
    }
    float* to = last ? tile : pending[n_pending++];
    for (int r = 0; r < kRows; ++r, to += 2 * lanes) {
      hn::Store(left[r], df, to);
      if (!kNarrow) hn::Store(right[r], df, to + lanes);
    }
  } while (q < runs);
}

void Sum(const float* const* a, int64_t runs, int64_t run, const float* b, int64_t b_row,
         float* tile, bool narrow) {
  if (narrow) {
    SumPieces<true>(a, runs, run, b, b_row, tile);
  } else {
    SumPieces<false>(a, runs, run, b, b_row, tile);
  }
}

template <int kSome, bool kNarrow>
void AddSomeColumns(const float* a, int64_t a_row, int64_t n, const float* b, int64_t b_row,
                    float* tile) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  VF left[kSome], right[kSome];
  for (int r = 0; r < kSome; ++r) left[r] = right[r] = hn::Zero(df);
  for (int64_t i = 0; i < n; ++i, a += a_row, b += b_row) {
    const VF b0 = hn::LoadU(df, b), b1 = kNarrow ? b0 : hn::LoadU(df, b + lanes);
    for (int r = 0; r < kSome; ++r) {
      const VF x = hn::Set(df, a[r]);
      left[r] = hn::MulAdd(x, b0, left[r]);
      if (!kNarrow) right[r] = hn::MulAdd(x, b1, right[r]);
    }
  }
  for (int r = 0; r < kSome; ++r, tile += 2 * lanes) {
    hn::StoreU(hn::Add(hn::LoadU(df, tile), left[r]), df, tile);
    if (kNarrow) continue;
    hn::StoreU(hn::Add(hn::LoadU(df, tile + lanes), right[r]), df, tile + lanes);
  }
}

void AddColumns(const float* a, int64_t a_row, int64_t n, const float* b, int64_t b_row, int rows,
                bool narrow, float* tile) {
  // Thirds of a tile: the remainders of 16, 32, 64 and 128 rows.
  constexpr int kThird = kRows / 3;
  const int thirds = (rows + kThird - 1) / kThird;
  const auto add =
      thirds == 1 ? (narrow ? AddSomeColumns<kThird, true> : AddSomeColumns<kThird, false>)
      : thirds == 2
          ? (narrow ? AddSomeColumns<2 * kThird, true> : AddSomeColumns<2 * kThird, false>)
          : (narrow ? AddSomeColumns<kRows, true> : AddSomeColumns<kRows, false>);
  add(a, a_row, n, b, b_row, tile);
}

HWY_INLINE VF Sigmoid(DF df, VF x) {
  const VF one = hn::Set(df, 1.0f);
  return hn::Div(one, hn::Add(one, SafeExp(df, hn::Neg(x))));
}

HWY_INLINE VF Tanh(DF df, VF x) {
  // Past 9.1 it is 1 in float32, and Highway's expm1 overflows later on.
  const VF limit = hn::Set(df, 10.0f);
  const VF clamped = hn::Min(hn::Max(x, hn::Neg(limit)), limit);
  return KeepNaN(df, x, hn::Tanh(df, clamped));
}

// x Phi(x), with the tail's formula on either side.
HWY_INLINE VF Gelu(DF df, VF x) {
  constexpr float kCoefficients[] = EPILOGUE_TAIL_COEFFICIENTS;
  const VF one = hn::Set(df, 1.0f), size = hn::Abs(x);
  const VF t = hn::Div(one, hn::MulAdd(hn::Set(df, EPILOGUE_TAIL_SCALE), size, one));
  VF sum = hn::Set(df, kCoefficients[EPILOGUE_TAIL_TERMS - 1]);
  for (int i = EPILOGUE_TAIL_TERMS - 2; i >= 0; --i) {
    sum = hn::MulAdd(sum, t, hn::Set(df, kCoefficients[i]));
  }
  const VF e = SafeExp(df, hn::Mul(hn::Mul(size, size), hn::Set(df, -0.5f)));
  const VF tail = hn::Mul(hn::Mul(e, t), sum);
  const VF phi = hn::IfThenElse(hn::Gt(x, hn::Zero(df)), hn::Sub(one, tail), tail);
  return KeepNaN(df, x, hn::Mul(x, phi));
}

// See EPILOGUE_MISH_LIMIT. A NaN comes back with the factor.
HWY_INLINE VF Mish(DF df, VF x) {
  const VF two = hn::Set(df, 2.0f);
  const VF e = SafeExp(df, hn::Min(x, hn::Set(df, EPILOGUE_MISH_LIMIT)));
  const VF n = hn::Mul(e, hn::Add(e, two));
  return hn::Mul(x, hn::Div(n, hn::Add(n, two)));
}

HWY_INLINE VF Activate(DF df, uint32_t activation, float leakyrelu_alpha, VF x) {
  const VF zero = hn::Zero(df);
  switch (activation) {
    case EPILOGUE_RELU:
      return hn::IfThenElse(hn::Lt(x, zero), zero, x);
    case EPILOGUE_RELU6: {
      const VF six = hn::Set(df, 6.0f);
      return hn::IfThenElse(hn::Lt(x, zero), zero, hn::IfThenElse(hn::Gt(x, six), six, x));
    }
    case EPILOGUE_ELU:
      return hn::IfThenElse(hn::Lt(x, zero), SafeExpm1(df, x), x);
    case EPILOGUE_LEAKY_RELU:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(x, hn::Set(df, leakyrelu_alpha)), x);
    case EPILOGUE_SIGMOID:
      return Sigmoid(df, x);
    case EPILOGUE_TANH:
      return Tanh(df, x);
    case EPILOGUE_SWISH:
      return hn::Mul(x, Sigmoid(df, x));
    case EPILOGUE_GELU_EXACT:
      return Gelu(df, x);
    case EPILOGUE_GELU_APPROXIMATE: {
      const VF cubed = hn::Mul(hn::Mul(x, x), x);
      const VF twice = hn::Mul(hn::Set(df, 1.5957691216f),  // 2 sqrt(2 / pi)
                               hn::MulAdd(hn::Set(df, 0.044715f), cubed, x));
      // (1 + tanh(y)) / 2 is sigmoid(2 y), which does not cancel.
      return hn::Mul(x, Sigmoid(df, twice));
    }
    case EPILOGUE_MISH:
      return Mish(df, x);
    default:
      return x;
  }
}

void Finish(const TileEpilogue& epilogue, int rows, float* tile) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  for (int half = 0; half < 2; ++half) {
    const int column = half * lanes;
    const VF none = hn::Zero(df);
    const VF mean = epilogue.mean != nullptr ? hn::LoadU(df, epilogue.mean + column) : none;
    const VF scale = epilogue.scale != nullptr ? hn::LoadU(df, epilogue.scale + column) : none;
    const VF shift = epilogue.shift != nullptr ? hn::LoadU(df, epilogue.shift + column) : none;
    for (int r = 0; r < rows; ++r) {
      const int64_t at = int64_t{r} * 2 * lanes + column;
      VF y = hn::Load(df, tile + at);
      if (epilogue.mean != nullptr) y = hn::Sub(y, mean);
      if (epilogue.scale != nullptr) {
        y = hn::MulAdd(y, scale, shift);
      } else if (epilogue.shift != nullptr) {
        y = hn::Add(y, shift);
      }
      if (epilogue.residual != nullptr) y = hn::Add(y, hn::LoadU(df, epilogue.residual + at));
      hn::Store(Activate(df, epilogue.activation, epilogue.leakyrelu_alpha, y), df, tile + at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(Size);
HWY_EXPORT(Sum);
HWY_EXPORT(AddColumns);
HWY_EXPORT(Finish);

GemmTileSize TileSize() { return HWY_DYNAMIC_DISPATCH(Size)(); }

void SumTile(const float* const* a, int64_t runs, int64_t run, const float* b, int64_t b_row,
             float* tile, bool narrow) {
  HWY_DYNAMIC_DISPATCH(Sum)(a, runs, run, b, b_row, tile, narrow);
}

void AddTileOfColumns(const float* a, int64_t a_row, int64_t n, const float* b, int64_t b_row,
                      int rows, bool narrow, float* tile) {
  HWY_DYNAMIC_DISPATCH(AddColumns)(a, a_row, n, b, b_row, rows, narrow, tile);
}

void FinishTile(const TileEpilogue& epilogue, int rows, float* tile) {
  HWY_DYNAMIC_DISPATCH(Finish)(epilogue, rows, tile);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
