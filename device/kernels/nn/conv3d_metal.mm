// Conv3D and its gradients: convolutions of images whose channels are those of all planes that the
// filter reaches. And Conv, which is one of images or of volumes.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/nn/conv_grad.h"
#include "device/kernels/nn/product.h"
#include "device/kernels/nn/volumes.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// With channels first all goes through copies with channels last, whose attributes these are then.
Status GetAttrs(KernelConstruction* ctx, const char* op, VolumeAttrs* attrs, bool* channels_first) {
  std::string data_format;
  RETURN_IF_ERROR(ctx->GetAttr("strides", &attrs->conv.strides));
  RETURN_IF_ERROR(ctx->GetAttr("dilations", &attrs->conv.dilations));
  RETURN_IF_ERROR(ctx->GetAttr("padding", &attrs->conv.padding));
  RETURN_IF_ERROR(ctx->GetAttr("data_format", &data_format));
  *channels_first = data_format == "NCDHW";
  attrs->window.assign(5, 1);
  if (*channels_first) {
    for (std::vector<int64_t>* const values : {&attrs->conv.strides, &attrs->conv.dilations}) {
      if (values->size() == 5) std::rotate(values->begin() + 1, values->begin() + 2, values->end());
    }
  }
  return attrs->Check(op, 5);
}

// [n, d, h, w, c] of [n, c, d, h, w].
Shape ChannelsLast(const Shape& s) {
  return s.size() == 5 ? Shape{s[0], s[2], s[3], s[4], s[1]} : s;
}
Shape ChannelsFirst(const Shape& s) { return {s[0], s[4], s[1], s[2], s[3]}; }

// Copies a tensor with channels first to one with channels last, or back.
Status TurnChannels(KernelContext* ctx, const char* op, const Tensor& from, const Tensor& to,
                    bool back) {
  const Shape s = back ? from.shape() : to.shape();
  const int64_t volume = s[1] * s[2] * s[3];
  const Walk first = {{s[4] * volume, s[2] * s[3], s[3], 1, volume}}, last = {DenseStrides(s)};
  return Encode(ctx, [&](Encoder& encoder) {
    return EncodeCopy(encoder, op, s, from, back ? last : first, to, back ? first : last);
  });
}

// An input with channels last.
Status VolumesOf(KernelContext* ctx, const char* op, int i, bool channels_first, Tensor* volumes) {
  RETURN_IF_ERROR(ctx->Input(i, volumes));
  if (!channels_first || volumes->rank() != 5) return Status();
  const Tensor given = std::move(*volumes);
  RETURN_IF_ERROR(ctx->AllocateTemp(given.dtype(), ChannelsLast(given.shape()), volumes));
  return given.num_elements() == 0 ? Status() : TurnChannels(ctx, op, given, *volumes, false);
}

// Output 0, of a shape with channels last, from the tensor that `work` writes with channels last.
template <typename Work>
Status GiveVolumes(KernelContext* ctx, const char* op, const Shape& shape, bool channels_first,
                   const Work& work) {
  Tensor out, volumes;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, channels_first ? ChannelsFirst(shape) : shape, &out));
  if (out.num_elements() == 0) return Status();
  if (!channels_first) return work(out);
  RETURN_IF_ERROR(ctx->AllocateTemp(out.dtype(), shape, &volumes));
  RETURN_IF_ERROR(work(volumes));
  return TurnChannels(ctx, op, volumes, out, true);
}

// One convolution of volumes.
struct VolumeConv {
  VolumeConv(KernelContext* ctx, const char* op) : ctx(ctx), op(op) {}

  // The plan for an input of shape `in` and a filter of shape `filter`.
  Status Plan(VolumeAttrs attrs, const Shape& in, const Shape& filter) {
    if (filter.size() != 5 || in.size() != 5 || filter[3] != in[4]) {
      return InvalidArgument(op, ": input must be [batch, depth, height, width, channels] and ",
                             "filter [depth, height, width, channels, output channels], got ",
                             ToString(in), " and ", ToString(filter),
                             "; groups of channels are not provided on the METAL device");
    }
    for (int i = 0; i < 3; ++i) attrs.window[1 + i] = filter[i];
    RETURN_IF_ERROR(attrs.Check(op, 5));
    RETURN_IF_ERROR(attrs.Plan(op, in, &planes, &out_shape));
    out_shape[4] = filter[4];
    const VolumeParams& p = planes;
    s.n = in[0] * p.out_d;
    s.in_h = p.in_h;
    s.in_w = p.in_w;
    s.in_c = filter[0] * filter[3];
    s.filter_h = p.window_h;
    s.filter_w = p.window_w;
    s.out_c = filter[4];
    s.out_h = p.out_h;
    s.out_w = p.out_w;
    s.stride_h = p.stride_h;
    s.stride_w = p.stride_w;
    s.dilation_h = p.dilation_h;
    s.dilation_w = p.dilation_w;
    s.pad_top = p.pad_top;
    s.pad_left = p.pad_left;
    // From here on a window is along the depth alone.
    planes.out_h = planes.in_h;
    planes.out_w = planes.in_w;
    planes.window_h = planes.window_w = planes.stride_h = planes.stride_w = 1;
    planes.dilation_h = planes.dilation_w = 1;
    planes.pad_top = planes.pad_left = 0;
    in_shape = in;
    filter_shape = filter;
    by_planes = !(planes.window_d == 1 && planes.stride_d == 1);
    return CheckGrid(op, "planes", s.n * s.in_h);
  }

  Shape PlanesShape() const { return {s.n, s.in_h, s.in_w, s.in_c}; }

  // The input's planes that each plane of the output reaches, channel by channel.
  Status GatherPlanes(const Tensor& in, Tensor* out) {
    RETURN_IF_ERROR(ctx->AllocateTemp(in.dtype(), PlanesShape(), out));
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodePatches(encoder, in, planes, s.in_c, s.n * s.in_h, *out);
    });
  }

  // [depth, height, width, channels, out] to [height, width, depth, channels, out], or back.
  Status TurnFilter(const Tensor& from, const Tensor& to, bool back) {
    const Shape& f = filter_shape;
    const int64_t points = f[3] * f[4];
    const Shape shape = {f[1], f[2], f[0], points};
    const Walk as_given = {{f[2] * points, points, f[1] * f[2] * points, 1}};
    const Walk dense = {DenseStrides(shape)};
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodeCopy(encoder, op, shape, from, back ? dense : as_given, to,
                        back ? as_given : dense);
    });
  }
  Status TurnedFilter(const Tensor& filter, Tensor* turned) {
    RETURN_IF_ERROR(ctx->AllocateTemp(filter.dtype(), filter_shape, turned));
    return TurnFilter(filter, *turned, false);
  }

  KernelContext* ctx;
  const char* op;
  VolumeParams planes = {};
  ConvSizes s;
  Shape in_shape, filter_shape, out_shape;
  bool by_planes = false;  // else volumes are images one after the other
};

class Conv3DOp {
 public:
  static constexpr char kOp[] = "Conv3D";

  explicit Conv3DOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetAttrs(ctx, kOp, &attrs_, &channels_first_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

  // For an input with channels last.
  static Status Convolve(KernelContext* ctx, const char* op, const VolumeAttrs& attrs,
                         bool channels_first, const Tensor& in, const Tensor& filter) {
    VolumeConv conv(ctx, op);
    if (filter.num_elements() == 0) {
      return InvalidArgument(op, ": filter must not have zero elements, got ",
                             ToString(filter.shape()));
    }
    RETURN_IF_ERROR(conv.Plan(attrs, in.shape(), filter.shape()));
    return GiveVolumes(ctx, op, conv.out_shape, channels_first,
                       [&](const Tensor& out) { return Run(ctx, conv, in, filter, out); });
  }

 private:
  Status Run(KernelContext* ctx) {
    Tensor in, filter;
    RETURN_IF_ERROR(VolumesOf(ctx, kOp, 0, channels_first_, &in));
    RETURN_IF_ERROR(ctx->Input(1, &filter));
    return Convolve(ctx, kOp, attrs_, channels_first_, in, filter);
  }

  static Status Run(KernelContext* ctx, VolumeConv& conv, const Tensor& in, const Tensor& filter,
                    const Tensor& out) {
    Tensor gathered, turned;
    if (in.num_elements() == 0) return ZeroOutput(ctx, conv.op, out);
    if (conv.by_planes) {
      RETURN_IF_ERROR(conv.GatherPlanes(in, &gathered));
      RETURN_IF_ERROR(conv.TurnedFilter(filter, &turned));
    }
    ArgShapes shapes(conv.op);
    const GemmParams params = PlanConv(&shapes, conv.s, /*nchw=*/false);
    RETURN_IF_ERROR(ToStatus(shapes));
    return RunProduct(ctx, params, conv.by_planes ? gathered : in, conv.by_planes ? turned : filter,
                      out);
  }

  VolumeAttrs attrs_;
  bool channels_first_ = false;
};
REGISTER_METAL_KERNEL(Conv3DOp, .Types("T", METAL_DEVICE_FLOATS));

// How many dimensions it is of the filter tells.
class ConvOp {
 public:
  static constexpr char kOp[] = "Conv";

  explicit ConvOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, Init(ctx)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Init(KernelConstruction* ctx) {
    std::string data_format;
    int64_t groups;
    RETURN_IF_ERROR(ctx->GetAttr("strides", &attrs_.strides));
    RETURN_IF_ERROR(ctx->GetAttr("dilations", &attrs_.dilations));
    RETURN_IF_ERROR(ctx->GetAttr("explicit_paddings", &attrs_.explicit_paddings));
    RETURN_IF_ERROR(ctx->GetAttr("padding", &attrs_.padding));
    RETURN_IF_ERROR(ctx->GetAttr("data_format", &data_format));
    RETURN_IF_ERROR(ctx->GetAttr("batch_dims", &batch_dims_));
    RETURN_IF_ERROR(ctx->GetAttr("groups", &groups));
    attrs_.nchw = data_format == "CHANNELS_FIRST";
    attrs_.groups = "Grouped/Depthwise Convolutions are not supported yet.";
    return groups == 1 ? Status() : Unimplemented(kOp, ": ", attrs_.groups);
  }

  Status Run(KernelContext* ctx) const {
    Tensor in, filter;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &filter));
    const int64_t dims = in.rank() - 1 - batch_dims_;
    if (dims != 2 && dims != 3) {
      return InvalidArgument(kOp, ": The input must have 2 or 3 spatial dimensions but got ", dims);
    }
    const auto n = static_cast<size_t>(dims + 2);
    if (filter.shape().size() != n) {
      return InvalidArgument(kOp, ": The filter must have ", n, " dimensions, got ",
                             ToString(filter.shape()));
    }
    if (attrs_.strides.size() != n) {
      return InvalidArgument(kOp, ": Sliding window strides field must specify ", n, " dimensions");
    }
    ConvAttrs attrs = attrs_;
    if (attrs.dilations.empty()) attrs.dilations.assign(n, 1);
    return dims == 2 ? Images(ctx, attrs, in, filter) : Volumes(ctx, std::move(attrs), filter);
  }

  // All dimensions of the batch are one.
  Status Images(KernelContext* ctx, const ConvAttrs& attrs, const Tensor& in,
                const Tensor& filter) const {
    const auto first = static_cast<size_t>(batch_dims_);
    const Shape batch = Dims(in.shape(), 0, first);
    Shape images = Dims(in.shape(), first, in.shape().size());
    images.insert(images.begin(), NumElements(batch));
    ArgShapes shapes(kOp);
    ConvSizes sizes;
    Tensor out;
    CheckConvAttrs(&shapes, attrs);
    RETURN_IF_ERROR(ToStatus(shapes));
    CheckConv(&shapes, attrs, ArgShape(images), ArgShape(filter.shape()), &sizes);
    RETURN_IF_ERROR(ToStatus(shapes));
    Shape shape = sizes.OutputShape(attrs.nchw);
    shape.erase(shape.begin());
    shape.insert(shape.begin(), batch.begin(), batch.end());
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    const GemmParams params = PlanConv(&shapes, sizes, attrs.nchw);
    RETURN_IF_ERROR(ToStatus(shapes));
    return RunProduct(ctx, params, in, filter, out);
  }

  Status Volumes(KernelContext* ctx, ConvAttrs attrs, const Tensor& filter) const {
    if (batch_dims_ != 1) {
      return Unimplemented(kOp, ": volumes with batch_dims ", batch_dims_, " are not provided on ",
                           "the METAL device, 1 is; reshape them, or place the op on the CPU");
    }
    VolumeAttrs volumes;
    Tensor in;
    const bool channels_first = attrs.nchw;
    attrs.nchw = false;
    volumes.conv = std::move(attrs);
    volumes.window.assign(5, 1);
    if (channels_first) {
      for (auto* const values : {&volumes.conv.strides, &volumes.conv.dilations}) {
        if (values->size() == 5) {
          std::rotate(values->begin() + 1, values->begin() + 2, values->end());
        }
      }
    }
    RETURN_IF_ERROR(volumes.Check(kOp, 5));
    RETURN_IF_ERROR(VolumesOf(ctx, kOp, 0, channels_first, &in));
    return Conv3DOp::Convolve(ctx, kOp, volumes, channels_first, in, filter);
  }

  ConvAttrs attrs_;
  int64_t batch_dims_ = 1;
};
REGISTER_METAL_KERNEL(ConvOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT32}));

Status CheckSlopes(const char* op, const Tensor& d_out, const Shape& shape) {
  if (d_out.shape() == shape) return Status();
  return InvalidArgument(op, ": out_backprop must have shape ", ToString(shape),
                         ", that of the convolution's output, got ", ToString(d_out.shape()));
}

Status HostSizes(KernelContext* ctx, const char* op, const char* name, int i, Shape* sizes) {
  Tensor tensor;
  RETURN_IF_ERROR(ctx->Input(i, &tensor));
  RETURN_IF_ERROR(Indices(op, name, tensor, sizes));
  if (sizes->size() == 5 && NumElements(*sizes) >= 0) return Status();
  return InvalidArgument(op, ": ", name, " must be 5 sizes >= 0, got ", ToString(*sizes));
}

class Conv3DInputGradOp {
 public:
  static constexpr char kOp[] = "Conv3DBackpropInputV2";

  explicit Conv3DInputGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetAttrs(ctx, kOp, &attrs_, &channels_first_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Shape shape;
    Tensor filter, d_out;
    VolumeConv conv(ctx, kOp);
    RETURN_IF_ERROR(HostSizes(ctx, kOp, "input_sizes", 0, &shape));
    if (channels_first_) shape = ChannelsLast(shape);
    RETURN_IF_ERROR(ctx->Input(1, &filter));
    RETURN_IF_ERROR(VolumesOf(ctx, kOp, 2, channels_first_, &d_out));
    RETURN_IF_ERROR(conv.Plan(attrs_, shape, filter.shape()));
    RETURN_IF_ERROR(CheckSlopes(kOp, d_out, conv.out_shape));
    return GiveVolumes(ctx, kOp, shape, channels_first_,
                       [&](const Tensor& d_in) { return Run(ctx, conv, filter, d_out, d_in); });
  }

  static Status Run(KernelContext* ctx, VolumeConv& conv, const Tensor& filter, const Tensor& d_out,
                    const Tensor& d_in) {
    Tensor turned, d_planes;
    if (d_out.num_elements() == 0) return ZeroOutput(ctx, kOp, d_in);
    if (!conv.by_planes) return ConvInputGrad(ctx, kOp, conv.s, false, filter, d_out, d_in);
    RETURN_IF_ERROR(conv.TurnedFilter(filter, &turned));
    RETURN_IF_ERROR(ctx->AllocateTemp(d_in.dtype(), conv.PlanesShape(), &d_planes));
    RETURN_IF_ERROR(ConvInputGrad(ctx, kOp, conv.s, false, turned, d_out, d_planes));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          VolumeShader("depth_patches_grad", conv.planes, d_in.dtype()),
          VolumeInGrid(conv.planes, d_in.dim(0), VolumeLanes(conv.planes, d_in.dtype())),
          {{"d_patches", d_planes}, {"d_in", d_in}, {"p", conv.planes}});
    });
  }

  VolumeAttrs attrs_;
  bool channels_first_ = false;
};
REGISTER_METAL_KERNEL(Conv3DInputGradOp,
                      .Types("T", METAL_DEVICE_FLOATS).HostMemory("input_sizes"));

class Conv3DFilterGradOp {
 public:
  static constexpr char kOp[] = "Conv3DBackpropFilterV2";

  explicit Conv3DFilterGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetAttrs(ctx, kOp, &attrs_, &channels_first_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Shape shape;
    Tensor in, d_out, d_filter, gathered, turned;
    VolumeConv conv(ctx, kOp);
    RETURN_IF_ERROR(VolumesOf(ctx, kOp, 0, channels_first_, &in));
    RETURN_IF_ERROR(HostSizes(ctx, kOp, "filter_sizes", 1, &shape));
    RETURN_IF_ERROR(VolumesOf(ctx, kOp, 2, channels_first_, &d_out));
    RETURN_IF_ERROR(conv.Plan(attrs_, in.shape(), shape));
    RETURN_IF_ERROR(CheckSlopes(kOp, d_out, conv.out_shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_filter));
    if (d_filter.num_elements() == 0) return Status();
    if (in.num_elements() == 0 || d_out.num_elements() == 0) return ZeroOutput(ctx, kOp, d_filter);
    if (!conv.by_planes) return ConvFilterGrad(ctx, kOp, conv.s, false, in, d_out, d_filter);
    RETURN_IF_ERROR(conv.GatherPlanes(in, &gathered));
    RETURN_IF_ERROR(ctx->AllocateTemp(d_filter.dtype(), shape, &turned));
    RETURN_IF_ERROR(ConvFilterGrad(ctx, kOp, conv.s, false, gathered, d_out, turned));
    return conv.TurnFilter(turned, d_filter, true);
  }

  VolumeAttrs attrs_;
  bool channels_first_ = false;
};
REGISTER_METAL_KERNEL(Conv3DFilterGradOp,
                      .Types("T", METAL_DEVICE_FLOATS).HostMemory("filter_sizes"));

}  // namespace
}  // namespace metal_ops
