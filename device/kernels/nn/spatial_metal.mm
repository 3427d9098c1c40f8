// MaxPool, AvgPool and DepthwiseConv2dNative: windows that move over images.

#include <string>
#include <vector>

#include "device/kernels/nn/conv_attrs.h"
#include "device/kernels/nn/spatial_params.h"
#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// One window a thread. `sizes` are those of a convolution with this window; its out_c are the
// output's channels.
Status RunWindows(KernelContext* ctx, const char* op, const char* stem, const ConvSizes& sizes,
                  bool nchw, const Tensor& in, const Tensor* filter) {
  Tensor out;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, sizes.OutputShape(nchw), &out));
  if (out.num_elements() == 0) return Status();
  const ConvSizes& s = sizes;
  for (const int64_t size :
       {s.in_h, s.in_w, s.in_c, s.out_h, s.out_w, s.out_c, s.n,
        s.out_h * s.stride_h + s.filter_h * s.dilation_h,
        s.out_w * s.stride_w + s.filter_w * s.dilation_w, s.n * (nchw ? s.out_c : s.out_h)}) {
    if (size > INT32_MAX) {
      return Unimplemented(op, ": ", ToString(in.shape()),
                           " is too large for the METAL device; use a smaller batch");
    }
  }
  WindowParams params = {};
  params.in_image = s.in_h * s.in_w * s.in_c;
  params.in_y = nchw ? s.in_w : s.in_w * s.in_c;
  params.in_x = nchw ? 1 : s.in_c;
  params.in_c = nchw ? s.in_h * s.in_w : 1;
  params.in_h = static_cast<uint32_t>(s.in_h);
  params.in_w = static_cast<uint32_t>(s.in_w);
  params.out_h = static_cast<uint32_t>(s.out_h);
  params.out_w = static_cast<uint32_t>(s.out_w);
  params.channels = static_cast<uint32_t>(s.out_c);
  params.window_h = static_cast<uint32_t>(s.filter_h);
  params.window_w = static_cast<uint32_t>(s.filter_w);
  params.stride_h = static_cast<uint32_t>(s.stride_h);
  params.stride_w = static_cast<uint32_t>(s.stride_w);
  params.dilation_h = static_cast<uint32_t>(s.dilation_h);
  params.dilation_w = static_cast<uint32_t>(s.dilation_w);
  params.pad_top = static_cast<int32_t>(s.pad_top);
  params.pad_left = static_cast<int32_t>(s.pad_left);
  params.multiplier = static_cast<uint32_t>(s.out_c / s.in_c);
  params.nchw = nchw ? 1 : 0;
  const Grid grid =
      nchw ? Grid(s.out_w, s.out_h, s.n * s.out_c) : Grid(s.out_c, s.out_w, s.n * s.out_h);
  std::vector<Argument> arguments = {{"in", in}, {"out", out}, {"p", params}};
  if (filter != nullptr) arguments.push_back({"filter", *filter});
  return Encode(
      ctx, [&](Encoder& encoder) { return encoder.Launch({stem, in.dtype()}, grid, arguments); });
}

template <typename Op>
class PoolOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit PoolOp(KernelConstruction* ctx) {
    std::string data_format;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ksize", &window_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("strides", &attrs_.strides));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding", &attrs_.padding));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("data_format", &data_format));
    if (Op::kExplicit) {
      OP_REQUIRES_OK(ctx, ctx->GetAttr("explicit_paddings", &attrs_.explicit_paddings));
    }
    attrs_.nchw = data_format == "NCHW";
    attrs_.dilations = {1, 1, 1, 1};
    OP_REQUIRES(ctx, data_format == "NHWC" || attrs_.nchw,
                Unimplemented(kOp, ": data_format ", data_format,
                              " is not provided on the METAL device, use NHWC or NCHW"));
    ArgShapes shapes(kOp);
    CheckConvAttrs(&shapes, attrs_);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES(
        ctx,
        window_.size() == 4 && window_[0] == 1 && window_[attrs_.dim_c()] == 1 &&
            window_[attrs_.dim_h()] > 0 && window_[attrs_.dim_w()] > 0,
        Unimplemented(kOp, ": ksize must be 1 for batch and channels on the METAL device, got ",
                      ToString(window_), "; place the op on the CPU"));
  }

  void Compute(KernelContext* ctx) {
    Tensor in;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    ArgShapes shapes(kOp);
    const ArgShape input(in.shape());
    shapes.Require(input.rank() == 4, "input must have 4 dimensions, got " + ToText(input) + ".");
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const int64_t channels = input.dims[attrs_.dim_c()];
    ConvSizes sizes;
    CheckConv(&shapes, attrs_, input,
              ArgShape({window_[attrs_.dim_h()], window_[attrs_.dim_w()], channels, channels}),
              &sizes);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, RunWindows(ctx, kOp, Op::kShader, sizes, attrs_.nchw, in, nullptr));
  }

 private:
  ConvAttrs attrs_;
  std::vector<int64_t> window_;
};

struct MaxPool {
  static constexpr char kOp[] = "MaxPool";
  static constexpr char kShader[] = "max_pool";
  static constexpr bool kExplicit = true;
};
struct AvgPool {
  static constexpr char kOp[] = "AvgPool";
  static constexpr char kShader[] = "avg_pool";
  static constexpr bool kExplicit = false;
};
REGISTER_METAL_KERNEL(PoolOp<MaxPool>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(PoolOp<AvgPool>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

class DepthwiseConvOp {
 public:
  static constexpr char kOp[] = "DepthwiseConv2dNative";

  explicit DepthwiseConvOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
  }

  void Compute(KernelContext* ctx) {
    Tensor in, filter;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &filter));
    ArgShapes shapes(kOp);
    ConvSizes sizes;
    CheckConv(&shapes, attrs_, ArgShape(in.shape()), ArgShape(filter.shape()), &sizes);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    sizes.out_c *= sizes.in_c;  // the filter's last dimension is the multiplier
    OP_REQUIRES_OK(ctx, RunWindows(ctx, kOp, "depthwise_conv", sizes, attrs_.nchw, in, &filter));
  }

 private:
  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(DepthwiseConvOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
