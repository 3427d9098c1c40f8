// The parts of a step of the NeRF program on a GPU, beside its encoding and its networks. How many
// rays and samples there are at most is known beforehand, how many there are only on the device: no
// kernel waits for a number. python/metal_ops/nerf/packed.py and packed_training.py launch them.
//
// A ray's samples are a span, (first, count) of int2. A ray whose samples found no room has first -1
// and is left out of everything. Slots that belong to no ray hold zeros, and points spread over the
// cube, as atomics on one row of a table would take turns.

#include <metal_stdlib>

#include "kernels/msl/exp_log.h"
#include "kernels/msl/instantiate.h"
#include "kernels/ray_march/ray_march_params.h"
#include "kernels/ray_march/ray_march_steps.h"

using namespace metal;

#define PACKED_SCAN_THREADS 1024
#define PACKED_SUM_THREADS 256
// Neighbouring lanes that march a ray, each a part of it: all wait for the longest ray.
#define PACKED_MARCHERS 8
// The value in counts of a ray that is left out.
#define PACKED_LEFT_OUT 0xffffffffu
// exp of anything beyond is opaque in any sample, and float32 gradients overflow.
#define PACKED_LEAST_LOG -15.0f
#define PACKED_MOST_LOG 11.0f

// Jarzynski and Olano 2020, "Hash functions for GPU rendering": pcg3d.
inline uint3 packed_random(uint3 v) {
  v = v * 1664525u + 1013904223u;
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  v = v ^ (v >> 16u);
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  return v;
}
inline float3 packed_uniform(uint3 v) { return float3(v >> 8u) * 5.9604644775390625e-8f; }

struct PackedDraw {
  uint seed[2];
  uint width, height;
  uint n_pixels;    // of which one is drawn
  uint has_useful;  // they are numbered by `useful`
  uint random_background;
  uint first_ray;  // number of the first one, where others have those before it
  packed_float3 background;
  float reserved_too;
};

// Random pixels: their rays, their colours over a background, and that. Grid: rays.
kernel void packed_draw(device const uchar* pixels [[buffer(0)]],
                        device const long* useful [[buffer(1)]],
                        device const float* poses [[buffer(2)]],
                        device const float* intrinsics [[buffer(3)]],
                        device float* origins [[buffer(4)]], device float* directions [[buffer(5)]],
                        device float* target [[buffer(6)]], device float* background [[buffer(7)]],
                        constant PackedDraw& params [[buffer(8)]],
                        uint ray [[thread_position_in_grid]]) {
  const uint of_all = params.first_ray + ray;
  const uint3 draw = packed_random(uint3(params.seed[0], params.seed[1], 2 * of_all));
  const uint number = mulhi(draw.x, params.n_pixels);
  const uint pixel = params.has_useful != 0 ? uint(useful[number]) : number;
  const uint column = pixel % params.width, row = pixel / params.width % params.height;
  const uint view = pixel / params.width / params.height;
  device const float* const pose = poses + 12 * view;
  device const float* const lens = intrinsics + 4 * view;
  const float x = (float(column) + 0.5f - lens[2]) / lens[0];
  const float y = (float(row) + 0.5f - lens[3]) / lens[1];
  float3 direction;
  for (uint i = 0; i < 3; ++i) {
    direction[i] = x * pose[4 * i] - y * pose[4 * i + 1] - pose[4 * i + 2];
  }
  direction *= precise::rsqrt(dot(direction, direction));
  float3 behind = float3(params.background);
  if (params.random_background != 0) {
    behind = packed_uniform(packed_random(uint3(params.seed[0], params.seed[1], 2 * of_all + 1)));
  }
  const float opacity = float(pixels[4 * ulong(pixel) + 3]) / 255.0f;
  for (uint i = 0; i < 3; ++i) {
    const uint at = 3 * ray + i;
    origins[at] = pose[4 * i + 3];
    directions[at] = direction[i];
    background[at] = behind[i];
    target[at] =
        float(pixels[4 * ulong(pixel) + i]) / 255.0f * opacity + (1.0f - opacity) * behind[i];
  }
}

struct PackedCount {
  uint n;
};
inline void ray_march_take(thread PackedCount& sink, float, float) { ++sink.n; }

struct PackedWrite {
  device float2* places;
  device int* rays;
  int ray;
};
inline void ray_march_take(thread PackedWrite& sink, float t_start, float t_end) {
  *sink.places++ = float2(0.5f * (t_start + t_end), t_end - t_start);
  *sink.rays++ = sink.ray;
}

template <typename Sink>
inline bool packed_march(constant RayMarchParams& params, device const uchar* occupancy,
                         device const float* origins, device const float* directions, uint ray,
                         uint part, thread Sink& sink) {
  const NoBlocks blocks = {};
  return ray_march_steps(params, occupancy, origins + 3 * ulong(ray), directions + 3 * ulong(ray),
                         0.0f, RAY_MARCH_FAR, ray, sink, blocks, {part, PACKED_MARCHERS});
}

// Samples of each ray, and of its parts. Grid: rays x PACKED_MARCHERS, in one dimension.
kernel void packed_count(device const float* origins [[buffer(0)]],
                         device const float* directions [[buffer(1)]],
                         device const uchar* occupancy [[buffer(2)]],
                         device uint* counts [[buffer(3)]], device uint* of_parts [[buffer(4)]],
                         constant RayMarchParams& params [[buffer(5)]],
                         uint i [[thread_position_in_grid]]) {
  const uint ray = i / PACKED_MARCHERS, part = i % PACKED_MARCHERS;
  PackedCount sink = {0};
  const bool fits = packed_march(params, occupancy, origins, directions, ray, part, sink);
  of_parts[i] = sink.n;
  uint sum = sink.n, too_long = fits ? 0 : 1;
  for (ushort step = 1; step < PACKED_MARCHERS; step *= 2) {
    sum += simd_shuffle_xor(sum, step);
    too_long |= simd_shuffle_xor(too_long, step);
  }
  if (part == 0) counts[ray] = too_long == 0 ? sum : PACKED_LEFT_OUT;
}

// Spans in `capacity` slots, ray after ray; `totals` is how many slots are taken, and how many there
// would have to be. One threadgroup, whose threads have four neighbouring rays at a time each.
[[kernel, max_total_threads_per_threadgroup(PACKED_SCAN_THREADS)]] void packed_spans(
    device const uint* counts [[buffer(0)]], device int2* spans [[buffer(1)]],
    device uint* totals [[buffer(2)]], constant uint& n_rays [[buffer(3)]],
    constant uint& capacity [[buffer(4)]], uint thread_ [[thread_index_in_threadgroup]],
    uint n_threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint sums[32];
  threadgroup atomic_uint taken;
  if (thread_ == 0) atomic_store_explicit(&taken, 0u, memory_order_relaxed);
  uint before = 0, last = 0;  // slots of the rays of earlier rounds, and the end of those that fit
  for (uint round = 0; round < n_rays; round += 4 * n_threads) {
    uint count[4], sum = 0;
    for (uint i = 0; i < 4; ++i) {
      const uint ray = round + 4 * thread_ + i;
      count[i] = ray < n_rays ? counts[ray] : PACKED_LEFT_OUT;
      sum += count[i] == PACKED_LEFT_OUT ? 0 : count[i];
    }
    const uint in_simdgroup = simd_prefix_inclusive_sum(sum);
    if (lane == 31) sums[simdgroup] = in_simdgroup;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Every simdgroup adds up all simdgroups' sums.
    const uint others = simd_prefix_inclusive_sum(lane < n_simdgroups ? sums[lane] : 0);
    const uint earlier = simd_shuffle(others, ushort(simdgroup == 0 ? 0 : simdgroup - 1));
    uint first = before + (simdgroup == 0 ? 0 : earlier) + in_simdgroup - sum;
    before += simd_shuffle(others, ushort(31));
    for (uint i = 0; i < 4; ++i) {
      const uint ray = round + 4 * thread_ + i;
      if (ray >= n_rays) break;
      const bool left_out = count[i] == PACKED_LEFT_OUT;
      const bool fits = !left_out && first + count[i] <= capacity;
      spans[ray] = fits ? int2(int(first), int(count[i])) : int2(-1, 0);
      first += left_out ? 0 : count[i];
      if (fits && count[i] > 0) last = first;
    }
    // The sums are overwritten in the next round.
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  atomic_fetch_max_explicit(&taken, last, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_ == 0) {
    totals[0] = atomic_load_explicit(&taken, memory_order_relaxed);
    totals[1] = before;
  }
}

// Samples' rays, and (middle, length) along them. Grid: rays x PACKED_MARCHERS or slots, whichever
// are more.
kernel void packed_write(
    device const float* origins [[buffer(0)]], device const float* directions [[buffer(1)]],
    device const uchar* occupancy [[buffer(2)]], device const uint* of_parts [[buffer(3)]],
    device const int2* spans [[buffer(4)]], device const uint* totals [[buffer(5)]],
    device float2* places [[buffer(6)]], device int* rays [[buffer(7)]],
    constant RayMarchParams& params [[buffer(8)]], constant uint& n_rays [[buffer(9)]],
    constant uint& capacity [[buffer(10)]], uint i [[thread_position_in_grid]]) {
  if (i >= totals[0] && i < capacity) {
    places[i] = float2(0.0f);
    rays[i] = -1;
  }
  const uint ray = i / PACKED_MARCHERS, part = i % PACKED_MARCHERS;
  if (ray >= n_rays || spans[ray].x < 0 || of_parts[i] == 0) return;
  uint first = uint(spans[ray].x);
  for (uint earlier = i - part; earlier < i; ++earlier) first += of_parts[earlier];
  PackedWrite sink;
  sink.places = places + first;
  sink.rays = rays + first;
  sink.ray = int(ray);
  packed_march(params, occupancy, origins, directions, ray, part, sink);
}

// Where samples are in the unit cube. Grid: slots.
kernel void packed_points(device const float* origins [[buffer(0)]],
                          device const float* directions [[buffer(1)]],
                          device const int* rays [[buffer(2)]],
                          device const float2* places [[buffer(3)]],
                          device float* points [[buffer(4)]],
                          constant RayMarchParams& params [[buffer(5)]],
                          uint slot [[thread_position_in_grid]]) {
  const int ray = rays[slot];
  float3 point = packed_uniform(packed_random(uint3(slot, 0, 0)));
  if (ray >= 0) {
    for (uint d = 0; d < 3; ++d) {
      const float x = origins[3 * ray + d] + places[slot].x * directions[3 * ray + d];
      point[d] = clamp((x - params.aabb_min[d]) * params.per_extent[d], 0.0f, 1.0f);
    }
  }
  for (uint d = 0; d < 3; ++d) points[3 * ulong(slot) + d] = point[d];
}

inline float packed_density(float raw) {
  return precise::exp(clamp(raw, PACKED_LEAST_LOG, PACKED_MOST_LOG));
}

// How many of a ray's samples more light than `hidden` reaches. Grid: rays.
template <typename T>
kernel void packed_reached(device const T* features [[buffer(0)]],
                           device const float2* places [[buffer(1)]],
                           device const int2* spans [[buffer(2)]],
                           device uint* counts [[buffer(3)]], constant uint& line [[buffer(4)]],
                           constant float& hidden [[buffer(5)]],
                           uint ray [[thread_position_in_grid]]) {
  const int2 span = spans[ray];
  if (span.x < 0) {
    counts[ray] = PACKED_LEFT_OUT;
    return;
  }
  float light = 1.0f;
  int n = 0;
  for (; n < span.y && light > hidden; ++n) {
    const ulong at = ulong(span.x + n);
    light *= precise::exp(-packed_density(float(features[at * line])) * places[at].y);
  }
  counts[ray] = uint(n);
}

// The slot that each kept sample comes from, and its ray. Grid: rays or slots.
kernel void packed_keep(device const int2* from [[buffer(0)]],
                        device const int2* spans [[buffer(1)]],
                        device const uint* totals [[buffer(2)]], device int* sources [[buffer(3)]],
                        device int* rays [[buffer(4)]], constant uint& n_rays [[buffer(5)]],
                        constant uint& capacity [[buffer(6)]], uint i [[thread_position_in_grid]]) {
  if (i >= totals[0] && i < capacity) {
    sources[i] = -1;
    rays[i] = 0;
  }
  if (i >= n_rays || spans[i].x < 0) return;
  for (int n = 0; n < spans[i].y; ++n) {
    sources[spans[i].x + n] = from[i].x + n;
    rays[spans[i].x + n] = int(i);
  }
}

// Samples gathered from their places; one from nowhere is zero, and its point anywhere. A thread has
// a pair of encoded values, a pair of features, a place, or a coordinate. Grid: these x slots.
template <typename T>
kernel void packed_gather(
    device const int* sources [[buffer(0)]], device const vec<T, 2>* encoded [[buffer(1)]],
    device const vec<T, 2>* features [[buffer(2)]], device const float2* places [[buffer(3)]],
    device const float* points [[buffer(4)]], device vec<T, 2>* kept_encoded [[buffer(5)]],
    device vec<T, 2>* kept_features [[buffer(6)]], device float2* kept_places [[buffer(7)]],
    device float* kept_points [[buffer(8)]], constant uint& n_encoded [[buffer(9)]],
    constant uint& n_features [[buffer(10)]], uint2 at [[thread_position_in_grid]]) {
  vec<T, 2> pair = vec<T, 2>(T(0.0f));
  const uint word = at.x;
  const ulong to = at.y;
  const int from = sources[to];
  if (word < n_encoded) {
    if (from >= 0) pair = encoded[ulong(from) * n_encoded + word];
    kept_encoded[to * n_encoded + word] = pair;
  } else if (word < n_encoded + n_features) {
    const uint w = word - n_encoded;
    if (from >= 0) pair = features[ulong(from) * n_features + w];
    kept_features[to * n_features + w] = pair;
  } else if (word == n_encoded + n_features) {
    kept_places[to] = from < 0 ? float2(0.0f) : places[from];
  } else {
    const uint d = word - n_encoded - n_features - 1;
    kept_points[3 * to + d] = from < 0 ? packed_uniform(packed_random(uint3(at.y, 0, 0)))[d]
                                       : points[3 * ulong(from) + d];
  }
}

// Inputs of the colour network: features, and spherical harmonics of the ray's direction, of degree 4
// and with the signs of sh_encode. Four at a time. Grid: slots.
template <typename T>
kernel void packed_colour_inputs(device const vec<T, 4>* features [[buffer(0)]],
                                 device const float* directions [[buffer(1)]],
                                 device const int* rays [[buffer(2)]],
                                 device vec<T, 4>* inputs [[buffer(3)]],
                                 constant uint& n_features [[buffer(4)]],
                                 uint slot [[thread_position_in_grid]]) {
  const uint n = n_features / 4;
  device vec<T, 4>* to = inputs + ulong(slot) * (n + 4);
  device const vec<T, 4>* const from = features + ulong(slot) * n;
  for (uint i = 0; i < n; ++i) to[i] = from[i];
  to += n;
  device const float* const direction = directions + 3 * ulong(rays[slot]);
  const float x = direction[0], y = direction[1], z = direction[2];
  const float xx = x * x, yy = y * y, zz = z * z;
  to[0] = vec<T, 4>(T(0.28209479177387814f), T(-0.48860251190291987f * y),
                    T(0.48860251190291987f * z), T(-0.48860251190291987f * x));
  to[1] = vec<T, 4>(T(1.0925484305920792f * x * y), T(-1.0925484305920792f * y * z),
                    T(0.31539156525252005f * (3.0f * zz - 1.0f)), T(-1.0925484305920792f * x * z));
  to[2] = vec<T, 4>(
      T(0.54627421529603959f * (xx - yy)), T(0.59004358992664352f * y * (yy - 3.0f * xx)),
      T(2.8906114426405538f * x * y * z), T(0.45704579946446572f * y * (1.0f - 5.0f * zz)));
  to[3] = vec<T, 4>(T(0.3731763325901154f * z * (5.0f * zz - 3.0f)),
                    T(0.45704579946446572f * x * (1.0f - 5.0f * zz)),
                    T(1.4453057213202769f * z * (xx - yy)),
                    T(0.59004358992664352f * x * (3.0f * yy - xx)));
}

// The squared error of each ray, and its gradient times `scale` with respect to colours and the
// logarithms of densities: w_i = T_i (1 - exp(-x_i)), and with h_i = d loss / d w_i
//   d loss / d x_i = T_{i+1} h_i - sum over j > i of w_j h_j - T_end d loss / d rgb . background.
// Grid: rays or slots.
template <typename T>
kernel void packed_loss(
    device const T* features [[buffer(0)]], device const T* colours [[buffer(1)]],
    device const float2* places [[buffer(2)]], device const int2* spans [[buffer(3)]],
    device const uint* totals [[buffer(4)]], device const float* target [[buffer(5)]],
    device const float* background [[buffer(6)]], device float* losses [[buffer(7)]],
    device float* d_raw [[buffer(8)]], device T* d_colours [[buffer(9)]],
    constant uint& line [[buffer(10)]], constant float& scale [[buffer(11)]],
    constant uint& n_rays [[buffer(12)]], constant uint& capacity [[buffer(13)]],
    uint i [[thread_position_in_grid]]) {
  if (i >= totals[0] && i < capacity) {
    d_raw[i] = 0.0f;
    for (uint c = 0; c < 3; ++c) d_colours[3 * ulong(i) + c] = T(0.0f);
  }
  if (i >= n_rays) return;
  const int2 span = spans[i];
  if (span.x < 0) {
    losses[i] = 0.0f;
    return;
  }
  const float3 behind = float3(background[3 * i], background[3 * i + 1], background[3 * i + 2]);
  const float3 wanted = float3(target[3 * i], target[3 * i + 1], target[3 * i + 2]);
  float3 rgb = float3(0.0f);
  float light = 1.0f;
  for (int n = 0; n < span.y; ++n) {
    const ulong at = ulong(span.x + n);
    const float thickness = packed_density(float(features[at * line])) * places[at].y;
    const float weight = light * -precise_expm1(-thickness);
    rgb += weight *
           float3(float(colours[3 * at]), float(colours[3 * at + 1]), float(colours[3 * at + 2]));
    light *= precise::exp(-thickness);
  }
  const float3 error = rgb + light * behind - wanted;
  losses[i] = dot(error, error);
  const float3 d_rgb = 2.0f * scale * error;
  // The light of the samples behind one, from the front: all, less the part that has been passed.
  float3 rest = rgb + light * behind;
  float before = 1.0f;
  for (int n = 0; n < span.y; ++n) {
    const ulong at = ulong(span.x + n);
    const float density = packed_density(float(features[at * line])), length = places[at].y;
    const float thickness = density * length;
    const float weight = before * -precise_expm1(-thickness);
    const float after = before * precise::exp(-thickness);
    const float3 colour =
        float3(float(colours[3 * at]), float(colours[3 * at + 1]), float(colours[3 * at + 2]));
    rest -= weight * colour;
    for (uint c = 0; c < 3; ++c) d_colours[3 * at + c] = T(weight * d_rgb[c]);
    d_raw[at] = dot(d_rgb, after * colour - rest) * thickness;
    before = after;
  }
}

// The gradient of the density network's outputs: the part that the colour network hands back, and
// the density's. Grid: features x slots.
template <typename T>
kernel void packed_feature_gradient(device const T* d_inputs [[buffer(0)]],
                                    device const float* d_raw [[buffer(1)]],
                                    device T* d_features [[buffer(2)]],
                                    constant uint& n_features [[buffer(3)]],
                                    uint2 at [[thread_position_in_grid]]) {
  const float d = float(d_inputs[ulong(at.y) * (n_features + 16) + at.x]);
  d_features[ulong(at.y) * n_features + at.x] = T(at.x == 0 ? d + d_raw[at.y] : d);
}

// A part of some values, times a number. Grid: its elements.
template <typename T>
kernel void packed_scaled(device const T* values [[buffer(0)]], device float* scaled [[buffer(1)]],
                          constant float& by [[buffer(2)]], constant uint& first [[buffer(3)]],
                          uint i [[thread_position_in_grid]]) {
  scaled[i] = float(values[first + i]) * by;
}

// Colour on black, opacity and mean distance. Grid: rays.
template <typename T>
kernel void packed_composite(device const T* features [[buffer(0)]],
                             device const T* colours [[buffer(1)]],
                             device const float2* places [[buffer(2)]],
                             device const int2* spans [[buffer(3)]],
                             device float* rgb [[buffer(4)]], device float* opacity [[buffer(5)]],
                             device float* depth [[buffer(6)]], constant uint& line [[buffer(7)]],
                             uint ray [[thread_position_in_grid]]) {
  const int2 span = spans[ray];
  float3 sum = float3(0.0f);
  float light = 1.0f, distance = 0.0f;
  for (int n = 0; n < span.y; ++n) {
    const ulong at = ulong(span.x + n);
    const float thickness = packed_density(float(features[at * line])) * places[at].y;
    const float weight = light * -precise_expm1(-thickness);
    sum += weight *
           float3(float(colours[3 * at]), float(colours[3 * at + 1]), float(colours[3 * at + 2]));
    distance += weight * places[at].x;
    light *= precise::exp(-thickness);
  }
  for (uint c = 0; c < 3; ++c) rgb[3 * ray + c] = sum[c];
  opacity[ray] = 1.0f - light;
  depth[ray] = light < 1.0f ? distance / (1.0f - light) : 0.0f;
}

// Cells to look at, the first half of them any that may be occupied, the others occupied ones; -1 if
// chance found none. And a point in each, in the unit cube. x is slowest. Grid: looks.
kernel void packed_cells(device const float* densities [[buffer(0)]],
                         device const uchar* occupancy [[buffer(1)]],
                         device int* cells [[buffer(2)]], device float* points [[buffer(3)]],
                         constant uint* seed [[buffer(4)]], constant uint& resolution [[buffer(5)]],
                         uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  const uint n_cells = resolution * resolution * resolution;
  int found = -1;
  for (uint attempt = 0; attempt < 48 && found < 0; ++attempt) {
    const uint cell = mulhi(packed_random(uint3(seed[0] + attempt, seed[1], 2 * i)).x, n_cells);
    const bool there =
        2 * i < n ? densities[cell] >= 0.0f : ((occupancy[cell / 8] >> (cell % 8)) & 1) != 0;
    if (there) found = int(cell);
  }
  const float3 inside = packed_uniform(packed_random(uint3(seed[0], seed[1], 2 * i + 1)));
  float3 point = inside;
  if (found >= 0) {
    const uint cell = uint(found);
    const float3 corner = float3(float(cell / (resolution * resolution)),
                                 float(cell / resolution % resolution), float(cell % resolution));
    point = (corner + inside) / float(resolution);
  }
  cells[i] = found;
  for (uint d = 0; d < 3; ++d) points[3 * ulong(i) + d] = point[d];
}

// The faded densities of cells; those that are never occupied are negative. Grid: cells.
kernel void packed_faded(device const float* densities [[buffer(0)]],
                         device float* faded [[buffer(1)]], constant float& decay [[buffer(2)]],
                         uint cell [[thread_position_in_grid]]) {
  faded[cell] = densities[cell] * (densities[cell] < 0.0f ? 1.0f : decay);
}

// The largest density seen in each cell: `densities` begin as the faded old ones. Numbers that are
// not negative are in the order of their bits. Grid: looks.
template <typename T>
kernel void packed_seen(device atomic_uint* densities [[buffer(0)]],
                        device const T* features [[buffer(1)]],
                        device const int* cells [[buffer(2)]], constant uint& line [[buffer(3)]],
                        uint i [[thread_position_in_grid]]) {
  if (cells[i] < 0) return;
  const float density = packed_density(float(features[ulong(i) * line]));
  atomic_fetch_max_explicit(&densities[cells[i]], as_type<uint>(density), memory_order_relaxed);
}

// The sum of densities and the number of the cells that may be occupied, of each threadgroup.
[[kernel, max_total_threads_per_threadgroup(PACKED_SUM_THREADS)]] void packed_cell_sums(
    device const float* densities [[buffer(0)]], device float2* sums [[buffer(1)]],
    constant uint& n_cells [[buffer(2)]], uint i [[thread_position_in_grid]],
    uint n [[threads_per_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float2 parts[PACKED_SUM_THREADS / 32];
  float sum = 0.0f, count = 0.0f;
  for (uint cell = i; cell < n_cells; cell += n) {
    const bool possible = densities[cell] >= 0.0f;
    sum += possible ? densities[cell] : 0.0f;
    count += possible ? 1.0f : 0.0f;
  }
  const float2 all = float2(simd_sum(sum), simd_sum(count));
  if (lane == 0) parts[simdgroup] = all;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_ != 0) return;
  float2 total = parts[0];
  for (uint other = 1; other < n_simdgroups; ++other) total += parts[other];
  sums[group] = total;
}

// Above which density a cell is occupied: `most`, or a little below the mean where that is less. With
// nothing left nothing would ever be learnt again: all that may be. Grid: a simdgroup.
[[kernel, max_total_threads_per_threadgroup(32)]] void packed_threshold(
    device const float2* sums [[buffer(0)]], device float* threshold [[buffer(1)]],
    constant uint& n_sums [[buffer(2)]], constant float& most [[buffer(3)]],
    uint lane [[thread_index_in_simdgroup]]) {
  float2 total = float2(0.0f);
  for (uint i = lane; i < n_sums; i += 32) total += sums[i];
  const float sum = simd_sum(total.x), count = simd_sum(total.y);
  const float mean = count > 0.0f ? sum / count : 0.0f;
  if (lane == 0) threshold[0] = mean > 0.0f ? min(most, 0.999f * mean) : -0.5f;
}

#define INSTANTIATE_PACKED(T)                                                   \
  INSTANTIATE_KERNEL("packed_reached_" #T, packed_reached, T)                   \
  INSTANTIATE_KERNEL("packed_gather_" #T, packed_gather, T)                     \
  INSTANTIATE_KERNEL("packed_colour_inputs_" #T, packed_colour_inputs, T)       \
  INSTANTIATE_KERNEL("packed_loss_" #T, packed_loss, T)                         \
  INSTANTIATE_KERNEL("packed_feature_gradient_" #T, packed_feature_gradient, T) \
  INSTANTIATE_KERNEL("packed_seen_" #T, packed_seen, T)                         \
  INSTANTIATE_KERNEL("packed_scaled_" #T, packed_scaled, T)                     \
  INSTANTIATE_KERNEL("packed_composite_" #T, packed_composite, T)
INSTANTIATE_PACKED(float)
INSTANTIATE_PACKED(half)
