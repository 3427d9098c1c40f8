// Kernels with barriers, each beside the same work as loops over the threads between two barriers:
// the code of a compiler that does without a fiber per thread.
#include <metal_stdlib>
using namespace metal;

// Rows of 4096 by their root mean square; 256 threads.
kernel void rms_threads(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                        threadgroup float* shared [[threadgroup(0)]],
                        uint row [[threadgroup_position_in_grid]],
                        ushort thread_index [[thread_index_in_threadgroup]],
                        ushort lane [[thread_index_in_simdgroup]],
                        ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
  device const float* from = x + row * 4096;
  float sum = 0;
  for (uint i = thread_index; i < 4096; i += 256) sum += from[i] * from[i];
  sum = simd_sum(sum);
  if (lane == 0) shared[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = simd_sum(lane < 8 ? shared[lane] : 0.f);
  const float by = rsqrt(sum / 4096 + 1e-5f);
  for (uint i = thread_index; i < 4096; i += 256) y[row * 4096 + i] = from[i] * by;
}
inline float sum_of_lanes(thread float (&lanes)[32]) {
  for (ushort other = 16; other > 0; other /= 2) {
    for (ushort l = 0; l < other; ++l) lanes[l] += lanes[l + other];
  }
  return lanes[0];
}
kernel void rms_loops(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                      threadgroup float* shared [[threadgroup(0)]],
                      uint row [[threadgroup_position_in_grid]]) {
  device const float* from = x + row * 4096;
  float lanes[32];
  for (ushort s = 0; s < 8; ++s) {
    for (ushort l = 0; l < 32; ++l) lanes[l] = 0;
    for (uint i = s * 32; i < 4096; i += 256) {
      for (ushort l = 0; l < 32; ++l) lanes[l] += from[i + l] * from[i + l];
    }
    shared[s] = sum_of_lanes(lanes);
  }
  for (ushort s = 0; s < 8; ++s) {
    for (ushort l = 0; l < 32; ++l) lanes[l] = l < 8 ? shared[l] : 0.f;
    const float by = rsqrt(sum_of_lanes(lanes) / 4096 + 1e-5f);
    for (uint i = s * 32; i < 4096; i += 256) {
      for (ushort l = 0; l < 32; ++l) y[row * 4096 + i + l] = from[i + l] * by;
    }
  }
}

// Rows of 1024 in order; a thread per value.
inline void exchange(threadgroup float* a, uint i, uint j, uint k) {
  const uint other = i ^ j;
  if (other <= i) return;
  const float p = a[i], q = a[other];
  if ((i & k) == 0 ? p > q : p < q) a[i] = q, a[other] = p;
}
kernel void sort_threads(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                         threadgroup float* a [[threadgroup(0)]],
                         uint row [[threadgroup_position_in_grid]],
                         ushort i [[thread_index_in_threadgroup]]) {
  a[i] = x[row * 1024 + i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 2; k <= 1024; k *= 2) {
    for (uint j = k / 2; j > 0; j /= 2) {
      exchange(a, i, j, k);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  y[row * 1024 + i] = a[i];
}
kernel void sort_loops(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                       threadgroup float* a [[threadgroup(0)]],
                       uint row [[threadgroup_position_in_grid]]) {
  for (uint i = 0; i < 1024; ++i) a[i] = x[row * 1024 + i];
  for (uint k = 2; k <= 1024; k *= 2) {
    for (uint j = k / 2; j > 0; j /= 2) {
      for (uint i = 0; i < 1024; ++i) exchange(a, i, j, k);
    }
  }
  for (uint i = 0; i < 1024; ++i) y[row * 1024 + i] = a[i];
}

// 64 x 32 of x w by 128 threads, over a depth of 512; x has 32 rows for each threadgroup.
kernel void tile_threads(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                         device const float* w [[buffer(2)]],
                         threadgroup float* memory [[threadgroup(0)]],
                         uint group [[threadgroup_position_in_grid]],
                         ushort t [[thread_index_in_threadgroup]],
                         ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float* a = memory;
  threadgroup float* b = a + 64 * 32;
  const ushort row0 = simdgroup % 2 * 32, column0 = simdgroup / 2 * 16;
  simdgroup_matrix<float, 8, 8> sums[8];
  for (short i = 0; i < 8; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.f);
  for (uint k = 0; k < 512; k += 32) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (short i = 0; i < 16; ++i) a[t * 16 + i] = w[t / 2 * 512 + k + t % 2 * 16 + i];
    for (short i = 0; i < 8; ++i) b[t * 8 + i] = x[(group * 32 + t / 4) * 512 + k + t % 4 * 8 + i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (short step = 0; step < 32; step += 8) {
      simdgroup_matrix<float, 8, 8> left[4], right[2];
      for (short i = 0; i < 4; ++i) simdgroup_load(left[i], a + (row0 + 8 * i) * 32 + step, 32);
      for (short i = 0; i < 2; ++i) {
        simdgroup_load(right[i], b + (column0 + 8 * i) * 32 + step, 32, 0, true);
      }
      for (short i = 0; i < 8; ++i) {
        simdgroup_multiply_accumulate(sums[i], left[i % 4], right[i / 4], sums[i]);
      }
    }
  }
  for (short i = 0; i < 8; ++i) {
    simdgroup_store(sums[i], y + group * 2048 + (row0 + 8 * (i % 4)) * 32 + column0 + 8 * (i / 4),
                    32);
  }
}
kernel void tile_loops(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                       device const float* w [[buffer(2)]],
                       threadgroup float* memory [[threadgroup(0)]],
                       uint group [[threadgroup_position_in_grid]]) {
  threadgroup float* a = memory;
  threadgroup float* b = a + 64 * 32;
  float sums[4][8][8][8];
  for (short i = 0; i < 4 * 8 * 64; ++i) sums[i / 512][i / 64 % 8][i / 8 % 8][i % 8] = 0;
  for (uint k = 0; k < 512; k += 32) {
    for (short t = 0; t < 128; ++t) {
      for (short i = 0; i < 16; ++i) a[t * 16 + i] = w[t / 2 * 512 + k + t % 2 * 16 + i];
      for (short i = 0; i < 8; ++i) {
        b[t * 8 + i] = x[(group * 32 + t / 4) * 512 + k + t % 4 * 8 + i];
      }
    }
    for (short s = 0; s < 4; ++s) {
      threadgroup const float* rows = a + s % 2 * 32 * 32;
      threadgroup const float* columns = b + s / 2 * 16 * 32;
      for (short step = 0; step < 32; step += 8) {
        float right[2][8][8];
        for (short i = 0; i < 2; ++i) {
          for (short c = 0; c < 8; ++c) {
            for (short m = 0; m < 8; ++m) right[i][m][c] = columns[(8 * i + c) * 32 + step + m];
          }
        }
        for (short i = 0; i < 8; ++i) {
          for (short r = 0; r < 8; ++r) {
            for (short m = 0; m < 8; ++m) {
              const float left = rows[(8 * (i % 4) + r) * 32 + step + m];
              for (short c = 0; c < 8; ++c) sums[s][i][r][c] += left * right[i / 4][m][c];
            }
          }
        }
      }
    }
  }
  for (short s = 0; s < 4; ++s) {
    for (short i = 0; i < 8; ++i) {
      device float* to =
          y + group * 2048 + (s % 2 * 32 + 8 * (i % 4)) * 32 + s / 2 * 16 + 8 * (i / 4);
      for (short r = 0; r < 8; ++r) {
        for (short c = 0; c < 8; ++c) to[r * 32 + c] = sums[s][i][r][c];
      }
    }
  }
}
