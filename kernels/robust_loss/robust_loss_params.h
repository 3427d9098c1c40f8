// The general robust loss (Barron, CVPR 2019, equations 8 and 13), as all devices compute it.
//
// With z = (x / c)^2, b = |alpha - 2|, u = z / b, L = log(1 + u), y = alpha L / 2:
//   rho = b / alpha (e^y - 1)          = b L / 2 where y vanishes (alpha = 0: Cauchy)
//   d rho / d x = x / c^2 e^((alpha / 2 - 1) L)
//   d rho / d c = - x / c d rho / d x
// and in the limits alpha = 2: z / 2 (L2); -inf: 1 - e^(-z/2) (Welsch); +inf: e^(z/2) - 1. d rho /
// d alpha has four forms, as each loses its digits somewhere. With s = sign(2 - alpha), w = z / (b
// + z), psi(y) = (y e^y - e^y + 1) / y^2:
//   |alpha| < 1:   (psi(y) L^2 - e^y (L - w)) / 2
//   alpha <= -1:   b e^y (L / (2 alpha) - (alpha + 2) / (2 alpha^2) - 1 / (2 (b + z)))
//                  + 2 / alpha^2
//   alpha >= 1:    rho (L / 2 - (alpha + 2) / (2 alpha)) + b L / (2 alpha)
//                  + s (alpha rho + b) (e^(s b L / 2) - 1) / (2 (b + z))
//   small z:       the power series of rho in u, whose terms of order z and z^2 are without alpha
// Towards alpha = 2 the derivative grows without bound, like log b; at 2 it is given as 0.

#ifndef METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_PARAMS_H_
#define METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// From this |alpha| on, 2^64, the limits are taken: z / b would be no normal number, thus 0.
#define ROBUST_LOSS_INFINITE 18446744073709551616.0f

// Below these z and u the series is used for d rho / d alpha, with so many terms: each is at most a
// sixth of the one before.
#define ROBUST_LOSS_SERIES_Z 0.25f
#define ROBUST_LOSS_SERIES_U 0.125f
#define ROBUST_LOSS_SERIES_TERMS 9

// How the shader finds its arguments.
struct RobustLossParams {
  uint32_t compare;       // whether there are targets
  uint32_t alpha_period;  // values of alpha, 1 or one per channel
  uint32_t scale_period;
  uint32_t reserved;
};
static_assert(sizeof(RobustLossParams) == 16, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_PARAMS_H_
