// Convolutions of images NHWC by warpgroup products: see conv_warpgroups.metal.h. GPUs whose matrix unit reads
// threadgroup memory take them, and METAL_OPS_GEMM=warpgroups asks for them.

#ifndef METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_H_
#define METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_H_

#include <initializer_list>

#include "kernels/gemm/conv_checks.h"
#include "kernels/gemm/conv_warpgroups_params.h"
#include "kernels/gemm/gemm.h"

namespace metal_ops {

// A GPU with such a unit has so many.
constexpr int64_t kMultiprocessors = 132;

// A shader's block: the threadgroups of products of so many rows and columns, and the memory of each.
struct ConvBlock {
  const char* name;
  int64_t rows, columns, stages, behind;

  int64_t groups(int64_t product_rows, int64_t product_columns) const;
  size_t bytes() const;
  Grid grid(int64_t product_rows, int64_t product_columns, int64_t products) const;
};
const ConvBlock& ChooseConvBlock(int64_t rows, int64_t columns, int64_t products, size_t memory);
const ConvBlock& TallConvBlock(size_t memory);

ConvGroupsParams ConvGroupsOf(const ConvSizes& sizes);

// Whether a convolution NHWC of these sizes, or a gradient, goes so, which reads these tensors. A threadgroup has at
// most `memory` bytes.
Status ConvGoesByWarpgroups(const ConvSizes& sizes, std::initializer_list<const Tensor*> read,
                            size_t memory, bool* goes);

// Encodes a convolution that is no plain product, if it goes so.
Status RunConvByWarpgroups(Encoder& encoder, const GemmParams& params, const Tensor& a,
                           const Tensor& b, const GemmEpilogue* epilogue, const Tensor& out,
                           bool* ran);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_H_
