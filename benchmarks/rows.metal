// The kernels of benchmarks/cases/rows.py: the slow parts of inference engines, at their sizes. Most
// are templates of shader_library.metal; two more here, and which instances.
#include "shader_library.metal"

// y[n, r] = sum_k weights[r, k] x[n, k] for 2 to 8 columns n: a lane unpacks 16 weights of a row once and
// multiplies them by all columns, whose values it has read before. A simdgroup has n_rows rows.
template <class U, class T, short n_rows, short columns>
kernel void few_columns_product(device const char* weights [[buffer(0)]],
                                device const T* x [[buffer(1)]], device float* y [[buffer(2)]],
                                constant Product& p [[buffer(3)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                ushort simdgroup [[simdgroup_index_in_threadgroup]],
                                ushort lane [[thread_index_in_simdgroup]],
                                ushort simdgroups [[simdgroups_per_threadgroup]]) {
  const uint row0 = (group.x * simdgroups + simdgroup) * n_rows, column0 = group.y * columns;
  float sums[n_rows][columns] = {{0.f}};
  for (uint part = lane; part < p.depth / 16; part += 32) {
    float values[columns][16];
    for (short c = 0; c < columns; ++c) {
      device const T* from = x + min(column0 + c, p.columns - 1) * p.depth + 16 * part;
      for (short i = 0; i < 16; ++i) values[c][i] = from[i];
    }
    for (short r = 0; r < n_rows; ++r) {
      device const char* row = weights + min(row0 + r, p.rows - 1) * p.row_bytes;
      float4x4 w;
      U::unpack(*block_of<U>(row, part), part % (U::weights / 16), w);
      for (short c = 0; c < columns; ++c) {
        for (short i = 0; i < 16; ++i) sums[r][c] += w[i / 4][i % 4] * values[c][i];
      }
    }
  }
  for (short r = 0; r < n_rows; ++r) {
    for (short c = 0; c < columns; ++c) {
      const float total = simd_sum(sums[r][c]);
      if (lane == 0 && row0 + r < p.rows && column0 + c < p.columns) {
        y[(column0 + c) * p.rows + row0 + r] = total;
      }
    }
  }
}

// One query of a head by `simdgroups` simdgroups, each with keys of its own; lanes have parts of a head.
template <short size>
kernel void attend_row(
    device const float* q [[buffer(0)]], device const half* k [[buffer(1)]],
    device const half* v [[buffer(2)]], device float* out [[buffer(3)]],
    constant Attention& p [[buffer(4)]], threadgroup float* shared [[threadgroup(0)]],
    uint head [[threadgroup_position_in_grid]], ushort thread_index [[thread_index_in_threadgroup]],
    ushort threads [[threads_per_threadgroup]], ushort simdgroup [[simdgroup_index_in_threadgroup]],
    ushort simdgroups [[simdgroups_per_threadgroup]], ushort lane [[thread_index_in_simdgroup]]) {
  constexpr short parts = size / 32;
  threadgroup float* tops = shared + simdgroups * size;
  threadgroup float* totals = tops + 32;
  device const half* keys = k + (ulong)head * p.keys * size;
  device const half* values = v + (ulong)head * p.keys * size;
  float query[parts], acc[parts];
  for (short i = 0; i < parts; ++i) {
    query[i] = q[head * size + i * 32 + lane] * p.scale;
    acc[i] = 0.f;
  }
  float top = -INFINITY, total = 0.f;
  for (uint key = simdgroup; key < p.keys; key += simdgroups) {
    float part = 0.f;
    for (short i = 0; i < parts; ++i) part += query[i] * float(keys[key * size + i * 32 + lane]);
    const float score = simd_sum(part);
    const float before = top;
    top = max(top, score);
    const float keep = exp(before - top), weight = exp(score - top);
    total = total * keep + weight;
    for (short i = 0; i < parts; ++i) {
      acc[i] = acc[i] * keep + weight * float(values[key * size + i * 32 + lane]);
    }
  }
  for (short i = 0; i < parts; ++i) shared[simdgroup * size + i * 32 + lane] = acc[i];
  if (lane == 0) tops[simdgroup] = top, totals[simdgroup] = total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float best = -INFINITY, all = 0.f;
  for (ushort s = 0; s < simdgroups; ++s) best = max(best, tops[s]);
  for (ushort s = 0; s < simdgroups; ++s) all += totals[s] * exp(tops[s] - best);
  for (ushort i = thread_index; i < size; i += threads) {
    float sum = 0.f;
    for (ushort s = 0; s < simdgroups; ++s) sum += shared[s * size + i] * exp(tops[s] - best);
    out[head * size + i] = sum / all;
  }
}

#define INSTANCE(name, ...) template [[host_name(name)]] kernel decltype(__VA_ARGS__) __VA_ARGS__;
INSTANCE("softmax", softmax_rows<float, float, 4>)
INSTANCE("attend_64", attend_row<64>)
INSTANCE("attend_128", attend_row<128>)
INSTANCE("attend_576", attend_row<576>)
INSTANCE("attend_tiles_128", attend_tiles<Plain<half>, float, 128>)
INSTANCE("gather_float", gather_rows<Plain<float>, float, 1>)
INSTANCE("gather_4", gather_rows<Unpack4, float, 1>)
INSTANCE("product_4", row_product<Unpack4, float, 4>)
INSTANCE("product_8", row_product<Unpack8, float, 4>)
INSTANCE("product_4_columns_4", few_columns_product<Unpack4, float, 4, 4>)
INSTANCE("product_tile_4", tile_product<Unpack4, float, float>)
