// RobustLoss on the CPU: the loss and all derivatives in one pass over memory, in vectors.

#include <algorithm>
#include <vector>

#include "kernels/losses/loss_pieces.h"
#include "kernels/robust_loss/robust_loss_checks.h"
#include "kernels/robust_loss/robust_loss_params.h"
#include "kernels/runtime/op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/robust_loss/robust_loss_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/robust_loss/robust_loss_formula.h"

// A parameter of every element, repeated so far that a piece may begin at any channel. There may be
// no channels.
std::vector<float> Repeat(const float* values, int64_t n) {
  std::vector<float> repeated(n + kLossPiece);
  for (size_t i = 0; n > 0 && i < repeated.size(); ++i) repeated[i] = values[i % n];
  return repeated;
}

template <bool kParameters>
HWY_INLINE void RunPiece(const float* x, const float* alpha, const float* scale, int64_t n,
                         LossBuffers& to) {
  for (int64_t i = 0; i < n; i += Floats::Lanes()) {
    const auto value = robust_loss_values<kParameters>(Floats::Load(x + i), Floats::Load(alpha + i),
                                                       Floats::Load(scale + i));
    value.loss.Store(to.loss + i);
    value.slope.Store(to.slopes[0] + i);
    if (!kParameters) continue;
    value.slope_alpha.Store(to.slopes[1] + i);
    value.slope_scale.Store(to.slopes[2] + i);
  }
}

void RobustLoss(CpuCall& call) {
  const int64_t alpha_period = call.inputs[2].n_elements, scale_period = call.inputs[3].n_elements;
  CheckRobustScale(&call.shapes, call.in<float>(3), scale_period);
  if (!call.shapes.ok()) return;
  const bool parameters = call.Bool("parameter_gradients"), compare = call.inputs[1].n_elements > 0;
  const FloatArray from = call.floats(0), to_compare = call.floats(1);
  const std::vector<float> alpha = Repeat(call.in<float>(2), alpha_period);
  const std::vector<float> scale = Repeat(call.in<float>(3), scale_period);
  ForLossPieces(call, call.Bool("reduce_last"), parameters ? 3 : 1,
                [&](int64_t at, int64_t n, LossBuffers& to) HWY_ATTR {
                  float narrow[2][kLossPiece], *const x = to.inputs[0];
                  const float* const p = from.Read(at, n, narrow[0]);
                  const float* const y = compare ? to_compare.Read(at, n, narrow[1]) : nullptr;
                  for (int64_t i = 0; i < n; ++i) x[i] = compare ? p[i] - y[i] : p[i];
                  std::fill(x + n, x + kLossPiece, 0.0f);
                  const auto run = parameters ? RunPiece<true> : RunPiece<false>;
                  run(x, alpha.data() + at % alpha_period, scale.data() + at % scale_period, n, to);
                });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("RobustLoss", RobustLoss);
}  // namespace metal_ops
#endif  // HWY_ONCE
