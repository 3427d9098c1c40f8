// Spherical harmonics' constants, read by host code and shader alike.
//
// Real spherical harmonics as polynomials of (x, y, z), with the Condon-Shortley phase, in the
// order l^2 + l + m, as tiny-cuda-nn and torch-ngp have them:
//   Y_l^m = (-1)^m K_l^m P_l^m(z) { 1 | sqrt(2) Re (x + iy)^m | sqrt(2) Im (x + iy)^|m| }
//   for m = 0 | m > 0 | m < 0,
// K_l^m = sqrt((2l + 1) / (4 pi) (l - m)! / (l + m)!) and P_l^m the associated Legendre
// function without its factor (1 - z^2)^(m/2), which (x + iy)^m brings on the unit sphere. By
// recurrence in l:
//   P_m^m = (2m - 1)!!,  P_{m+1}^m = (2m + 1) z P_m^m,
//   (l - m) P_l^m = (2l - 1) z P_{l-1}^m - (l + m - 1) P_{l-2}^m

#ifndef METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_PARAMS_H_
#define METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Bands l = 0 .. degree - 1, degree^2 coefficients.
#define SH_ENCODE_MAX_DEGREE 8

struct ShEncodeParams {
  uint64_t n_points;
  uint32_t degree;
  uint32_t reserved;
  // With K: factors of the recurrence for the normalised functions q_l^m = K_l^m P_l^m, by m and l.
  float first[SH_ENCODE_MAX_DEGREE];                       // q_m^m, sign and sqrt(2) included
  float up[SH_ENCODE_MAX_DEGREE][SH_ENCODE_MAX_DEGREE];    // of z q_{l-1}^m
  float down[SH_ENCODE_MAX_DEGREE][SH_ENCODE_MAX_DEGREE];  // of q_{l-2}^m
};
static_assert(sizeof(ShEncodeParams) == 16 + 4 * (8 + 64 + 64), "host and shader must agree");

#endif  // METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_PARAMS_H_
