// Volume rendering's formulas and constants, read by host code and shader alike.
//
// A ray's samples i = 0, 1, ... have density sigma_i over [t_start_i, t_end_i], thus optical
// thickness x_i = sigma_i (t_end_i - t_start_i). With X_i = sum of x_j over j < i:
//   T_i = exp(-X_i)                            transmittance up to sample i
//   w_i = T_i (1 - exp(-x_i))                  its weight (Max 1995, equation 3 of Mildenhall 2020)
//   rgb = sum w_i c_i + T_end background       T_end = exp(-sum of x): the light from behind
// A sample whose T_i is below early_stop_eps, and all behind it, weigh nothing.

#ifndef METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_PARAMS_H_
#define METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// The median depth is where half of the light is absorbed: X = ln 2.
#define VOLUME_RENDER_LN2 0.693147180559945309f

// Bits of the optional inputs that a call has; others are never read.
#define VOLUME_RENDER_BACKGROUND 1u
#define VOLUME_RENDER_FROM_RGB 2u
#define VOLUME_RENDER_FROM_OPACITY 4u
#define VOLUME_RENDER_FROM_DEPTH 8u
#define VOLUME_RENDER_FROM_MEDIAN 16u
#define VOLUME_RENDER_FROM_WEIGHTS 32u
#define VOLUME_RENDER_FROM_TRANSMITTANCE 64u
// Whether the gradients of t_starts and t_ends are wanted, and whether the call has colours.
#define VOLUME_RENDER_T_GRADIENTS 128u
#define VOLUME_RENDER_COLOURS 256u

// Rays that one thread adds up for the gradient of a background that all rays share.
#define VOLUME_RENDER_RAYS_PER_SUM 256u

struct VolumeRenderParams {
  float max_thickness;  // a sample behind more than this weighs nothing
  uint32_t n_channels;
  uint32_t background_stride;  // between the backgrounds of two rays: 0 if they share one
  uint32_t present;            // VOLUME_RENDER_...
};
static_assert(sizeof(VolumeRenderParams) == 16, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_PARAMS_H_
