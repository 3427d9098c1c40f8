// The templates of benchmarks/shader_library.py: kernels of inference engines.
#include <metal_stdlib>
using namespace metal;

// Blocks of 32 weights: a scale, maybe an offset, and whole numbers of 4, 5 or 8 bits.
struct block4 {
  half d;
  uchar q[16];
};
struct block4m {
  half d;
  half m;
  uchar q[16];
};
struct block5 {
  half d;
  uchar high[4];
  uchar q[16];
};
struct block8 {
  half d;
  char q[32];
};
// 256 weights in 8 groups whose scales have 6 bits.
struct block4k {
  half d;
  half m;
  uchar scales[12];
  uchar q[128];
};

struct Unpack4 {
  typedef block4 block;
  static constant constexpr short weights = 32;
  // 16 of a block's weights, the lower or the upper half.
  template <class M>
  static void unpack(device const block& b, short half_index, thread M& out) {
    const float d = half_index ? float(b.d) / 16.f : float(b.d);
    const uchar mask = half_index ? 0xf0 : 0x0f;
    for (short i = 0; i < 16; ++i) {
      out[i / 4][i % 4] = d * float(b.q[i] & mask) - 8.f * float(b.d);
    }
  }
};
struct Unpack4m {
  typedef block4m block;
  static constant constexpr short weights = 32;
  template <class M>
  static void unpack(device const block& b, short half_index, thread M& out) {
    const float d = half_index ? float(b.d) / 16.f : float(b.d);
    const uchar mask = half_index ? 0xf0 : 0x0f;
    for (short i = 0; i < 16; ++i) out[i / 4][i % 4] = d * float(b.q[i] & mask) + float(b.m);
  }
};
struct Unpack5 {
  typedef block5 block;
  static constant constexpr short weights = 32;
  template <class M>
  static void unpack(device const block& b, short half_index, thread M& out) {
    const uint high =
        uint(b.high[0]) | uint(b.high[1]) << 8 | uint(b.high[2]) << 16 | uint(b.high[3]) << 24;
    for (short i = 0; i < 16; ++i) {
      const uint low = half_index ? b.q[i] >> 4 : b.q[i] & 15;
      const uint bit = high >> (i + 16 * half_index) & 1;
      out[i / 4][i % 4] = float(b.d) * (float(low | bit << 4) - 16.f);
    }
  }
};
struct Unpack8 {
  typedef block8 block;
  static constant constexpr short weights = 32;
  template <class M>
  static void unpack(device const block& b, short half_index, thread M& out) {
    for (short i = 0; i < 16; ++i) out[i / 4][i % 4] = float(b.d) * float(b.q[i + 16 * half_index]);
  }
};
struct Unpack4k {
  typedef block4k block;
  static constant constexpr short weights = 256;
  template <class M>
  static void unpack(device const block& b, short part, thread M& out) {
    const short group = part / 2;
    uchar scale, offset;
    if (group < 4) {
      scale = b.scales[group] & 63;
      offset = b.scales[group + 4] & 63;
    } else {
      scale = (b.scales[group + 4] & 15) | (b.scales[group - 4] >> 6) << 4;
      offset = (b.scales[group + 4] >> 4) | (b.scales[group] >> 6) << 4;
    }
    device const uchar* q = b.q + group / 2 * 32 + part % 2 * 16;
    const float d = float(b.d) * scale, m = float(b.m) * offset;
    for (short i = 0; i < 16; ++i) {
      out[i / 4][i % 4] = d * float(group % 2 ? q[i] >> 4 : q[i] & 15) - m;
    }
  }
};
template <class T>
struct Plain {
  typedef vec<T, 4> block;
  static constant constexpr short weights = 16;
  template <class M>
  static void unpack(device const block& b, short, thread M& out) {
    device const block* row = &b;
    for (short i = 0; i < 16; ++i) out[i / 4][i % 4] = float(row[i / 4][i % 4]);
  }
};
template <class U>
inline device const typename U::block* block_of(device const char* row, uint part) {
  return (device const typename U::block*)row + part / (U::weights / 16);
}
template <>
inline device const vec<float, 4>* block_of<Plain<float>>(device const char* row, uint part) {
  return (device const float4*)row + 4 * part;
}
template <>
inline device const vec<half, 4>* block_of<Plain<half>>(device const char* row, uint part) {
  return (device const half4*)row + 4 * part;
}

struct Product {
  uint rows, columns, depth;
  ulong row_bytes;
};
struct Rows {
  uint count, width;
  float epsilon, scale;
};

// y[n, r] = sum_k weights[r, k] x[n, k]; a simdgroup has n_rows rows of weights.
template <class U, class T, short n_rows>
kernel void row_product(device const char* weights [[buffer(0)]], device const T* x [[buffer(1)]],
                        device float* y [[buffer(2)]], constant Product& p [[buffer(3)]],
                        uint2 group [[threadgroup_position_in_grid]],
                        ushort simdgroup [[simdgroup_index_in_threadgroup]],
                        ushort lane [[thread_index_in_simdgroup]],
                        ushort simdgroups [[simdgroups_per_threadgroup]]) {
  const uint first = (group.x * simdgroups + simdgroup) * n_rows;
  device const T* column = x + group.y * p.depth;
  float sums[n_rows] = {0.f};
  for (uint part = lane; part < p.depth / 16; part += 32) {
    float values[16];
    for (short i = 0; i < 16; ++i) values[i] = column[16 * part + i];
    for (short r = 0; r < n_rows; ++r) {
      if (first + r >= p.rows) break;
      float4x4 w;
      U::unpack(*block_of<U>(weights + (first + r) * p.row_bytes, part), part % (U::weights / 16),
                w);
      for (short i = 0; i < 16; ++i) sums[r] += w[i / 4][i % 4] * values[i];
    }
  }
  for (short r = 0; r < n_rows; ++r) {
    const float total = simd_sum(sums[r]);
    if (lane == 0 && first + r < p.rows) y[group.y * p.rows + first + r] = total;
  }
}

// 64 x 32 of a product by 128 threads: unpacked to threadgroup memory, multiplied as 8 x 8.
template <class U, class T, class S>
kernel void tile_product(device const char* weights [[buffer(0)]], device const T* x [[buffer(1)]],
                         device float* y [[buffer(2)]], constant Product& p [[buffer(3)]],
                         threadgroup char* memory [[threadgroup(0)]],
                         uint2 group [[threadgroup_position_in_grid]],
                         ushort thread_index [[thread_index_in_threadgroup]],
                         ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup S* a = (threadgroup S*)memory;
  threadgroup S* b = a + 64 * 32;
  const uint row0 = group.x * 64, column0 = group.y * 32;
  simdgroup_matrix<float, 8, 8> sums[8];
  for (short i = 0; i < 8; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.f);
  const ushort row = thread_index / 2, part_in = thread_index % 2;
  const ushort column = thread_index / 4, piece = thread_index % 4;
  for (uint k = 0; k < p.depth; k += 32) {
    float4x4 w;
    const uint part = k / 16 + part_in;
    const uint safe_row = min(row0 + row, p.rows - 1);
    U::unpack(*block_of<U>(weights + safe_row * p.row_bytes, part), part % (U::weights / 16), w);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (short i = 0; i < 16; ++i) a[row * 32 + part_in * 16 + i] = S(w[i / 4][i % 4]);
    device const T* from = x + min(column0 + column, p.columns - 1) * p.depth + k + piece * 8;
    for (short i = 0; i < 8; ++i) b[column * 32 + piece * 8 + i] = S(from[i]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (short step = 0; step < 4; ++step) {
      simdgroup_matrix<S, 8, 8> left[4], right[2];
      for (short i = 0; i < 4; ++i) {
        simdgroup_load(left[i], a + (simdgroup % 2 * 32 + 8 * i) * 32 + 8 * step, 32);
      }
      for (short i = 0; i < 2; ++i) {
        simdgroup_load(right[i], b + (simdgroup / 2 * 16 + 8 * i) * 32 + 8 * step, 32, 0, true);
      }
      for (short i = 0; i < 8; ++i) {
        simdgroup_multiply_accumulate(sums[i], left[i % 4], right[i / 4], sums[i]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float* out = (threadgroup float*)memory;
  for (short i = 0; i < 8; ++i) {
    simdgroup_store(
        sums[i], out + (simdgroup / 2 * 16 + 8 * (i / 4)) * 64 + simdgroup % 2 * 32 + 8 * (i % 4),
        64, 0, true);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < 64 * 32; i += 128) {
    const uint r = row0 + i % 64, c = column0 + i / 64;
    if (r < p.rows && c < p.columns) y[c * p.rows + r] = out[i];
  }
}

struct Attention {
  uint keys, heads;
  ulong key_bytes;
  float scale;
};
// One query a simdgroup; keys and values as they are kept.
template <class U, short size>
kernel void attend(device const float* q [[buffer(0)]], device const char* k [[buffer(1)]],
                   device const char* v [[buffer(2)]], device float* out [[buffer(3)]],
                   constant Attention& p [[buffer(4)]], uint query [[threadgroup_position_in_grid]],
                   ushort simdgroup [[simdgroup_index_in_threadgroup]],
                   ushort simdgroups [[simdgroups_per_threadgroup]],
                   ushort lane [[thread_index_in_simdgroup]]) {
  threadgroup float totals[32], tops[32];
  threadgroup float sums[4][size];
  constexpr short parts = size / 16;
  float top = -INFINITY, total = 0.f;
  float4x4 acc[(parts + 31) / 32];
  for (short j = 0; j < (parts + 31) / 32; ++j) acc[j] = float4x4(0.f);
  for (uint key = simdgroup; key < p.keys; key += simdgroups) {
    float dot_product = 0.f;
    for (short part = lane; part < parts; part += 32) {
      float4x4 w;
      U::unpack(*block_of<U>(k + key * p.key_bytes, part), part % (U::weights / 16), w);
      for (short i = 0; i < 16; ++i)
        dot_product += w[i / 4][i % 4] * q[query * size + part * 16 + i];
    }
    const float score = simd_sum(dot_product) * p.scale;
    const float before = top;
    top = max(top, score);
    const float keep = exp(before - top), weight = exp(score - top);
    total = total * keep + weight;
    for (short part = lane, j = 0; part < parts; part += 32, ++j) {
      float4x4 w;
      U::unpack(*block_of<U>(v + key * p.key_bytes, part), part % (U::weights / 16), w);
      for (short c = 0; c < 4; ++c) acc[j][c] = acc[j][c] * keep + w[c] * weight;
    }
  }
  if (lane == 0) tops[simdgroup] = top, totals[simdgroup] = total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float best = -INFINITY, all = 0.f;
  for (ushort s = 0; s < simdgroups; ++s) best = max(best, tops[s]);
  for (ushort s = 0; s < simdgroups; ++s) all += totals[s] * exp(tops[s] - best);
  for (short part = lane, j = 0; part < parts; part += 32, ++j) {
    for (short i = 0; i < 16; ++i)
      sums[simdgroup % 4][part * 16 + i] = acc[j][i / 4][i % 4] * exp(top - best) / all;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (short i = simdgroup * 32 + lane; i < size; i += 32 * simdgroups) {
    float sum = 0.f;
    for (ushort s = 0; s < min(simdgroups, ushort(4)); ++s) sum += sums[s][i];
    out[query * size + i] = sum;
  }
}

// 8 queries a threadgroup of 4 simdgroups, keys in blocks of 32; everything unrolled over the head's size.
template <class U, class S, short size>
kernel void attend_tiles(device const float* q [[buffer(0)]], device const char* k [[buffer(1)]],
                         device const char* v [[buffer(2)]], device float* out [[buffer(3)]],
                         constant Attention& p [[buffer(4)]],
                         threadgroup S* memory [[threadgroup(0)]],
                         uint first [[threadgroup_position_in_grid]],
                         ushort thread_index [[thread_index_in_threadgroup]],
                         ushort lane [[thread_index_in_simdgroup]],
                         ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup S* queries = memory;             // 8 x size
  threadgroup S* tile = queries + 8 * size;    // 32 x 16
  threadgroup S* scores = tile + 32 * 16 * 4;  // 8 x 32
  threadgroup float tops[8], totals[8], keeps[8];
  for (ushort i = thread_index; i < 8 * size; i += 128)
    queries[i] = S(q[first * 8 * size + i] * p.scale);
  if (thread_index < 8) tops[thread_index] = -INFINITY, totals[thread_index] = 0.f;
  simdgroup_matrix<float, 8, 8> acc[size / 8];
#pragma unroll
  for (short i = 0; i < size / 8; ++i) acc[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.f);
  for (uint key0 = 0; key0 < p.keys; key0 += 32) {
    simdgroup_matrix<float, 8, 8> dots = make_filled_simdgroup_matrix<float, 8, 8>(0.f);
#pragma unroll
    for (short part = 0; part < size / 16; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (thread_index < 32) {
        float4x4 w;
        const uint key = min(key0 + thread_index, p.keys - 1);
        U::unpack(*block_of<U>(k + key * p.key_bytes, part), part % (U::weights / 16), w);
#pragma unroll
        for (short i = 0; i < 16; ++i) tile[thread_index * 16 + i] = S(w[i / 4][i % 4]);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
      for (short step = 0; step < 2; ++step) {
        simdgroup_matrix<S, 8, 8> a, b;
        simdgroup_load(a, queries + part * 16 + step * 8, size);
        simdgroup_load(b, tile + simdgroup * 8 * 16 + step * 8, 16, 0, true);
        simdgroup_multiply_accumulate(dots, a, b, dots);
      }
    }
    threadgroup float* sums = (threadgroup float*)(scores + 8 * 32);
    simdgroup_store(dots, sums + simdgroup * 8, 32);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (short r = 0; r < 2; ++r) {
      const ushort row = simdgroup * 2 + r;
      const float score = key0 + lane < p.keys ? sums[row * 32 + lane] : -INFINITY;
      const float top = max(tops[row], simd_max(score)), weight = exp(score - top);
      const float total = simd_sum(weight);
      scores[row * 32 + lane] = S(weight);
      if (lane == 0) {
        keeps[row] = exp(tops[row] - top);
        totals[row] = totals[row] * keeps[row] + total;
        tops[row] = top;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<float, 8, 8> keep;
    for (short i = lane; i < 64; i += 32)
      sums[simdgroup * 64 + i] = i / 8 == i % 8 ? keeps[i / 8] : 0.f;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(keep, sums + simdgroup * 64, 8);
#pragma unroll
    for (short part = 0; part < size / 16; ++part) {
      if (part % 4 != simdgroup) continue;
      threadgroup S* values = tile + simdgroup * 32 * 16;
      float4x4 w;
      const uint key = min(key0 + lane, p.keys - 1);
      U::unpack(*block_of<U>(v + key * p.key_bytes, part), part % (U::weights / 16), w);
#pragma unroll
      for (short i = 0; i < 16; ++i) values[lane * 16 + i] = S(w[i / 4][i % 4]);
      simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
      for (short half_part = 0; half_part < 2; ++half_part) {
        simdgroup_multiply(acc[part * 2 + half_part], keep, acc[part * 2 + half_part]);
#pragma unroll
        for (short step = 0; step < 4; ++step) {
          simdgroup_matrix<S, 8, 8> a, b;
          simdgroup_load(a, scores + step * 8, 32);
          simdgroup_load(b, values + step * 8 * 16 + half_part * 8, 16);
          simdgroup_multiply_accumulate(acc[part * 2 + half_part], a, b, acc[part * 2 + half_part]);
        }
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  threadgroup float* sums = (threadgroup float*)(scores + 8 * 32);
  for (short i = lane; i < 64; i += 32)
    sums[simdgroup * 64 + i] = i / 8 == i % 8 ? 1.f / totals[i / 8] : 0.f;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<float, 8, 8> by;
  simdgroup_load(by, sums + simdgroup * 64, 8);
#pragma unroll
  for (short i = 0; i < size / 8; ++i) {
    if (i / 2 % 4 != simdgroup) continue;
    simdgroup_multiply(acc[i], by, acc[i]);
    simdgroup_store(acc[i], out + first * 8 * size + i * 8, size);
  }
}

struct Sum {
  static float start() { return 0.f; }
  static float of(float a, float b) { return a + b; }
  static float lanes(float x) { return simd_sum(x); }
};
struct Largest {
  static float start() { return -INFINITY; }
  static float of(float a, float b) { return max(a, b); }
  static float lanes(float x) { return simd_max(x); }
};
// The same value in every thread of the threadgroup.
template <class R>
inline float over_threads(float x, threadgroup float* shared, ushort lane, ushort simdgroup,
                          ushort simdgroups) {
  x = R::lanes(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) shared[simdgroup] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return R::lanes(lane < simdgroups ? shared[lane] : R::start());
}
#define ROW_ARGUMENTS                                                                          \
  device const T *x [[buffer(0)]], device O *y [[buffer(1)]], constant Rows &p [[buffer(2)]],  \
      threadgroup float *shared [[threadgroup(0)]], uint row [[threadgroup_position_in_grid]], \
      ushort thread_index [[thread_index_in_threadgroup]],                                     \
      ushort threads [[threads_per_threadgroup]], ushort lane [[thread_index_in_simdgroup]],   \
      ushort simdgroup [[simdgroup_index_in_threadgroup]],                                     \
      ushort simdgroups [[simdgroups_per_threadgroup]]
template <class T, class O, short n>
kernel void softmax_rows(ROW_ARGUMENTS) {
  typedef vec<T, n> V;
  device const V* from = (device const V*)(x + row * p.width);
  device O* to = y + row * p.width;
  float top = -INFINITY;
  for (uint i = thread_index; i < p.width / n; i += threads) {
    for (short j = 0; j < n; ++j) top = max(top, float(from[i][j]) * p.scale);
  }
  top = over_threads<Largest>(top, shared, lane, simdgroup, simdgroups);
  float sum = 0.f;
  for (uint i = thread_index; i < p.width / n; i += threads) {
    for (short j = 0; j < n; ++j) {
      const float e = exp(float(from[i][j]) * p.scale - top);
      sum += e;
      to[i * n + j] = O(e);
    }
  }
  sum = over_threads<Sum>(sum, shared, lane, simdgroup, simdgroups);
  for (uint i = thread_index; i < p.width; i += threads) to[i] = O(float(to[i]) / sum);
}
template <class T, class O, short n>
kernel void root_mean_square(ROW_ARGUMENTS) {
  device const T* from = x + row * p.width;
  float sum = 0.f;
  for (uint i = thread_index * n; i < p.width; i += threads * n) {
    for (short j = 0; j < n; ++j) sum += float(from[i + j]) * float(from[i + j]);
  }
  sum = over_threads<Sum>(sum, shared, lane, simdgroup, simdgroups);
  const float by = rsqrt(sum / p.width + p.epsilon);
  for (uint i = thread_index; i < p.width; i += threads)
    y[row * p.width + i] = O(float(from[i]) * by);
}
template <class T, class O, short n>
kernel void normalize_rows(ROW_ARGUMENTS) {
  device const T* from = x + row * p.width;
  float sum = 0.f;
  for (uint i = thread_index * n; i < p.width; i += threads * n) {
    for (short j = 0; j < n; ++j) sum += float(from[i + j]);
  }
  const float mean = over_threads<Sum>(sum, shared, lane, simdgroup, simdgroups) / p.width;
  float squares = 0.f;
  for (uint i = thread_index; i < p.width; i += threads) {
    const float v = float(from[i]) - mean;
    squares += v * v;
  }
  const float by =
      rsqrt(over_threads<Sum>(squares, shared, lane, simdgroup, simdgroups) / p.width + p.epsilon);
  for (uint i = thread_index; i < p.width; i += threads)
    y[row * p.width + i] = O((float(from[i]) - mean) * by);
}

// A row of up to 1024 values, whose places come out in order.
template <class T, bool falling, short n>
kernel void sort_rows(device const T* x [[buffer(0)]], device int* y [[buffer(1)]],
                      constant Rows& p [[buffer(2)]], threadgroup int* places [[threadgroup(0)]],
                      uint row [[threadgroup_position_in_grid]],
                      ushort i [[thread_index_in_threadgroup]],
                      ushort threads [[threads_per_threadgroup]]) {
  device const T* from = x + row * p.width;
  places[i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 2; k <= threads; k *= 2) {
    for (uint j = k / 2; j > 0; j /= 2) {
      const uint other = i ^ j;
      if (other > i) {
        const int a = places[i], b = places[other];
        const bool outside =
            uint(a) >= p.width ||
            (uint(b) < p.width && (falling ? from[a] < from[b] : from[a] > from[b]));
        const bool outside2 =
            uint(b) >= p.width ||
            (uint(a) < p.width && (falling ? from[a] > from[b] : from[a] < from[b]));
        if ((i & k) == 0 ? outside : outside2) places[i] = b, places[other] = a;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  for (short t = 0; t < n; ++t) {
    if (i * n + t < p.width) y[row * p.width + i * n + t] = places[i * n + t];
  }
}

struct Grid {
  uint shape[4];
  ulong from[4];
  ulong to[4];
};
template <class U, class O, short n>
kernel void gather_rows(device const char* table [[buffer(0)]],
                        device const int* rows [[buffer(1)]], device O* y [[buffer(2)]],
                        constant Product& p [[buffer(3)]], uint2 at [[thread_position_in_grid]]) {
  for (short t = 0; t < n; ++t) {
    const uint part = at.x * n + t;
    if (part >= p.depth / 16) return;
    float4x4 w;
    U::unpack(*block_of<U>(table + rows[at.y] * p.row_bytes, part), part % (U::weights / 16), w);
    for (short i = 0; i < 16; ++i) y[at.y * p.depth + part * 16 + i] = O(w[i / 4][i % 4]);
  }
}
template <class T, class O, short n>
kernel void copy_strided(device const char* x [[buffer(0)]], device char* y [[buffer(1)]],
                         constant Grid& g [[buffer(2)]], uint3 at [[thread_position_in_grid]]) {
  for (uint i = at.x * n; i < min(at.x * n + n, g.shape[0]); ++i) {
    device const T* from =
        (device const T*)(x + i * g.from[0] + at.y * g.from[1] + at.z % g.shape[2] * g.from[2] +
                          at.z / g.shape[2] * g.from[3]);
    device O* to = (device O*)(y + i * g.to[0] + at.y * g.to[1] + at.z % g.shape[2] * g.to[2] +
                               at.z / g.shape[2] * g.to[3]);
    *to = O(float(*from));
  }
}
template <class T, class O, short bits>
kernel void quantize(device const T* x [[buffer(0)]], device uchar* y [[buffer(1)]],
                     device O* scales [[buffer(2)]], constant uint& n [[buffer(3)]],
                     uint block [[thread_position_in_grid]]) {
  if (block >= n) return;
  device const T* from = x + block * 32;
  float largest = 0.f;
  for (short i = 0; i < 32; ++i) largest = max(largest, fabs(float(from[i])));
  const float d = largest / ((1 << (bits - 1)) - 1), by = d ? 1.f / d : 0.f;
  scales[block] = O(d);
  for (short i = 0; i < 32 * bits / 8; ++i) {
    if (bits == 8) {
      y[block * 32 + i] = uchar(int(round(float(from[i]) * by)) + 128);
    } else {
      const uint low = uint(int(round(float(from[i]) * by)) + 8) & 15;
      const uint high = uint(int(round(float(from[i + 16]) * by)) + 8) & 15;
      y[block * 16 + i] = uchar(low | high << 4);
    }
  }
}
#define FORMULA(name, formula)          \
  struct name {                         \
    static float of(float a, float b) { \
      (void)b;                          \
      return formula;                   \
    }                                   \
  };
// clang-format off
FORMULA(Add, a + b)
FORMULA(Multiply, a* b)
FORMULA(Divide, a / b)
FORMULA(Power, powr(fabs(a), b))
FORMULA(Silu, a / (1.f + exp(-a)) * b)
FORMULA(Gelu, 0.5f * a * (1.f + precise::tanh(0.79788456f * a * (1.f + 0.044715f * a * a))))
FORMULA(Relu, max(a, 0.f))
FORMULA(Softplus, log(1.f + exp(a)))
FORMULA(Sine, sin(a) + b)
FORMULA(Hardswish, a* clamp(a / 6.f + 0.5f, 0.f, 1.f))
FORMULA(Elu, a > 0.f ? a : exp(a) - 1.f)
FORMULA(Logistic, 1.f / (1.f + exp(-a)))
FORMULA(Cosine, cos(a) * b)
FORMULA(Root, sqrt(fabs(a)) + b)
FORMULA(Logarithm, log(fabs(a) + 1.f) - b)
FORMULA(Erf, tanh(a * (1.1283792f + 0.1009f * a * a)))
// clang-format on
template <class F, class T, short n>
kernel void elementwise(device const T* x [[buffer(0)]], device const T* z [[buffer(1)]],
                        device T* y [[buffer(2)]], constant Grid& g [[buffer(3)]],
                        uint3 at [[thread_position_in_grid]]) {
  const uint row = at.z * g.shape[1] + at.y;
  for (uint i = at.x * n; i < min(at.x * n + n, g.shape[0]); ++i) {
    y[row * g.shape[0] + i] =
        T(F::of(float(x[row * g.shape[0] + i]), float(z[row % g.shape[3] * g.shape[0] + i])));
  }
}
