// Volume rendering's constants, read by host code and shader alike.
//
// A ray's samples i = 0, 1, ... have density sigma_i over [t_start_i, t_end_i], thus optical
// thickness x_i = sigma_i (t_end_i - t_start_i). With X_i = sum of x_j over j < i:
//   T_i = exp(-X_i)                            transmittance up to sample i
//   w_i = T_i (1 - exp(-x_i))                  its weight (Max 1995, equation 3 of Mildenhall 2020)
//   rgb = sum w_i c_i + T_end background       T_end = exp(-sum of x): the light from behind
// A sample whose T_i is below early_stop_eps, and all behind it, weigh nothing.

#ifndef METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_PARAMS_H_
#define METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_PARAMS_H_

// The median depth is where half of the light is absorbed: X = ln 2.
#define VOLUME_RENDER_LN2 0.693147180559945309f

#endif  // METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_PARAMS_H_
