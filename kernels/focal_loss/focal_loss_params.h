// The focal loss (Lin et al. 2017, equations 4 and 5), as all devices compute it.
//
// Sigmoid: with target y (smoothed), p = sigmoid(x), and its distance q = y (1 - p) + (1 - y) p:
//   loss = weight q^gamma H,  H = log(1 + e^x) - x y,  weight = y alpha + (1 - y) (1 - alpha), or 1
//   d loss / d x = weight q^gamma (p - y + gamma H r),  r = (dq / dx) / q = (1 - 2 y) p (1 - p) / q
// Softmax: with p = softmax(x) and targets y_c (smoothed):
//   loss = - alpha sum_c y_c (1 - p_c)^gamma log p_c
//   d loss / d x_k = h_k - p_k sum_c h_c,
//   h_c = alpha y_c (gamma p_c (1 - p_c)^(gamma - 1) log p_c - (1 - p_c)^gamma)
// and z_loss L^2, L = log sum_c e^(x_c), whose derivative is 2 z_loss L p_k.
// 1 - p is never formed by a subtraction that cancels.

#ifndef METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_PARAMS_H_
#define METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct FocalLossParams {
  float alpha;
  float gamma;
  float label_smoothing;
  float z_loss;         // softmax
  int32_t balanced;     // sigmoid: whether alpha weighs classes
  int32_t reduce_last;  // sigmoid: whether the loss is the mean over the last dimension
};
static_assert(sizeof(FocalLossParams) == 24, "host and shader must agree");

// Softmax, for the shader: from so many classes on, a SIMD group shares a row.
#define FOCAL_LOSS_SHARED_ROW 128
// The label of a row that counts for nothing.
#define FOCAL_LOSS_IGNORED 0xffffffffu

struct SoftmaxFocalParams {
  FocalLossParams loss;
  uint32_t n_classes;
  uint64_t n_rows;
};
static_assert(sizeof(SoftmaxFocalParams) == 40, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_PARAMS_H_
