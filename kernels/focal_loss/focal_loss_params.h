// The focal loss (Lin et al. 2017, equations 4 and 5), as all devices compute it.
//
// Sigmoid: with target y (smoothed), p = sigmoid(x), q = y (1 - p) + (1 - y) p, the distance from
// it:
//   loss = weight q^gamma H,  H = log(1 + e^x) - x y,  weight = y alpha + (1 - y) (1 - alpha), or 1
//   d loss / d x = weight q^gamma (p - y + gamma H r),  r = (dq / dx) / q = (1 - 2 y) p (1 - p) / q
// Softmax: with p = softmax(x) and targets y_c (smoothed):
//   loss = - alpha sum_c y_c (1 - p_c)^gamma log p_c
//   d loss / d x_k = h_k - p_k sum_c h_c,
//   h_c = alpha y_c (gamma p_c (1 - p_c)^(gamma - 1) log p_c - (1 - p_c)^gamma)
// 1 - p is never formed by a subtraction that cancels.

#ifndef METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_PARAMS_H_
#define METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_PARAMS_H_

struct FocalLossParams {
  float alpha;
  float gamma;
  float label_smoothing;
  int balanced;     // sigmoid: whether alpha weighs classes
  int reduce_last;  // sigmoid: whether the loss is the mean over the last dimension
};

#endif  // METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_PARAMS_H_
