// Windows that move over volumes and images: attributes, checks and sizes for the shaders of
// volume.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_VOLUMES_H_
#define METAL_OPS_DEVICE_KERNELS_NN_VOLUMES_H_

#include <string>
#include <vector>

#include "device/kernels/layout.h"
#include "device/kernels/nn/conv_attrs.h"
#include "device/kernels/nn/volume_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// For tensors of 4 dimensions (images) or 5 (volumes), channels last unless said.
struct VolumeAttrs {
  std::vector<int64_t> window;
  ConvAttrs conv;  // its vectors are as long as tensors have dimensions; nchw: channels first

  size_t rank() const { return window.size(); }
  size_t channels_dim() const { return conv.nchw ? 1 : rank() - 1; }
  size_t first_dim() const { return conv.nchw ? 2 : 1; }
  size_t spatial_dims() const { return rank() - 2; }

  Status SetFormat(const char* op, const std::string& data_format) {
    conv.nchw = data_format == "NCHW" || data_format == "NCDHW";
    if (conv.nchw || data_format == "NHWC" || data_format == "NDHWC") return Status();
    return Unimplemented(op, ": data_format ", data_format,
                         " is not provided on the METAL device, use NHWC or NDHWC");
  }

  // For tensors of `dims` dimensions.
  Status Check(const char* op, size_t dims) const {
    const struct {
      const char* name;
      const std::vector<int64_t>& values;
    } lists[] = {{"ksize", window}, {"strides", conv.strides}, {"rates", conv.dilations}};
    for (const auto& list : lists) {
      if (list.values.size() != dims) {
        return InvalidArgument(op, ": ", list.name, " must have ", dims, " values, got ",
                               ToString(list.values));
      }
      for (size_t d = 0; d < dims; ++d) {
        const int64_t value = list.values[d];
        if (value < 1 || value > INT32_MAX) {
          return InvalidArgument(op, ": ", list.name, " must be from 1 to 2^31 - 1, got ",
                                 ToString(list.values));
        }
        if (value != 1 && (d == 0 || d == channels_dim())) {
          return Unimplemented(op, ": ", list.name,
                               " must be 1 for batch and channels on the METAL device, got ",
                               ToString(list.values), "; place the op on the CPU");
        }
      }
    }
    const size_t paddings = conv.padding == "EXPLICIT" ? 2 * dims : 0;
    if (conv.explicit_paddings.size() == paddings) return CheckPoolPaddings(op, conv, window);
    return InvalidArgument(op, ": explicit_paddings must have ", paddings, " values with padding ",
                           conv.padding, ", got ", ToString(conv.explicit_paddings));
  }

  // For an input of `shape`; `out` is the pooled shape. No tensor may be empty where the shaders run.
  Status Plan(const char* op, const Shape& shape, VolumeParams* p, Shape* out) const {
    if (shape.size() != rank()) {
      return InvalidArgument(op, ": input must have ", rank(), " dimensions, got ",
                             ToString(shape));
    }
    static const char* const kNames[] = {"depth", "height", "width"};
    const size_t dims = spatial_dims();
    ArgShapes shapes(op);
    // An image's depth is 1.
    int64_t in[3] = {1, 1, 1}, size[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
    uint32_t of_window[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
    *out = shape;
    for (size_t i = 3 - dims; i < 3; ++i) {
      const size_t d = first_dim() + i - (3 - dims);
      in[i] = shape[d];
      of_window[i] = static_cast<uint32_t>(window[d]);
      stride[i] = static_cast<uint32_t>(conv.strides[d]);
      dilation[i] = static_cast<uint32_t>(conv.dilations[d]);
      ConvDim(&shapes, kNames[i], conv, static_cast<int>(d), in[i], window[d], &size[i], &pad[i]);
      if (!shapes.ok()) return ToStatus(shapes);
      (*out)[d] = size[i];
    }
    const int64_t channels = shape[channels_dim()];
    for (const int64_t count : {shape[0] * in[0], shape[0] * size[0], in[1], size[1],
                                in[2] * channels, size[2] * channels}) {
      RETURN_IF_ERROR(CheckGrid(op, "points", count));
    }
    *p = {};
    Strides(in, channels, &p->in_volume);
    Strides(size, channels, &p->out_volume);
    p->in_d = static_cast<uint32_t>(in[0]);
    p->in_h = static_cast<uint32_t>(in[1]);
    p->in_w = static_cast<uint32_t>(in[2]);
    p->out_d = static_cast<uint32_t>(size[0]);
    p->out_h = static_cast<uint32_t>(size[1]);
    p->out_w = static_cast<uint32_t>(size[2]);
    p->channels = static_cast<uint32_t>(channels);
    p->window_d = of_window[0];
    p->window_h = of_window[1];
    p->window_w = of_window[2];
    p->stride_d = stride[0];
    p->stride_h = stride[1];
    p->stride_w = stride[2];
    p->dilation_d = dilation[0];
    p->dilation_h = dilation[1];
    p->dilation_w = dilation[2];
    p->pad_front = static_cast<int32_t>(pad[0]);
    p->pad_top = static_cast<int32_t>(pad[1]);
    p->pad_left = static_cast<int32_t>(pad[2]);
    return Status();
  }

 private:
  // A volume's z, y, x, c.
  void Strides(const int64_t (&size)[3], int64_t channels, int64_t* strides) const {
    const int64_t step = conv.nchw ? 1 : channels;
    strides[0] = size[0] * size[1] * size[2] * channels;
    strides[1] = size[1] * size[2] * step;
    strides[2] = size[2] * step;
    strides[3] = step;
    strides[4] = conv.nchw ? size[0] * size[1] * size[2] : 1;
  }
};

// Channels that one thread computes: the lanes of volume.metal, which has them of floats.
inline int64_t VolumeLanes(const VolumeParams& p, DType dtype) {
  const bool floats = dtype == DType::kFloat || dtype == DType::kHalf || dtype == DType::kBfloat16;
  if (!floats || p.in_c != 1 || p.out_c != 1 || p.channels % VOLUME_LANES != 0) return 1;
  const bool many = p.channels % VOLUME_MANY_LANES == 0 && !ThreadgroupsRunAtOnce();
  return many ? VOLUME_MANY_LANES : VOLUME_LANES;
}
inline Shader VolumeShader(const char* stem, const VolumeParams& p, DType dtype) {
  const int64_t lanes = VolumeLanes(p, dtype);
  if (lanes == 1) return Shader(stem, dtype);
  return Shader(stem, lanes == VOLUME_LANES ? "lanes" : "many_lanes", dtype);
}
// A thread per element, or as many as there are lanes, of the input, or of the output.
inline Grid VolumeInGrid(const VolumeParams& p, int64_t volumes, int64_t lanes) {
  return Grid(int64_t{p.in_w} * p.channels / lanes, p.in_h, volumes * p.in_d);
}
inline Grid VolumeOutGrid(const VolumeParams& p, int64_t volumes, int64_t lanes) {
  return Grid(int64_t{p.out_w} * p.channels / lanes, p.out_h, volumes * p.out_d);
}

// The unsigned integer of an element's size: for ops that only move elements.
inline DType Bits(const Tensor& tensor) {
  switch (tensor.element_bytes()) {
    case 1:
      return DType::kUint8;
    case 2:
      return DType::kUint16;
    case 4:
      return DType::kUint32;
    default:
      return DType::kUint64;
  }
}

inline Status CheckShapeOf(const char* op, const char* name, const Tensor& tensor,
                           const Shape& shape) {
  if (tensor.shape() == shape) return Status();
  return InvalidArgument(op, ": Expected ", name, " shape to be ", ToString(shape), ", got ",
                         ToString(tensor.shape()));
}

// Patches of `in`, whose channels are neighbours, into `out`, rows of `row` elements.
inline Status EncodePatches(Encoder& encoder, const Tensor& in, const VolumeParams& p, int64_t row,
                            int64_t rows, const Tensor& out) {
  const bool lanes = p.channels % VOLUME_LANES == 0;
  const bool many = p.channels % VOLUME_MANY_LANES == 0 && !ThreadgroupsRunAtOnce();
  const char* const stem = many ? "patches_many_lanes" : lanes ? "patches_lanes" : "patches";
  const int64_t width = many ? VOLUME_MANY_LANES : lanes ? VOLUME_LANES : 1;
  return encoder.Launch({stem, Bits(in)}, Grid(row / width, p.out_w, rows),
                        {{"in", Value(in).Untyped()}, {"out", Value(out).Untyped()}, {"p", p}});
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_VOLUMES_H_
