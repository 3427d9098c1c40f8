// Blocks of attention on the CPU: some queries side by side in the lanes of up to three vectors, and
// keys below each other. So a query's softmax stays in its lane, and neither keys nor values are
// rearranged. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_ATTENTION_ATTENTION_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_ATTENTION_ATTENTION_BLOCKS_INL_H_
#undef METAL_OPS_KERNELS_ATTENTION_ATTENTION_BLOCKS_INL_H_
#else
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "kernels/simd/float_types.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;

// Vectors of a block's queries, and rows that are summed at a time: the sums fill the registers
// except a few.
constexpr int kVectors = 3;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int kRows = 4;  // of 16 registers
#else
constexpr int kRows = 8;  // of 32 registers
#endif
constexpr int kMaxLanes = HWY_MAX_BYTES / 4;
constexpr int kMaxColumns = kVectors * kMaxLanes;
// Keys of a block: their scores, and the read parts of keys and values, stay in the first cache.
constexpr int64_t kKeys = 64;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Words of 32 bits, for attention_formula.h.
struct Words {
  hn::Vec<DU> v;
  Words() = default;
  HWY_INLINE Words(uint32_t x) : v(hn::Set(DU(), x)) {}
  HWY_INLINE explicit Words(hn::Vec<DU> x) : v(x) {}
  friend HWY_INLINE Words operator*(Words a, Words b) { return Words(hn::Mul(a.v, b.v)); }
  friend HWY_INLINE Words operator^(Words a, Words b) { return Words(hn::Xor(a.v, b.v)); }
  friend HWY_INLINE Words multiply_high(Words a, Words b) {
    const hn::Repartition<uint64_t, DU> d64;
    const auto odd = [&](hn::Vec<DU> x) HWY_ATTR {
      return hn::BitCast(DU(), hn::ShiftRight<32>(hn::BitCast(d64, x)));
    };
    const auto low = odd(hn::BitCast(DU(), hn::MulEven(a.v, b.v)));
    const auto high = hn::BitCast(DU(), hn::MulEven(odd(a.v), odd(b.v)));
    return Words(hn::OddEven(high, low));
  }
};

#include "kernels/attention/attention_formula.h"

// e^x for x of at most 87, 0 below -87.3: no more steps than weights need, which are at most 1. NaN
// stays NaN.
HWY_INLINE Floats Weight(Floats score) {
  const Floats x = score * 1.44269504f;
  // The sum's last bits are those of the nearest integer.
  const Floats magic(12582912.0f), sum = x + magic;
  const Floats f = x - (sum - magic);
  Floats y(0.0013264723820611835f);
  y = fma(y, f, 0.009671512991189957f);
  y = fma(y, f, 0.05550733581185341f);
  y = fma(y, f, 0.24022242426872253f);
  y = fma(y, f, 0.6931470036506653f);
  y = fma(y, f, 1.0f);
  const DU du;
  const auto bits = hn::Add(hn::BitCast(du, y.v), hn::ShiftLeft<23>(hn::BitCast(du, sum.v)));
  return select(Floats(hn::BitCast(DF(), bits)), Floats(0.0f), x < Floats(-126.0f));
}

// ---- products
// --------------------------------------------------------------------------------------------

// c[r][:] (+)= sum over i < n of a[r * a_row + i * a_step] b[i][:], for so many rows and vectors.
template <int kSome, int kWide, bool kAdds>
HWY_INLINE void MultiplyRows(const float* a, int64_t a_row, int64_t a_step, int64_t n,
                             const float* b, int64_t b_row, float* c, int64_t c_row) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  VF sums[kSome][kWide];
  for (int r = 0; r < kSome; ++r) {
    for (int w = 0; w < kWide; ++w) {
      sums[r][w] = kAdds ? hn::LoadU(df, c + r * c_row + w * lanes) : hn::Zero(df);
    }
  }
  for (int64_t i = 0; i < n; ++i, a += a_step, b += b_row) {
    VF right[kWide];
    for (int w = 0; w < kWide; ++w) right[w] = hn::LoadU(df, b + w * lanes);
    for (int r = 0; r < kSome; ++r) {
      const VF left = hn::Set(df, a[r * a_row]);
      for (int w = 0; w < kWide; ++w) sums[r][w] = hn::MulAdd(left, right[w], sums[r][w]);
    }
  }
  for (int r = 0; r < kSome; ++r) {
    for (int w = 0; w < kWide; ++w) hn::StoreU(sums[r][w], df, c + r * c_row + w * lanes);
  }
}

template <int kWide, bool kAdds>
void MultiplyColumns(int64_t rows, const float* a, int64_t a_row, int64_t a_step, int64_t n,
                     const float* b, int64_t b_row, float* c, int64_t c_row) {
  int64_t r = 0;
  const auto next = [&](int64_t some) {
    r += some;
    a += some * a_row;
    c += some * c_row;
  };
  for (; r + kRows <= rows; next(kRows)) {
    MultiplyRows<kRows, kWide, kAdds>(a, a_row, a_step, n, b, b_row, c, c_row);
  }
  for (; r + kRows / 2 <= rows; next(kRows / 2)) {
    MultiplyRows<kRows / 2, kWide, kAdds>(a, a_row, a_step, n, b, b_row, c, c_row);
  }
  for (; r < rows; next(1)) {
    MultiplyRows<1, kWide, kAdds>(a, a_row, a_step, n, b, b_row, c, c_row);
  }
}

// The same for any number of columns that are whole vectors.
template <bool kAdds>
void Multiply(int64_t rows, int64_t columns, const float* a, int64_t a_row, int64_t a_step,
              int64_t n, const float* b, int64_t b_row, float* c, int64_t c_row) {
  const int64_t lanes = Floats::Lanes();
  for (int64_t left = columns / lanes; left > 0;) {
    const int64_t wide = left == 3 || left > 4 ? 3 : left == 1 ? 1 : 2;
    const auto multiply = wide == 3   ? MultiplyColumns<3, kAdds>
                          : wide == 2 ? MultiplyColumns<2, kAdds>
                                      : MultiplyColumns<1, kAdds>;
    multiply(rows, a, a_row, a_step, n, b, b_row, c, c_row);
    b += wide * lanes;
    c += wide * lanes;
    left -= wide;
  }
}

// ---- one call
// --------------------------------------------------------------------------------------------

// The arrays that all threads read.
struct Attention {
  explicit Attention(const CpuCall& call)
      : p(PlanAttention(call)),
        q(call.floats(0)),
        k(call.floats(1)),
        v(call.floats(2)),
        bias(call.floats(4)),
        mask(call.in<bool>(3)),
        lengths(call.in<int32_t>(5)),
        seed{static_cast<uint32_t>(call.in<int32_t>(6)[0]),
             static_cast<uint32_t>(call.in<int32_t>(6)[1])},
        sharing(p.kv_heads > 0 ? p.heads / p.kv_heads : 0) {}

  int64_t Columns() const { return kVectors * Floats::Lanes(); }
  int64_t Length(int64_t batch) const {
    return p.use_lengths != 0 ? attention_length(p, lengths[batch]) : int64_t{p.keys};
  }
  // About, of one query and all keys.
  int64_t Cycles() const { return int64_t{p.keys} * (p.size + p.value_size + 32) / 16; }

  AttentionParams p;
  FloatArray q, k, v, bias;
  const bool* mask;
  const int32_t* lengths;
  uint32_t seed[2];
  int64_t sharing;  // heads of q to one of k
};

// ---- one block of queries
// --------------------------------------------------------------------------------------------

// Some queries, each in its lane, and a block of keys that they are compared with. A thread has one
// and uses it again.
class AttentionBlock {
 public:
  explicit AttentionBlock(const Attention& attention)
      : at_(attention),
        p_(attention.p),
        q(Room(p_.size)),
        scores(Room(kKeys)),
        slopes(Room(p_.soft_cap > 0 ? kKeys : 0)),
        extra_(Room(kKeys)),
        wide_k_(kKeys * p_.size),
        wide_v_(kKeys * p_.value_size),
        line_(std::max<int64_t>({p_.size, p_.value_size, kKeys})) {}

  // The queries from one on of a batch, in the heads that share a head of k: first all of the first
  // head, then of the next.
  void Begin(int64_t batch, int64_t kv_head, int64_t first, int64_t n) {
    Clear(batch, kv_head, n);
    for (int64_t lane = 0; lane < n; ++lane) {
      const int64_t queries = p_.queries;
      Put(lane, kv_head * at_.sharing + (first + lane) / queries, (first + lane) % queries);
    }
    ReadQueries();
  }
  // Begins with one head.
  void BeginOfHead(int64_t batch, int64_t head, int64_t first, int64_t n) {
    Clear(batch, head / at_.sharing, n);
    for (int64_t lane = 0; lane < n; ++lane) Put(lane, head, first + lane);
    ReadQueries();
  }

  // Reads n keys and values from `first` on.
  void ReadKeys(int64_t first, int64_t n) {
    first_key = first;
    n_keys = n;
    const int64_t at = (batch_ * p_.kv_heads + kv_head_) * p_.keys + first;
    k = at_.k.Read(at * p_.size, n * p_.size, wide_k_.data());
    v = at_.v.Read(at * p_.value_size, n * p_.value_size, wide_v_.data());
  }

  // Scores of the keys that were read, a row per key; -infinity where a query does not see one.
  void Score() {
    Multiply<false>(n_keys, columns, k, p_.size, 1, p_.size, q.data(), columns, scores.data(),
                    columns);
    if (p_.soft_cap > 0) {
      ForEach([&](int64_t at, Floats s) HWY_ATTR {
        const Floats capped = attention_capped(p_.soft_cap, s);
        attention_cap_slope(p_.soft_cap, capped).Store(slopes.data() + at);
        return capped;
      });
    }
    if (p_.use_bias != 0 || p_.use_mask != 0) {
      ReadExtra();
      ForEach([&](int64_t at, Floats s) HWY_ATTR {
        const Floats extra = Floats::Load(extra_.data() + at);
        return select(s + extra, extra, extra == Floats(-kInfinity));
      });
    }
    if (first_key < whole_first_ || first_key + n_keys > whole_last_) HideOthers();
  }

  // Zeros, in a row per key, where a weight is dropped, else the value times 1 / (1 - rate).
  void Drop(float* weights) const {
    if (p_.dropout == 0) return;
    const DU du;
    const int64_t lanes = Floats::Lanes();
    const hn::Vec<DU> least = hn::Set(du, p_.dropout);
    for (int64_t c = 0; c < columns; c += lanes) {
      const Words query(hn::LoadU(du, query_ + c)), head(hn::LoadU(du, head_ + c));
      for (int64_t j = 0; j < n_keys; j += 4) {
        const auto key = static_cast<uint32_t>((first_key + j) / 4);
        const auto random =
            attention_random(Words(key), query, head, Words(0u), at_.seed[0], at_.seed[1]);
        for (int64_t i = 0; i < std::min<int64_t>(4, n_keys - j); ++i) {
          float* const at = weights + (j + i) * columns + c;
          const auto dropped = hn::RebindMask(DF(), hn::Lt(random.word[i].v, least));
          const Floats kept = Floats::Load(at) * p_.dropout_scale;
          hn::StoreU(hn::IfThenElse(dropped, hn::Zero(DF()), kept.v), DF(), at);
        }
      }
    }
  }

  // Calls `of(at, x)` with each vector of the scores, which becomes the result.
  template <typename F>
  HWY_INLINE void ForEach(const F& of) {
    const int64_t lanes = Floats::Lanes();
    for (int64_t at = 0; at < n_keys * columns; at += lanes) {
      of(at, Floats::Load(scores.data() + at)).Store(scores.data() + at);
    }
  }

  // Rows of the queries, of so many elements: turned, an element's a row; or as they are, in lines.
  void ReadTurned(const FloatArray& from, int64_t size, float* to) {
    for (int64_t lane = 0; lane < n_queries; ++lane) {
      const float* const row = from.Read(row_[lane] * size, size, line_.data());
      for (int64_t i = 0; i < size; ++i) to[i * columns + lane] = row[i];
    }
  }
  void ReadRows(const FloatArray& from, int64_t size, int64_t line, float* to) const {
    for (int64_t lane = 0; lane < n_queries; ++lane) {
      WidenFloats(from.type, from.At(row_[lane] * size), size, to + lane * line);
    }
  }
  // Writes transposed rows, each times its lane's factor.
  void WriteTurned(const float* from, int64_t size, const float* factors,
                   const MutableFloatArray& to) {
    for (int64_t lane = 0; lane < n_queries; ++lane) {
      for (int64_t i = 0; i < size; ++i) line_[i] = from[i * columns + lane] * factors[lane];
      NarrowFloats(to.type, line_.data(), size, to.At(row_[lane] * size));
    }
  }
  std::vector<float> Room(int64_t rows) const {
    return std::vector<float>(rows * at_.Columns(), 0.0f);
  }
  // Where a query lies in arrays [batch, heads, queries], or the bias.
  int64_t row(int64_t lane) const { return row_[lane]; }
  int64_t bias_row(int64_t lane) const { return bias_at_[lane]; }

 private:
  const Attention& at_;
  const AttentionParams& p_;

 public:
  int64_t n_queries = 0, columns = 0;  // with the padding of the last vector
  int64_t begin = 0, end = 0;          // keys that any of the queries sees
  int64_t first_key = 0, n_keys = 0;   // that were read
  const float *k = nullptr, *v = nullptr;
  std::vector<float> q;       // turned and scaled
  std::vector<float> scores;  // [keys][columns]
  std::vector<float> slopes;  // of the soft cap

 private:
  void Clear(int64_t batch, int64_t kv_head, int64_t n) {
    batch_ = batch;
    kv_head_ = kv_head;
    n_queries = n;
    columns = RoundUp(n, Floats::Lanes());
    begin = whole_last_ = std::numeric_limits<int64_t>::max();
    end = whole_first_ = 0;
    std::fill_n(first_seen_, kMaxColumns, 0);
    std::fill_n(last_seen_, kMaxColumns, 0);
    std::fill_n(query_, kMaxColumns, 0u);
    std::fill_n(head_, kMaxColumns, 0u);
  }
  void Put(int64_t lane, int64_t head, int64_t query) {
    const AttentionKeys seen = attention_keys(p_, at_.Length(batch_), query);
    const int64_t of = batch_ * p_.heads + head;
    row_[lane] = of * p_.queries + query;
    query_[lane] = static_cast<uint32_t>(query);
    head_[lane] = static_cast<uint32_t>(of);
    const auto place = [&](const AttentionSteps& steps) {
      return batch_ * steps.batch + head * steps.head + query * steps.query;
    };
    mask_at_[lane] = place(p_.mask);
    bias_at_[lane] = place(p_.bias);
    first_seen_[lane] = seen.first;
    last_seen_[lane] = seen.last;
    if (seen.first < seen.last) {
      begin = std::min(begin, seen.first);
      end = std::max(end, seen.last);
    }
    whole_first_ = std::max(whole_first_, seen.first);
    whole_last_ = std::min(whole_last_, seen.last);
  }
  void ReadQueries() {
    if (begin > end) begin = end;
    // Random numbers are made four keys at a time.
    begin = begin / 4 * 4;
    std::fill(q.begin(), q.end(), 0.0f);
    ReadTurned(at_.q, p_.size, q.data());
    for (float& x : q) x *= p_.scale;
  }

  // Bias and mask, turned, as one thing to add.
  void ReadExtra() {
    const auto same = [&](const int64_t* at) {
      return std::all_of(at, at + n_queries, [&](int64_t x) { return x == at[0]; });
    };
    const bool all_same =
        (p_.use_bias == 0 || same(bias_at_)) && (p_.use_mask == 0 || same(mask_at_));
    for (int64_t lane = 0; lane < (all_same ? 1 : n_queries); ++lane) {
      float* const line = line_.data();
      if (p_.use_bias == 0) {
        std::fill_n(line, n_keys, 0.0f);
      } else if (p_.bias.key != 0) {
        WidenFloats(at_.bias.type, at_.bias.At(bias_at_[lane] + first_key), n_keys, line);
      } else {
        WidenFloats(at_.bias.type, at_.bias.At(bias_at_[lane]), 1, line);
        std::fill_n(line + 1, n_keys - 1, line[0]);
      }
      if (p_.use_mask != 0) {
        const bool* const seen = at_.mask + mask_at_[lane] + first_key * p_.mask.key;
        for (int64_t j = 0; j < n_keys; ++j) {
          if (!seen[j * p_.mask.key]) line[j] = -kInfinity;
        }
      }
      float* const to = extra_.data();
      for (int64_t j = 0; j < n_keys; ++j) {
        if (all_same) {
          std::fill_n(to + j * columns, columns, line[j]);
        } else {
          to[j * columns + lane] = line[j];
        }
      }
    }
  }

  // Where a query's window or sequence ends within the keys.
  void HideOthers() {
    const int64_t lanes = Floats::Lanes();
    float first[kMaxColumns], last[kMaxColumns];
    for (int64_t c = 0; c < columns; ++c) {
      first[c] = static_cast<float>(std::clamp<int64_t>(first_seen_[c] - first_key, 0, n_keys));
      last[c] = static_cast<float>(std::clamp<int64_t>(last_seen_[c] - first_key, 0, n_keys));
    }
    for (int64_t c = 0; c < columns; c += lanes) {
      const Floats from = Floats::Load(first + c), to = Floats::Load(last + c);
      for (int64_t j = 0; j < n_keys; ++j) {
        const Floats key(static_cast<float>(j));
        float* const at = scores.data() + j * columns + c;
        select(Floats(-kInfinity), Floats::Load(at), key >= from && key < to).Store(at);
      }
    }
  }

  std::vector<float> extra_, wide_k_, wide_v_, line_;
  int64_t batch_ = 0, kv_head_ = 0;
  int64_t whole_first_ = 0, whole_last_ = 0;  // keys that all of the queries see
  int64_t row_[kMaxColumns], mask_at_[kMaxColumns], bias_at_[kMaxColumns];
  int64_t first_seen_[kMaxColumns], last_seen_[kMaxColumns];
  uint32_t query_[kMaxColumns], head_[kMaxColumns];
};

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_BLOCKS_INL_H_
