// MaxPool, AvgPool and DepthwiseConv2dNative: windows that move over images.

#include <vector>

#include "device/kernels/nn/windows.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// One window a thread.
Status RunWindows(KernelContext* ctx, const char* op, const char* stem, const ConvSizes& sizes,
                  bool nchw, const Shape& shape, const Tensor& in, const Tensor* filter) {
  Tensor out;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
  if (out.num_elements() == 0) return Status();
  WindowParams params;
  RETURN_IF_ERROR(PlanWindows(op, sizes, nchw, &params));
  std::vector<Argument> arguments = {{"in", in}, {"out", out}, {"p", params}};
  if (filter != nullptr) arguments.push_back({"filter", *filter});
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch(WindowShader(stem, in.dtype(), sizes, nchw), OutputGrid(sizes, nchw),
                          arguments);
  });
}

template <typename Op>
class PoolOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit PoolOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Get(ctx, kOp, Op::kIsMax, Op::kIsMax));
  }

  void Compute(KernelContext* ctx) {
    Tensor in;
    ConvSizes sizes;
    Shape shape;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    if (attrs_.depth > 1) {
      OP_REQUIRES_OK(ctx, attrs_.DepthSizes(kOp, in.shape(), &sizes, &shape));
    } else {
      OP_REQUIRES_OK(ctx, attrs_.Sizes(kOp, in.shape(), &sizes));
      shape = sizes.OutputShape(attrs_.conv.nchw);
    }
    OP_REQUIRES_OK(ctx,
                   RunWindows(ctx, kOp, Op::kShader, sizes, attrs_.conv.nchw, shape, in, nullptr));
  }

 private:
  PoolAttrs attrs_;
};

struct MaxPool {
  static constexpr char kOp[] = "MaxPool";
  static constexpr char kShader[] = "max_pool";
  static constexpr bool kIsMax = true;
};
struct AvgPool {
  static constexpr char kOp[] = "AvgPool";
  static constexpr char kShader[] = "avg_pool";
  static constexpr bool kIsMax = false;
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
    OP_REQUIRES_OK(ctx, RunWindows(ctx, kOp, "depthwise_conv", sizes, attrs_.nchw,
                                   sizes.OutputShape(attrs_.nchw), in, &filter));
  }

 private:
  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(DepthwiseConvOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
