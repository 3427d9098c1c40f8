// RGBToHSV, HSVToRGB, AdjustHue, AdjustSaturation and AdjustContrastv2.

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/nn/image_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

Status CheckColors(const char* op, const Tensor& images) {
  if (images.rank() < 1 || images.dim(images.rank() - 1) != 3) {
    return InvalidArgument(op, ": images must have 3 channels, input must have size 3 in the last ",
                           "dimension, got ", ToString(images.shape()));
  }
  return CheckGrid(op, "pixels", images.num_elements() / 3);
}

Status GetScalar(KernelContext* ctx, const char* op, const char* name, Tensor* tensor) {
  RETURN_IF_ERROR(ctx->Input(1, tensor));
  if (tensor->rank() == 0) return Status();
  return InvalidArgument(op, ": ", name, " must be scalar, got shape ", ToString(tensor->shape()));
}

// A pixel a thread, and a number for all of them if it has a name.
template <typename Op>
class PixelOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit PixelOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor images, number, out;
    RETURN_IF_ERROR(ctx->Input(0, &images));
    RETURN_IF_ERROR(CheckColors(kOp, images));
    std::vector<Argument> arguments = {{"in", images}, {"out", out}};
    if (Op::kNumber[0] != 0) {
      if (images.rank() < 3) {
        return InvalidArgument(kOp, ": images must be at least 3-D, got ",
                               ToString(images.shape()));
      }
      RETURN_IF_ERROR(GetScalar(ctx, kOp, Op::kNumber, &number));
      arguments.push_back({Op::kNumber, number});
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, images.shape(), &out));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({Op::kShader, images.dtype()}, Grid(images.num_elements() / 3),
                            arguments);
    });
  }
};
#define PIXEL_OP(name, shader, number, ...)   \
  struct name {                               \
    static constexpr char kOp[] = #name;      \
    static constexpr char kShader[] = shader; \
    static constexpr char kNumber[] = number; \
  };                                          \
  REGISTER_METAL_KERNEL(PixelOp<name>, .Types("T", __VA_ARGS__))
PIXEL_OP(RGBToHSV, "rgb_to_hsv", "", METAL_DEVICE_FLOATS);
PIXEL_OP(HSVToRGB, "hsv_to_rgb", "", METAL_DEVICE_FLOATS);
PIXEL_OP(AdjustHue, "adjust_hue", "delta", {TF_FLOAT, TF_HALF});
PIXEL_OP(AdjustSaturation, "adjust_saturation", "scale", {TF_FLOAT, TF_HALF});

class ContrastOp {
 public:
  static constexpr char kOp[] = "AdjustContrastv2";

  explicit ContrastOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor images, factor, out, sums, means;
    RETURN_IF_ERROR(ctx->Input(0, &images));
    if (images.rank() < 3) {
      return InvalidArgument(kOp, ": images must be at least 3-D, got ", ToString(images.shape()));
    }
    RETURN_IF_ERROR(GetScalar(ctx, kOp, "contrast_factor", &factor));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, images.shape(), &out));
    if (out.num_elements() == 0) return Status();
    const int rank = images.rank();
    const int64_t height = images.dim(rank - 3), width = images.dim(rank - 2),
                  channels = images.dim(rank - 1);
    const int64_t count = images.num_elements() / (height * width * channels);
    for (const int64_t size : {count, height, width * channels}) {
      RETURN_IF_ERROR(CheckGrid(kOp, "images, rows or values of a row", size));
    }
    const int64_t row = width * channels;
    const auto h = static_cast<uint32_t>(height), columns = static_cast<uint32_t>(row);
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {count, row}, &sums));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {count, row}, &means));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(
          encoder.Launch({"contrast_columns", images.dtype()},
                         Grid((row + CONTRAST_COLUMNS - 1) / CONTRAST_COLUMNS, count),
                         {{"in", images}, {"sums", sums}, {"height", h}, {"columns", columns}}));
      RETURN_IF_ERROR(
          encoder.Launch("contrast_means", Grid(channels, count),
                         {{"sums", sums}, {"means", means}, {"height", h}, {"columns", columns}}));
      return encoder.Launch({"adjust_contrast", images.dtype()}, Grid(row, height, count),
                            {{"in", images}, {"means", means}, {"factor", factor}, {"out", out}});
    });
  }
};
REGISTER_METAL_KERNEL(ContrastOp, .Types("T", {TF_FLOAT, TF_HALF}));

}  // namespace
}  // namespace metal_ops
