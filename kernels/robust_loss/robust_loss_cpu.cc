// RobustLoss on the CPU: the loss and all derivatives in one pass over memory.

#include <algorithm>
#include <vector>

#include "kernels/losses/loss_pieces.h"
#include "kernels/losses/row_mean_writer.h"
#include "kernels/robust_loss/robust_loss_checks.h"
#include "kernels/robust_loss/robust_loss_simd.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

constexpr int64_t kCycles = 8;

// A parameter of every element, repeated so far that a piece may begin at any channel.
std::vector<float> Repeat(const float* values, int64_t n) {
  std::vector<float> repeated(n + kLossPiece);
  for (size_t i = 0; i < repeated.size(); ++i) repeated[i] = values[i % n];
  return repeated;
}

void RobustLossKernel(CpuCall& call) {
  const int64_t alpha_period = call.inputs[2].n_elements, scale_period = call.inputs[3].n_elements;
  CheckRobustScale(&call.shapes, call.in<float>(3), scale_period);
  if (!call.shapes.ok()) return;
  const int64_t n = call.inputs[0].n_elements;
  const int64_t channels = call.in_shapes[0].rank() > 0 ? call.in_shapes[0].dims.back() : 1;
  const bool reduce_last = call.Bool("reduce_last");
  const bool parameter_gradients = call.Bool("parameter_gradients");
  const FloatArray from = call.floats(0), to_compare = call.floats(1);
  const MutableFloatArray to_loss = call.float_out(0), to_slope = call.float_out(1);
  const MutableFloatArray to_alpha = call.float_out(2), to_scale = call.float_out(3);
  if (n == 0) {
    if (reduce_last) FillNaN(to_loss, call.outputs[0].n_elements);
    return;
  }
  const std::vector<float> alpha = Repeat(call.in<float>(2), alpha_period);
  const std::vector<float> scale = Repeat(call.in<float>(3), scale_period);
  const bool compare = call.inputs[1].n_elements > 0;
  // Nobody may want the derivative: TensorFlow knows while it runs a graph.
  const bool with_slope = call.IsWanted(1);
  const int64_t unit = reduce_last ? channels : 1;
  call.ParallelFor(n / unit, kCycles * unit, [&](int64_t begin_unit, int64_t end_unit) {
    alignas(64) float x[kLossPiece], a[kLossPiece], c[kLossPiece], rho[kLossPiece];
    alignas(64) float dx[kLossPiece], da[kLossPiece], dc[kLossPiece];
    float narrow[2][kLossPiece];
    RowMeanWriter means(to_loss, unit, begin_unit);
    const float weight = reduce_last ? 1.0f / static_cast<float>(channels) : 1.0f;
    const int64_t end = end_unit * unit;
    for (int64_t at = begin_unit * unit; at < end; at += kLossPiece) {
      const int64_t m = std::min(kLossPiece, end - at);
      const float* const p = from.Read(at, m, narrow[0]);
      const float* const y = compare ? to_compare.Read(at, m, narrow[1]) : nullptr;
      for (int64_t i = 0; i < m; ++i) x[i] = compare ? p[i] - y[i] : p[i];
      std::fill(x + m, x + kLossPiece, 0.0f);
      std::copy_n(alpha.data() + at % alpha_period, kLossPiece, a);
      std::copy_n(scale.data() + at % scale_period, kLossPiece, c);
      const RobustLossPiece piece = {
          x, a, c, rho, dx, parameter_gradients ? da : nullptr, parameter_gradients ? dc : nullptr};
      RobustLoss(piece, m);
      if (reduce_last) {
        means.Add(rho, m);
      } else {
        StoreWeighted(to_loss, at, m, rho, 1.0f);
      }
      if (with_slope) StoreWeighted(to_slope, at, m, dx, weight);
      if (parameter_gradients) {
        StoreWeighted(to_alpha, at, m, da, weight);
        StoreWeighted(to_scale, at, m, dc, weight);
      }
    }
    means.Flush();
  });
}
CPU_KERNEL("RobustLoss", RobustLossKernel);

}  // namespace
}  // namespace metal_ops
