// ExtractImagePatches and ExtractVolumePatches, Dilation2D and LRN with their gradients.

#include "device/kernels/elementwise.h"
#include "device/kernels/nn/volumes.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// ---- patches ------------------------------------------------------------------------------------

template <typename Op>
class PatchesOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit PatchesOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ksizes", &attrs_.window));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("strides", &attrs_.conv.strides));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding", &attrs_.conv.padding));
    attrs_.conv.dilations.assign(Op::kRank, 1);
    if (Op::kRates) OP_REQUIRES_OK(ctx, ctx->GetAttr("rates", &attrs_.conv.dilations));
    OP_REQUIRES_OK(ctx, attrs_.Check(kOp, Op::kRank));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor in, out;
    VolumeParams p;
    Shape shape;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(attrs_.Plan(kOp, in.shape(), &p, &shape));
    if (Op::kShifts && attrs_.conv.padding == "SAME") {
      // TensorFlow's kernel pads by less than nothing where strides pass the window's end.
      const auto shift = [](uint32_t in, uint32_t out, uint32_t window, uint32_t stride) {
        return static_cast<int32_t>(
            ((int64_t{out} - 1) * stride + window - static_cast<int64_t>(in)) / 2);
      };
      p.pad_front = shift(p.in_d, p.out_d, p.window_d, p.stride_d);
      p.pad_top = shift(p.in_h, p.out_h, p.window_h, p.stride_h);
      p.pad_left = shift(p.in_w, p.out_w, p.window_w, p.stride_w);
    }
    const int64_t points = NumElements(attrs_.window);
    shape.back() *= points;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    const int64_t rows = in.dim(0) * p.out_d * p.out_h;
    for (const int64_t size : {shape.back(), rows}) {
      RETURN_IF_ERROR(CheckGrid(kOp, "values of a patch or rows", size));
    }
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodePatches(encoder, in, p, shape.back(), rows, out);
    });
  }

  VolumeAttrs attrs_;
};
struct ImagePatches {
  static constexpr char kOp[] = "ExtractImagePatches";
  static constexpr size_t kRank = 4;
  static constexpr bool kRates = true, kShifts = false;
};
struct VolumePatches {
  static constexpr char kOp[] = "ExtractVolumePatches";
  static constexpr size_t kRank = 5;
  static constexpr bool kRates = false, kShifts = true;
};
REGISTER_METAL_KERNEL(PatchesOp<ImagePatches>,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64, TF_INT8,
                                   TF_INT16, TF_INT32, TF_INT64, TF_UINT8, TF_UINT16, TF_UINT32,
                                   TF_UINT64}));
REGISTER_METAL_KERNEL(PatchesOp<VolumePatches>,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_DOUBLE, TF_INT8, TF_INT16,
                                   TF_INT32, TF_INT64, TF_UINT8, TF_UINT16, TF_UINT32, TF_UINT64}));

// ---- dilation -----------------------------------------------------------------------------------

// Dilation2D, or one of its gradients: of the input, of the filter.
enum class Dilated { kOut, kInput, kFilter };

template <typename Op>
class DilationOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit DilationOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("strides", &attrs_.conv.strides));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rates", &attrs_.conv.dilations));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding", &attrs_.conv.padding));
    attrs_.window.assign(4, 1);
    OP_REQUIRES_OK(ctx, attrs_.Check(kOp, 4));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor in, filter, d_out, out, taps;
    VolumeAttrs attrs = attrs_;
    VolumeParams p;
    Shape shape;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &filter));
    if (in.rank() != 4 || filter.rank() != 3 || filter.dim(2) != in.dim(3)) {
      return InvalidArgument(kOp, ": input must be [batch, height, width, depth] and filter ",
                             "[height, width, depth], got ", ToString(in.shape()), " and ",
                             ToString(filter.shape()));
    }
    attrs.window[1] = filter.dim(0);
    attrs.window[2] = filter.dim(1);
    RETURN_IF_ERROR(attrs.Plan(kOp, in.shape(), &p, &shape));
    const int64_t lanes = VolumeLanes(p, in.dtype());
    const Grid grid = VolumeOutGrid(p, in.dim(0), lanes);
    if (Op::kResult == Dilated::kOut) {
      RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
      if (out.num_elements() == 0) return Status();
      return Encode(ctx, [&](Encoder& encoder) {
        return encoder.Launch(VolumeShader("dilation", p, in.dtype()), grid,
                              {{"in", in}, {"filter", filter}, {"out", out}, {"p", p}});
      });
    }
    RETURN_IF_ERROR(ctx->Input(2, &d_out));
    RETURN_IF_ERROR(CheckShapeOf(kOp, "out_backprop", d_out, shape));
    const bool of_input = Op::kResult == Dilated::kInput;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, of_input ? in.shape() : filter.shape(), &out));
    if (d_out.num_elements() == 0) return ZeroOutput(ctx, kOp, out);
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_UINT32, shape, &taps));
    const int64_t points = d_out.num_elements() / p.channels;
    RETURN_IF_ERROR(CheckGrid(kOp, "points", points));
    const auto count = static_cast<uint32_t>(points);
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch(VolumeShader("dilation_taps", p, in.dtype()), grid,
                                     {{"in", in}, {"filter", filter}, {"taps", taps}, {"p", p}}));
      if (of_input) {
        return encoder.Launch(VolumeShader("taps_grad", p, in.dtype()),
                              VolumeInGrid(p, in.dim(0), lanes),
                              {{"taps", taps}, {"d_out", d_out}, {"d_in", out}, {"p", p}});
      }
      return encoder.Launch(
          VolumeShader("dilation_filter_grad", p, in.dtype()),
          Grid(p.channels / lanes, filter.dim(0) * filter.dim(1)),
          {{"taps", taps}, {"d_out", d_out}, {"d_filter", out}, {"points", count}, {"p", p}});
    });
  }

  VolumeAttrs attrs_;
};
#define DILATION_OP(name, result)              \
  struct name {                                \
    static constexpr char kOp[] = #name;       \
    static constexpr Dilated kResult = result; \
  };                                           \
  REGISTER_METAL_KERNEL(DilationOp<name>, .Types("T", METAL_DEVICE_ALL_NUMBERS))
DILATION_OP(Dilation2D, Dilated::kOut);
DILATION_OP(Dilation2DBackpropInput, Dilated::kInput);
DILATION_OP(Dilation2DBackpropFilter, Dilated::kFilter);

// ---- local response normalisation ---------------------------------------------------------------

template <typename Op>
class LrnOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit LrnOp(KernelConstruction* ctx) {
    int64_t radius = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("depth_radius", &radius));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("bias", &p_.bias));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("alpha", &p_.alpha));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("beta", &p_.beta));
    OP_REQUIRES(ctx, radius >= 0 && radius <= INT32_MAX,
                InvalidArgument(kOp, ": depth_radius must be from 0 to 2^31 - 1, got ", radius));
    p_.radius = static_cast<uint32_t>(radius);
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor d_out, in, y, out, shares;
    const int first = Op::kGradient ? 1 : 0;
    RETURN_IF_ERROR(ctx->Input(first, &in));
    if (in.rank() != 4) {
      return InvalidArgument(kOp, ": in must be 4-dimensional, got ", ToString(in.shape()));
    }
    if (Op::kGradient) {
      RETURN_IF_ERROR(ctx->Input(0, &d_out));
      RETURN_IF_ERROR(ctx->Input(2, &y));
      RETURN_IF_ERROR(CheckShapeOf(kOp, "input_grads", d_out, in.shape()));
      RETURN_IF_ERROR(CheckShapeOf(kOp, "output_image", y, in.shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    LrnParams p = p_;
    const int64_t depth = in.dim(3), rows = in.num_elements() / depth;
    RETURN_IF_ERROR(CheckGrid(kOp, "points", rows));
    RETURN_IF_ERROR(CheckGrid(kOp, "channels", depth));
    p.depth = static_cast<uint32_t>(depth);
    if (Op::kGradient) RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, in.shape(), &shares));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      const Grid grid(depth, rows);
      if (!Op::kGradient) {
        const bool lines = !ThreadgroupsRunAtOnce() && p.radius <= LRN_REACH;
        const int64_t width = lines ? LRN_LINE : LRN_LANES;
        return encoder.Launch({lines ? "lrn_line" : "lrn", in.dtype()},
                              Grid((depth + width - 1) / width, rows),
                              {{"in", in}, {"out", out}, {"p", p}});
      }
      RETURN_IF_ERROR(
          encoder.Launch({"lrn_grad_shares", in.dtype()}, grid,
                         {{"d_out", d_out}, {"in", in}, {"out", y}, {"shares", shares}, {"p", p}}));
      return encoder.Launch(
          {"lrn_grad", in.dtype()}, grid,
          {{"d_out", d_out}, {"in", in}, {"shares", shares}, {"d_in", out}, {"p", p}});
    });
  }

  LrnParams p_ = {};
};
struct Lrn {
  static constexpr char kOp[] = "LRN";
  static constexpr bool kGradient = false;
};
struct LrnGrad {
  static constexpr char kOp[] = "LRNGrad";
  static constexpr bool kGradient = true;
};
REGISTER_METAL_KERNEL(LrnOp<Lrn>, .Types("T", METAL_DEVICE_FLOATS));
REGISTER_METAL_KERNEL(LrnOp<LrnGrad>, .Types("T", METAL_DEVICE_FLOATS));

}  // namespace
}  // namespace metal_ops
