// Windows that move over images: the attributes of pools, sizes for the shaders of spatial.metal and
// spatial_grad.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_WINDOWS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_WINDOWS_H_

#include <string>
#include <vector>

#include "device/kernels/nn/conv_attrs.h"
#include "device/kernels/nn/spatial_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {

// `sizes` are those of a convolution with this window; its out_c are the output's channels. No
// tensor of it is empty.
inline Status PlanWindows(const char* op, const ConvSizes& s, bool nchw, WindowParams* result) {
  for (const int64_t size : {s.in_h, s.in_w, s.in_c, s.out_h, s.out_w, s.out_c, s.n,
                             s.out_h * s.stride_h + s.filter_h * s.dilation_h,
                             s.out_w * s.stride_w + s.filter_w * s.dilation_w,
                             s.n * (nchw ? s.out_c : s.out_h), s.n * (nchw ? s.in_c : s.in_h)}) {
    if (size > INT32_MAX) {
      return Unimplemented(op, ": images of ", s.in_h, " x ", s.in_w, ", ", s.n, " with ", s.in_c,
                           " channels,"
                           " are too large for the METAL device; use a smaller batch");
    }
  }
  WindowParams& params = *result;
  params = {};
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
  return Status();
}

// Channels that one thread computes: the lanes of spatial.metal.
inline int64_t WindowLanes(const ConvSizes& s, bool nchw) {
  if (nchw || s.in_c != s.out_c || s.in_c % WINDOW_LANES != 0) return 1;
  const bool many = s.in_c % WINDOW_MANY_LANES == 0 && !ThreadgroupsRunAtOnce();
  return many ? WINDOW_MANY_LANES : WINDOW_LANES;
}
inline Shader WindowShader(const char* stem, DType dtype, const ConvSizes& s, bool nchw) {
  const int64_t lanes = WindowLanes(s, nchw);
  if (lanes == 1) return Shader(stem, dtype);
  return Shader(stem, lanes == WINDOW_LANES ? "lanes" : "many_lanes", dtype);
}
// A thread per element, or as many as there are lanes, of the output, or of the input.
inline Grid OutputGrid(const ConvSizes& s, bool nchw) {
  return nchw ? Grid(s.out_w, s.out_h, s.n * s.out_c)
              : Grid(s.out_c / WindowLanes(s, nchw), s.out_w, s.n * s.out_h);
}
inline Grid InputGrid(const ConvSizes& s, bool nchw) {
  return nchw ? Grid(s.in_w, s.in_h, s.n * s.in_c)
              : Grid(s.in_c / WindowLanes(s, nchw), s.in_w, s.n * s.in_h);
}

struct PoolAttrs {
  ConvAttrs conv;
  std::vector<int64_t> window;
  int64_t depth = 1;  // channels that one window has, where a pool is over these

  Status Get(KernelConstruction* ctx, const char* op, bool has_explicit, bool has_depth) {
    std::string data_format;
    RETURN_IF_ERROR(ctx->GetAttr("ksize", &window));
    RETURN_IF_ERROR(ctx->GetAttr("strides", &conv.strides));
    RETURN_IF_ERROR(ctx->GetAttr("padding", &conv.padding));
    RETURN_IF_ERROR(ctx->GetAttr("data_format", &data_format));
    if (has_explicit) {
      RETURN_IF_ERROR(ctx->GetAttr("explicit_paddings", &conv.explicit_paddings));
    }
    conv.nchw = data_format == "NCHW";
    conv.dilations = {1, 1, 1, 1};
    if (data_format != "NHWC" && !conv.nchw) {
      return Unimplemented(op, ": data_format ", data_format,
                           " is not provided on the METAL device, use NHWC or NCHW");
    }
    if (has_depth && window.size() == 4 && !conv.nchw && window[3] > 1) {
      RETURN_IF_ERROR(TakeDepth(op));
    }
    ArgShapes shapes(op);
    CheckConvAttrs(&shapes, conv);
    RETURN_IF_ERROR(ToStatus(shapes));
    if (window.size() != 4 || window[0] != 1 || window[conv.dim_c()] != 1 ||
        window[conv.dim_h()] <= 0 || window[conv.dim_w()] <= 0) {
      return Unimplemented(op, ": ksize must be 1 for batch and channels on the METAL device, got ",
                           ToString(window), "; place the op on the CPU");
    }
    return CheckPoolPaddings(op, conv, window);
  }

  // As TensorFlow's CPU has it: over channels alone, and no channel twice.
  Status TakeDepth(const char* op) {
    if (window[1] != 1 || window[2] != 1) {
      return Unimplemented(op, ": pooling is over exactly one of pooling across depth or pooling ",
                           "across width and height, got ksize ", ToString(window));
    }
    if (conv.strides != window) {
      return Unimplemented(op, ": Depthwise max pooling requires the depth window to equal the ",
                           "depth stride, got ksize ", ToString(window), " and strides ",
                           ToString(conv.strides));
    }
    depth = window[3];
    window[3] = conv.strides[3] = 1;
    return Status();
  }

  // An input [..., channels] as images whose rows are its channels.
  Status DepthSizes(const char* op, const Shape& shape, ConvSizes* s, Shape* out) const {
    if (shape.size() != 4 || shape[3] % depth != 0) {
      return Unimplemented(
          op, ": Depthwise max pooling requires the depth window to evenly divide ",
          "the input depth, got a window of ", depth, " for input ", ToString(shape));
    }
    *out = {shape[0], shape[1], shape[2], shape[3] / depth};
    *s = ConvSizes();
    s->n = shape[0];
    s->in_h = s->out_h = shape[1] * shape[2];
    s->in_w = shape[3];
    s->out_w = out->back();
    s->in_c = s->out_c = s->filter_h = s->stride_h = s->dilation_h = s->dilation_w = 1;
    s->filter_w = s->stride_w = depth;
    return Status();
  }

  // For an input of `shape`.
  Status Sizes(const char* op, const Shape& shape, ConvSizes* sizes) const {
    ArgShapes shapes(op);
    const ArgShape input(shape);
    shapes.Require(input.rank() == 4, "input must have 4 dimensions, got " + ToText(input) + ".");
    RETURN_IF_ERROR(ToStatus(shapes));
    const int64_t channels = input.dims[conv.dim_c()];
    CheckConv(&shapes, conv, input,
              ArgShape({window[conv.dim_h()], window[conv.dim_w()], channels, channels}), sizes);
    return ToStatus(shapes);
  }
};

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_WINDOWS_H_
