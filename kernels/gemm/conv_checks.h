// Checks of a convolution's attributes and shapes, and its sizes, for every device.

#ifndef METAL_OPS_KERNELS_GEMM_CONV_CHECKS_H_
#define METAL_OPS_KERNELS_GEMM_CONV_CHECKS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

// The attributes, as they are written in the node.
struct ConvAttrs {
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> explicit_paddings;
  std::string padding = "VALID";
  bool nchw = false;
  // The remedy for groups; null where the kernel has them.
  const char* groups = "Grouped convolutions are not fused: use tf.nn.conv2d.";

  int dim_n() const { return 0; }
  int dim_h() const { return nchw ? 2 : 1; }
  int dim_w() const { return nchw ? 3 : 2; }
  int dim_c() const { return nchw ? 1 : 3; }
};

// One convolution's numbers: input [n, in_h, in_w, in_c], filter [filter_h, filter_w, in_c, out_c].
struct ConvSizes {
  int64_t n = 0, in_h = 0, in_w = 0, in_c = 0;
  int64_t filter_h = 0, filter_w = 0, out_c = 0;
  int64_t out_h = 0, out_w = 0;
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0;

  std::vector<int64_t> OutputShape(bool nchw) const {
    if (nchw) return {n, out_c, out_h, out_w};
    return {n, out_h, out_w, out_c};
  }
  // Whether it is a product of the matrices [n * in_h * in_w, in_c] and [in_c, out_c].
  bool is_product() const {
    return filter_h == 1 && filter_w == 1 && stride_h == 1 && stride_w == 1 && out_h == in_h &&
           out_w == in_w && pad_top == 0 && pad_left == 0;
  }
};

// Not as a shape, whose -1 means unknown.
inline std::string ToText(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

inline void CheckConvAttrs(ArgShapes* shapes, const ConvAttrs& attrs) {
  const auto per_dim = [&](const char* name, const std::vector<int64_t>& values) {
    shapes->Require(values.size() == 4, std::string(name) + " must have 4 values, got " +
                                            std::to_string(values.size()) + ".");
    if (!shapes->ok()) return;
    shapes->Require(values[attrs.dim_n()] == 1 && values[attrs.dim_c()] == 1,
                    std::string(name) + " must be 1 for batch and channels, got " + ToText(values) +
                        " with " + (attrs.nchw ? "NCHW" : "NHWC") + ".");
    const int64_t h = values[attrs.dim_h()], w = values[attrs.dim_w()];
    shapes->Require(h >= 1 && w >= 1 && h <= INT32_MAX && w <= INT32_MAX,
                    std::string(name) + " must be from 1 to 2^31 - 1, got " + ToText(values) + ".");
  };
  per_dim("strides", attrs.strides);
  per_dim("dilations", attrs.dilations);
  if (!shapes->ok()) return;
  const std::vector<int64_t>& paddings = attrs.explicit_paddings;
  if (attrs.padding != "EXPLICIT") {
    shapes->Require(paddings.empty(), "explicit_paddings must be empty with padding " +
                                          attrs.padding + ", got " + ToText(paddings) + ".");
    return;
  }
  shapes->Require(
      paddings.size() == 8,
      "explicit_paddings must have 8 values, before and after for each dimension, got " +
          std::to_string(paddings.size()) + ".");
  if (!shapes->ok()) return;
  bool in_range = true;
  for (const int64_t padding : paddings)
    in_range = in_range && padding >= 0 && padding <= INT32_MAX;
  shapes->Require(in_range,
                  "explicit_paddings must be from 0 to 2^31 - 1, got " + ToText(paddings) + ".");
  const int n = 2 * attrs.dim_n(), c = 2 * attrs.dim_c();
  shapes->Require(
      paddings[n] == 0 && paddings[n + 1] == 0 && paddings[c] == 0 && paddings[c + 1] == 0,
      "explicit_paddings must be 0 for batch and channels, got " + ToText(paddings) + " with " +
          (attrs.nchw ? "NCHW" : "NHWC") + ".");
}

// Channels of input and filter, where both are known.
inline void CheckConvChannels(ArgShapes* shapes, const ConvAttrs& attrs, int64_t input,
                              int64_t filter) {
  if (input < 0 || filter < 0 || input == filter) return;
  const bool grouped = filter > 0 && input > 0 && input % filter == 0;
  if (grouped && attrs.groups == nullptr) return;
  shapes->Require(false, "filter must have as many input channels as input, " +
                             std::to_string(input) + ", got " + std::to_string(filter) + "." +
                             (grouped ? std::string(" ") + attrs.groups : ""));
}

// Output size and padding before along one dimension.
inline void ConvDim(ArgShapes* shapes, const char* name, const ConvAttrs& attrs, int dim,
                    int64_t input, int64_t filter, int64_t* output, int64_t* before) {
  // Sizes beyond this only come with empty tensors; their products would overflow.
  shapes->Require(input <= INT32_MAX && filter <= INT32_MAX,
                  "at most 2^31 - 1 points along " + std::string(name) + " are provided, got " +
                      std::to_string(std::max(input, filter)) + ". Split the tensor.");
  if (!shapes->ok()) return;
  const int64_t stride = attrs.strides[dim];
  const int64_t extent = filter > 0 ? (filter - 1) * attrs.dilations[dim] + 1 : 0;
  *before = 0;
  int64_t after = 0;
  if (attrs.padding == "SAME") {
    *output = (input + stride - 1) / stride;
    const int64_t padding = std::max<int64_t>(0, (*output - 1) * stride + extent - input);
    *before = padding / 2;
    after = padding - *before;
  } else {
    if (attrs.padding == "EXPLICIT") {
      *before = attrs.explicit_paddings[2 * dim];
      after = attrs.explicit_paddings[2 * dim + 1];
    }
    const int64_t room = input + *before + after - extent;
    *output = room < 0 ? -1 : room / stride + 1;
  }
  shapes->Require(*output >= 0 && filter > 0,
                  "filter must fit into input along " + std::string(name) + ", got " +
                      std::to_string(filter) + " (" + std::to_string(extent) +
                      " with dilation) for " + std::to_string(input) + " with padding " +
                      std::to_string(*before) + " and " + std::to_string(after) + ".");
}

// Dimensions of input and filter, where they are known.
inline void CheckConvRanks(ArgShapes* shapes, const ConvAttrs& attrs, const ArgShape& input,
                           const ArgShape& filter) {
  shapes->Require(!input.known_rank || input.rank() == 4,
                  std::string("input must have shape [batch, ") +
                      (attrs.nchw ? "channels, height, width]" : "height, width, channels]") +
                      ", got " + ToText(input) + ".");
  shapes->Require(!filter.known_rank || filter.rank() == 4,
                  "filter must have shape [height, width, channels, output channels], got " +
                      ToText(filter) + ".");
}

// Shapes of input and filter, all known.
inline void CheckConv(ArgShapes* shapes, const ConvAttrs& attrs, const ArgShape& input,
                      const ArgShape& filter, ConvSizes* sizes) {
  CheckConvRanks(shapes, attrs, input, filter);
  if (!shapes->ok()) return;
  CheckConvChannels(shapes, attrs, input.dims[attrs.dim_c()], filter.dims[2]);
  ConvSizes s;
  s.n = input.dims[0];
  s.in_h = input.dims[attrs.dim_h()];
  s.in_w = input.dims[attrs.dim_w()];
  s.in_c = input.dims[attrs.dim_c()];
  s.filter_h = filter.dims[0];
  s.filter_w = filter.dims[1];
  s.out_c = filter.dims[3];
  s.stride_h = attrs.strides[attrs.dim_h()];
  s.stride_w = attrs.strides[attrs.dim_w()];
  s.dilation_h = attrs.dilations[attrs.dim_h()];
  s.dilation_w = attrs.dilations[attrs.dim_w()];
  ConvDim(shapes, "height", attrs, attrs.dim_h(), s.in_h, s.filter_h, &s.out_h, &s.pad_top);
  ConvDim(shapes, "width", attrs, attrs.dim_w(), s.in_w, s.filter_w, &s.out_w, &s.pad_left);
  if (shapes->ok()) *sizes = s;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_CONV_CHECKS_H_
