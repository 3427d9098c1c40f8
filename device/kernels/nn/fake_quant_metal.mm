// FakeQuantWithMinMaxArgs, -Vars, -VarsPerChannel and their gradients.

#include <algorithm>

#include "device/kernels/layout.h"
#include "device/kernels/nn/fake_quant_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Where the range comes from.
enum class RangeFrom { kAttrs, kScalars, kChannels };

// Threads that add side by side.
constexpr int64_t kColumns = 256, kChunks = 64;

Status PlanFakeQuant(const char* op, RangeFrom from, const Tensor& in, const Tensor& least,
                     const Tensor& largest, FakeQuantParams* p) {
  const bool channels = from == RangeFrom::kChannels;
  if (channels && in.rank() < 1) {
    return InvalidArgument(op, ": inputs must have at least 1 dimension, got a scalar");
  }
  if (from != RangeFrom::kAttrs) {
    const Shape expected = channels ? Shape{in.dim(in.rank() - 1)} : Shape{};
    if (least.shape() != expected || largest.shape() != expected) {
      return InvalidArgument(op, ": min and max must have shape ", ToString(expected), ", got ",
                             ToString(least.shape()), " and ", ToString(largest.shape()));
    }
  }
  const int64_t n = in.num_elements();
  const int64_t columns =
      channels ? in.dim(in.rank() - 1) : std::max<int64_t>(1, std::min(n, kColumns));
  const int64_t rows = columns == 0 ? 0 : (n + columns - 1) / columns;
  RETURN_IF_ERROR(CheckGrid(op, "rows", rows));
  RETURN_IF_ERROR(CheckGrid(op, "channels", columns));
  p->elements = static_cast<uint64_t>(n);
  p->columns = static_cast<uint32_t>(columns);
  p->rows = static_cast<uint32_t>(rows);
  p->chunk = static_cast<uint32_t>(std::max<int64_t>(1, (rows + kChunks - 1) / kChunks));
  p->chunks = static_cast<uint32_t>((rows + p->chunk - 1) / p->chunk);
  p->per_channel = channels ? 1 : 0;
  return Status();
}

template <typename Op>
class FakeQuantOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit FakeQuantOp(KernelConstruction* ctx) {
    int64_t bits = 0;
    bool narrow = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_bits", &bits));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("narrow_range", &narrow));
    OP_REQUIRES(ctx, bits >= 2 && bits <= 16,
                InvalidArgument(kOp, ": num_bits must be between 2 and 16, inclusive, got ", bits));
    p_.least = narrow ? 1.0f : 0.0f;
    p_.largest = static_cast<float>((1 << bits) - 1);
    if (Op::kFrom != RangeFrom::kAttrs) return;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("min", &least_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("max", &largest_));
    OP_REQUIRES(
        ctx, least_ < largest_,
        InvalidArgument(kOp, ": min has to be smaller than max, was: ", least_, " >= ", largest_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor slopes, in, least, largest, out;
    FakeQuantParams p = p_;
    int input = 0;
    if (Op::kGradient) RETURN_IF_ERROR(ctx->Input(input++, &slopes));
    RETURN_IF_ERROR(ctx->Input(input++, &in));
    if (Op::kFrom != RangeFrom::kAttrs) {
      RETURN_IF_ERROR(ctx->Input(input++, &least));
      RETURN_IF_ERROR(ctx->Input(input++, &largest));
    }
    RETURN_IF_ERROR(PlanFakeQuant(kOp, Op::kFrom, in, least, largest, &p));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    const bool attrs = Op::kFrom == RangeFrom::kAttrs;
    const Value low = attrs ? HostArray(&least_, 1) : Value(least);
    const Value high = attrs ? HostArray(&largest_, 1) : Value(largest);
    const Grid grid = p.per_channel != 0 ? Grid(p.columns, p.rows) : Grid(in.num_elements());
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", grid.width));
    if (!Op::kGradient) {
      return Encode(ctx, [&](Encoder& encoder) {
        return encoder.Launch(
            p.per_channel != 0 ? "fake_quant_channels" : "fake_quant_all", grid,
            {{"in", in}, {"least", low}, {"largest", high}, {"out", out}, {"p", p}});
      });
    }
    if (slopes.shape() != in.shape()) {
      return InvalidArgument(kOp, ": gradient and input must be the same size, got ",
                             ToString(slopes.shape()), " and ", ToString(in.shape()));
    }
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(p.per_channel != 0 ? "fake_quant_grad_channels" : "fake_quant_grad_all",
                            grid,
                            {{"slopes", slopes},
                             {"in", in},
                             {"least", low},
                             {"largest", high},
                             {"out", out},
                             {"p", p}});
    }));
    return attrs ? Status() : RunEnds(ctx, p, slopes, in, least, largest);
  }

  static Status RunEnds(KernelContext* ctx, const FakeQuantParams& p, const Tensor& slopes,
                        const Tensor& in, const Tensor& least, const Tensor& largest) {
    Tensor d_least, d_largest, below, above;
    RETURN_IF_ERROR(ctx->AllocateOutput(1, least.shape(), &d_least));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, largest.shape(), &d_largest));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {p.chunks, p.columns}, &below));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {p.chunks, p.columns}, &above));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (in.num_elements() == 0) {
        RETURN_IF_ERROR(EncodeZeros(encoder, kOp, d_least));
        return EncodeZeros(encoder, kOp, d_largest);
      }
      RETURN_IF_ERROR(encoder.Launch(
          "fake_quant_ends", Grid((p.columns + FAKE_QUANT_LANES - 1) / FAKE_QUANT_LANES, p.chunks),
          {{"slopes", slopes},
           {"in", in},
           {"least", least},
           {"largest", largest},
           {"below", below},
           {"above", above},
           {"p", p}}));
      const Grid grid(d_least.num_elements());
      RETURN_IF_ERROR(
          encoder.Launch("fake_quant_sum", grid, {{"parts", below}, {"out", d_least}, {"p", p}}));
      return encoder.Launch("fake_quant_sum", grid,
                            {{"parts", above}, {"out", d_largest}, {"p", p}});
    });
  }

  FakeQuantParams p_ = {};
  float least_ = 0, largest_ = 0;
};
#define FAKE_QUANT_OP(name, from, gradient)             \
  struct name {                                         \
    static constexpr char kOp[] = #name;                \
    static constexpr RangeFrom kFrom = RangeFrom::from; \
    static constexpr bool kGradient = gradient;         \
  };                                                    \
  REGISTER_METAL_KERNEL(FakeQuantOp<name>)
FAKE_QUANT_OP(FakeQuantWithMinMaxArgs, kAttrs, false);
FAKE_QUANT_OP(FakeQuantWithMinMaxArgsGradient, kAttrs, true);
FAKE_QUANT_OP(FakeQuantWithMinMaxVars, kScalars, false);
FAKE_QUANT_OP(FakeQuantWithMinMaxVarsGradient, kScalars, true);
FAKE_QUANT_OP(FakeQuantWithMinMaxVarsPerChannel, kChannels, false);
FAKE_QUANT_OP(FakeQuantWithMinMaxVarsPerChannelGradient, kChannels, true);

}  // namespace
}  // namespace metal_ops
