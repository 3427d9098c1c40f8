// FusedBatchNorm, for inference and for training, and its gradient; three versions of each. And
// BatchNormWithGlobalNormalization, inference as graphs of 2015 have it.

#include <algorithm>
#include <cmath>
#include <string>

#include "device/kernels/layout.h"
#include "device/kernels/nn/spatial_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Points that one thread adds: as many as there are such chunks, so that neither errors nor waiting grows with
// their product; no fewer than are worth a thread.
int64_t Chunk(int64_t points) {
  return std::max<int64_t>(64, static_cast<int64_t>(std::sqrt(static_cast<double>(points))));
}

constexpr char kAsMany[] = " must have the same number of elements as x has channels, ";

struct NormAttrs {
  float epsilon = 1e-4f, momentum = 1.0f;
  bool training = false, nchw = false;

  Status Get(KernelConstruction* ctx, const char* op) {
    std::string data_format;
    RETURN_IF_ERROR(ctx->GetAttr("data_format", &data_format));
    RETURN_IF_ERROR(ctx->GetAttr("is_training", &training));
    RETURN_IF_ERROR(ctx->GetAttr("epsilon", &epsilon));
    nchw = data_format == "NCHW" || data_format == "NCDHW";
    if (nchw || data_format == "NHWC" || data_format == "NDHWC") return Status();
    return Unimplemented(op, ": data_format ", data_format,
                         " is not provided on the METAL device; place the op on the CPU");
  }

  int64_t Channels(const Tensor& x) const { return x.dim(nchw ? 1 : x.rank() - 1); }
  Grid Elements(const BatchNormParams& p) const {
    return nchw ? Grid(p.inner, p.channels, p.images) : Grid(p.channels, p.inner);
  }

  // Parts of channels, chunks of points, images.
  Grid Parts(const BatchNormParams& p) const {
    return Grid(nchw ? p.channels : (p.channels + BATCH_NORM_LANES - 1) / BATCH_NORM_LANES,
                p.chunks, p.images);
  }
  const char* layout() const { return nchw ? "nchw" : "nhwc"; }

  Status Plan(const char* op, const Shape& shape, BatchNormParams* params) const {
    const size_t rank = shape.size();
    const int64_t channels = shape[nchw ? 1 : rank - 1];
    const int64_t images = nchw ? shape[0] : 1;
    const int64_t inner = NumElements(nchw ? Dims(shape, 2, rank) : Dims(shape, 0, rank - 1));
    for (const int64_t size : {images, inner, channels}) {
      RETURN_IF_ERROR(CheckGrid(op, "points", size));
    }
    *params = {};
    params->image = channels * inner;
    params->channel = nchw ? inner : 1;
    params->point = nchw ? 1 : channels;
    params->images = static_cast<uint32_t>(images);
    params->inner = static_cast<uint32_t>(inner);
    params->channels = static_cast<uint32_t>(channels);
    const int64_t chunk = Chunk(inner);
    params->chunk = static_cast<uint32_t>(chunk);
    params->chunks = static_cast<uint32_t>((inner + chunk - 1) / chunk);
    params->epsilon = epsilon;
    params->momentum = momentum;
    return Status();
  }
};

template <typename Op>
class FusedBatchNormOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit FusedBatchNormOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Get(ctx, kOp));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("exponential_avg_factor", &attrs_.momentum));
  }

  void Compute(KernelContext* ctx) {
    constexpr const char* kNames[] = {"x", "scale", "offset", "mean", "variance"};
    Tensor in[5], out[5], empty;
    for (int i = 0; i < 5; ++i) OP_REQUIRES_OK(ctx, ctx->Input(i, &in[i]));
    OP_REQUIRES(
        ctx, in[0].rank() == 4 || in[0].rank() == 5,
        InvalidArgument(kOp, ": x must have 4 or 5 dimensions, got ", ToString(in[0].shape())));
    const int64_t channels = attrs_.Channels(in[0]);
    for (int i = 1; i < 5; ++i) {
      // Training that keeps no averages gives none.
      const bool unused =
          attrs_.training && attrs_.momentum == 1.0f && i >= 3 && in[i].num_elements() == 0;
      const char* const when = i < 3              ? ""
                               : !attrs_.training ? "When is_training=false, "
                                                  : "When exponential_avg_factor != 1, ";
      OP_REQUIRES(ctx, unused || in[i].shape() == Shape{channels},
                  InvalidArgument(kOp, ": ", when, kNames[i], kAsMany, channels, ", got shape ",
                                  ToString(in[i].shape())));
    }
    for (int i = 0; i < 5; ++i) {
      OP_REQUIRES_OK(ctx,
                     ctx->AllocateOutput(i, i == 0 ? in[0].shape() : Shape{channels}, &out[i]));
    }
    if (Op::kSixth) OP_REQUIRES_OK(ctx, ctx->AllocateOutput(5, {0}, &empty));
    if (channels == 0) return;

    BatchNormParams params;
    OP_REQUIRES_OK(ctx, attrs_.Plan(kOp, in[0].shape(), &params));
    Tensor parts, scale;
    OP_REQUIRES_OK(ctx, ctx->AllocateTemp(TF_FLOAT, {channels}, &scale));
    if (attrs_.training) {
      OP_REQUIRES_OK(
          ctx, ctx->AllocateTemp(TF_FLOAT, {params.images, params.chunks, channels, 2}, &parts));
    }
    OP_REQUIRES_OK(
        ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
          if (attrs_.training) {
            RETURN_IF_ERROR(Moments(encoder, params, in, out, parts, scale));
          } else {
            // The values after training: the mean and variance that were given, twice.
            for (int i = 1; i < 5; ++i) {
              RETURN_IF_ERROR(encoder.Copy(in[i % 2 == 1 ? 3 : 4], out[i]));
            }
            RETURN_IF_ERROR(encoder.Launch(
                "batch_norm_scale", Grid(channels),
                {{"gamma", in[1]}, {"variance", in[4]}, {"scale", scale}, {"p", params}}));
          }
          return encoder.Launch({"batch_norm", attrs_.layout(), in[0].dtype()},
                                attrs_.Elements(params),
                                {{"x", in[0]},
                                 {"out", out[0]},
                                 {"p", params},
                                 {"scale", scale},
                                 {"beta", in[2]},
                                 {"mean", attrs_.training ? out[3] : in[3]}});
        }));
  }

 private:
  // Saved mean and (biased) variance: outputs 3 and 4, running averages: 1 and 2.
  Status Moments(Encoder& encoder, const BatchNormParams& params, const Tensor* in,
                 const Tensor* out, const Tensor& parts, const Tensor& scale) const {
    RETURN_IF_ERROR(
        encoder.Launch({"batch_norm_parts", attrs_.layout(), in[0].dtype()}, attrs_.Parts(params),
                       {{"x", in[0]}, {"parts", Value(parts).Untyped()}, {"p", params}}));
    return encoder.Launch("batch_norm_moments", Grid(params.channels),
                          {{"parts", Value(parts).Untyped()},
                           {"gamma", in[1]},
                           {"running_mean", in[3]},
                           {"running_variance", in[4]},
                           {"average_mean", out[1]},
                           {"average_variance", out[2]},
                           {"batch_mean", out[3]},
                           {"batch_variance", out[4]},
                           {"scale", scale},
                           {"p", params}});
  }

  NormAttrs attrs_;
};

struct FusedBatchNorm {
  static constexpr char kOp[] = "FusedBatchNorm";
  static constexpr bool kSixth = false;
};
struct FusedBatchNormV2 {
  static constexpr char kOp[] = "FusedBatchNormV2";
  static constexpr bool kSixth = false;
};
struct FusedBatchNormV3 {
  static constexpr char kOp[] = "FusedBatchNormV3";
  static constexpr bool kSixth = true;
};
#define NORM_TYPES .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).Where("U", TF_FLOAT)
REGISTER_METAL_KERNEL(FusedBatchNormOp<FusedBatchNorm>, .Types("T", {TF_FLOAT}));
REGISTER_METAL_KERNEL(FusedBatchNormOp<FusedBatchNormV2>, NORM_TYPES);
REGISTER_METAL_KERNEL(FusedBatchNormOp<FusedBatchNormV3>, NORM_TYPES);

// The saved mean and variance are the forward op's last outputs, on this device and the CPU.
template <typename Op>
class FusedBatchNormGradOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit FusedBatchNormGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Get(ctx, kOp));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    constexpr const char* kNames[] = {"y_backprop", "x", "scale", "reserve_space_1",
                                      "reserve_space_2"};
    Tensor in[5], out[5], parts, factors;
    for (int i = 0; i < 5; ++i) RETURN_IF_ERROR(ctx->Input(i, &in[i]));
    const Tensor &d_y = in[0], &x = in[1];
    if ((x.rank() != 4 && x.rank() != 5) || d_y.shape() != x.shape()) {
      return InvalidArgument(kOp, ": x and y_backprop must have same shape, of 4 or 5 dimensions; ",
                             "got ", ToString(x.shape()), " and ", ToString(d_y.shape()));
    }
    const int64_t channels = attrs_.Channels(x);
    for (int i = 2; i < 5; ++i) {
      if (in[i].shape() == Shape{channels}) continue;
      return InvalidArgument(kOp, ": ", kNames[i], kAsMany, channels, ", got shape ",
                             ToString(in[i].shape()));
    }
    for (int i = 0; i < 5; ++i) {
      const Shape shape = i == 0 ? x.shape() : i < 3 ? Shape{channels} : Shape{0};
      RETURN_IF_ERROR(ctx->AllocateOutput(i, shape, &out[i]));
    }
    if (channels == 0) return Status();
    if (x.num_elements() == 0) {
      RETURN_IF_ERROR(ZeroOutput(ctx, kOp, out[1]));
      return ZeroOutput(ctx, kOp, out[2]);
    }
    BatchNormParams params;
    RETURN_IF_ERROR(attrs_.Plan(kOp, x.shape(), &params));
    RETURN_IF_ERROR(
        ctx->AllocateTemp(TF_FLOAT, {params.images, params.chunks, channels, 2}, &parts));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {3, channels}, &factors));
    const uint32_t training = attrs_.training ? 1 : 0;
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch({"batch_norm_grad_parts", attrs_.layout(), x.dtype()},
                                     attrs_.Parts(params),
                                     {{"d_y", d_y},
                                      {"x", x},
                                      {"mean", in[3]},
                                      {"parts", Value(parts).Untyped()},
                                      {"p", params}}));
      RETURN_IF_ERROR(encoder.Launch("batch_norm_grad_totals", Grid(channels),
                                     {{"parts", Value(parts).Untyped()},
                                      {"gamma", in[2]},
                                      {"variance", in[4]},
                                      {"d_gamma", out[1]},
                                      {"d_beta", out[2]},
                                      {"factors", factors},
                                      {"p", params},
                                      {"training", training}}));
      return encoder.Launch({"batch_norm_grad", attrs_.layout(), x.dtype()},
                            attrs_.Elements(params),
                            {{"d_y", d_y},
                             {"x", x},
                             {"mean", in[3]},
                             {"factors", factors},
                             {"d_x", out[0]},
                             {"p", params}});
    });
  }

  NormAttrs attrs_;
};
struct FusedBatchNormGrad {
  static constexpr char kOp[] = "FusedBatchNormGrad";
};
struct FusedBatchNormGradV2 {
  static constexpr char kOp[] = "FusedBatchNormGradV2";
};
struct FusedBatchNormGradV3 {
  static constexpr char kOp[] = "FusedBatchNormGradV3";
};
REGISTER_METAL_KERNEL(FusedBatchNormGradOp<FusedBatchNormGrad>, .Types("T", {TF_FLOAT}));
REGISTER_METAL_KERNEL(FusedBatchNormGradOp<FusedBatchNormGradV2>, NORM_TYPES);
REGISTER_METAL_KERNEL(FusedBatchNormGradOp<FusedBatchNormGradV3>, NORM_TYPES);

class GlobalNormOp {
 public:
  static constexpr char kOp[] = "BatchNormWithGlobalNormalization";

  explicit GlobalNormOp(KernelConstruction* ctx) {
    bool scaled = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("variance_epsilon", &epsilon_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("scale_after_normalization", &scaled));
    scaled_ = scaled ? 1 : 0;
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    constexpr const char* kNames[] = {"t", "m", "v", "beta", "gamma"};
    Tensor in[5], out;
    for (int i = 0; i < 5; ++i) RETURN_IF_ERROR(ctx->Input(i, &in[i]));
    if (in[0].rank() != 4) {
      return InvalidArgument(kOp, ": input must be 4-dimensional, got ", ToString(in[0].shape()));
    }
    const int64_t channels = in[0].dim(3);
    for (int i = 1; i < 5; ++i) {
      if (in[i].shape() == Shape{channels} || (i == 4 && scaled_ == 0)) continue;
      return InvalidArgument(kOp, ": ", kNames[i], kAsMany, channels, ", got shape ",
                             ToString(in[i].shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in[0].shape(), &out));
    if (out.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"batch_norm_global", out.dtype()},
                            Grid(channels, out.num_elements() / channels),
                            {{"x", in[0]},
                             {"mean", in[1]},
                             {"variance", in[2]},
                             {"beta", in[3]},
                             {"gamma", scaled_ != 0 ? in[4] : in[3]},
                             {"out", out},
                             {"epsilon", epsilon_},
                             {"scaled", scaled_}});
    });
  }

  float epsilon_ = 0;
  uint32_t scaled_ = 0;
};
REGISTER_METAL_KERNEL(GlobalNormOp, .Types("T", {TF_FLOAT, TF_HALF}));

}  // namespace
}  // namespace metal_ops
