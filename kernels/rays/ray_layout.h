// The samples of a ray, for shaders: a table of spans for packed samples, a number for dense ones.
// Read by host and shader alike.

#ifndef METAL_OPS_KERNELS_RAYS_RAY_LAYOUT_H_
#define METAL_OPS_KERNELS_RAYS_RAY_LAYOUT_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct RaySpan {
  uint64_t start;
  uint32_t count;
  uint32_t reserved;
};
static_assert(sizeof(RaySpan) == 16, "host and shader must agree");

struct RayLayout {
  uint32_t n_rays;
  uint32_t samples_per_ray;  // of dense samples
  uint32_t packed;           // 1: the spans say it
  uint32_t reserved;
};
static_assert(sizeof(RayLayout) == 16, "host and shader must agree");

#if defined(__METAL_VERSION__)

inline RaySpan ray_span(constant RayLayout& layout, device const RaySpan* spans, uint ray) {
  if (layout.packed != 0) return spans[ray];
  RaySpan span;
  span.start = ulong(ray) * layout.samples_per_ray;
  span.count = layout.samples_per_ray;
  span.reserved = 0;
  return span;
}

#endif

#endif  // METAL_OPS_KERNELS_RAYS_RAY_LAYOUT_H_
