// RobustLoss on the CPU: the loss and all derivatives in one pass over memory.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/common/row_mean_writer.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/robust_loss/robust_loss_checks.h"
#include "kernels/robust_loss/robust_loss_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int64_t kCycles = 8;

// A parameter of every element, repeated so far that a piece may begin at any channel.
std::vector<float> Repeat(const Tensor& parameter) {
  const float* const values = static_cast<const float*>(parameter.data());
  const int64_t n = parameter.NumElements();
  std::vector<float> repeated(n + kLossPiece);
  for (size_t i = 0; i < repeated.size(); ++i) repeated[i] = values[i % n];
  return repeated;
}

class RobustLossOp : public OpKernel {
 public:
  explicit RobustLossOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("reduce_last", &reduce_last_));
    OP_REQUIRES_OK(context, context->GetAttr("parameter_gradients", &parameter_gradients_));
  }

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckRobustLoss(&shapes, InputShapes(context), reduce_last_);
    const Tensor& scales = context->input(3);
    CheckRobustScale(&shapes, static_cast<const float*>(scales.data()), scales.NumElements());
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& predictions = context->input(0);
    const Tensor& targets = context->input(1);
    const TensorShape& shape = predictions.shape();
    const int64_t n = shape.num_elements();
    const int64_t channels = shape.dims() > 0 ? shape.dim_size(shape.dims() - 1) : 1;
    TensorShape loss_shape = shape;
    if (reduce_last_) loss_shape.RemoveLastDims(1);
    const TensorShape parameter_shape = parameter_gradients_ ? shape : TensorShape({0});
    Tensor *loss, *slope, *slope_alpha, *slope_scale;
    OP_REQUIRES_OK(context, context->allocate_output(0, loss_shape, &loss));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &slope));
    OP_REQUIRES_OK(context, context->allocate_output(2, parameter_shape, &slope_alpha));
    OP_REQUIRES_OK(context, context->allocate_output(3, parameter_shape, &slope_scale));
    if (n == 0) {
      // The mean of nothing, as tf.reduce_mean has it.
      if (reduce_last_) FillNaN(loss);
      return;
    }
    const std::vector<float> alpha = Repeat(context->input(2)), scale = Repeat(scales);
    const int64_t alpha_period = context->input(2).NumElements();
    const int64_t scale_period = scales.NumElements();
    const FloatArray from = ToFloatArray(predictions), to_compare = ToFloatArray(targets);
    const bool compare = targets.NumElements() > 0;
    const MutableFloatArray to_loss = ToMutableFloatArray(loss);
    const MutableFloatArray to_slope = ToMutableFloatArray(slope);
    const MutableFloatArray to_alpha = ToMutableFloatArray(slope_alpha);
    const MutableFloatArray to_scale = ToMutableFloatArray(slope_scale);
    // Nobody may want the derivative: TensorFlow knows while it runs a graph.
    const bool with_slope = context->output_required(1);
    const int64_t unit = reduce_last_ ? channels : 1;
    ParallelFor(context, n / unit, kCycles * unit, [&](int64_t begin_unit, int64_t end_unit) {
      alignas(64) float x[kLossPiece], a[kLossPiece], c[kLossPiece], rho[kLossPiece];
      alignas(64) float dx[kLossPiece], da[kLossPiece], dc[kLossPiece];
      float narrow[2][kLossPiece];
      RowMeanWriter means(to_loss, unit, begin_unit);
      const float weight = reduce_last_ ? 1.0f / static_cast<float>(channels) : 1.0f;
      const int64_t end = end_unit * unit;
      for (int64_t at = begin_unit * unit; at < end; at += kLossPiece) {
        const int64_t m = std::min(kLossPiece, end - at);
        const float* const p = from.Read(at, m, narrow[0]);
        const float* const y = compare ? to_compare.Read(at, m, narrow[1]) : nullptr;
        for (int64_t i = 0; i < m; ++i) x[i] = compare ? p[i] - y[i] : p[i];
        std::fill(x + m, x + kLossPiece, 0.0f);
        std::copy_n(alpha.data() + at % alpha_period, kLossPiece, a);
        std::copy_n(scale.data() + at % scale_period, kLossPiece, c);
        const RobustLossPiece piece = {x,
                                       a,
                                       c,
                                       rho,
                                       dx,
                                       parameter_gradients_ ? da : nullptr,
                                       parameter_gradients_ ? dc : nullptr};
        RobustLoss(piece, m);
        if (reduce_last_) {
          means.Add(rho, m);
        } else {
          Store(to_loss, at, m, rho, 1.0f);
        }
        if (with_slope) Store(to_slope, at, m, dx, weight);
        if (parameter_gradients_) {
          Store(to_alpha, at, m, da, weight);
          Store(to_scale, at, m, dc, weight);
        }
      }
      means.Flush();
    });
  }

 private:
  static void StoreOne(const MutableFloatArray& to, int64_t at, float value) {
    float* const piece = to.Piece(at, &value);
    *piece = value;
    to.Store(at, 1, piece);
  }

  static void Store(const MutableFloatArray& to, int64_t at, int64_t n, float* values,
                    float weight) {
    float* const piece = to.Piece(at, values);
    for (int64_t i = 0; i < n; ++i) piece[i] = values[i] * weight;
    to.Store(at, n, piece);
  }

  static void FillNaN(Tensor* tensor) {
    const MutableFloatArray to = ToMutableFloatArray(tensor);
    for (int64_t i = 0; i < tensor->NumElements(); ++i) StoreOne(to, i, std::nanf(""));
  }

  bool reduce_last_ = false;
  bool parameter_gradients_ = false;
};

REGISTER_KERNEL_BUILDER(Name("RobustLoss").Device(tensorflow::DEVICE_CPU), RobustLossOp);

}  // namespace
}  // namespace metal_ops
