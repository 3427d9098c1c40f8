// FusedBatchNormV3, for inference and for training.

#include <string>

#include "device/kernels/nn/spatial_params.h"
#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Points that one thread adds: the rounding error grows with these and with the chunks, not with
// their product.
constexpr int64_t kChunk = 512;

class FusedBatchNormV3Op {
 public:
  static constexpr char kOp[] = "FusedBatchNormV3";

  explicit FusedBatchNormV3Op(KernelConstruction* ctx) {
    std::string data_format;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("data_format", &data_format));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("is_training", &training_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("epsilon", &epsilon_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("exponential_avg_factor", &momentum_));
    OP_REQUIRES(ctx, data_format == "NHWC" || data_format == "NCHW",
                Unimplemented(kOp, ": data_format ", data_format,
                              " is not provided on the METAL device; place the op on the CPU"));
    nchw_ = data_format == "NCHW";
  }

  void Compute(KernelContext* ctx) {
    constexpr const char* kNames[] = {"x", "scale", "offset", "mean", "variance"};
    Tensor in[5], out[5], empty;
    for (int i = 0; i < 5; ++i) OP_REQUIRES_OK(ctx, ctx->Input(i, &in[i]));
    OP_REQUIRES(ctx, in[0].rank() == 4,
                InvalidArgument("FusedBatchNormV3: x must have 4 dimensions, got ",
                                ToString(in[0].shape())));
    const int64_t channels = in[0].dim(nchw_ ? 1 : 3);
    for (int i = 1; i < 5; ++i) {
      // Training that keeps no averages gives none.
      const bool unused = training_ && momentum_ == 1.0f && i >= 3 && in[i].num_elements() == 0;
      OP_REQUIRES(ctx, unused || in[i].shape() == Shape{channels},
                  InvalidArgument("FusedBatchNormV3: ", kNames[i], " must have shape [", channels,
                                  "], the channels of x, got ", ToString(in[i].shape())));
    }
    for (int i = 0; i < 5; ++i) {
      OP_REQUIRES_OK(ctx,
                     ctx->AllocateOutput(i, i == 0 ? in[0].shape() : Shape{channels}, &out[i]));
    }
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(5, {0}, &empty));
    if (channels == 0) return;

    const Shape& shape = in[0].shape();
    const int64_t images = nchw_ ? shape[0] : 1;
    const int64_t inner = nchw_ ? shape[2] * shape[3] : shape[0] * shape[1] * shape[2];
    for (const int64_t size : {images, inner, channels}) {
      OP_REQUIRES_OK(ctx, CheckGrid(kOp, "points", size));
    }
    BatchNormParams params = {};
    params.image = channels * inner;
    params.channel = nchw_ ? inner : 1;
    params.point = nchw_ ? 1 : channels;
    params.images = static_cast<uint32_t>(images);
    params.inner = static_cast<uint32_t>(inner);
    params.channels = static_cast<uint32_t>(channels);
    params.chunk = kChunk;
    params.chunks = static_cast<uint32_t>((inner + kChunk - 1) / kChunk);
    params.epsilon = epsilon_;
    params.momentum = momentum_;
    Tensor sums;
    if (training_) {
      OP_REQUIRES_OK(ctx, ctx->AllocateTemp(TF_FLOAT, {images, params.chunks, channels}, &sums));
    }
    OP_REQUIRES_OK(
        ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
          if (training_) {
            RETURN_IF_ERROR(Moments(encoder, params, in, out, sums));
          } else {
            // What training would leave: the mean and variance that were given, twice.
            for (int i = 1; i < 5; ++i) {
              RETURN_IF_ERROR(encoder.Copy(in[i % 2 == 1 ? 3 : 4], out[i]));
            }
          }
          const Grid grid = nchw_ ? Grid(inner, channels, images) : Grid(channels, inner);
          return encoder.Launch({"batch_norm", nchw_ ? "nchw" : "nhwc", in[0].dtype()}, grid,
                                {{"x", in[0]},
                                 {"out", out[0]},
                                 {"p", params},
                                 {"gamma", in[1]},
                                 {"beta", in[2]},
                                 {"mean", out[3]},
                                 {"variance", out[4]}});
        }));
  }

 private:
  // Saved mean and (biased) variance: outputs 3 and 4, running averages: 1 and 2.
  static Status Moments(Encoder& encoder, const BatchNormParams& params, const Tensor* in,
                        const Tensor* out, const Tensor& sums) {
    const Grid parts(params.channels, params.chunks, params.images);
    const Grid channels(params.channels);
    RETURN_IF_ERROR(
        encoder.Launch({"batch_norm_sum", in[0].dtype()}, parts,
                       {{"x", in[0]}, {"sums", sums}, {"p", params}, {"centre", out[3]}}));
    RETURN_IF_ERROR(encoder.Launch("batch_norm_mean", channels,
                                   {{"sums", sums},
                                    {"batch", out[3]},
                                    {"p", params},
                                    {"running", in[3]},
                                    {"average", out[1]}}));
    RETURN_IF_ERROR(
        encoder.Launch({"batch_norm_squares", in[0].dtype()}, parts,
                       {{"x", in[0]}, {"sums", sums}, {"p", params}, {"centre", out[3]}}));
    return encoder.Launch("batch_norm_variance", channels,
                          {{"sums", sums},
                           {"batch", out[4]},
                           {"p", params},
                           {"running", in[4]},
                           {"average", out[2]}});
  }

  float epsilon_ = 1e-4f, momentum_ = 1.0f;
  bool training_ = false, nchw_ = false;
};
REGISTER_METAL_KERNEL(FusedBatchNormV3Op,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).Where("U", TF_FLOAT));

}  // namespace
}  // namespace metal_ops
