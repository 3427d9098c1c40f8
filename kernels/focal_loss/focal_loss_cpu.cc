// SigmoidFocalLoss and SoftmaxFocalLoss on the CPU: loss and derivative in one pass over memory.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/common/row_mean_writer.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/focal_loss/focal_loss_checks.h"
#include "kernels/focal_loss/focal_loss_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int64_t kCycles = 8;

void StoreOne(const MutableFloatArray& to, int64_t at, float value) {
  float* const piece = to.Piece(at, &value);
  *piece = value;
  to.Store(at, 1, piece);
}

void Store(const MutableFloatArray& to, int64_t at, int64_t n, float* values, float weight) {
  float* const piece = to.Piece(at, values);
  for (int64_t i = 0; i < n; ++i) piece[i] = values[i] * weight;
  to.Store(at, n, piece);
}

class FocalBase : public OpKernel {
 public:
  explicit FocalBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("alpha", &params_.alpha));
    OP_REQUIRES_OK(context, context->GetAttr("gamma", &params_.gamma));
    OP_REQUIRES_OK(context, context->GetAttr("label_smoothing", &params_.label_smoothing));
    ArgShapes attrs(type_string());
    CheckFocalAttrs(&attrs, params_.gamma, params_.label_smoothing);
    OP_REQUIRES_OK(context, ToStatus(attrs));
  }

 protected:
  FocalLossParams params_ = {};
};

class SigmoidFocalLossOp : public FocalBase {
 public:
  explicit SigmoidFocalLossOp(OpKernelConstruction* context) : FocalBase(context) {
    bool balanced, reduce_last;
    OP_REQUIRES_OK(context, context->GetAttr("balanced", &balanced));
    OP_REQUIRES_OK(context, context->GetAttr("reduce_last", &reduce_last));
    params_.balanced = balanced;
    params_.reduce_last = reduce_last;
  }

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckSigmoidFocal(&shapes, InputShapes(context), params_.reduce_last);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& logits = context->input(0);
    const int64_t n = logits.NumElements();
    const int64_t channels = logits.dims() > 0 ? logits.dim_size(logits.dims() - 1) : 1;
    TensorShape loss_shape = logits.shape();
    if (params_.reduce_last) loss_shape.RemoveLastDims(1);
    Tensor *loss, *slope;
    OP_REQUIRES_OK(context, context->allocate_output(0, loss_shape, &loss));
    OP_REQUIRES_OK(context, context->allocate_output(1, logits.shape(), &slope));
    const MutableFloatArray to_loss = ToMutableFloatArray(loss);
    const MutableFloatArray to_slope = ToMutableFloatArray(slope);
    if (n == 0) {
      // The mean of nothing, as tf.reduce_mean has it.
      for (int64_t i = 0; i < loss->NumElements(); ++i) StoreOne(to_loss, i, std::nanf(""));
      return;
    }
    const FloatArray from = ToFloatArray(logits), targets = ToFloatArray(context->input(1));
    const bool with_slope = context->output_required(1);
    const int64_t unit = params_.reduce_last ? channels : 1;
    ParallelFor(context, n / unit, kCycles * unit, [&](int64_t begin_unit, int64_t end_unit) {
      alignas(64) float x[kFocalPiece], y[kFocalPiece], rho[kFocalPiece], dx[kFocalPiece];
      RowMeanWriter means(to_loss, unit, begin_unit);
      const float weight = params_.reduce_last ? 1.0f / static_cast<float>(channels) : 1.0f;
      const int64_t end = end_unit * unit;
      for (int64_t at = begin_unit * unit; at < end; at += kFocalPiece) {
        const int64_t m = std::min(kFocalPiece, end - at);
        std::fill(x + m, x + kFocalPiece, 0.0f);
        std::fill(y + m, y + kFocalPiece, 0.0f);
        Copy(from.Read(at, m, x), m, x);
        Copy(targets.Read(at, m, y), m, y);
        SigmoidFocalLoss(params_, x, y, m, rho, dx);
        if (params_.reduce_last) {
          means.Add(rho, m);
        } else {
          Store(to_loss, at, m, rho, 1.0f);
        }
        if (with_slope) Store(to_slope, at, m, dx, weight);
      }
      means.Flush();
    });
  }

 private:
  static void Copy(const float* from, int64_t n, float* to) {
    if (from != to) std::memcpy(to, from, n * sizeof(float));
  }
};

class SoftmaxFocalLossOp : public FocalBase {
 public:
  using FocalBase::FocalBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& logits = context->input(0);
    const Tensor& targets = context->input(1);
    const bool sparse = targets.dtype() != tensorflow::DT_FLOAT;
    ArgShapes shapes(type_string());
    CheckSoftmaxFocal(&shapes, InputShapes(context), sparse);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const int64_t n_rows = logits.dim_size(0), n_classes = logits.dim_size(1);
    Tensor *loss, *slope;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({n_rows}), &loss));
    OP_REQUIRES_OK(context, context->allocate_output(1, logits.shape(), &slope));
    const FloatArray from = ToFloatArray(logits);
    const MutableFloatArray to_loss = ToMutableFloatArray(loss);
    const MutableFloatArray to_slope = ToMutableFloatArray(slope);
    const bool with_slope = context->output_required(1);
    if (n_classes == 0) {
      for (int64_t r = 0; r < n_rows; ++r) StoreOne(to_loss, r, 0.0f);
      return;
    }
    if (targets.dtype() == tensorflow::DT_INT32) {
      CheckFocalClasses(&shapes, static_cast<const int32_t*>(targets.data()), n_rows, n_classes);
    } else if (sparse) {
      CheckFocalClasses(&shapes, static_cast<const int64_t*>(targets.data()), n_rows, n_classes);
    }
    OP_REQUIRES_OK(context, ToStatus(shapes));
    ParallelFor(context, n_rows, kCycles * n_classes, [&](int64_t begin, int64_t end) {
      const int64_t padded = n_classes + kFocalPadding;
      std::vector<float> x(padded), y(padded), dx(padded);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = r * n_classes;
        WidenFloats(from.type, from.At(at), n_classes, x.data());
        int64_t own = -1;
        if (sparse && params_.label_smoothing == 0.0f) {
          own = Label(targets, r);
        } else if (sparse) {
          std::fill_n(y.data(), n_classes, 0.0f);
          y[Label(targets, r)] = 1.0f;
        } else {
          std::copy_n(static_cast<const float*>(targets.data()) + at, n_classes, y.data());
        }
        const float row_loss =
            SoftmaxFocalLoss(params_, x.data(), y.data(), own, n_classes, dx.data());
        StoreOne(to_loss, r, row_loss);
        if (with_slope) NarrowFloats(to_slope.type, dx.data(), n_classes, to_slope.At(at));
      }
    });
  }

 private:
  static int64_t Label(const Tensor& targets, int64_t r) {
    if (targets.dtype() == tensorflow::DT_INT32) {
      return static_cast<const int32_t*>(targets.data())[r];
    }
    return static_cast<const int64_t*>(targets.data())[r];
  }
};

REGISTER_KERNEL_BUILDER(Name("SigmoidFocalLoss").Device(tensorflow::DEVICE_CPU),
                        SigmoidFocalLossOp);
REGISTER_KERNEL_BUILDER(Name("SoftmaxFocalLoss").Device(tensorflow::DEVICE_CPU),
                        SoftmaxFocalLossOp);

}  // namespace
}  // namespace metal_ops
