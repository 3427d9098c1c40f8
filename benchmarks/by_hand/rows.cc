// The formulas of benchmarks/rows.metal in plain C++, with vectors of 16 floats by hand: the peers
// of its kernels. One thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int kWide = 16;
using Floats = float __attribute__((vector_size(4 * kWide)));
using Ints = int32_t __attribute__((vector_size(4 * kWide)));
using Halves = _Float16 __attribute__((vector_size(2 * kWide)));
using Bytes = uint8_t __attribute__((vector_size(kWide)));
using SignedBytes = int8_t __attribute__((vector_size(kWide)));

template <class V>
V Load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}
void Store(float* to, Floats v) { std::memcpy(to, &v, sizeof(v)); }
Floats Widen(const _Float16* from) { return __builtin_convertvector(Load<Halves>(from), Floats); }

float Sum(Floats v) {
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  return (v[0] + v[2]) + (v[1] + v[3]);
}
// By way of whole numbers of 32 bits, as processors do.
template <class V>
Floats Numbers(V bytes) {
  return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Floats);
}
Floats Larger(Floats a, Floats b) { return a > b ? a : b; }

// 2^n 2^f, f from -1/2 to 1/2 by a polynomial: within 2 ULP.
Floats Exp(Floats x) {
  x = Larger(x, Floats{} - 87.f);
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: digits below 1 fall off
  const Floats n = (x * 1.44269504f + kRound) - kRound;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
  return p * Load<Floats>(&power);
}

// In place; a multiple of 16.
void Softmax(float* row, int width) {
  Floats top = Load<Floats>(row);
  for (int i = kWide; i < width; i += kWide) top = Larger(top, Load<Floats>(row + i));
  float largest = top[0];
  for (int i = 1; i < kWide; ++i) largest = std::max(largest, top[i]);
  Floats sums{};
  for (int i = 0; i < width; i += kWide) {
    const Floats e = Exp(Load<Floats>(row + i) - largest);
    sums += e;
    Store(row + i, e);
  }
  const float by = 1.f / Sum(sums);
  for (int i = 0; i < width; i += kWide) Store(row + i, Load<Floats>(row + i) * by);
}

// kQueries queries of one head; n vectors of a head's `size` at a time.
template <int kQueries, int kVectors>
void AddValues(const float* weights, const _Float16* v, float* out, int keys, int size, int from) {
  Floats sums[kQueries][kVectors] = {};
  for (int key = 0; key < keys; ++key) {
    for (int i = 0; i < kVectors; ++i) {
      const Floats value = Widen(v + int64_t{key} * size + from + i * kWide);
      for (int r = 0; r < kQueries; ++r) sums[r][i] += value * weights[r * keys + key];
    }
  }
  for (int r = 0; r < kQueries; ++r) {
    for (int i = 0; i < kVectors; ++i) Store(out + r * size + from + i * kWide, sums[r][i]);
  }
}
template <int kQueries>
void Attend(const float* q, const _Float16* k, const _Float16* v, float* out, int keys, int size,
            float scale) {
  std::vector<float> scores(size_t{kQueries} * keys);
  for (int key = 0; key < keys; ++key) {
    Floats sums[kQueries] = {};
    for (int i = 0; i < size; i += kWide) {
      const Floats part = Widen(k + int64_t{key} * size + i);
      for (int r = 0; r < kQueries; ++r) sums[r] += part * Load<Floats>(q + r * size + i);
    }
    for (int r = 0; r < kQueries; ++r) scores[r * keys + key] = Sum(sums[r]) * scale;
  }
  for (int r = 0; r < kQueries; ++r) Softmax(&scores[r * keys], keys);
  constexpr int kVectors = kQueries == 1 ? 4 : 2;
  for (int i = 0; i < size; i += kVectors * kWide) {
    AddValues<kQueries, kVectors>(scores.data(), v, out, keys, size, i);
  }
}

// 32 weights: a scale, then whole numbers of 4 or of 8 bits.
constexpr int kBlock = 32;
struct Block4 {
  static constexpr int kBytes = 18;
  static void Unpack(const uint8_t* block, Floats* low, Floats* high) {
    const float d = static_cast<float>(Load<_Float16>(block));
    const Bytes q = Load<Bytes>(block + 2);
    *low = Numbers(q & 15) * d - 8.f * d;
    *high = Numbers(q >> 4) * d - 8.f * d;
  }
};
struct Block8 {
  static constexpr int kBytes = 34;
  static void Unpack(const uint8_t* block, Floats* low, Floats* high) {
    const float d = static_cast<float>(Load<_Float16>(block));
    *low = Numbers(Load<SignedBytes>(block + 2)) * d;
    *high = Numbers(Load<SignedBytes>(block + 18)) * d;
  }
};

// kColumns of y[c, r] = sum_k w[r, k] x[c, k], kRows rows at a time.
template <class Block, int kRows, int kColumns>
void Product(const uint8_t* weights, const float* x, float* y, int rows, int depth) {
  const int64_t row_bytes = int64_t{depth} / kBlock * Block::kBytes;
  for (int r0 = 0; r0 < rows; r0 += kRows) {
    Floats sums[kRows][kColumns] = {};
    for (int block = 0; block < depth / kBlock; ++block) {
      Floats low[kRows], high[kRows];
      for (int r = 0; r < kRows; ++r) {
        Block::Unpack(weights + (r0 + r) * row_bytes + block * Block::kBytes, &low[r], &high[r]);
      }
      for (int c = 0; c < kColumns; ++c) {
        const float* column = x + int64_t{c} * depth + block * kBlock;
        const Floats a = Load<Floats>(column), b = Load<Floats>(column + kWide);
        for (int r = 0; r < kRows; ++r) sums[r][c] += low[r] * a + high[r] * b;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) y[int64_t{c} * rows + r0 + r] = Sum(sums[r][c]);
    }
  }
}
template <class Block>
void Columns(const uint8_t* weights, const float* x, float* y, int rows, int depth, int columns) {
  if (columns == 1) return Product<Block, 4, 1>(weights, x, y, rows, depth);
  // Weights are unpacked once for 4 columns, and x lies in the cache for few of them.
  for (int c = 0; c < columns; c += 4) {
    Product<Block, 4, 4>(weights, x + int64_t{c} * depth, y + int64_t{c} * rows, rows, depth);
  }
}

}  // namespace

extern "C" {

void softmax(const float* x, float* y, int rows, int width) {
  for (int64_t r = 0; r < rows; ++r) {
    std::copy(x + r * width, x + (r + 1) * width, y + r * width);
    Softmax(y + r * width, width);
  }
}

// One query a head, with keys of its own.
void attend(const float* q, const _Float16* k, const _Float16* v, float* out, int heads, int keys,
            int size, float scale) {
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t at = h * keys * size;
    Attend<1>(q + h * size, k + at, v + at, out + h * size, keys, size, scale);
  }
}

// Queries of one head, eight at a time.
void attend_tiles(const float* q, const _Float16* k, const _Float16* v, float* out, int queries,
                  int keys, int size, float scale) {
  for (int64_t i = 0; i < queries; i += 8) {
    Attend<8>(q + i * size, k, v, out + i * size, keys, size, scale);
  }
}

void gather_float(const float* table, const int32_t* rows, float* y, int count, int width) {
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(y + r * width, table + int64_t{rows[r]} * width, sizeof(float) * width);
  }
}
void gather_4(const uint8_t* table, const int32_t* rows, float* y, int count, int width) {
  const int64_t row_bytes = int64_t{width} / kBlock * Block4::kBytes;
  for (int64_t r = 0; r < count; ++r) {
    for (int block = 0; block < width / kBlock; ++block) {
      Floats low, high;
      Block4::Unpack(table + rows[r] * row_bytes + block * Block4::kBytes, &low, &high);
      Store(y + r * width + block * kBlock, low);
      Store(y + r * width + block * kBlock + kWide, high);
    }
  }
}

void product_4(const uint8_t* weights, const float* x, float* y, int rows, int depth, int columns) {
  Columns<Block4>(weights, x, y, rows, depth, columns);
}
void product_8(const uint8_t* weights, const float* x, float* y, int rows, int depth, int columns) {
  Columns<Block8>(weights, x, y, rows, depth, columns);
}

}  // extern "C"
