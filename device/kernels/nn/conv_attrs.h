// A convolution's attributes in Metal kernels.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_CONV_ATTRS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_CONV_ATTRS_H_

#include <string>
#include <vector>

#include "kernels/gemm/conv_checks.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

inline Status GetConvAttrs(KernelConstruction* ctx, const char* op, ConvAttrs* attrs) {
  std::string data_format;
  RETURN_IF_ERROR(ctx->GetAttr("strides", &attrs->strides));
  RETURN_IF_ERROR(ctx->GetAttr("dilations", &attrs->dilations));
  RETURN_IF_ERROR(ctx->GetAttr("explicit_paddings", &attrs->explicit_paddings));
  RETURN_IF_ERROR(ctx->GetAttr("padding", &attrs->padding));
  RETURN_IF_ERROR(ctx->GetAttr("data_format", &data_format));
  attrs->nchw = data_format == "NCHW";
  ArgShapes shapes(op);
  CheckConvAttrs(&shapes, *attrs);
  return ToStatus(shapes);
}

// A pool's window lies on its input at least partly.
inline Status CheckPoolPaddings(const char* op, const ConvAttrs& conv,
                                const std::vector<int64_t>& window) {
  if (conv.padding != "EXPLICIT") return Status();
  constexpr const char* kSides[] = {"Top", "Bottom", "Left", "Right"};
  for (int i = 0; i < 4; ++i) {
    const int64_t padding = conv.explicit_paddings[2 * conv.dim_h() + i];
    const int64_t size = window[conv.dim_h() + i / 2];
    if (padding < size) continue;
    return InvalidArgument(op, ": explicit_paddings: ", kSides[i], " padding ", padding,
                           " needs to be smaller than the window size ", size);
  }
  return Status();
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_CONV_ATTRS_H_
