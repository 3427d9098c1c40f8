// Pools of every number and of three dimensions, pools that tell where the largest was, and their
// gradients.

#include <algorithm>
#include <string>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/nn/volumes.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// An op of pools: its shader, the dimensions of its tensors, and the source of the window:
// attributes, or inputs in host memory from `host_window` on.
struct PoolKind {
  const char* op;
  const char* shader;
  size_t rank;
  bool has_format, has_explicit;
  int host_window;
};

Status GetPoolAttrs(KernelConstruction* ctx, const PoolKind& kind, VolumeAttrs* attrs) {
  RETURN_IF_ERROR(ctx->GetAttr("padding", &attrs->conv.padding));
  if (kind.has_format) {
    std::string data_format;
    RETURN_IF_ERROR(ctx->GetAttr("data_format", &data_format));
    RETURN_IF_ERROR(attrs->SetFormat(kind.op, data_format));
  }
  if (kind.has_explicit) {
    RETURN_IF_ERROR(ctx->GetAttr("explicit_paddings", &attrs->conv.explicit_paddings));
  }
  attrs->conv.dilations.assign(kind.rank, 1);
  if (kind.host_window != 0) return Status();
  RETURN_IF_ERROR(ctx->GetAttr("ksize", &attrs->window));
  RETURN_IF_ERROR(ctx->GetAttr("strides", &attrs->conv.strides));
  return attrs->Check(kind.op, kind.rank);
}

Status GetHostWindow(KernelContext* ctx, const PoolKind& kind, VolumeAttrs* attrs) {
  if (kind.host_window == 0) return Status();
  Tensor window, strides;
  RETURN_IF_ERROR(ctx->Input(kind.host_window, &window));
  RETURN_IF_ERROR(ctx->Input(kind.host_window + 1, &strides));
  RETURN_IF_ERROR(Indices(kind.op, "ksize", window, &attrs->window));
  RETURN_IF_ERROR(Indices(kind.op, "strides", strides, &attrs->conv.strides));
  return attrs->Check(kind.op, kind.rank);
}

// One call, whose attributes may come with it.
struct PoolCall {
  PoolCall(KernelContext* ctx, const PoolKind& kind, const VolumeAttrs& attrs)
      : ctx(ctx), kind(kind), attrs(attrs) {}

  // For an input of `shape`.
  Status Plan(const Shape& shape) {
    RETURN_IF_ERROR(GetHostWindow(ctx, kind, &attrs));
    in_shape = shape;
    RETURN_IF_ERROR(attrs.Plan(kind.op, shape, &p, &out_shape));
    p.whole_index = whole_index ? 1 : 0;
    return Status();
  }
  Shader VolumeShader(const char* stem, const Tensor& in) const {
    return metal_ops::VolumeShader(stem, p, in.dtype());
  }
  Grid InGrid(const Tensor& in) const {
    return VolumeInGrid(p, in_shape[0], VolumeLanes(p, in.dtype()));
  }
  Grid OutGrid(const Tensor& in) const {
    return VolumeOutGrid(p, in_shape[0], VolumeLanes(p, in.dtype()));
  }

  KernelContext* ctx;
  const PoolKind& kind;
  VolumeAttrs attrs;
  VolumeParams p = {};
  bool whole_index = false;  // of argmax
  Shape in_shape, out_shape;
};

Status RunPool(PoolCall& call) {
  Tensor in, out;
  RETURN_IF_ERROR(call.ctx->Input(0, &in));
  RETURN_IF_ERROR(call.Plan(in.shape()));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, call.out_shape, &out));
  if (out.num_elements() == 0) return Status();
  return Encode(call.ctx, [&](Encoder& encoder) {
    return encoder.Launch(call.VolumeShader(call.kind.shader, in), call.OutGrid(in),
                          {{"in", in}, {"out", out}, {"p", call.p}});
  });
}

// Inputs orig_input, orig_output, grad.
Status MaxInputs(PoolCall& call, Tensor* in, Tensor* pooled, Tensor* slopes, bool of_input) {
  RETURN_IF_ERROR(call.ctx->Input(0, in));
  RETURN_IF_ERROR(call.ctx->Input(1, pooled));
  RETURN_IF_ERROR(call.ctx->Input(2, slopes));
  RETURN_IF_ERROR(call.Plan(in->shape()));
  RETURN_IF_ERROR(CheckShapeOf(call.kind.op, "orig_output", *pooled, call.out_shape));
  return CheckShapeOf(call.kind.op, "grad", *slopes, of_input ? call.in_shape : call.out_shape);
}

// The first of the largest alone.
Status RunMaxGrad(PoolCall& call) {
  Tensor in, pooled, d_out, d_in, taps;
  RETURN_IF_ERROR(MaxInputs(call, &in, &pooled, &d_out, false));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, in.shape(), &d_in));
  if (d_out.num_elements() == 0) return ZeroOutput(call.ctx, call.kind.op, d_in);
  RETURN_IF_ERROR(call.ctx->AllocateTemp(TF_UINT32, d_out.shape(), &taps));
  return Encode(call.ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch(call.VolumeShader("max_volume_taps", in), call.OutGrid(in),
                                   {{"in", in}, {"taps", taps}, {"p", call.p}}));
    return encoder.Launch(call.VolumeShader("taps_grad", in), call.InGrid(in),
                          {{"taps", taps}, {"d_out", d_out}, {"d_in", d_in}, {"p", call.p}});
  });
}

Status RunMaxVolumeGrad(PoolCall& call) {
  Tensor in, pooled, d_out, d_in;
  RETURN_IF_ERROR(MaxInputs(call, &in, &pooled, &d_out, false));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, in.shape(), &d_in));
  if (d_out.num_elements() == 0) return ZeroOutput(call.ctx, call.kind.op, d_in);
  return Encode(call.ctx, [&](Encoder& encoder) {
    return encoder.Launch(
        call.VolumeShader("max_volume_grad", in), call.InGrid(in),
        {{"in", in}, {"pooled", pooled}, {"d_out", d_out}, {"d_in", d_in}, {"p", call.p}});
  });
}

Status RunMaxGradGrad(PoolCall& call) {
  Tensor in, pooled, d_in, out;
  RETURN_IF_ERROR(MaxInputs(call, &in, &pooled, &d_in, true));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, call.out_shape, &out));
  if (out.num_elements() == 0) return Status();
  return Encode(call.ctx, [&](Encoder& encoder) {
    return encoder.Launch(call.VolumeShader("max_volume_grad_grad", in), call.OutGrid(in),
                          {{"in", in}, {"d_in", d_in}, {"out", out}, {"p", call.p}});
  });
}

Status RunAvgVolumeGrad(PoolCall& call) {
  Tensor shape_tensor, d_out, d_in;
  Shape shape;
  RETURN_IF_ERROR(call.ctx->Input(0, &shape_tensor));
  RETURN_IF_ERROR(call.ctx->Input(1, &d_out));
  RETURN_IF_ERROR(Indices(call.kind.op, "orig_input_shape", shape_tensor, &shape));
  if (NumElements(shape) < 0) {
    return InvalidArgument(call.kind.op, ": orig_input_shape must be sizes >= 0, got ",
                           ToString(shape));
  }
  RETURN_IF_ERROR(call.Plan(shape));
  RETURN_IF_ERROR(CheckShapeOf(call.kind.op, "grad", d_out, call.out_shape));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, shape, &d_in));
  if (d_out.num_elements() == 0) return ZeroOutput(call.ctx, call.kind.op, d_in);
  return Encode(call.ctx, [&](Encoder& encoder) {
    return encoder.Launch(call.VolumeShader("avg_volume_grad", d_in), call.InGrid(d_in),
                          {{"d_out", d_out}, {"d_in", d_in}, {"p", call.p}});
  });
}

template <typename Op>
class VolumePoolOp {
 public:
  static constexpr const char* kOp = Op::kKind.op;

  explicit VolumePoolOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetPoolAttrs(ctx, Op::kKind, &attrs_));
  }

  void Compute(KernelContext* ctx) {
    PoolCall call(ctx, Op::kKind, attrs_);
    OP_REQUIRES_OK(ctx, Op::kRun(call));
  }

 private:
  VolumeAttrs attrs_;
};

// Name, shader, dimensions, whether data_format and explicit_paddings are attributes, and where ksize is
// an input.
#define POOL_OP(name, run, shader, rank, explicit_, host)                           \
  struct name {                                                                     \
    static constexpr PoolKind kKind = {#name, shader, rank, true, explicit_, host}; \
    static constexpr Status (*kRun)(PoolCall&) = run;                               \
  }
#define WINDOW_INPUTS .HostMemory("ksize").HostMemory("strides")
POOL_OP(MaxPool, RunPool, "max_volume", 4, true, 0);
POOL_OP(MaxPoolV2, RunPool, "max_volume", 4, false, 1);
POOL_OP(MaxPoolGrad, RunMaxGrad, "", 4, true, 0);
POOL_OP(MaxPoolGradV2, RunMaxGrad, "", 4, false, 3);
POOL_OP(MaxPoolGradGrad, RunMaxGradGrad, "", 4, false, 0);
POOL_OP(MaxPoolGradGradV2, RunMaxGradGrad, "", 4, false, 3);
POOL_OP(MaxPool3D, RunPool, "max_volume", 5, false, 0);
POOL_OP(MaxPool3DGrad, RunMaxVolumeGrad, "", 5, false, 0);
POOL_OP(MaxPool3DGradGrad, RunMaxGradGrad, "", 5, false, 0);
POOL_OP(AvgPool3D, RunPool, "avg_volume", 5, false, 0);
POOL_OP(AvgPool3DGrad, RunAvgVolumeGrad, "", 5, false, 0);
// Floats have kernels of their own (spatial_metal.mm, pool_grad_metal.mm).
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPool>, .Types("T", METAL_DEVICE_INTEGERS));
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPoolGrad>, .Types("T", METAL_DEVICE_INTEGERS));
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPoolV2>, .Types("T", METAL_DEVICE_ALL_NUMBERS) WINDOW_INPUTS);
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPoolGradV2>,
                      .Types("T", METAL_DEVICE_ALL_NUMBERS) WINDOW_INPUTS);
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPoolGradGrad>, .Types("T", METAL_DEVICE_ALL_NUMBERS));
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPoolGradGradV2>,
                      .Types("T", METAL_DEVICE_ALL_NUMBERS) WINDOW_INPUTS);
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPool3D>, .Types("T", METAL_DEVICE_FLOATS));
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPool3DGrad>,
                      .Types("T", {TF_FLOAT}).Where("TInput", TF_FLOAT));
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPool3DGrad>, .Types("T", {TF_HALF}).Where("TInput", TF_HALF));
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPool3DGrad>,
                      .Types("T", {TF_BFLOAT16}).Where("TInput", TF_BFLOAT16));
REGISTER_METAL_KERNEL(VolumePoolOp<MaxPool3DGradGrad>, .Types("T", METAL_DEVICE_FLOATS));
REGISTER_METAL_KERNEL(VolumePoolOp<AvgPool3D>, .Types("T", METAL_DEVICE_FLOATS));
REGISTER_METAL_KERNEL(VolumePoolOp<AvgPool3DGrad>,
                      .Types("T", METAL_DEVICE_FLOATS).HostMemory("orig_input_shape"));

// ---- places -------------------------------------------------------------------------------------

uint32_t Words(const Tensor& argmax) { return argmax.element_bytes() > 4 ? 2 : 1; }

Status RunArgmax(PoolCall& call) {
  Tensor in, out, argmax;
  RETURN_IF_ERROR(call.ctx->Input(0, &in));
  RETURN_IF_ERROR(call.Plan(in.shape()));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, call.out_shape, &out));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(1, call.out_shape, &argmax));
  if (out.num_elements() == 0) return Status();
  if (Words(argmax) == 1 && in.num_elements() > INT32_MAX) {
    return InvalidArgument(call.kind.op, ": Targmax = int32 has no room for the places of ",
                           in.num_elements(), " elements, use int64");
  }
  const uint32_t words = Words(argmax);
  return Encode(call.ctx, [&](Encoder& encoder) {
    return encoder.Launch(call.VolumeShader("max_volume_argmax", in), call.OutGrid(in),
                          {{"in", in},
                           {"out", out},
                           {"argmax", Value(argmax).Untyped()},
                           {"words", words},
                           {"p", call.p}});
  });
}

// Inputs input, grad, argmax.
Status ArgmaxInputs(PoolCall& call, Tensor* in, Tensor* slopes, Tensor* argmax, bool of_input) {
  RETURN_IF_ERROR(call.ctx->Input(0, in));
  RETURN_IF_ERROR(call.ctx->Input(1, slopes));
  RETURN_IF_ERROR(call.ctx->Input(2, argmax));
  RETURN_IF_ERROR(call.Plan(in->shape()));
  RETURN_IF_ERROR(CheckShapeOf(call.kind.op, "argmax", *argmax, call.out_shape));
  return CheckShapeOf(call.kind.op, "grad", *slopes, of_input ? call.in_shape : call.out_shape);
}

// Threads that look at all of a volume's places.
constexpr int64_t kRanges = 16;

Status RunArgmaxGrad(PoolCall& call) {
  Tensor in, d_out, argmax, d_in, sums;
  RETURN_IF_ERROR(ArgmaxInputs(call, &in, &d_out, &argmax, false));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, in.shape(), &d_in));
  if (d_out.num_elements() == 0) return ZeroOutput(call.ctx, call.kind.op, d_in);
  const bool in_place = d_in.dtype() != TF_HALF && d_in.dtype() != TF_BFLOAT16;
  if (!in_place) RETURN_IF_ERROR(call.ctx->AllocateTemp(TF_FLOAT, d_in.shape(), &sums));
  const Tensor& out = in_place ? d_in : sums;
  const uint32_t words = Words(argmax);
  const int64_t volumes = in.dim(0), ranges = std::max<int64_t>(1, kRanges / volumes);
  const auto count = static_cast<uint32_t>(ranges);
  return Encode(call.ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(EncodeZeros(encoder, call.kind.op, out));
    RETURN_IF_ERROR(encoder.Launch({"argmax_grad", in.dtype()}, Grid(ranges, volumes),
                                   {{"d_out", d_out},
                                    {"argmax", Value(argmax).Untyped()},
                                    {"d_in", out},
                                    {"words", words},
                                    {"ranges", count},
                                    {"p", call.p}}));
    if (in_place) return Status();
    return encoder.Launch({"cast", TF_FLOAT, d_in.dtype()}, Grid(d_in.num_elements()),
                          {{"x", sums}, {"out", d_in}});
  });
}

Status RunArgmaxGradGrad(PoolCall& call) {
  Tensor in, d_in, argmax, out;
  RETURN_IF_ERROR(ArgmaxInputs(call, &in, &d_in, &argmax, true));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, call.out_shape, &out));
  if (out.num_elements() == 0) return Status();
  RETURN_IF_ERROR(CheckGrid(call.kind.op, "elements", out.num_elements()));
  const uint32_t words = Words(argmax);
  return Encode(call.ctx, [&](Encoder& encoder) {
    return encoder.Launch({"argmax_grad_grad", Bits(out)}, Grid(out.num_elements()),
                          {{"d_in", Value(d_in).Untyped()},
                           {"argmax", Value(argmax).Untyped()},
                           {"out", Value(out).Untyped()},
                           {"words", words},
                           {"p", call.p}});
  });
}

template <typename Op>
class ArgmaxOp {
 public:
  static constexpr const char* kOp = Op::kKind.op;

  explicit ArgmaxOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetPoolAttrs(ctx, Op::kKind, &attrs_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("include_batch_in_index", &whole_index_));
  }

  void Compute(KernelContext* ctx) {
    PoolCall call(ctx, Op::kKind, attrs_);
    call.whole_index = whole_index_;
    OP_REQUIRES_OK(ctx, Op::kRun(call));
  }

 private:
  VolumeAttrs attrs_;
  bool whole_index_ = false;
};
#define ARGMAX_OP(name, run)                                                               \
  struct name {                                                                            \
    static constexpr PoolKind kKind = {#name, "", 4, false, false, 0};                     \
    static constexpr Status (*kRun)(PoolCall&) = run;                                      \
  };                                                                                       \
  REGISTER_METAL_KERNEL(ArgmaxOp<name>,                                                    \
                        .Types("T", METAL_DEVICE_ALL_NUMBERS).Where("Targmax", TF_INT32)); \
  REGISTER_METAL_KERNEL(ArgmaxOp<name>,                                                    \
                        .Types("T", METAL_DEVICE_ALL_NUMBERS).Where("Targmax", TF_INT64))
ARGMAX_OP(MaxPoolWithArgmax, RunArgmax);
ARGMAX_OP(MaxPoolGradWithArgmax, RunArgmaxGrad);
ARGMAX_OP(MaxPoolGradGradWithArgmax, RunArgmaxGradGrad);

}  // namespace
}  // namespace metal_ops
