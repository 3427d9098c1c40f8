// SigmoidFocalLoss and SoftmaxFocalLoss on the CPU: loss and derivative in one pass over memory.

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/focal_loss/focal_loss_checks.h"
#include "kernels/focal_loss/focal_loss_simd.h"
#include "kernels/losses/loss_pieces.h"
#include "kernels/losses/row_mean_writer.h"

namespace metal_ops {
namespace {

constexpr int64_t kCycles = 8;

void Copy(const float* from, int64_t n, float* to) {
  if (from != to) std::memcpy(to, from, n * sizeof(float));
}

void SigmoidKernel(CpuCall& call) {
  const FocalLossParams params = FocalParams(call, /*sigmoid=*/true);
  const int64_t n = call.inputs[0].n_elements;
  const int64_t channels = call.in_shapes[0].rank() > 0 ? call.in_shapes[0].dims.back() : 1;
  const MutableFloatArray to_loss = call.float_out(0), to_slope = call.float_out(1);
  if (n == 0) return FillNaN(to_loss, call.outputs[0].n_elements);
  const FloatArray from = call.floats(0), targets = call.floats(1);
  const bool with_slope = call.IsWanted(1);
  const int64_t unit = params.reduce_last ? channels : 1;
  call.ParallelFor(n / unit, kCycles * unit, [&](int64_t begin_unit, int64_t end_unit) {
    alignas(64) float x[kFocalPiece], y[kFocalPiece], rho[kFocalPiece], dx[kFocalPiece];
    RowMeanWriter means(to_loss, unit, begin_unit);
    const float weight = params.reduce_last ? 1.0f / static_cast<float>(channels) : 1.0f;
    const int64_t end = end_unit * unit;
    for (int64_t at = begin_unit * unit; at < end; at += kFocalPiece) {
      const int64_t m = std::min(kFocalPiece, end - at);
      std::fill(x + m, x + kFocalPiece, 0.0f);
      std::fill(y + m, y + kFocalPiece, 0.0f);
      Copy(from.Read(at, m, x), m, x);
      Copy(targets.Read(at, m, y), m, y);
      SigmoidFocalLoss(params, x, y, m, rho, dx);
      if (params.reduce_last) {
        means.Add(rho, m);
      } else {
        StoreWeighted(to_loss, at, m, rho, 1.0f);
      }
      if (with_slope) StoreWeighted(to_slope, at, m, dx, weight);
    }
    means.Flush();
  });
}
CPU_KERNEL("SigmoidFocalLoss", SigmoidKernel);

void SoftmaxKernel(CpuCall& call) {
  const FocalLossParams params = FocalParams(call, /*sigmoid=*/false);
  const int64_t n_rows = call.Size("rows"), n_classes = call.Size("classes");
  const FloatArray from = call.floats(0);
  const MutableFloatArray to_loss = call.float_out(0), to_slope = call.float_out(1);
  const DType type = call.inputs[1].type;
  const bool sparse = type != DType::kFloat, with_slope = call.IsWanted(1);
  if (n_classes == 0) {
    for (int64_t r = 0; r < n_rows; ++r) StoreOne(to_loss, r, 0.0f);
    return;
  }
  if (type == DType::kInt32) {
    CheckFocalClasses(&call.shapes, call.in<int32_t>(1), n_rows, n_classes);
  } else if (sparse) {
    CheckFocalClasses(&call.shapes, call.in<int64_t>(1), n_rows, n_classes);
  }
  if (!call.shapes.ok()) return;
  const auto label = [&](int64_t r) -> int64_t {
    return type == DType::kInt32 ? call.in<int32_t>(1)[r] : call.in<int64_t>(1)[r];
  };
  call.ParallelFor(n_rows, kCycles * n_classes, [&](int64_t begin, int64_t end) {
    const int64_t padded = n_classes + kFocalPadding;
    std::vector<float> x(padded), y(padded), dx(padded);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * n_classes;
      WidenFloats(from.type, from.At(at), n_classes, x.data());
      int64_t own = -1;
      if (sparse && params.label_smoothing == 0.0f) {
        own = label(r);
      } else if (sparse) {
        std::fill_n(y.data(), n_classes, 0.0f);
        y[label(r)] = 1.0f;
      } else {
        std::copy_n(call.in<float>(1) + at, n_classes, y.data());
      }
      const float row_loss =
          SoftmaxFocalLoss(params, x.data(), y.data(), own, n_classes, dx.data());
      StoreOne(to_loss, r, row_loss);
      if (with_slope) NarrowFloats(to_slope.type, dx.data(), n_classes, to_slope.At(at));
    }
  });
}
CPU_KERNEL("SoftmaxFocalLoss", SoftmaxKernel);

}  // namespace
}  // namespace metal_ops
