// QuantizeAndDequantizeV2, V3, V4 and the gradient of the last; QuantizeV2 and Dequantize.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

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

// ---- QuantizeV2, Dequantize ---------------------------------------------------------------------

// The whole numbers of a quantized type.
struct Quantized {
  DType stored;  // the shader's
  int64_t first, last;
  float least, largest;  // the same

  explicit Quantized(DType dtype) {
    switch (static_cast<TF_DataType>(dtype)) {
      case TF_QINT8:
        Set<int8_t>(DType::kInt8);
        break;
      case TF_QUINT8:
        Set<uint8_t>(DType::kUint8);
        break;
      case TF_QINT16:
        Set<int16_t>(DType::kInt16);
        break;
      case TF_QUINT16:
        Set<uint16_t>(DType::kUint16);
        break;
      default:
        Set<int32_t>(DType::kInt32);
    }
  }
  bool has_sign() const { return least < 0.0f; }
  double steps() const { return static_cast<double>(last - first); }

 private:
  template <typename T>
  void Set(DType dtype) {
    stored = dtype;
    first = std::numeric_limits<T>::lowest();
    last = std::numeric_limits<T>::max();
    least = static_cast<float>(first);
    largest = static_cast<float>(last);
  }
};

enum class Mode { kMinCombined, kMinFirst, kScaled };

// Shared by both: the attributes, and a range for all or for each channel, which is the host's.
struct AffineAttrs {
  Mode mode = Mode::kMinCombined;
  bool narrow = false;
  int64_t axis = -1;

  Status Get(KernelConstruction* ctx) {
    std::string name;
    RETURN_IF_ERROR(ctx->GetAttr("mode", &name));
    mode = name == "SCALED"      ? Mode::kScaled
           : name == "MIN_FIRST" ? Mode::kMinFirst
                                 : Mode::kMinCombined;
    RETURN_IF_ERROR(ctx->GetAttr("narrow_range", &narrow));
    RETURN_IF_ERROR(ctx->GetAttr("axis", &axis));
    if (mode != Mode::kMinFirst || axis < 0) return Status();
    return InvalidArgument("mode MIN_FIRST is of one range alone, got axis ", axis);
  }
  // Inputs 0 to 2.
  Status Inputs(KernelContext* ctx, const char* op, Tensor* in, Tensor* low, Tensor* high,
                QuantizeParams* p) const {
    RETURN_IF_ERROR(ctx->Input(0, in));
    RETURN_IF_ERROR(ctx->Input(1, low));
    RETURN_IF_ERROR(ctx->Input(2, high));
    RETURN_IF_ERROR(PlanQuantize(op, *in, axis, p));
    const bool one = axis < 0 && low->num_elements() == 1 && high->num_elements() == 1;
    const Shape expected = {static_cast<int64_t>(p->channels)};
    if (!one && (axis < 0 || low->shape() != expected || high->shape() != expected)) {
      return InvalidArgument(op, ": min_range and max_range must have ", p->channels,
                             " elements, one without an axis and as many as channels with it, got ",
                             ToString(low->shape()), " and ", ToString(high->shape()));
    }
    return Status();
  }
};

Status RunAffine(KernelContext* ctx, const Shader& shader, const QuantizeParams& plan,
                 const AffineParams& p, const std::vector<AffineChannel>& channels,
                 const Tensor& in, const Tensor& out) {
  if (out.num_elements() == 0) return Status();
  const auto lanes = static_cast<int64_t>((plan.inner + QUANTIZE_LANES - 1) / QUANTIZE_LANES);
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch(
        shader, Grid(lanes, plan.channels, static_cast<int64_t>(plan.outer)),
        {{"in", Value(in).Untyped()},
         {"out", Value(out).Untyped()},
         {"channels", HostArray(channels.data(), static_cast<int64_t>(channels.size()))},
         {"p", p}});
  });
}

class QuantizeV2Op {
 public:
  static constexpr char kOp[] = "QuantizeV2";

  explicit QuantizeV2Op(KernelConstruction* ctx) {
    std::string rounding;
    OP_REQUIRES_OK(ctx, attrs_.Get(ctx));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("round_mode", &rounding));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ensure_minimum_range", &least_range_));
    even_ = rounding == "HALF_TO_EVEN";
    OP_REQUIRES(
        ctx, !even_ || attrs_.mode == Mode::kScaled,
        InvalidArgument(kOp, ": Round mode 'HALF_TO_EVEN' only supported for mode ", "'SCALED'"));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, low, high, out, out_low, out_high;
    QuantizeParams plan = {};
    RETURN_IF_ERROR(attrs_.Inputs(ctx, kOp, &in, &low, &high, &plan));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    const Shape ranges = attrs_.axis < 0 ? Shape{} : low.shape();
    RETURN_IF_ERROR(ctx->AllocateOutput(1, ranges, &out_low));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, ranges, &out_high));
    const Quantized type(out.dtype());
    AffineParams p = {};
    p.inner = plan.inner;
    p.channels = plan.channels;
    // 2^31 is no int.
    p.least = type.least;
    p.largest = std::min(type.largest, 2147483520.0f);
    uint32_t rounding = AFFINE_AWAY;
    std::vector<AffineChannel> channels(plan.channels);
    for (uint32_t i = 0; i < plan.channels; ++i) {
      float from = low.host<float>()[i], to = high.host<float>()[i];
      if (!(from <= to)) {
        return InvalidArgument(kOp, ": max_range must be larger than min_range, got ", to, " and ",
                               from);
      }
      // 0 is in it, and it is not empty.
      const float gap = std::max(1.0f, std::max(std::fabs(from), std::fabs(to))) * least_range_;
      from = std::min(0.0f, from);
      to = std::max(0.0f, std::max(to, from + gap));
      channels[i] = Channel(type, &from, &to, &rounding);
      out_low.mutable_host<float>()[i] = from;
      out_high.mutable_host<float>()[i] = to;
    }
    return RunAffine(ctx, {"quantize_affine", std::to_string(rounding), type.stored}, plan, p,
                     channels, in, out);
  }

  AffineChannel Channel(const Quantized& type, float* from, float* to, uint32_t* rounding) const {
    if (attrs_.mode == Mode::kMinCombined) {
      const auto scale = static_cast<float>(type.steps() / (*to - *from));
      const double half = type.has_sign() ? (type.steps() + 1.0) / 2.0 : 0.0;
      *rounding = type.has_sign() ? AFFINE_AWAY : AFFINE_UP;
      return {*from, *to, -*from, scale, static_cast<float>(-half)};
    }
    if (attrs_.mode == Mode::kMinFirst) {
      const auto scale = static_cast<float>(*from == *to ? 0.0 : type.steps() / (*to - *from));
      *rounding = AFFINE_FIRST;
      constexpr float kAny = std::numeric_limits<float>::infinity();
      return {-kAny, kAny, 0.0f, scale, -(std::round(*from * scale) - type.least)};
    }
    const float first = static_cast<float>(type.first + (attrs_.narrow ? 1 : 0));
    constexpr float kMost = std::numeric_limits<float>::max();
    const float by_low = first * *from > 0.0f ? first / *from : kMost;
    const float by_high = type.largest * *to > 0.0f ? type.largest / *to : kMost;
    const float scale = std::min(by_low, by_high);
    *from = first / scale;
    *to = type.largest / scale;
    *rounding = even_ ? AFFINE_EVEN : AFFINE_AWAY;
    return {*from, *to, 0.0f, scale, 0.0f};
  }

  AffineAttrs attrs_;
  float least_range_ = 0.01f;
  bool even_ = false;
};
#define QUANTIZED .Types("T", {TF_QINT8, TF_QUINT8, TF_QINT16, TF_QUINT16, TF_QINT32})
#define RANGE .HostMemory("min_range").HostMemory("max_range")
REGISTER_METAL_KERNEL(QuantizeV2Op,
                      QUANTIZED RANGE.HostMemory("output_min").HostMemory("output_max"));

class DequantizeOp {
 public:
  static constexpr char kOp[] = "Dequantize";

  explicit DequantizeOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, attrs_.Get(ctx)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, low, high, out;
    QuantizeParams plan = {};
    RETURN_IF_ERROR(attrs_.Inputs(ctx, kOp, &in, &low, &high, &plan));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    const Quantized type(in.dtype());
    AffineParams p = {};
    p.inner = plan.inner;
    p.channels = plan.channels;
    std::vector<AffineChannel> channels(plan.channels);
    for (uint32_t i = 0; i < plan.channels; ++i) {
      channels[i] = Channel(type, low.host<float>()[i], high.host<float>()[i]);
    }
    return RunAffine(ctx, {"dequantize_affine", type.stored, out.dtype()}, plan, p, channels, in,
                     out);
  }

  AffineChannel Channel(const Quantized& type, float from, float to) const {
    if (attrs_.mode == Mode::kMinCombined) {
      const float scale = from == to ? 0.0f : (to - from) / (type.largest - type.least);
      const float half = type.has_sign() ? (type.largest - type.least + 1.0f) / 2.0f : 0.0f;
      return {0.0f, 0.0f, half, scale, from};
    }
    if (attrs_.mode == Mode::kMinFirst) {
      const auto scale = static_cast<float>((to - from) / type.steps());
      const float first = from == to ? from : std::round(from / scale) * scale;
      return {0.0f, 0.0f, 0.0f, scale, first - type.least * scale};
    }
    const float first = static_cast<float>(type.first + (attrs_.narrow ? 1 : 0));
    const float by_high = to / type.largest;
    return {0.0f, 0.0f, 0.0f, type.has_sign() ? std::max(from / first, by_high) : by_high, 0.0f};
  }

  AffineAttrs attrs_;
};
// For 16 bits TensorFlow has no arguments of functions on GPUs: a call would fail.
#define GIVEN .Types("T", {TF_QINT8, TF_QUINT8, TF_QINT32})
REGISTER_METAL_KERNEL(DequantizeOp, GIVEN.Where("dtype", TF_FLOAT) RANGE);
REGISTER_METAL_KERNEL(DequantizeOp, GIVEN.Where("dtype", TF_BFLOAT16) RANGE);

}  // namespace
}  // namespace metal_ops
