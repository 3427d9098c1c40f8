// A convolution's attributes in Metal kernels.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_CONV_ATTRS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_CONV_ATTRS_H_

#include <string>

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

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_CONV_ATTRS_H_
