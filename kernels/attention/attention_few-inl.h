// Attention of few queries on the CPU, as where text is written a token at a time: side by side in
// lanes, as attention_blocks-inl.h has them, most lanes would be empty. Four elements of each query
// are a vector here, and of weights and values neighbours in memory. Compiled once per instruction
// set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_ATTENTION_ATTENTION_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_ATTENTION_ATTENTION_FEW_INL_H_
#undef METAL_OPS_KERNELS_ATTENTION_ATTENTION_FEW_INL_H_
#else
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_FEW_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention/attention_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// The queries that share keys, all of a call's: at most half of a vector's lanes, and nothing done to
// their scores.
class FewQueries {
 public:
  static bool Fits(const Attention& a) {
    const AttentionParams& p = a.p;
    const int64_t lanes = Floats::Lanes();
    return a.sharing * p.queries <= lanes / 2 && p.size % kElements == 0 &&
           p.value_size % lanes == 0 && p.soft_cap == 0 && p.dropout == 0 && p.use_mask == 0 &&
           p.use_bias == 0;
  }

  // About, of all calls of Run.
  static double Cycles(const Attention& a) {
    const int64_t rows = a.sharing * a.p.queries;
    double keys = 0;
    for (int64_t batch = 0; batch < a.p.batch; ++batch) keys += double(a.Length(batch));
    const int64_t of_key =
        Vectors(rows) * a.p.size / kElements + rows * (a.p.value_size / Floats::Lanes() + 2);
    return keys * double(a.p.kv_heads) * double(of_key);
  }

  explicit FewQueries(const Attention& attention)
      : at_(attention),
        p_(attention.p),
        rows_(attention.sharing * p_.queries),
        q_(Vectors(rows_) * p_.size / kElements * Floats::Lanes()),
        scores_(rows_ * kKeys),
        sums_(rows_ * p_.value_size),
        wide_k_(p_.size * (at_.k.type == FloatType::kFloat ? 0 : kKeys)),
        wide_v_(p_.value_size * (at_.v.type == FloatType::kFloat ? 0 : kKeys)) {}

  void Run(int64_t batch, int64_t kv_head, const MutableFloatArray& outputs, float* log_sum_exp) {
    const int64_t first_row = (batch * p_.heads + kv_head * at_.sharing) * p_.queries;
    ReadQueries(first_row);
    AttentionKeys seen[kMaxRows];
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      seen[r] = attention_keys(p_, at_.Length(batch), r % p_.queries);
      if (seen[r].first == seen[r].last) continue;
      begin = std::min(begin, seen[r].first);
      end = std::max(end, seen[r].last);
    }
    std::fill(sums_.begin(), sums_.end(), 0.0f);
    float most[kMaxRows], weight[kMaxRows] = {};
    std::fill_n(most, kMaxRows, -kInfinity);
    const int64_t group = (batch * p_.kv_heads + kv_head) * p_.keys;
    for (int64_t j = begin; j < end; j += kKeys) {
      const int64_t n = std::min(kKeys, end - j);
      Score(at_.k.Read((group + j) * p_.size, n * p_.size, wide_k_.data()), n);
      for (int64_t r = 0; r < rows_; ++r) {
        Weigh(r, std::clamp<int64_t>(seen[r].first - j, 0, n),
              std::clamp<int64_t>(seen[r].last - j, 0, n), n, most + r, weight + r);
      }
      const float* const v =
          at_.v.Read((group + j) * p_.value_size, n * p_.value_size, wide_v_.data());
      Multiply<true>(rows_, p_.value_size, scores_.data(), kKeys, 1, n, v, p_.value_size,
                     sums_.data(), p_.value_size);
    }
    for (int64_t r = 0; r < rows_; ++r) {
      const bool none = weight[r] == 0;
      log_sum_exp[first_row + r] = none ? -kInfinity : most[r] + std::log(weight[r]);
      float* const sums = sums_.data() + r * p_.value_size;
      const Floats factor(none ? 0.0f : 1.0f / weight[r]);
      for (int64_t i = 0; i < p_.value_size; i += Floats::Lanes()) {
        (Floats::Load(sums + i) * factor).Store(sums + i);
      }
    }
    NarrowFloats(outputs.type, sums_.data(), rows_ * p_.value_size,
                 outputs.At(first_row * p_.value_size));
  }

 private:
  // Neighbours of a query that are neighbours in a vector, and keys that are looked at together: so
  // many sums as hide how long an addition takes.
  static constexpr int64_t kElements = 4, kKeysAtOnce = 8;
  static constexpr int64_t kMaxRows = HWY_MAX_BYTES / 8;

  static int64_t Vectors(int64_t rows) {
    return (rows * kElements + Floats::Lanes() - 1) / Floats::Lanes();
  }

  void ReadQueries(int64_t first_row) {
    const int64_t lanes = Floats::Lanes(), in_vector = lanes / kElements;
    float row[ATTENTION_MOST_SIZE];
    for (int64_t r = 0; r < rows_; ++r) {
      WidenFloats(at_.q.type, at_.q.At((first_row + r) * p_.size), p_.size, row);
      float* const to =
          q_.data() + r / in_vector * p_.size / kElements * lanes + r % in_vector * kElements;
      for (int64_t i = 0; i < p_.size; ++i) {
        to[i / kElements * lanes + i % kElements] = row[i] * p_.scale;
      }
    }
  }

  // The scores of n keys: a row per query. Values behind them mean nothing.
  void Score(const float* k, int64_t n) {
    const DF df;
    const int64_t lanes = Floats::Lanes(), in_vector = lanes / kElements;
    for (int64_t vector = 0; vector < Vectors(rows_); ++vector) {
      const float* const q = q_.data() + vector * p_.size / kElements * lanes;
      const int64_t first = vector * in_vector, some = std::min(in_vector, rows_ - first);
      for (int64_t j = 0; j < n; j += kKeysAtOnce) {
        const float* keys[kKeysAtOnce];
        for (int64_t c = 0; c < kKeysAtOnce; ++c) keys[c] = k + std::min(j + c, n - 1) * p_.size;
        VF sums[kKeysAtOnce];
        for (VF& sum : sums) sum = hn::Zero(df);
        for (int64_t i = 0; i < p_.size; i += kElements) {
          const VF mine = hn::LoadU(df, q + i / kElements * lanes);
          for (int64_t c = 0; c < kKeysAtOnce; ++c) {
            sums[c] = hn::MulAdd(mine, hn::LoadDup128(df, keys[c] + i), sums[c]);
          }
        }
        for (int64_t c = 0; c < kKeysAtOnce; c += kElements) {
          float scores[HWY_MAX_BYTES / 4];
          hn::StoreU(SumsOfFours(sums[c], sums[c + 1], sums[c + 2], sums[c + 3]), df, scores);
          for (int64_t r = 0; r < some; ++r) {
            std::copy_n(scores + r * kElements, kElements,
                        scores_.data() + (first + r) * kKeys + j + c);
          }
        }
      }
    }
  }

  // Where vectors have four lanes per query: for each query the four sums of its lanes.
  static HWY_INLINE VF SumsOfFours(VF a, VF b, VF c, VF d) {
    const DF df;
    const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
    const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
    const hn::RepartitionToWide<DU> pairs;
    const auto first = hn::BitCast(pairs, ab), second = hn::BitCast(pairs, cd);
    return hn::Add(hn::BitCast(df, hn::InterleaveLower(pairs, first, second)),
                   hn::BitCast(df, hn::InterleaveUpper(pairs, first, second)));
  }

  // Scores of a query become weights relative to the largest so far: of n keys it sees those from
  // `first` to `last`.
  void Weigh(int64_t r, int64_t first, int64_t last, int64_t n, float* most, float* weight) {
    const int64_t lanes = Floats::Lanes();
    float* const scores = scores_.data() + r * kKeys;
    std::fill(scores, scores + first, -kInfinity);
    std::fill(scores + last, scores + RoundUp(n, lanes), -kInfinity);
    Floats now(*most);
    for (int64_t j = 0; j < n; j += lanes) now = max(now, Floats::Load(scores + j));
    const Floats before(*most);
    now = Floats(hn::MaxOfLanes(DF(), now.v));
    const Floats base = select(now, Floats(0.0f), now == Floats(-kInfinity));
    Floats sum(0.0f);
    for (int64_t j = 0; j < n; j += lanes) {
      const Floats w = Weight(Floats::Load(scores + j) - base);
      sum = sum + w;
      w.Store(scores + j);
    }
    const float shrink = hn::GetLane(Weight(before - base).v);
    *weight = *weight * shrink + hn::GetLane(hn::SumOfLanes(DF(), sum.v));
    *most = hn::GetLane(now.v);
    if (shrink == 1.0f) return;
    float* const sums = sums_.data() + r * p_.value_size;
    for (int64_t i = 0; i < p_.value_size; i += lanes) {
      (Floats::Load(sums + i) * Floats(shrink)).Store(sums + i);
    }
  }

  const Attention& at_;
  const AttentionParams& p_;
  const int64_t rows_;
  std::vector<float> q_;  // [vectors][size / kElements][queries of a vector][kElements], scaled
  std::vector<float> scores_, sums_;
  std::vector<float> wide_k_, wide_v_;
};

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_FEW_INL_H_
