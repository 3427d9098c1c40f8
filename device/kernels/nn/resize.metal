// Images resized, cropped by boxes and moved by projections; gradients are gathered, in one order. Grids
// are (width * channels, height, images) of the output, so that channels are neighbours.

#include <metal_stdlib>

#include "device/kernels/nn/image_params.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

using namespace metal;

inline long pixel_at(uint image, uint y, uint x, uint channel, uint height, uint width,
                     uint channels) {
  return ((long(image) * height + y) * width + x) * channels + channel;
}

// ---- resizing -----------------------------------------------------------------------------------

// The two points that a result lies between.
struct Between {
  int lower, upper;
  float part;  // of the upper one
};
inline Between find_between(float scale, bool half_pixel, uint i, uint size) {
  const float at = half_pixel ? (float(i) + 0.5f) * scale - 0.5f : float(i) * scale;
  const float low = floor(at);
  Between between;
  between.lower = clamp(int(low), 0, int(size) - 1);
  between.upper = min(int(ceil(at)), int(size) - 1);
  between.part = at - low;
  return between;
}
// How much of the result `i` comes from point `point`.
inline float part_from(float scale, bool half_pixel, uint i, uint size, int point) {
  const Between between = find_between(scale, half_pixel, i, size);
  return (between.lower == point ? 1.0f - between.part : 0.0f) +
         (between.upper == point ? between.part : 0.0f);
}
inline int find_nearest(float scale, bool half_pixel, bool align_corners, uint i, uint size) {
  const float at = half_pixel ? (float(i) + 0.5f) * scale : float(i) * scale;
  return clamp(int(align_corners ? round(at) : floor(at)), 0, int(size) - 1);
}
// Results that may have something of a point: x at least, y at most. The ends have the parts outside,
// too.
inline int2 results_of(float scale, bool half_pixel, int point, uint size, uint results) {
  const int last = int(results) - 1;
  if (scale <= 0.0f) return int2(0, last);
  const float center = half_pixel ? 0.5f : 0.0f;
  const float from = floor((float(point) - 1.0f) / scale - center),
              to = ceil((float(point) + 1.0f + center) / scale);
  return int2(point == 0 ? 0 : clamp(int(from), 0, last),
              point == int(size) - 1 ? last : clamp(int(to), 0, last));
}

// Threads of these have a block of kLanes neighbouring channels of a pixel, RESIZE_LANES or RESIZE_MANY_LANES: the work
// of finding the pixel is shared. Grid: (blocks * width, height, images).
struct Block {
  uint x, first, count;
};
template <uint kLanes>
inline Block find_block(uint at, uint channels) {
  const uint blocks = (channels + kLanes - 1) / kLanes;
  Block block;
  block.x = at / blocks;
  block.first = (at - block.x * blocks) * kLanes;
  block.count = min(kLanes, channels - block.first);
  return block;
}
// A formula of each channel, written once all are known.
template <uint kLanes, typename Out, typename Formula>
inline void store_block(device Out* to, uint count, thread const Formula& formula) {
  if (count == kLanes) {
    Out values[kLanes];
    for (uint k = 0; k < kLanes; ++k) values[k] = Out(formula(k));
    for (uint k = 0; k < kLanes; ++k) to[k] = values[k];
  } else {
    for (uint k = 0; k < count; ++k) to[k] = Out(formula(k));
  }
}
template <typename T>
struct SamePixel {
  device const T* from;
  T operator()(uint k) const { return from[k]; }
};
struct NoPixel {
  float value;
  float operator()(uint) const { return value; }
};
// Between the pixels a and b above, and c and d below.
template <typename T>
struct Blend {
  device const T *a, *b, *c, *d;
  float across, down;
  float operator()(uint k) const {
    const float left = float(a[k]), under = float(c[k]);
    const float above = left + (float(b[k]) - left) * across;
    const float below = under + (float(d[k]) - under) * across;
    return above + (below - above) * down;
  }
};

template <typename T, uint kLanes>
kernel void resize_bilinear(device const T* in [[buffer(0)]], device float* out [[buffer(1)]],
                            constant ResizeParams& p [[buffer(2)]],
                            uint3 position [[thread_position_in_grid]]) {
  const Block block = find_block<kLanes>(position.x, p.channels);
  const Between across = find_between(p.scale_w, p.half_pixel_centers != 0, block.x, p.in_w);
  const Between down = find_between(p.scale_h, p.half_pixel_centers != 0, position.y, p.in_h);
  device const T* const top =
      in + pixel_at(position.z, uint(down.lower), 0, block.first, p.in_h, p.in_w, p.channels);
  device const T* const bottom =
      in + pixel_at(position.z, uint(down.upper), 0, block.first, p.in_h, p.in_w, p.channels);
  const uint left = uint(across.lower) * p.channels, right = uint(across.upper) * p.channels;
  const Blend<T> blend = {top + left,     top + right, bottom + left,
                          bottom + right, across.part, down.part};
  store_block<kLanes>(
      out + pixel_at(position.z, position.y, block.x, block.first, p.out_h, p.out_w, p.channels),
      block.count, blend);
}

template <typename T, uint kLanes>
kernel void resize_nearest(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                           constant ResizeParams& p [[buffer(2)]],
                           uint3 position [[thread_position_in_grid]]) {
  const Block block = find_block<kLanes>(position.x, p.channels);
  const int from_y = find_nearest(p.scale_h, p.half_pixel_centers != 0, p.align_corners != 0,
                                  position.y, p.in_h),
            from_x = find_nearest(p.scale_w, p.half_pixel_centers != 0, p.align_corners != 0,
                                  block.x, p.in_w);
  const SamePixel<T> from = {in + pixel_at(position.z, uint(from_y), uint(from_x), block.first,
                                           p.in_h, p.in_w, p.channels)};
  store_block<kLanes>(
      out + pixel_at(position.z, position.y, block.x, block.first, p.out_h, p.out_w, p.channels),
      block.count, from);
}

// Gradients go along one dimension after the other, [outer, results, inner] to [outer, size, inner].
// Grid: (blocks of inner, size, outer).
template <typename T, typename Out, bool kNearest, uint kLanes>
kernel void resize_grad(device const T* d_out [[buffer(0)]], device Out* d_in [[buffer(1)]],
                        constant ResizeAxis& p [[buffer(2)]],
                        uint3 position [[thread_position_in_grid]]) {
  const uint first = position.x * kLanes, point = position.y;
  const bool half_pixel = p.half_pixel_centers != 0;
  using Wide = typename wide<Out>::type;
  Wide sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0;
  const int2 results = results_of(p.scale, half_pixel, int(point), p.size, p.results);
  for (int i = results.x; i <= results.y; ++i) {
    const bool meets = !kNearest || find_nearest(p.scale, half_pixel, p.align_corners != 0, uint(i),
                                                 p.size) == int(point);
    const float part =
        kNearest ? 1.0f : part_from(p.scale, half_pixel, uint(i), p.size, int(point));
    if (!meets || part == 0.0f) continue;
    device const T* const from =
        d_out + (ulong(position.z) * p.results + uint(i)) * p.inner + first;
    if (first + kLanes <= p.inner) {
      for (uint k = 0; k < kLanes; ++k) {
        sum[k] += kNearest ? Wide(from[k]) : Wide(part * float(from[k]));
      }
    } else {
      // Not as far as there are: an index that is no number would take the sums out of registers.
      for (uint k = 0; k < kLanes; ++k) {
        if (first + k >= p.inner) continue;
        sum[k] += kNearest ? Wide(from[k]) : Wide(part * float(from[k]));
      }
    }
  }
  device Out* const to = d_in + (ulong(position.z) * p.size + point) * p.inner + first;
  if (first + kLanes <= p.inner) {
    for (uint k = 0; k < kLanes; ++k) to[k] = Out(sum[k]);
  } else {
    for (uint k = 0; k < kLanes; ++k) {
      if (first + k < p.inner) to[k] = Out(sum[k]);
    }
  }
}

// Both dimensions at once, where a pixel has few copies: from `rows`[y] and `columns`[x] to the next pixel's. Grid:
// (blocks * width, height, images) of the resized image.
template <typename T, uint kLanes>
kernel void resize_nearest_grad(device const T* d_out [[buffer(0)]], device T* d_in [[buffer(1)]],
                                device const uint* rows [[buffer(2)]],
                                device const uint* columns [[buffer(3)]],
                                constant ResizeParams& p [[buffer(4)]],
                                uint3 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const Block block = find_block<kLanes>(position.x, p.channels);
  const uint top = rows[position.y], bottom = rows[position.y + 1];
  const uint left = columns[block.x], right = columns[block.x + 1];
  Wide sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0;
  for (uint y = top; y < bottom; ++y) {
    for (uint x = left; x < right; ++x) {
      device const T* const from =
          d_out + pixel_at(position.z, y, x, block.first, p.out_h, p.out_w, p.channels);
      if (block.count == kLanes) {
        for (uint k = 0; k < kLanes; ++k) sum[k] += Wide(from[k]);
      } else {
        // As in resize_grad.
        for (uint k = 0; k < kLanes; ++k) {
          if (k < block.count) sum[k] += Wide(from[k]);
        }
      }
    }
  }
  device T* const to =
      d_in + pixel_at(position.z, position.y, block.x, block.first, p.in_h, p.in_w, p.channels);
  if (block.count == kLanes) {
    for (uint k = 0; k < kLanes; ++k) to[k] = T(sum[k]);
  } else {
    for (uint k = 0; k < kLanes; ++k) {
      if (k < block.count) to[k] = T(sum[k]);
    }
  }
}

// ---- crops --------------------------------------------------------------------------------------

// Where point i of `points` between `from` and `to`, parts of the image's size, lies; `step` is its
// slope by `to`, 1 - step by `from`.
struct CropPoint {
  float at, step;
  bool inside;
};
inline CropPoint crop_point(float from, float to, uint i, uint points, uint size) {
  const float last = float(size) - 1.0f;
  CropPoint point;
  if (points > 1) {
    point.step = float(i) / float(points - 1);
    point.at = from * last + float(i) * ((to - from) * last / float(points - 1));
  } else {
    point.step = 0.5f;
    point.at = 0.5f * (from + to) * last;
  }
  point.inside = point.at >= 0.0f && point.at <= last;
  return point;
}

template <typename T, uint kLanes>
kernel void crop_and_resize(device const T* image [[buffer(0)]],
                            device const float* boxes [[buffer(1)]],
                            device const int* box_ind [[buffer(2)]],
                            device float* crops [[buffer(3)]], constant CropParams& p [[buffer(4)]],
                            uint3 position [[thread_position_in_grid]]) {
  const Block block = find_block<kLanes>(position.x, p.channels);
  device const float* const box = boxes + ulong(position.z) * 4;
  const CropPoint down = crop_point(box[0], box[2], position.y, p.crop_h, p.in_h),
                  across = crop_point(box[1], box[3], block.x, p.crop_w, p.in_w);
  const int index = box_ind[position.z];
  device float* const to = crops + pixel_at(position.z, position.y, block.x, block.first, p.crop_h,
                                            p.crop_w, p.channels);
  if (index >= 0 && index < int(p.images) && down.inside && across.inside) {
    device const T* const pixels =
        image + pixel_at(uint(index), 0, 0, block.first, p.in_h, p.in_w, p.channels);
    if (p.nearest != 0) {
      const SamePixel<T> from = {pixels + pixel_at(0, uint(round(down.at)), uint(round(across.at)),
                                                   0, 0, p.in_w, p.channels)};
      store_block<kLanes>(to, block.count, from);
    } else {
      const uint top = uint(floor(down.at)), bottom = uint(ceil(down.at)),
                 left = uint(floor(across.at)), right = uint(ceil(across.at));
      const Blend<T> blend = {pixels + pixel_at(0, top, left, 0, 0, p.in_w, p.channels),
                              pixels + pixel_at(0, top, right, 0, 0, p.in_w, p.channels),
                              pixels + pixel_at(0, bottom, left, 0, 0, p.in_w, p.channels),
                              pixels + pixel_at(0, bottom, right, 0, 0, p.in_w, p.channels),
                              across.at - floor(across.at),
                              down.at - floor(down.at)};
      store_block<kLanes>(to, block.count, blend);
    }
  } else {
    const NoPixel none = {p.outside};
    store_block<kLanes>(to, block.count, none);
  }
}

// A pixel's block: a part of the row's share of the slopes. All are read before any is written: compilers then do
// not need to know that the two do not overlap.
template <uint kLanes>
inline void add_block(device float* to, device const float* slopes, uint count, float share,
                      float part) {
  if (count == kLanes) {
    float sums[kLanes];
    for (uint k = 0; k < kLanes; ++k) sums[k] = to[k] + part * (share * slopes[k]);
    for (uint k = 0; k < kLanes; ++k) to[k] = sums[k];
  } else {
    for (uint k = 0; k < count; ++k) to[k] += part * (share * slopes[k]);
  }
}

// A thread adds up one row of a block of channels of one image, so that no other touches it. Grid: blocks
// of channels, height, images.
template <uint kLanes>
kernel void crop_grad_image(device const float* d_crops [[buffer(0)]],
                            device const float* boxes [[buffer(1)]],
                            device const int* box_ind [[buffer(2)]],
                            device float* sums [[buffer(3)]], constant CropParams& p [[buffer(4)]],
                            uint3 position [[thread_position_in_grid]]) {
  const Block block = find_block<kLanes>(position.x, p.channels);
  const float row = float(position.y);
  device float* const line =
      sums + pixel_at(position.z, position.y, 0, block.first, p.in_h, p.in_w, p.channels);
  const NoPixel none = {0.0f};
  for (uint x = 0; x < p.in_w; ++x) {
    store_block<kLanes>(line + ulong(x) * p.channels, block.count, none);
  }
  for (uint b = 0; b < p.boxes; ++b) {
    if (box_ind[b] != int(position.z)) continue;
    const float y1 = boxes[ulong(b) * 4], x1 = boxes[ulong(b) * 4 + 1],
                y2 = boxes[ulong(b) * 4 + 2], x2 = boxes[ulong(b) * 4 + 3];
    for (uint y = 0; y < p.crop_h; ++y) {
      const CropPoint down = crop_point(y1, y2, y, p.crop_h, p.in_h);
      if (!down.inside) continue;
      const float top = floor(down.at), part = down.at - top;
      float share;
      if (p.nearest != 0) {
        share = round(down.at) == row ? 1.0f : 0.0f;
      } else {
        share = (top == row ? 1.0f - part : 0.0f) + (ceil(down.at) == row ? part : 0.0f);
      }
      if (share == 0.0f) continue;
      for (uint x = 0; x < p.crop_w; ++x) {
        const CropPoint across = crop_point(x1, x2, x, p.crop_w, p.in_w);
        if (!across.inside) continue;
        device const float* const from =
            d_crops + pixel_at(b, y, x, block.first, p.crop_h, p.crop_w, p.channels);
        if (p.nearest != 0) {
          add_block<kLanes>(line + long(int(round(across.at))) * p.channels, from, block.count,
                            share, 1.0f);
        } else {
          const float left = floor(across.at), lerp = across.at - left;
          add_block<kLanes>(line + long(int(left)) * p.channels, from, block.count, share,
                            1.0f - lerp);
          add_block<kLanes>(line + long(int(ceil(across.at))) * p.channels, from, block.count,
                            share, lerp);
        }
      }
    }
  }
}

// Grid: boxes.
template <typename T>
kernel void crop_grad_boxes(device const float* d_crops [[buffer(0)]],
                            device const T* image [[buffer(1)]],
                            device const float* boxes [[buffer(2)]],
                            device const int* box_ind [[buffer(3)]],
                            device float* d_boxes [[buffer(4)]],
                            constant CropParams& p [[buffer(5)]],
                            uint b [[thread_position_in_grid]]) {
  device const float* const box = boxes + ulong(b) * 4;
  const int index = box_ind[b];
  float y1 = 0.0f, x1 = 0.0f, y2 = 0.0f, x2 = 0.0f;
  if (index >= 0 && index < int(p.images)) {
    for (uint y = 0; y < p.crop_h; ++y) {
      const CropPoint down = crop_point(box[0], box[2], y, p.crop_h, p.in_h);
      if (!down.inside) continue;
      const uint top = uint(floor(down.at)), bottom = uint(ceil(down.at));
      const float part_y = down.at - floor(down.at);
      for (uint x = 0; x < p.crop_w; ++x) {
        const CropPoint across = crop_point(box[1], box[3], x, p.crop_w, p.in_w);
        if (!across.inside) continue;
        const uint left = uint(floor(across.at)), right = uint(ceil(across.at));
        const float part_x = across.at - floor(across.at);
        const uint i = uint(index);
        device const T* const at_a = image + pixel_at(i, top, left, 0, p.in_h, p.in_w, p.channels);
        device const T* const at_b = image + pixel_at(i, top, right, 0, p.in_h, p.in_w, p.channels);
        device const T* const at_c =
            image + pixel_at(i, bottom, left, 0, p.in_h, p.in_w, p.channels);
        device const T* const at_d =
            image + pixel_at(i, bottom, right, 0, p.in_h, p.in_w, p.channels);
        device const float* const slopes =
            d_crops + pixel_at(b, y, x, 0, p.crop_h, p.crop_w, p.channels);
        float down_sum = 0.0f, across_sum = 0.0f;
        for (uint k = 0; k < p.channels; ++k) {
          const float a = float(at_a[k]), e = float(at_b[k]), c = float(at_c[k]),
                      d = float(at_d[k]);
          down_sum += ((c - a) * (1.0f - part_x) + (d - e) * part_x) * slopes[k];
          across_sum += ((e - a) * (1.0f - part_y) + (d - c) * part_y) * slopes[k];
        }
        down_sum *= float(p.in_h) - 1.0f;
        across_sum *= float(p.in_w) - 1.0f;
        // A single point gives half to both ends: 1 - step, too.
        y1 += down_sum * (1.0f - down.step);
        y2 += down_sum * down.step;
        x1 += across_sum * (1.0f - across.step);
        x2 += across_sum * across.step;
      }
    }
  }
  device float* const out = d_boxes + ulong(b) * 4;
  out[0] = y1;
  out[1] = x1;
  out[2] = y2;
  out[3] = x2;
}

// ---- projections --------------------------------------------------------------------------------

inline float fold_coordinate(float at, float size, uint mode) {
  if (mode == FILL_CONSTANT) return at;
  if (mode == FILL_REFLECT && size > 1.0f) {
    const float period = 2.0f * size;
    if (at < 0.0f) {
      at = at + period * trunc(-at / period);
      at = at < -size ? at + period : -at - 1.0f;
    } else if (at > size - 1.0f) {
      at -= period * trunc(at / period);
      if (at >= size) at = period - at - 1.0f;
    }
  } else if (mode == FILL_WRAP && size > 1.0f) {
    if (at < 0.0f) {
      at += size * (trunc(-at / (size - 1.0f)) + 1.0f);
    } else if (at > size - 1.0f) {
      at -= size * trunc(at / (size - 1.0f));
    }
  }
  return clamp(at, 0.0f, size - 1.0f);
}

// Whether (y, x) is a pixel: not so for NaN, either.
inline bool is_pixel(float y, float x, constant TransformParams& p) {
  return y >= 0.0f && y < float(p.in_h) && x >= 0.0f && x < float(p.in_w);
}
// A pixel's channels, or the stand-in for a pixel outside.
template <typename T, uint kLanes>
inline void read_or_fill(device const T* image, float y, float x, constant TransformParams& p,
                         uint count, thread float (&values)[kLanes]) {
  for (uint k = 0; k < kLanes; ++k) values[k] = p.fill;
  if (!is_pixel(y, x, p)) return;
  device const T* const from = image + (long(y) * p.in_w + long(x)) * p.channels;
  if (count == kLanes) {
    for (uint k = 0; k < kLanes; ++k) values[k] = float(from[k]);
  } else {
    for (uint k = 0; k < kLanes; ++k) {
      if (k < count) values[k] = float(from[k]);
    }
  }
}
// A thread has a channel of a pixel, or RESIZE_MANY_LANES. Grid: as of blocks.
template <typename T, uint kLanes>
kernel void projective_transform(device const T* images [[buffer(0)]],
                                 device const float* transforms [[buffer(1)]],
                                 device T* out [[buffer(2)]],
                                 constant TransformParams& p [[buffer(3)]],
                                 uint3 position [[thread_position_in_grid]],
                                 uint3 grid [[threads_per_grid]]) {
  const Block block = find_block<kLanes>(position.x, p.channels);
  device const float* const t = transforms + (p.one_transform != 0 ? 0 : ulong(position.z) * 8);
  device const T* const image =
      images + pixel_at(position.z, 0, 0, block.first, p.in_h, p.in_w, p.channels);
  const float px = float(block.x), py = float(position.y);
  const float depth = t[6] * px + t[7] * py + 1.0f;
  device T* const result =
      out + pixel_at(position.z, position.y, block.x, block.first, grid.y, p.out_w, p.channels);
  const NoPixel none = {p.fill};
  if (depth == 0.0f) {
    store_block<kLanes>(result, block.count, none);
    return;
  }
  const float x =
      fold_coordinate((t[0] * px + t[1] * py + t[2]) / depth, float(p.in_w), p.fill_mode);
  const float y =
      fold_coordinate((t[3] * px + t[4] * py + t[5]) / depth, float(p.in_h), p.fill_mode);
  if (p.bilinear == 0) {
    const float from_y = round(y), from_x = round(x);
    if (is_pixel(from_y, from_x, p)) {
      const SamePixel<T> from = {image + (long(from_y) * p.in_w + long(from_x)) * p.channels};
      store_block<kLanes>(result, block.count, from);
    } else {
      store_block<kLanes>(result, block.count, none);
    }
    return;
  }
  const float top = floor(y), left = floor(x), bottom = top + 1.0f, right = left + 1.0f;
  float a[kLanes], b[kLanes], c[kLanes], d[kLanes];
  read_or_fill(image, top, left, p, block.count, a);
  read_or_fill(image, top, right, p, block.count, b);
  read_or_fill(image, bottom, left, p, block.count, c);
  read_or_fill(image, bottom, right, p, block.count, d);
  for (uint k = 0; k < kLanes; ++k) {
    const float above = (right - x) * a[k] + (x - left) * b[k];
    const float below = (right - x) * c[k] + (x - left) * d[k];
    a[k] = (bottom - y) * above + (y - top) * below;
  }
  if (block.count == kLanes) {
    for (uint k = 0; k < kLanes; ++k) result[k] = T(a[k]);
  } else {
    for (uint k = 0; k < kLanes; ++k) {
      if (k < block.count) result[k] = T(a[k]);
    }
  }
}

#if defined(__METAL_CPU__)
#define MANY_LANES(...) INSTANTIATE_KERNEL(__VA_ARGS__, RESIZE_MANY_LANES)
#else
#define MANY_LANES(...)
#endif
#define BLOCKS(name, function, type)                               \
  INSTANTIATE_KERNEL(name "_" #type, function, type, RESIZE_LANES) \
  MANY_LANES(name "_many_lanes_" #type, function, type)
INSTANTIATE_KERNEL("crop_grad_image", crop_grad_image, RESIZE_LANES)
MANY_LANES("crop_grad_image_many_lanes", crop_grad_image)
#define IMAGES(type)                                       \
  BLOCKS("resize_bilinear", resize_bilinear, type)         \
  BLOCKS("crop_and_resize", crop_and_resize, type)         \
  BLOCKS("resize_nearest_grad", resize_nearest_grad, type) \
  INSTANTIATE_KERNEL("crop_grad_boxes_" #type, crop_grad_boxes, type)
IMAGES(float)
IMAGES(half)
IF_BFLOAT(IMAGES(bfloat))
IMAGES(char)
IMAGES(short)
IMAGES(int)
IMAGES(long)
IMAGES(uchar)
IMAGES(ushort)
IMAGES(uint)
IMAGES(ulong)

// From the given type to float, or to the dtype itself, and from there on.
#define RESIZE_GRAD(name, type, Out, nearest)                                            \
  INSTANTIATE_KERNEL("resize_grad_" name, resize_grad, type, Out, nearest, RESIZE_LANES) \
  MANY_LANES("resize_grad_many_lanes_" name, resize_grad, type, Out, nearest)
RESIZE_GRAD("bilinear_float_float", float, float, false)
RESIZE_GRAD("bilinear_float_half", float, half, false)
IF_BFLOAT(RESIZE_GRAD("bilinear_float_bfloat", float, bfloat, false))
#define RESIZE_GRAD_FLOATS(type) RESIZE_GRAD("nearest_" #type "_float", type, float, true)
RESIZE_GRAD_FLOATS(float)
RESIZE_GRAD_FLOATS(half)
IF_BFLOAT(RESIZE_GRAD_FLOATS(bfloat))
RESIZE_GRAD("nearest_float_half", float, half, true)
IF_BFLOAT(RESIZE_GRAD("nearest_float_bfloat", float, bfloat, true))
#define RESIZE_GRAD_INTEGERS(type) RESIZE_GRAD("nearest_" #type "_" #type, type, type, true)
RESIZE_GRAD_INTEGERS(char)
RESIZE_GRAD_INTEGERS(short)
RESIZE_GRAD_INTEGERS(int)
RESIZE_GRAD_INTEGERS(long)
RESIZE_GRAD_INTEGERS(uchar)
RESIZE_GRAD_INTEGERS(ushort)
RESIZE_GRAD_INTEGERS(uint)
RESIZE_GRAD_INTEGERS(ulong)

// Ops that only move elements, by their size.
BLOCKS("resize_nearest", resize_nearest, uchar)
BLOCKS("resize_nearest", resize_nearest, ushort)
BLOCKS("resize_nearest", resize_nearest, uint)
BLOCKS("resize_nearest", resize_nearest, ulong)

#define TRANSFORM(type)                                                            \
  INSTANTIATE_KERNEL("projective_transform_" #type, projective_transform, type, 1) \
  MANY_LANES("projective_transform_many_lanes_" #type, projective_transform, type)
TRANSFORM(float)
TRANSFORM(half)
IF_BFLOAT(TRANSFORM(bfloat))
TRANSFORM(int)
TRANSFORM(long)
TRANSFORM(uchar)
