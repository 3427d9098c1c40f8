// BiasAdd, BiasAddV1, Softmax, LogSoftmax, Pad and PadV2.

#include <string>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/host_int32.h"
#include "device/kernels/layout.h"
#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// ---- BiasAdd ------------------------------------------------------------------------------------

template <typename Op>
class BiasAddOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit BiasAddOp(KernelConstruction* ctx) {
    if (!Op::kFormats) return;
    std::string data_format;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("data_format", &data_format));
    nchw_ = data_format == "NCHW";
  }

  void Compute(KernelContext* ctx) {
    Tensor value, bias, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &value));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &bias));
    OP_REQUIRES(ctx, value.rank() >= 2,
                InvalidArgument(kOp, ": value must have at least 2 dimensions, got ",
                                ToString(value.shape())));
    const int channel_dim = nchw_ ? 1 : value.rank() - 1;
    OP_REQUIRES(ctx, bias.rank() == 1 && bias.dim(0) == value.dim(channel_dim),
                InvalidArgument(kOp, ": bias must have shape [", value.dim(channel_dim),
                                "], the channels of value ", ToString(value.shape()), ", got ",
                                ToString(bias.shape())));
    OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(0, 0, value.shape(), &out));
    if (out.num_elements() == 0) return;
    Walk walk;
    walk.strides.assign(value.rank(), 0);
    walk.strides[channel_dim] = 1;
    const Walk dense = {DenseStrides(value.shape())};
    Loop loop;
    OP_REQUIRES_OK(ctx, PlanLoop(kOp, value.shape(), {dense, walk, dense}, &loop));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     const DType dtype = Unsigned(value.dtype());
                     return encoder.Launch(
                         {"add", dtype, dtype == DType::kComplex64 ? "strided" : loop.variant},
                         loop.grid,
                         {{"a", value}, {"b", bias}, {"out", out}, {"params", loop.params}});
                   }));
  }

 private:
  bool nchw_ = false;
};
struct BiasAdd {
  static constexpr char kOp[] = "BiasAdd";
  static constexpr bool kFormats = true;
};
struct BiasAddV1 {
  static constexpr char kOp[] = "BiasAddV1";
  static constexpr bool kFormats = false;
};
REGISTER_METAL_KERNEL(BiasAddOp<BiasAdd>, .Types("T", METAL_DEVICE_ALL_NUMBERS));
REGISTER_METAL_KERNEL(BiasAddOp<BiasAdd>, .Types("T", {TF_COMPLEX64}));
REGISTER_METAL_KERNEL(BiasAddOp<BiasAddV1>, .Types("T", METAL_DEVICE_ALL_NUMBERS));
REGISTER_METAL_KERNEL(BiasAddOp<BiasAddV1>, .Types("T", {TF_COMPLEX64}));

// ---- Softmax ------------------------------------------------------------------------------------

template <typename Op>
class SoftmaxOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SoftmaxOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor logits, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &logits));
    OP_REQUIRES(ctx, logits.rank() >= 1,
                InvalidArgument(kOp, ": logits must have at least 1 dimension, got a scalar"));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, logits.shape(), &out));
    if (out.num_elements() == 0) return;
    const int64_t columns = logits.dim(logits.rank() - 1);
    OP_REQUIRES_OK(ctx, CheckGrid(kOp, "classes", columns));
    const uint32_t n = static_cast<uint32_t>(columns);
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({Op::kShader, logits.dtype()},
                                           Grid(logits.num_elements() / columns),
                                           {{"in", logits}, {"out", out}, {"columns", n}});
                   }));
  }
};
struct Softmax {
  static constexpr char kOp[] = "Softmax";
  static constexpr char kShader[] = "softmax";
};
struct LogSoftmax {
  static constexpr char kOp[] = "LogSoftmax";
  static constexpr char kShader[] = "log_softmax";
};
REGISTER_METAL_KERNEL(SoftmaxOp<Softmax>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(SoftmaxOp<LogSoftmax>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

// ---- Pad ----------------------------------------------------------------------------------------

template <typename Op>
class PadOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit PadOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, paddings, value, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &paddings));
    if (Op::kValue) OP_REQUIRES_OK(ctx, ctx->Input(2, &value));
    OP_REQUIRES(ctx, paddings.shape() == (Shape{in.rank(), 2}),
                InvalidArgument(kOp, ": paddings must have shape [", in.rank(),
                                ", 2], before and after for each dimension of input ",
                                ToString(in.shape()), ", got ", ToString(paddings.shape())));
    OP_REQUIRES(
        ctx, !Op::kValue || value.rank() == 0,
        InvalidArgument(kOp, ": constant_values must be a scalar, got ", ToString(value.shape())));
    Shape shape = in.shape();
    Walk walk;
    for (int d = 0; d < in.rank(); ++d) {
      const auto padding = [&](int side) -> int64_t {
        return paddings.dtype() == TF_INT64 ? paddings.host<int64_t>()[2 * d + side]
                                            : paddings.host<int32_t>()[2 * d + side];
      };
      OP_REQUIRES(ctx, padding(0) >= 0 && padding(1) >= 0,
                  InvalidArgument(kOp, ": Paddings must be non-negative: ", padding(0), " ",
                                  padding(1), " for dimension ", d));
      shape[d] += padding(0) + padding(1);
      walk.offset = walk.offset * shape[d] + padding(0);
    }
    walk.strides = DenseStrides(shape);
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return;
    OP_REQUIRES_OK(
        ctx, MoveElements(ctx, kOp, IsInHostMemory(out), [&](auto& copies) -> Status {
          RETURN_IF_ERROR(Op::kValue ? copies.Fill(value.host<uint8_t>(), out) : copies.Zero(out));
          if (in.num_elements() == 0) return Status();
          return copies.Copy(in.shape(), in, {DenseStrides(in.shape())}, out, walk);
        }));
  }
};
struct Pad {
  static constexpr char kOp[] = "Pad";
  static constexpr bool kValue = false;
};
struct PadV2 {
  static constexpr char kOp[] = "PadV2";
  static constexpr bool kValue = true;
};
REGISTER_METAL_KERNEL(PadOp<Pad>, .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("paddings"));
#define INT32_IN_HOST_MEMORY \
  .Types("T", {TF_INT32}).HostMemory("input").HostMemory("paddings").HostMemory("output")
REGISTER_METAL_KERNEL(PadOp<Pad>, INT32_IN_HOST_MEMORY);
REGISTER_METAL_KERNEL(PadOp<PadV2>, INT32_IN_HOST_MEMORY.HostMemory("constant_values"));
REGISTER_METAL_KERNEL(
    PadOp<PadV2>,
    .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("paddings").HostMemory("constant_values"));

}  // namespace
}  // namespace metal_ops
