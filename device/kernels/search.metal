// Places of values among sorted ones, and how many there are of each: bounds, buckets, histograms, counts.

#include <metal_stdlib>

#include "device/kernels/sort_params.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

using namespace metal;

// How many of `sorted` are less than `value`, or less or equal (Upper). The same steps for every value.
template <bool Upper, typename Wide, typename T>
inline uint bound_of(device const T* sorted, Wide value, uint n, uint top) {
  uint found = 0;
  for (uint step = top; step > 0; step >>= 1) {
    const uint next = found + step;
    const Wide at = Wide(sorted[min(next, n) - 1]);
    const bool before = Upper ? !(value < at) : at < value;
    found = next <= n && before ? next : found;
  }
  return found;
}

// Grid: values, batch.
template <typename T, typename Out, bool Upper>
kernel void search_bound(device const T* sorted [[buffer(0)]], device const T* values [[buffer(1)]],
                         device Out* out [[buffer(2)]], constant SearchParams& p [[buffer(3)]],
                         uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong at = ulong(position.y) * p.values + position.x;
  out[at] = Out(bound_of<Upper, Wide>(sorted + ulong(position.y) * p.sorted, Wide(values[at]),
                                      p.sorted, p.top));
}

template <typename T>
kernel void bucketize(device const float* boundaries [[buffer(0)]],
                      device const T* in [[buffer(1)]], device int* out [[buffer(2)]],
                      constant SearchParams& p [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  out[i] = int(bound_of<true, float>(boundaries, float(in[i]), p.sorted, p.top));
}

// Near where the division says, boundaries decide. NaN is in no bin.
template <typename T>
kernel void histogram_bin(device const T* boundaries [[buffer(0)]],
                          device const T* in [[buffer(1)]], device int* out [[buffer(2)]],
                          constant T& low [[buffer(3)]], constant float& scale [[buffer(4)]],
                          constant int& last [[buffer(5)]], uint i [[thread_position_in_grid]]) {
  const T value = in[i];
  const float guess = (float(value) - float(low)) * scale;
  int bin = guess > 0.0f ? int(min(guess, float(last))) : 0;
  bin = min(bin, last);
  while (bin > 0 && value < boundaries[bin - 1]) --bin;
  while (bin < last && value >= boundaries[bin]) ++bin;
  out[i] = value != value ? -1 : bin;
}

// The same where the guess is known to be less than half a bin off: the nearest boundary decides. For 2 bins or more,
// and 2^22 at most.
template <typename T>
kernel void histogram_near(device const T* boundaries [[buffer(0)]],
                           device const T* in [[buffer(1)]], device int* out [[buffer(2)]],
                           constant T& low [[buffer(3)]], constant float& scale [[buffer(4)]],
                           constant int& last [[buffer(5)]], uint i [[thread_position_in_grid]]) {
  const T value = in[i];
  const float guess = (float(value) - float(low)) * scale, most = float(last);
  const float kept = guess > 1.0f ? (guess < most ? guess : most) : 1.0f;
  // Beside 2^23 a whole number is the mantissa's last bits: conversions, which keep numbers within the type's, are no
  // work for vectors.
  const int nearest = as_type<int>(kept + 8388608.0f) - 0x4b000000;
  out[i] = nearest - 1 + int(value >= boundaries[nearest - 1]) - int(value != value);
}

#define BOUND(type)                                                                  \
  INSTANTIATE_KERNEL("search_lower_" #type "_int", search_bound, type, int, false)   \
  INSTANTIATE_KERNEL("search_lower_" #type "_long", search_bound, type, long, false) \
  INSTANTIATE_KERNEL("search_upper_" #type "_int", search_bound, type, int, true)    \
  INSTANTIATE_KERNEL("search_upper_" #type "_long", search_bound, type, long, true)
BOUND(float)
BOUND(half)
IF_BFLOAT(BOUND(bfloat))
BOUND(char)
BOUND(short)
BOUND(int)
BOUND(long)
BOUND(uchar)
BOUND(ushort)
BOUND(uint)
BOUND(ulong)
INSTANTIATE_KERNEL("bucketize_float", bucketize, float)
INSTANTIATE_KERNEL("bucketize_int", bucketize, int)
INSTANTIATE_KERNEL("bucketize_long", bucketize, long)
INSTANTIATE_KERNEL("histogram_bin_float", histogram_bin, float)
INSTANTIATE_KERNEL("histogram_bin_int", histogram_bin, int)
INSTANTIATE_KERNEL("histogram_bin_long", histogram_bin, long)
INSTANTIATE_KERNEL("histogram_near_float", histogram_near, float)
INSTANTIATE_KERNEL("histogram_near_int", histogram_near, int)
INSTANTIATE_KERNEL("histogram_near_long", histogram_near, long)

// ---- how many of each ---------------------------------------------------------------------------

// Every thread has bins for itself, so sums have one order. Grid: chunks, batch.
template <typename I, typename T>
kernel void count_chunk(device const I* indices [[buffer(0)]],
                        device const T* weights [[buffer(1)]], device T* bins [[buffer(2)]],
                        constant CountParams& p [[buffer(3)]],
                        uint2 position [[thread_position_in_grid]]) {
  device T* const own = bins + (ulong(position.y) * p.chunks + position.x) * p.size;
  const ulong first = ulong(position.x) * p.chunk, last = min(first + p.chunk, p.n);
  const ulong row = ulong(position.y) * p.n;
  for (ulong bin = 0; bin < p.size; ++bin) own[bin] = T(0);
  for (ulong i = first; i < last; ++i) {
    const long bin = long(indices[row + i]);
    if (bin < 0 || bin >= long(p.size)) continue;
    const T weight = p.weighted != 0 ? weights[row + i] : T(1);
    own[bin] = p.binary != 0 ? T(1) : T(own[bin] + weight);
  }
}

// Grid: size, batch.
template <typename T>
kernel void count_join(device const T* bins [[buffer(0)]], device T* out [[buffer(1)]],
                       constant CountParams& p [[buffer(2)]],
                       uint2 position [[thread_position_in_grid]]) {
  device const T* const all = bins + ulong(position.y) * p.chunks * p.size + position.x;
  T sum = T(0);
  for (uint chunk = 0; chunk < p.chunks; ++chunk) {
    const T here = all[chunk * p.size];
    sum = p.binary != 0 ? max(sum, here) : T(sum + here);
  }
  out[ulong(position.y) * p.size + position.x] = sum;
}

// Rows of different lengths, from splits[row] on: a thread has one. Grid: rows.
template <typename I, typename T>
kernel void count_ragged(device const long* splits [[buffer(0)]],
                         device const I* indices [[buffer(1)]],
                         device const T* weights [[buffer(2)]], device T* out [[buffer(3)]],
                         constant CountParams& p [[buffer(4)]],
                         uint row [[thread_position_in_grid]]) {
  device T* const own = out + ulong(row) * p.size;
  for (ulong bin = 0; bin < p.size; ++bin) own[bin] = T(0);
  for (long i = splits[row]; i < splits[row + 1]; ++i) {
    const long bin = long(indices[i]);
    if (bin < 0 || bin >= long(p.size)) continue;
    const T weight = p.weighted != 0 ? weights[i] : T(1);
    own[bin] = p.binary != 0 ? T(1) : T(own[bin] + weight);
  }
}

#define COUNT(type)                                                           \
  INSTANTIATE_KERNEL("count_chunk_" #type "_int", count_chunk, int, type)     \
  INSTANTIATE_KERNEL("count_chunk_" #type "_long", count_chunk, long, type)   \
  INSTANTIATE_KERNEL("count_ragged_" #type "_int", count_ragged, int, type)   \
  INSTANTIATE_KERNEL("count_ragged_" #type "_long", count_ragged, long, type) \
  INSTANTIATE_KERNEL("count_join_" #type, count_join, type)
COUNT(float)
COUNT(uint)
COUNT(ulong)
