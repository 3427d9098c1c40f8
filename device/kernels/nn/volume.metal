// Windows over volumes and images: pools of every number, with places, of three dimensions, their
// gradients; patches; dilation. Gradients are gathered, in one order: no atomics. Grids are (width *
// channels / kLanes, height, volumes * depth) of the output: a thread has kLanes channels that are
// neighbours in memory, VOLUME_LANES or VOLUME_MANY_LANES of channels that are a multiple of it and come
// last, or 1.

#include <metal_stdlib>

#include "device/kernels/nn/volume_params.h"
#include "device/kernels/nn/windows.metal.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// The element that a thread computes, the first of its lanes.
struct Element {
  uint volume, channel;
  int z, y, x;
};
template <uint kLanes>
inline Element find_element(constant VolumeParams& p, uint3 position, uint depth) {
  Element e;
  const uint blocks = p.channels / kLanes;
  e.x = int(position.x / blocks);
  e.channel = (position.x - uint(e.x) * blocks) * kLanes;
  e.y = int(position.y);
  e.volume = position.z / depth;
  e.z = int(position.z - e.volume * depth);
  return e;
}
template <uint kLanes>
inline Element out_element(constant VolumeParams& p, uint3 position) {
  return find_element<kLanes>(p, position, p.out_d);
}
template <uint kLanes>
inline Element in_element(constant VolumeParams& p, uint3 position) {
  return find_element<kLanes>(p, position, p.in_d);
}
inline long in_at(constant VolumeParams& p, Element e, int z, int y, int x) {
  return long(e.volume) * p.in_volume + long(z) * p.in_z + long(y) * p.in_y + long(x) * p.in_x +
         long(e.channel) * p.in_c;
}
inline long out_at(constant VolumeParams& p, Element e, int z, int y, int x) {
  return long(e.volume) * p.out_volume + long(z) * p.out_z + long(y) * p.out_y + long(x) * p.out_x +
         long(e.channel) * p.out_c;
}

// The point of its window that the loops below are at.
#define TAP(p) ((uint(fz) * p.window_h + uint(fy)) * p.window_w + uint(fx))

// The points z, y, x of an output's window that lie in the input, in order.
inline int window_point(int at, uint offset, uint stride, uint dilation, int pad) {
  return at * int(stride) - pad + int(offset * dilation);
}
inline bool is_inside(int at, uint size) { return at >= 0 && at < int(size); }
struct Inside {
  Taps z, y, x;
};
inline Inside find_inside(constant VolumeParams& p, Element e) {
  Inside inside;
  inside.z = taps_within(window_point(e.z, 0, p.stride_d, p.dilation_d, p.pad_front), p.window_d,
                         p.dilation_d, p.in_d);
  inside.y = taps_within(window_point(e.y, 0, p.stride_h, p.dilation_h, p.pad_top), p.window_h,
                         p.dilation_h, p.in_h);
  inside.x = taps_within(window_point(e.x, 0, p.stride_w, p.dilation_w, p.pad_left), p.window_w,
                         p.dilation_w, p.in_w);
  return inside;
}
inline bool is_empty(Inside inside) {
  return inside.z.begin >= inside.z.end || inside.y.begin >= inside.y.end ||
         inside.x.begin >= inside.x.end;
}
#define FOR_WINDOW(p, e, inside)                                                                  \
  for (uint fz = inside.z.begin; fz < inside.z.end; ++fz)                                         \
    for (int z = window_point(e.z, fz, p.stride_d, p.dilation_d, p.pad_front), once_z = 1;        \
         once_z != 0; once_z = 0)                                                                 \
      for (uint fy = inside.y.begin; fy < inside.y.end; ++fy)                                     \
        for (int y = window_point(e.y, fy, p.stride_h, p.dilation_h, p.pad_top), once_y = 1;      \
             once_y != 0; once_y = 0)                                                             \
          for (uint fx = inside.x.begin; fx < inside.x.end; ++fx)                                 \
            for (int x = window_point(e.x, fx, p.stride_w, p.dilation_w, p.pad_left), once_x = 1; \
                 once_x != 0; once_x = 0)
// Where the first of them is, and which point of the window.
inline int3 first_point(constant VolumeParams& p, Element e, Inside inside) {
  return int3(window_point(e.x, inside.x.begin, p.stride_w, p.dilation_w, p.pad_left),
              window_point(e.y, inside.y.begin, p.stride_h, p.dilation_h, p.pad_top),
              window_point(e.z, inside.z.begin, p.stride_d, p.dilation_d, p.pad_front));
}
inline uint first_tap(constant VolumeParams& p, Inside inside) {
  return (inside.z.begin * p.window_h + inside.y.begin) * p.window_w + inside.x.begin;
}
inline uint pixel_of(constant VolumeParams& p, int z, int y, int x) {
  return (uint(z) * p.in_h + uint(y)) * p.in_w + uint(x);
}

// The windows z, y, x that an element of the input lies in, the last first.
struct Reaches {
  Reach z, y, x;
};
inline Reaches find_reaches(constant VolumeParams& p, Element e) {
  Reaches r;
  r.z = reach_of(e.z, p.pad_front, p.window_d, p.dilation_d, p.stride_d, p.out_d);
  r.y = reach_of(e.y, p.pad_top, p.window_h, p.dilation_h, p.stride_h, p.out_h);
  r.x = reach_of(e.x, p.pad_left, p.window_w, p.dilation_w, p.stride_w, p.out_w);
  return r;
}
#define FOR_WINDOWS_OF(p, r)                                                      \
  for (int z = r.z.last; z >= r.z.first; --z)                                     \
    for (int fz = tap_of(r.z, z, p.stride_d, p.dilation_d); fz >= 0; fz = -1)     \
      for (int y = r.y.last; y >= r.y.first; --y)                                 \
        for (int fy = tap_of(r.y, y, p.stride_h, p.dilation_h); fy >= 0; fy = -1) \
          for (int x = r.x.last; x >= r.x.first; --x)                             \
            for (int fx = tap_of(r.x, x, p.stride_w, p.dilation_w); fx >= 0; fx = -1)

template <typename T>
inline T lowest() {
  return numeric_limits<T>::lowest();
}
template <>
inline float lowest() {
  return -3.402823466e38f;
}

// ---- largest of windows -------------------------------------------------------------------------

// The first of the largest; NaN is so if it comes first, as on the CPU. `pixel` is its place in the volume,
// of each channel.
template <typename T, uint kLanes>
struct First {
  T value[kLanes];
  uint tap[kLanes], pixel[kLanes];
};
template <typename T, uint kLanes>
inline First<typename wide<T>::type, kLanes> find_first(device const T* in,
                                                        constant VolumeParams& p, Element e) {
  using Wide = typename wide<T>::type;
  First<Wide, kLanes> first;
  const Inside inside = find_inside(p, e);
  if (is_empty(inside)) {
    for (uint k = 0; k < kLanes; ++k) {
      first.value[k] = lowest<Wide>();
      first.tap[k] = first.pixel[k] = 0;
    }
    return first;
  }
  // The first counts where nothing is larger.
  const int3 point = first_point(p, e, inside);
  device const T* const begin = in + in_at(p, e, point.z, point.y, point.x);
  const uint begin_tap = first_tap(p, inside), begin_pixel = pixel_of(p, point.z, point.y, point.x);
  for (uint k = 0; k < kLanes; ++k) {
    first.value[k] = Wide(begin[k]);
    first.tap[k] = begin_tap;
    first.pixel[k] = begin_pixel;
  }
  FOR_WINDOW(p, e, inside) {
    device const T* const from = in + in_at(p, e, z, y, x);
    const uint tap = TAP(p), pixel = pixel_of(p, z, y, x);
    for (uint k = 0; k < kLanes; ++k) {
      const Wide value = Wide(from[k]);
      const bool larger = value > first.value[k];
      first.value[k] = larger ? value : first.value[k];
      first.tap[k] = larger ? tap : first.tap[k];
      first.pixel[k] = larger ? pixel : first.pixel[k];
    }
  }
  return first;
}
// Where a pixel of lane k lies.
inline long pixel_at(constant VolumeParams& p, Element e, uint pixel, uint k) {
  return long(e.volume) * p.in_volume + long(pixel) * p.in_x + long(e.channel + k) * p.in_c;
}

template <typename T, uint kLanes>
kernel void max_volume(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       constant VolumeParams& p [[buffer(2)]],
                       uint3 position [[thread_position_in_grid]]) {
  const Element e = out_element<kLanes>(p, position);
  using Wide = typename wide<T>::type;
  Wide largest[kLanes];
  const Inside inside = find_inside(p, e);
  if (is_empty(inside)) {
    for (uint k = 0; k < kLanes; ++k) largest[k] = lowest<Wide>();
  } else {
    const int3 point = first_point(p, e, inside);
    device const T* const begin = in + in_at(p, e, point.z, point.y, point.x);
    for (uint k = 0; k < kLanes; ++k) largest[k] = Wide(begin[k]);
  }
  FOR_WINDOW(p, e, inside) {
    device const T* const from = in + in_at(p, e, z, y, x);
    for (uint k = 0; k < kLanes; ++k) {
      const Wide value = Wide(from[k]);
      // NaN stays.
      largest[k] = value > largest[k] || value != value ? value : largest[k];
    }
  }
  device T* const to = out + out_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = T(largest[k]);
}

// `argmax` has `words` words each.
template <typename T, uint kLanes>
kernel void max_volume_argmax(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                              device uint* argmax [[buffer(2)]], constant uint& words [[buffer(3)]],
                              constant VolumeParams& p [[buffer(4)]],
                              uint3 position [[thread_position_in_grid]]) {
  Element e = out_element<kLanes>(p, position);
  const auto first = find_first<T, kLanes>(in, p, e);
  const long at = out_at(p, e, e.z, e.y, e.x);
  if (p.whole_index == 0) e.volume = 0;
  for (uint k = 0; k < kLanes; ++k) out[at + k] = T(first.value[k]);
  for (uint k = 0; k < kLanes; ++k) {
    const long index = pixel_at(p, e, first.pixel[k], k);
    argmax[(at + k) * words] = uint(index);
    if (words > 1) argmax[(at + k) * words + 1] = uint(index >> 32);
  }
}

// The gradient of the gradient: the value where the largest was.
template <typename T, uint kLanes>
kernel void max_volume_grad_grad(device const T* in [[buffer(0)]],
                                 device const T* d_in [[buffer(1)]], device T* out [[buffer(2)]],
                                 constant VolumeParams& p [[buffer(3)]],
                                 uint3 position [[thread_position_in_grid]]) {
  const Element e = out_element<kLanes>(p, position);
  const auto first = find_first<T, kLanes>(in, p, e);
  device T* const to = out + out_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = d_in[pixel_at(p, e, first.pixel[k], k)];
}

template <typename T, uint kLanes>
kernel void max_volume_taps(device const T* in [[buffer(0)]], device uint* taps [[buffer(1)]],
                            constant VolumeParams& p [[buffer(2)]],
                            uint3 position [[thread_position_in_grid]]) {
  const Element e = out_element<kLanes>(p, position);
  const auto first = find_first<T, kLanes>(in, p, e);
  device uint* const to = taps + out_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = first.tap[k];
}

// The gradients that an element gets from the windows whose result it was.
template <typename T, uint kLanes>
kernel void taps_grad(device const uint* taps [[buffer(0)]], device const T* d_out [[buffer(1)]],
                      device T* d_in [[buffer(2)]], constant VolumeParams& p [[buffer(3)]],
                      uint3 position [[thread_position_in_grid]]) {
  const Element e = in_element<kLanes>(p, position);
  using Wide = typename wide<T>::type;
  Wide sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0;
  const Reaches reaches = find_reaches(p, e);
  FOR_WINDOWS_OF(p, reaches) {
    const long at = out_at(p, e, z, y, x);
    const uint tap = TAP(p);
    for (uint k = 0; k < kLanes; ++k) {
      sum[k] = taps[at + k] == tap ? Wide(sum[k] + Wide(d_out[at + k])) : sum[k];
    }
  }
  device T* const to = d_in + in_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = T(sum[k]);
}

// Every element that equals its window's largest has the gradient, as MaxPool3DGrad's have.
template <typename T, uint kLanes>
kernel void max_volume_grad(device const T* in [[buffer(0)]], device const T* pooled [[buffer(1)]],
                            device const T* d_out [[buffer(2)]], device T* d_in [[buffer(3)]],
                            constant VolumeParams& p [[buffer(4)]],
                            uint3 position [[thread_position_in_grid]]) {
  const Element e = in_element<kLanes>(p, position);
  const long here = in_at(p, e, e.z, e.y, e.x);
  float value[kLanes], sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) {
    value[k] = float(in[here + k]);
    sum[k] = 0.0f;
  }
  const Reaches reaches = find_reaches(p, e);
  FOR_WINDOWS_OF(p, reaches) {
    const long at = out_at(p, e, z, y, x);
    for (uint k = 0; k < kLanes; ++k) {
      sum[k] = float(pooled[at + k]) == value[k] ? sum[k] + float(d_out[at + k]) : sum[k];
    }
  }
  for (uint k = 0; k < kLanes; ++k) d_in[here + k] = T(sum[k]);
}

inline ulong index_of(device const uint* argmax, ulong at, uint words) {
  return words > 1 ? ulong(argmax[2 * at]) | ulong(argmax[2 * at + 1]) << 32 : ulong(argmax[at]);
}

// Adds the gradients of a volume to where its indices say; a thread has a range of the volume, so that
// the order is one. Grid: ranges, volumes. `d_in` begins as zeros.
template <typename T>
kernel void argmax_grad(device const T* d_out [[buffer(0)]],
                        device const uint* argmax [[buffer(1)]],
                        device typename wide<T>::type* d_in [[buffer(2)]],
                        constant uint& words [[buffer(3)]], constant uint& ranges [[buffer(4)]],
                        constant VolumeParams& p [[buffer(5)]],
                        uint2 position [[thread_position_in_grid]]) {
  const ulong size = ulong(p.in_volume), part = (size + ranges - 1) / ranges;
  const ulong first = position.x * part, end = min(first + part, size);
  const ulong base = ulong(position.y) * size;
  for (ulong i = 0; i < ulong(p.out_volume); ++i) {
    const ulong at = ulong(position.y) * ulong(p.out_volume) + i;
    const ulong index = index_of(argmax, at, words) - (p.whole_index != 0 ? base : 0);
    if (index < first || index >= end) continue;
    d_in[base + index] += typename wide<T>::type(d_out[at]);
  }
}

// Grid: elements of `out`.
template <typename T>
kernel void argmax_grad_grad(device const T* d_in [[buffer(0)]],
                             device const uint* argmax [[buffer(1)]], device T* out [[buffer(2)]],
                             constant uint& words [[buffer(3)]],
                             constant VolumeParams& p [[buffer(4)]],
                             uint i [[thread_position_in_grid]]) {
  const ulong size = ulong(p.in_volume);
  const ulong base = i / ulong(p.out_volume) * size;
  const ulong index = index_of(argmax, i, words) - (p.whole_index != 0 ? base : 0);
  out[i] = index < size ? d_in[base + index] : T(0);
}

// ---- means --------------------------------------------------------------------------------------

inline float window_size(constant VolumeParams& p, int z, int y, int x) {
  const int front = z * int(p.stride_d) - p.pad_front, top = y * int(p.stride_h) - p.pad_top,
            left = x * int(p.stride_w) - p.pad_left;
  const int d = min(front + int(p.window_d), int(p.in_d)) - max(front, 0),
            h = min(top + int(p.window_h), int(p.in_h)) - max(top, 0),
            w = min(left + int(p.window_w), int(p.in_w)) - max(left, 0);
  return float(d) * float(h) * float(w);
}

template <typename T, uint kLanes>
kernel void avg_volume(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       constant VolumeParams& p [[buffer(2)]],
                       uint3 position [[thread_position_in_grid]]) {
  const Element e = out_element<kLanes>(p, position);
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  const Inside inside = find_inside(p, e);
  FOR_WINDOW(p, e, inside) {
    device const T* const from = in + in_at(p, e, z, y, x);
    for (uint k = 0; k < kLanes; ++k) sum[k] += float(from[k]);
  }
  const float size = window_size(p, e.z, e.y, e.x);
  device T* const to = out + out_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = T(sum[k] / size);
}

template <typename T, uint kLanes>
kernel void avg_volume_grad(device const T* d_out [[buffer(0)]], device T* d_in [[buffer(1)]],
                            constant VolumeParams& p [[buffer(2)]],
                            uint3 position [[thread_position_in_grid]]) {
  const Element e = in_element<kLanes>(p, position);
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  const Reaches reaches = find_reaches(p, e);
  FOR_WINDOWS_OF(p, reaches) {
    device const T* const from = d_out + out_at(p, e, z, y, x);
    const float size = window_size(p, z, y, x);
    for (uint k = 0; k < kLanes; ++k) sum[k] += float(from[k]) / size;
  }
  device T* const to = d_in + in_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = T(sum[k]);
}

// ---- patches ------------------------------------------------------------------------------------

// out [..., window, channels]: a thread has kLanes channels of one point of one window. Grid: (window *
// channels / kLanes, width, volumes * depth * height) of the output.
template <typename T, uint kLanes>
kernel void patches(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                    constant VolumeParams& p [[buffer(2)]],
                    uint3 position [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
  Element e;
  const uint blocks = p.channels / kLanes;
  uint tap = position.x / blocks;
  e.channel = (position.x - tap * blocks) * kLanes;
  e.x = int(position.y);
  e.y = int(position.z % p.out_h);
  e.z = int(position.z / p.out_h % p.out_d);
  e.volume = position.z / p.out_h / p.out_d;
  const uint fx = tap % p.window_w;
  tap /= p.window_w;
  const uint fy = tap % p.window_h, fz = tap / p.window_h;
  const int z = window_point(e.z, fz, p.stride_d, p.dilation_d, p.pad_front),
            y = window_point(e.y, fy, p.stride_h, p.dilation_h, p.pad_top),
            x = window_point(e.x, fx, p.stride_w, p.dilation_w, p.pad_left);
  device T* const to =
      out + ((long(position.z) * p.out_w + position.y) * grid.x + position.x) * kLanes;
  if (is_inside(z, p.in_d) && is_inside(y, p.in_h) && is_inside(x, p.in_w)) {
    device const T* const from = in + in_at(p, e, z, y, x);
    T values[kLanes];  // all read before any is written
    for (uint k = 0; k < kLanes; ++k) values[k] = from[k];
    for (uint k = 0; k < kLanes; ++k) to[k] = values[k];
  } else {
    for (uint k = 0; k < kLanes; ++k) to[k] = T(0);
  }
}

// The gradient of patches along the depth alone, [volumes, out_d, height, width, window, channels].
template <typename T, uint kLanes>
kernel void depth_patches_grad(device const T* d_patches [[buffer(0)]],
                               device T* d_in [[buffer(1)]], constant VolumeParams& p [[buffer(2)]],
                               uint3 position [[thread_position_in_grid]]) {
  const Element e = in_element<kLanes>(p, position);
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  const Reach reach = reach_of(e.z, p.pad_front, p.window_d, p.dilation_d, p.stride_d, p.out_d);
  for (int z = reach.last; z >= reach.first; --z) {
    const int tap = tap_of(reach, z, p.stride_d, p.dilation_d);
    if (tap < 0) continue;
    const long point = ((long(e.volume) * p.out_d + z) * p.in_h + e.y) * p.in_w + e.x;
    device const T* const from = d_patches + (point * p.window_d + tap) * p.channels + e.channel;
    for (uint k = 0; k < kLanes; ++k) sum[k] += float(from[k]);
  }
  device T* const to = d_in + in_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = T(sum[k]);
}

// ---- dilation -----------------------------------------------------------------------------------

// The largest of in + filter; filter [window, channels].
template <typename T, uint kLanes>
inline First<typename wide<T>::type, kLanes> find_sum(device const T* in, device const T* filter,
                                                      constant VolumeParams& p, Element e) {
  using Wide = typename wide<T>::type;
  First<Wide, kLanes> first;
  const Inside inside = find_inside(p, e);
  // Where nothing is larger the first point of the window within the image counts.
  const uint begin_tap = is_empty(inside) ? 0 : first_tap(p, inside);
  for (uint k = 0; k < kLanes; ++k) {
    first.value[k] = lowest<Wide>();
    first.tap[k] = begin_tap;
  }
  FOR_WINDOW(p, e, inside) {
    const uint tap = TAP(p);
    device const T* const from = in + in_at(p, e, z, y, x);
    device const T* const by = filter + tap * p.channels + e.channel;
    for (uint k = 0; k < kLanes; ++k) {
      const Wide value = Wide(Wide(from[k]) + Wide(by[k]));
      const bool larger = value > first.value[k];
      first.value[k] = larger ? value : first.value[k];
      first.tap[k] = larger ? tap : first.tap[k];
    }
  }
  return first;
}

template <typename T, uint kLanes>
kernel void dilation(device const T* in [[buffer(0)]], device const T* filter [[buffer(1)]],
                     device T* out [[buffer(2)]], constant VolumeParams& p [[buffer(3)]],
                     uint3 position [[thread_position_in_grid]]) {
  const Element e = out_element<kLanes>(p, position);
  const auto first = find_sum<T, kLanes>(in, filter, p, e);
  device T* const to = out + out_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = T(first.value[k]);
}

template <typename T, uint kLanes>
kernel void dilation_taps(device const T* in [[buffer(0)]], device const T* filter [[buffer(1)]],
                          device uint* taps [[buffer(2)]], constant VolumeParams& p [[buffer(3)]],
                          uint3 position [[thread_position_in_grid]]) {
  const Element e = out_element<kLanes>(p, position);
  const auto first = find_sum<T, kLanes>(in, filter, p, e);
  device uint* const to = taps + out_at(p, e, e.z, e.y, e.x);
  for (uint k = 0; k < kLanes; ++k) to[k] = first.tap[k];
}

// Grid: channels / kLanes, window.
template <typename T, uint kLanes>
kernel void dilation_filter_grad(device const uint* taps [[buffer(0)]],
                                 device const T* d_out [[buffer(1)]],
                                 device T* d_filter [[buffer(2)]],
                                 constant uint& points [[buffer(3)]],
                                 constant VolumeParams& p [[buffer(4)]],
                                 uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  Wide sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0;
  const uint channel = position.x * kLanes;
  for (uint i = 0; i < points; ++i) {
    const long at = long(i) * p.channels + channel;
    for (uint k = 0; k < kLanes; ++k) {
      sum[k] = taps[at + k] == position.y ? Wide(sum[k] + Wide(d_out[at + k])) : sum[k];
    }
  }
  device T* const to = d_filter + position.y * p.channels + channel;
  for (uint k = 0; k < kLanes; ++k) to[k] = T(sum[k]);
}

// Names end in `suffix` and the type.
#define POOLS(suffix, type, lanes)                                                           \
  INSTANTIATE_KERNEL("max_volume" suffix #type, max_volume, type, lanes)                     \
  INSTANTIATE_KERNEL("max_volume_argmax" suffix #type, max_volume_argmax, type, lanes)       \
  INSTANTIATE_KERNEL("max_volume_grad_grad" suffix #type, max_volume_grad_grad, type, lanes) \
  INSTANTIATE_KERNEL("max_volume_taps" suffix #type, max_volume_taps, type, lanes)           \
  INSTANTIATE_KERNEL("taps_grad" suffix #type, taps_grad, type, lanes)                       \
  INSTANTIATE_KERNEL("dilation" suffix #type, dilation, type, lanes)                         \
  INSTANTIATE_KERNEL("dilation_taps" suffix #type, dilation_taps, type, lanes)               \
  INSTANTIATE_KERNEL("dilation_filter_grad" suffix #type, dilation_filter_grad, type, lanes)
#define POOLS_OF_FLOATS(suffix, type, lanes)                                       \
  INSTANTIATE_KERNEL("max_volume_grad" suffix #type, max_volume_grad, type, lanes) \
  INSTANTIATE_KERNEL("avg_volume" suffix #type, avg_volume, type, lanes)           \
  INSTANTIATE_KERNEL("avg_volume_grad" suffix #type, avg_volume_grad, type, lanes) \
  INSTANTIATE_KERNEL("depth_patches_grad" suffix #type, depth_patches_grad, type, lanes)
#define VOLUME(type)  \
  POOLS("_", type, 1) \
  INSTANTIATE_KERNEL("argmax_grad_" #type, argmax_grad, type)
VOLUME(float)
VOLUME(half)
IF_BFLOAT(VOLUME(bfloat))
VOLUME(char)
VOLUME(short)
VOLUME(int)
VOLUME(long)
VOLUME(uchar)
VOLUME(ushort)
VOLUME(uint)
VOLUME(ulong)

#define VOLUME_FLOATS(type)            \
  POOLS("_lanes_", type, VOLUME_LANES) \
  POOLS_OF_FLOATS("_", type, 1)        \
  POOLS_OF_FLOATS("_lanes_", type, VOLUME_LANES)
VOLUME_FLOATS(float)
VOLUME_FLOATS(half)
IF_BFLOAT(VOLUME_FLOATS(bfloat))

#if defined(__METAL_CPU__)
#define VOLUME_MANY(type)                        \
  POOLS("_many_lanes_", type, VOLUME_MANY_LANES) \
  POOLS_OF_FLOATS("_many_lanes_", type, VOLUME_MANY_LANES)
VOLUME_MANY(float)
VOLUME_MANY(half)
IF_BFLOAT(VOLUME_MANY(bfloat))
#endif

// Ops that only move elements, by their size.
#if defined(__METAL_CPU__)
#define MANY_PATCHES(type) \
  INSTANTIATE_KERNEL("patches_many_lanes_" #type, patches, type, VOLUME_MANY_LANES)
#else
#define MANY_PATCHES(type)
#endif
#define VOLUME_BITS(type)                                                 \
  INSTANTIATE_KERNEL("argmax_grad_grad_" #type, argmax_grad_grad, type)   \
  INSTANTIATE_KERNEL("patches_" #type, patches, type, 1)                  \
  INSTANTIATE_KERNEL("patches_lanes_" #type, patches, type, VOLUME_LANES) \
  MANY_PATCHES(type)
VOLUME_BITS(uchar)
VOLUME_BITS(ushort)
VOLUME_BITS(uint)
VOLUME_BITS(ulong)

// ---- local response normalisation ---------------------------------------------------------------

template <typename T>
inline float lrn_norm(device const T* row, uint i, constant LrnParams& p) {
  const uint first = i > p.radius ? i - p.radius : 0;
  const uint last = min(i + p.radius, p.depth - 1);
  float sum = 0.0f;
  for (uint k = first; k <= last; ++k) sum += float(row[k]) * float(row[k]);
  return p.bias + p.alpha * sum;
}

// norm^-beta; the usual powers without a call.
inline float lrn_power(float norm, float beta) {
  return beta == 0.5f ? rsqrt(norm) : beta == 1.0f ? 1.0f / norm : pow(norm, -beta);
}

// The rest of the sums of squares for some channels. Nothing is read again once something is written: values
// that may have changed are no work for vectors.
template <typename T>
inline void lrn_store(device const T* from, device T* to, thread const float (&sums)[LRN_LANES],
                      int width, constant LrnParams& p) {
  const float bias = p.bias, alpha = p.alpha, beta = p.beta;
  float powers[LRN_LANES];
  for (int k = 0; k < LRN_LANES; ++k) powers[k] = bias + alpha * sums[k];
  // The usual powers without a call.
  if (beta == 0.5f) {
    for (int k = 0; k < LRN_LANES; ++k) powers[k] = rsqrt(powers[k]);
  } else {
    for (int k = 0; k < LRN_LANES; ++k) powers[k] = lrn_power(powers[k], beta);
  }
  if (width == LRN_LANES) {
    for (int k = 0; k < LRN_LANES; ++k) powers[k] *= float(from[k]);
    for (int k = 0; k < LRN_LANES; ++k) to[k] = T(powers[k]);
  } else {
    for (int k = 0; k < LRN_LANES; ++k) {
      if (k < width) to[k] = T(float(from[k]) * powers[k]);
    }
  }
}

// A thread has LRN_LANES neighbours. Grid: depth / LRN_LANES, rows.
template <typename T>
kernel void lrn(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                constant LrnParams& p [[buffer(2)]], uint2 position [[thread_position_in_grid]]) {
  const int first = int(position.x * LRN_LANES), depth = int(p.depth);
  const int width = min(LRN_LANES, depth - first);
  device const T* const row = in + ulong(position.y) * p.depth;
  device const T* const from = row + first;
  device T* const to = out + ulong(position.y) * p.depth + ulong(first);
  // Arrays whose indices are known live in registers: lanes behind the last channel are not stored.
  float sums[LRN_LANES];
  for (int k = 0; k < LRN_LANES; ++k) sums[k] = 0.0f;
  const int reach = int(min(p.radius, p.depth));
  for (int offset = -reach; offset <= reach; ++offset) {
    if (first + offset >= 0 && first + offset + LRN_LANES <= depth) {
      for (int k = 0; k < LRN_LANES; ++k) {
        const float value = float(from[offset + k]);
        sums[k] += value * value;
      }
    } else {
      for (int k = 0; k < LRN_LANES; ++k) {
        const int place = first + offset + k;
        const float value = float(row[clamp(place, 0, depth - 1)]);
        sums[k] += place >= 0 && place < depth ? value * value : 0.0f;
      }
    }
  }
  lrn_store(from, to, sums, width, p);
}

#if defined(__METAL_CPU__)
// The same of LRN_LINE channels a thread, up to a radius of LRN_REACH: loops along them are a processor's vectors. Grid:
// depth / LRN_LINE, rows.
template <typename T>
kernel void lrn_line(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     constant LrnParams& p [[buffer(2)]],
                     uint2 position [[thread_position_in_grid]]) {
  const int first = int(position.x * LRN_LINE), depth = int(p.depth), reach = int(p.radius);
  const int width = min(LRN_LINE, depth - first);
  device const T* const from = in + ulong(position.y) * p.depth + ulong(first);
  device T* const to = out + ulong(position.y) * p.depth + ulong(first);
  float squares[LRN_LINE + 2 * LRN_REACH], sums[LRN_LINE];
  const int begin = max(-reach, -first), end = min(width + reach, depth - first);
  for (int k = -reach; k < begin; ++k) squares[LRN_REACH + k] = 0.0f;
  for (int k = begin; k < end; ++k) squares[LRN_REACH + k] = float(from[k]) * float(from[k]);
  for (int k = end; k < width + reach; ++k) squares[LRN_REACH + k] = 0.0f;
  for (int k = 0; k < width; ++k) sums[k] = 0.0f;
  for (int offset = LRN_REACH - reach; offset <= LRN_REACH + reach; ++offset) {
    for (int k = 0; k < width; ++k) sums[k] += squares[offset + k];
  }
  const float bias = p.bias, alpha = p.alpha, beta = p.beta;
  for (int k = 0; k < width; ++k) sums[k] = bias + alpha * sums[k];
  // The usual powers without a call.
  if (beta == 0.5f) {
    for (int k = 0; k < width; ++k) sums[k] = rsqrt(sums[k]);
  } else if (beta == 0.75f) {
    for (int k = 0; k < width; ++k) {
      const float root = rsqrt(sums[k]);
      sums[k] = root * sqrt(root);
    }
  } else {
    for (int k = 0; k < width; ++k) sums[k] = lrn_power(sums[k], beta);
  }
  for (int k = 0; k < width; ++k) to[k] = T(float(from[k]) * sums[k]);
}
INSTANTIATE_KERNEL("lrn_line_float", lrn_line, float)
INSTANTIATE_KERNEL("lrn_line_half", lrn_line, half)
IF_BFLOAT(INSTANTIATE_KERNEL("lrn_line_bfloat", lrn_line, bfloat))
#endif

// The gradient for all within reach: gradient * out / norm. Grid of these: depth, rows.
template <typename T>
kernel void lrn_grad_shares(device const T* d_out [[buffer(0)]], device const T* in [[buffer(1)]],
                            device const T* out [[buffer(2)]], device float* shares [[buffer(3)]],
                            constant LrnParams& p [[buffer(4)]],
                            uint2 position [[thread_position_in_grid]]) {
  device const T* const row = in + ulong(position.y) * p.depth;
  const ulong at = ulong(position.y) * p.depth + position.x;
  shares[at] = float(d_out[at]) * float(out[at]) / lrn_norm(row, position.x, p);
}
template <typename T>
kernel void lrn_grad(device const T* d_out [[buffer(0)]], device const T* in [[buffer(1)]],
                     device const float* shares [[buffer(2)]], device T* d_in [[buffer(3)]],
                     constant LrnParams& p [[buffer(4)]],
                     uint2 position [[thread_position_in_grid]]) {
  device const T* const row = in + ulong(position.y) * p.depth;
  device const float* const near = shares + ulong(position.y) * p.depth;
  const uint i = position.x;
  const uint first = i > p.radius ? i - p.radius : 0;
  const uint last = min(i + p.radius, p.depth - 1);
  float sum = 0.0f;
  for (uint k = first; k <= last; ++k) sum += near[k];
  const ulong at = ulong(position.y) * p.depth + i;
  d_in[at] = T(float(d_out[at]) * lrn_power(lrn_norm(row, i, p), p.beta) -
               2.0f * p.alpha * p.beta * float(row[i]) * sum);
}
#define LRN(type)                                                     \
  INSTANTIATE_KERNEL("lrn_" #type, lrn, type)                         \
  INSTANTIATE_KERNEL("lrn_grad_shares_" #type, lrn_grad_shares, type) \
  INSTANTIATE_KERNEL("lrn_grad_" #type, lrn_grad, type)
LRN(float)
LRN(half)
IF_BFLOAT(LRN(bfloat))
