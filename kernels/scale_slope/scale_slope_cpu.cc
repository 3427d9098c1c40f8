// ScaleSlope and ScaleSlopeSum on the CPU.

#include <algorithm>
#include <vector>

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

// Elements that are worked on at a time.
constexpr int64_t kPiece = 1024;

// The incoming value of each element, where `per_row` elements share one.
struct Incoming {
  FloatArray values;
  int64_t per_row;

  // For elements [begin, begin + n), n <= kPiece. Both buffers have kPiece elements.
  const float* Read(int64_t begin, int64_t n, float* buffer, float* rows) const {
    if (per_row == 1) return values.Read(begin, n, buffer);
    const int64_t first = begin / per_row, last = (begin + n - 1) / per_row;
    const float* const from = values.Read(first, last - first + 1, rows);
    int64_t at = 0;
    for (int64_t row = first; row <= last; ++row) {
      const int64_t end = std::min(n, (row + 1) * per_row - begin);
      const float value = from[row - first];
      while (at < end) buffer[at++] = value;
    }
    return buffer;
  }
};

Incoming IncomingOf(const Tensor& incoming, const Tensor& slope) {
  return {ToFloatArray(incoming), slope.NumElements() / incoming.NumElements()};
}

class ScaleSlopeOp : public OpKernel {
 public:
  explicit ScaleSlopeOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckScaleSlope(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& slope = context->input(1);
    Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({1}, 0, slope.shape(), &gradient));
    const int64_t n = slope.NumElements();
    if (n == 0) return;
    const Incoming incoming = IncomingOf(context->input(0), slope);
    const FloatArray from = ToFloatArray(slope);
    const MutableFloatArray to = ToMutableFloatArray(gradient);
    ParallelFor(context, n, 2, [=](int64_t begin, int64_t end) {
      float wide[kPiece], factors[kPiece], rows[kPiece], narrow[kPiece];
      for (int64_t at = begin; at < end; at += kPiece) {
        const int64_t m = std::min(kPiece, end - at);
        const float* const x = from.Read(at, m, wide);
        const float* const by = incoming.Read(at, m, factors, rows);
        float* const piece = to.Piece(at, narrow);
        for (int64_t i = 0; i < m; ++i) piece[i] = x[i] * by[i];
        to.Store(at, m, piece);
      }
    });
  }
};

// Sums in blocks that only depend on the shape, so that any number of threads gives the same bits.
class ScaleSlopeSumOp : public OpKernel {
 public:
  explicit ScaleSlopeSumOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const std::vector<ArgShape> args = InputShapes(context);
    ArgShapes shapes(type_string());
    CheckScaleSlopeSum(&shapes, args);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const Tensor& slope = context->input(1);
    Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(2).shape(), &gradient));
    const int64_t n = slope.NumElements(), channels = ScaleSlopeChannels(args[2]);
    float* const to = static_cast<float*>(gradient->data());
    std::fill_n(to, channels, 0.0f);
    if (n == 0) return;
    const Incoming incoming = IncomingOf(context->input(0), slope);
    const FloatArray from = ToFloatArray(slope);
    const int64_t rows = n / channels;
    const int64_t rows_a_block = std::max(kBlock / channels + 1, (rows + kBlocks - 1) / kBlocks);
    const int64_t n_blocks = (rows + rows_a_block - 1) / rows_a_block;
    std::vector<double> sums(n_blocks * channels);
    ParallelFor(context, n_blocks, 2 * rows_a_block * channels, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        const int64_t begin = block * rows_a_block * channels;
        const int64_t end = std::min(n, begin + rows_a_block * channels);
        Sum(from, incoming, begin, end, channels, sums.data() + block * channels);
      }
    });
    for (int64_t c = 0; c < channels; ++c) {
      double total = 0.0;
      for (int64_t block = 0; block < n_blocks; ++block) total += sums[block * channels + c];
      to[c] = static_cast<float>(total);
    }
  }

 private:
  // So many elements a block at least, and so many blocks at most.
  static constexpr int64_t kBlock = 1 << 15;
  static constexpr int64_t kBlocks = 64;
  // Independent sums of one channel, for the vector units.
  static constexpr int64_t kLanes = 32;

  static void Sum(const FloatArray& from, const Incoming& incoming, int64_t begin, int64_t end,
                  int64_t channels, double* sums) {
    float wide[kPiece], factors[kPiece], rows[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t m = std::min(kPiece, end - at);
      const float* const x = from.Read(at, m, wide);
      const float* const by = incoming.Read(at, m, factors, rows);
      if (channels == 1) {
        float lanes[kLanes] = {};
        int64_t i = 0;
        for (; i + kLanes <= m; i += kLanes) {
          for (int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * by[i + j];
        }
        for (; i < m; ++i) lanes[0] += x[i] * by[i];
        for (const float lane : lanes) sums[0] += lane;
      } else {
        int64_t c = at % channels;
        for (int64_t i = 0; i < m; ++i) {
          sums[c] += x[i] * by[i];
          if (++c == channels) c = 0;
        }
      }
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("ScaleSlope").Device(tensorflow::DEVICE_CPU), ScaleSlopeOp);
REGISTER_KERNEL_BUILDER(Name("ScaleSlopeSum").Device(tensorflow::DEVICE_CPU), ScaleSlopeSumOp);

}  // namespace
}  // namespace metal_ops
