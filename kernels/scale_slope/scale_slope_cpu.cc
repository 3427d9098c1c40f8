// ScaleSlope on the CPU.

#include <algorithm>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/scale_slope/scale_slope_checks.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr int64_t kPiece = 256;

class ScaleSlopeOp : public OpKernel {
 public:
  explicit ScaleSlopeOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckScaleSlope(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& incoming = context->input(0);
    const Tensor& slope = context->input(1);
    Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({1}, 0, slope.shape(), &gradient));
    const int64_t n = slope.NumElements();
    if (n == 0) return;
    const int64_t per_incoming = n / incoming.NumElements();
    const FloatArray g = ToFloatArray(incoming), from = ToFloatArray(slope);
    const MutableFloatArray to = ToMutableFloatArray(gradient);
    ParallelFor(context, n, 2, [=](int64_t begin, int64_t end) {
      float wide[kPiece], wide_g[kPiece], narrow[kPiece];
      for (int64_t at = begin; at < end;) {
        // A piece of one incoming value, or of many.
        int64_t m = std::min(kPiece, end - at);
        if (per_incoming > 1) m = std::min(m, (at / per_incoming + 1) * per_incoming - at);
        const float* const x = from.Read(at, m, wide);
        const float* const by = g.Read(at / per_incoming, per_incoming > 1 ? 1 : m, wide_g);
        float* const piece = to.Piece(at, narrow);
        if (per_incoming > 1) {
          const float factor = *by;
          for (int64_t i = 0; i < m; ++i) piece[i] = x[i] * factor;
        } else {
          for (int64_t i = 0; i < m; ++i) piece[i] = x[i] * by[i];
        }
        to.Store(at, m, piece);
        at += m;
      }
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("ScaleSlope").Device(tensorflow::DEVICE_CPU), ScaleSlopeOp);

}  // namespace
}  // namespace metal_ops
