// QuantizeAndDequantizeV2, V3, V4 and the gradient of the last.

#include <algorithm>
#include <string>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/nn/quantize_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Parts of a channel that are looked through side by side.
constexpr int64_t kChunks = 64;

Status PlanQuantize(const char* op, const Tensor& in, int64_t axis, QuantizeParams* p) {
  if (axis < -1 || axis >= in.rank()) {
    return InvalidArgument(
        op, ": invalid axis: it must be at least -1 and less than the rank of input, ", in.rank(),
        ", got ", axis);
  }
  const auto at = static_cast<size_t>(std::max<int64_t>(axis, 0));
  const int64_t channels = axis < 0 ? 1 : in.dim(static_cast<int>(axis));
  const int64_t outer = axis < 0 ? 1 : NumElements(Dims(in.shape(), 0, at));
  const int64_t inner =
      axis < 0 ? in.num_elements() : NumElements(Dims(in.shape(), at + 1, in.shape().size()));
  const int64_t chunk = std::max<int64_t>(1, (outer * inner + kChunks - 1) / kChunks);
  RETURN_IF_ERROR(CheckGrid(op, "elements", inner));
  RETURN_IF_ERROR(CheckGrid(op, "channels", channels));
  RETURN_IF_ERROR(CheckGrid(op, "elements before the axis", outer));
  p->outer = static_cast<uint64_t>(outer);
  p->inner = static_cast<uint64_t>(inner);
  p->channels = static_cast<uint32_t>(channels);
  p->chunk = static_cast<uint64_t>(chunk);
  p->chunks = static_cast<uint32_t>((outer * inner + chunk - 1) / chunk);
  return Status();
}

Status CheckRange(const char* op, const QuantizeParams& p, int64_t axis, const Tensor& least,
                  const Tensor& largest) {
  const Shape expected = axis < 0 ? Shape{} : Shape{p.channels};
  if (least.shape() == expected && largest.shape() == expected) return Status();
  return InvalidArgument(op, ": input_min and input_max must have shape ", ToString(expected),
                         ", got ", ToString(least.shape()), " and ", ToString(largest.shape()));
}

Grid ElementsOf(const QuantizeParams& p) {
  return Grid(static_cast<int64_t>(p.inner), p.channels, static_cast<int64_t>(p.outer));
}

template <typename Op>
class QuantizeOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit QuantizeOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("signed_input", &signed_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("range_given", &given_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("narrow_range", &narrow_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("axis", &axis_));
    if (Op::kBitsGiven) return;
    std::string mode;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_bits", &bits_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("round_mode", &mode));
    OP_REQUIRES(
        ctx, mode == "HALF_UP" || mode == "HALF_TO_EVEN",
        InvalidArgument(kOp, ": Round mode string must be 'HALF_UP' or 'HALF_TO_EVEN', is '", mode,
                        "'"));
    half_up_ = mode == "HALF_UP";
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, least, largest, out, ends, scales;
    int64_t bits = bits_;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &least));
    RETURN_IF_ERROR(ctx->Input(2, &largest));
    if (Op::kBitsGiven) {
      Tensor given;
      RETURN_IF_ERROR(ctx->Input(3, &given));
      if (given.num_elements() != 1) {
        return InvalidArgument(kOp, ": num_bits must be one number, got shape ",
                               ToString(given.shape()));
      }
      bits = *given.host<int32_t>();
    }
    if (bits <= 0 || bits >= (signed_ ? 62 : 63)) {
      return InvalidArgument(kOp, ": num_bits is out of range: ", bits, " with signed_input ",
                             signed_ ? "true" : "false");
    }
    QuantizeParams p = {};
    RETURN_IF_ERROR(PlanQuantize(kOp, in, axis_, &p));
    if (given_) RETURN_IF_ERROR(CheckRange(kOp, p, axis_, least, largest));
    const int64_t half = int64_t{1} << (bits - 1);
    p.least = static_cast<float>(signed_ ? (narrow_ ? 1 - half : -half) : 0);
    p.largest = static_cast<float>(signed_ ? half - 1 : 2 * half - 1);
    p.given = given_ ? 1 : 0;
    p.half_up = half_up_ ? 1 : 0;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {p.channels, p.chunks, 2}, &ends));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {p.channels, 4}, &scales));
    const Value range = Value(scales).Untyped(), parts = Value(ends).Untyped();
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (!given_) {
        RETURN_IF_ERROR(encoder.Launch("quantize_ends", Grid(p.chunks, p.channels),
                                       {{"in", in}, {"ends", parts}, {"p", p}}));
      }
      RETURN_IF_ERROR(encoder.Launch("quantize_scales", Grid(p.channels),
                                     {{"least", given_ ? Value(least) : Value(Nothing())},
                                      {"largest", given_ ? Value(largest) : Value(Nothing())},
                                      {"ends", parts},
                                      {"scales", range},
                                      {"p", p}}));
      return encoder.Launch("quantize_dequantize", ElementsOf(p),
                            {{"in", in}, {"scales", range}, {"out", out}, {"p", p}});
    });
  }

  bool signed_ = true, given_ = false, narrow_ = false, half_up_ = false;
  int64_t bits_ = 8, axis_ = -1;
};
#define QUANTIZE(op, bits_given)                   \
  struct op {                                      \
    static constexpr char kOp[] = #op;             \
    static constexpr bool kBitsGiven = bits_given; \
  }
QUANTIZE(QuantizeAndDequantizeV2, false);
QUANTIZE(QuantizeAndDequantizeV3, true);
QUANTIZE(QuantizeAndDequantizeV4, false);
REGISTER_METAL_KERNEL(QuantizeOp<QuantizeAndDequantizeV2>, .Types("T", {TF_FLOAT}));
REGISTER_METAL_KERNEL(QuantizeOp<QuantizeAndDequantizeV3>,
                      .Types("T", {TF_FLOAT}).HostMemory("num_bits"));
REGISTER_METAL_KERNEL(QuantizeOp<QuantizeAndDequantizeV4>, .Types("T", {TF_FLOAT}));

class QuantizeGradOp {
 public:
  static constexpr char kOp[] = "QuantizeAndDequantizeV4Grad";

  explicit QuantizeGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("axis", &axis_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor gradients, in, least, largest, out, d_least, d_largest;
    RETURN_IF_ERROR(ctx->Input(0, &gradients));
    RETURN_IF_ERROR(ctx->Input(1, &in));
    RETURN_IF_ERROR(ctx->Input(2, &least));
    RETURN_IF_ERROR(ctx->Input(3, &largest));
    if (gradients.shape() != in.shape()) {
      return InvalidArgument(kOp, ": gradients and input must be the same size, got ",
                             ToString(gradients.shape()), " and ", ToString(in.shape()));
    }
    QuantizeParams p = {};
    RETURN_IF_ERROR(PlanQuantize(kOp, in, axis_, &p));
    RETURN_IF_ERROR(CheckRange(kOp, p, axis_, least, largest));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, least.shape(), &d_least));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, largest.shape(), &d_largest));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeZeros(encoder, kOp, d_least));
      RETURN_IF_ERROR(EncodeZeros(encoder, kOp, d_largest));
      return encoder.Launch("quantize_grad", ElementsOf(p),
                            {{"gradients", gradients},
                             {"in", in},
                             {"least", least},
                             {"largest", largest},
                             {"out", out},
                             {"p", p}});
    });
  }

  int64_t axis_ = -1;
};
REGISTER_METAL_KERNEL(QuantizeGradOp, .Types("T", {TF_FLOAT}));

}  // namespace
}  // namespace metal_ops
