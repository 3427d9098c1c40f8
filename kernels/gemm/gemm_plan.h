// Convolutions and products of matrices as GemmParams, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_PLAN_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gemm/conv_checks.h"
#include "kernels/gemm/gemm_params.h"
#include "kernels/gemm/matmul_checks.h"
#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

// The length of the sums.
inline int64_t GemmDepth(const GemmParams& params) {
  return int64_t{params.filter_h} * params.filter_w * params.depth;
}

inline int64_t GemmProducts(const GemmParams& params) {
  int64_t products = 1;
  for (const uint32_t size : params.batch) products *= size;
  return products;
}

// One image of one line under one point, to be filled in.
inline GemmParams EmptyGemm() {
  GemmParams params = {};
  for (uint32_t& size : params.batch) size = 1;
  params.out_h = params.in_h = 1;
  params.filter_h = params.filter_w = 1;
  params.stride_h = params.stride_w = params.dilation_h = params.dilation_w = 1;
  return params;
}

inline void RequireUInt32(ArgShapes* shapes, const char* what, int64_t value) {
  shapes->Require(value >= 0 && value <= INT32_MAX,
                  std::string("at most 2^31 - 1 ") + what + " are provided, got " +
                      std::to_string(value) + ". Split the tensor.");
}

// A convolution without empty tensors.
inline GemmParams PlanConv(ArgShapes* shapes, const ConvSizes& s, bool nchw) {
  GemmParams params = EmptyGemm();
  params.rows = s.n * s.out_h * s.out_w;
  params.b_row = s.out_c;
  params.b_column = 1;
  for (const int64_t size : {s.in_h, s.in_w, s.in_c, s.out_h, s.out_w, s.out_c}) {
    RequireUInt32(shapes, "points along a dimension", size);
  }
  if (!shapes->ok()) return params;
  RequireUInt32(shapes, "points of an image", s.out_h * s.out_w);
  // All sizes are those of tensors with elements, so that this product has not overflowed.
  RequireUInt32(shapes, "elements of a sum", s.filter_h * s.filter_w * s.in_c);
  params.columns = static_cast<uint32_t>(s.out_c);
  params.depth = static_cast<uint32_t>(s.in_c);
  if (!nchw && s.is_product() && params.rows <= INT32_MAX) {
    params.out_w = params.in_w = static_cast<uint32_t>(params.rows);
    params.a_x = s.in_c;
    params.a_c = 1;
    params.out_point = s.out_c;
    params.out_column = 1;
    return params;
  }
  params.a_image = s.in_h * s.in_w * s.in_c;
  params.a_y = nchw ? s.in_w : s.in_w * s.in_c;
  params.a_x = nchw ? 1 : s.in_c;
  params.a_c = nchw ? s.in_h * s.in_w : 1;
  params.out_image = s.out_h * s.out_w * s.out_c;
  params.out_point = nchw ? 1 : s.out_c;
  params.out_column = nchw ? s.out_h * s.out_w : 1;
  params.out_h = static_cast<uint32_t>(s.out_h);
  params.out_w = static_cast<uint32_t>(s.out_w);
  params.in_h = static_cast<uint32_t>(s.in_h);
  params.in_w = static_cast<uint32_t>(s.in_w);
  // Shaders find points in 32 bits: (out - 1) stride + (filter - 1) dilation.
  RequireUInt32(shapes, "points along the height with padding",
                s.out_h * s.stride_h + s.filter_h * s.dilation_h);
  RequireUInt32(shapes, "points along the width with padding",
                s.out_w * s.stride_w + s.filter_w * s.dilation_w);
  params.filter_h = static_cast<uint32_t>(s.filter_h);
  params.filter_w = static_cast<uint32_t>(s.filter_w);
  params.stride_h = static_cast<uint32_t>(s.stride_h);
  params.stride_w = static_cast<uint32_t>(s.stride_w);
  params.dilation_h = static_cast<uint32_t>(s.dilation_h);
  params.dilation_w = static_cast<uint32_t>(s.dilation_w);
  params.pad_top = static_cast<int32_t>(s.pad_top);
  params.pad_left = static_cast<int32_t>(s.pad_left);
  return params;
}

// Products without empty tensors.
inline GemmParams PlanMatMul(ArgShapes* shapes, const MatMulSizes& s, bool transpose_a,
                             bool transpose_b) {
  struct Dim {
    int64_t size, a, b;
  };
  std::vector<Dim> dims;  // innermost first
  for (size_t i = s.batch.size(); i-- > 0;) {
    const Dim dim = {s.batch[i], s.a_strides[i], s.b_strides[i]};
    if (dim.size == 1) continue;
    if (!dims.empty() && dim.a == dims.back().a * dims.back().size &&
        dim.b == dims.back().b * dims.back().size) {
      dims.back().size *= dim.size;
    } else {
      dims.push_back(dim);
    }
  }
  GemmParams params = EmptyGemm();
  params.rows = s.m;
  // One b for all: the matrices of a are one tall one.
  if (!transpose_a && !dims.empty() && dims[0].b == 0 && dims[0].a == 1) {
    params.rows *= dims[0].size;
    dims.erase(dims.begin());
  }
  shapes->Require(dims.size() <= GEMM_BATCH_DIMS,
                  "the batch dimensions of a and b alternate more than " +
                      std::to_string(GEMM_BATCH_DIMS) +
                      " times. Reshape or broadcast one of them.");
  RequireUInt32(shapes, "rows", params.rows);
  RequireUInt32(shapes, "columns", s.n);
  RequireUInt32(shapes, "elements of a sum", s.k);
  if (!shapes->ok()) return params;
  for (size_t i = 0; i < dims.size(); ++i) {
    RequireUInt32(shapes, "matrices along a dimension", dims[i].size);
    params.batch[i] = static_cast<uint32_t>(dims[i].size);
    params.a_batch[i] = dims[i].a * s.m * s.k;
    params.b_batch[i] = dims[i].b * s.k * s.n;
  }
  params.columns = static_cast<uint32_t>(s.n);
  params.depth = static_cast<uint32_t>(s.k);
  params.out_w = params.in_w = static_cast<uint32_t>(params.rows);
  params.a_x = transpose_a ? 1 : s.k;
  params.a_c = transpose_a ? s.m : 1;
  params.b_row = transpose_b ? 1 : s.n;
  params.b_column = transpose_b ? s.k : 1;
  params.out_point = s.n;
  params.out_column = 1;
  params.out_batch = params.rows * s.n;
  return params;
}

// Where the matrices of product `i` begin.
struct GemmOffsets {
  int64_t a = 0, b = 0, out = 0;
};
inline GemmOffsets OffsetsOf(const GemmParams& params, int64_t i) {
  GemmOffsets offsets;
  offsets.out = i * params.out_batch;
  for (int d = 0; d < GEMM_BATCH_DIMS; ++d) {
    const int64_t at = i % params.batch[d];
    i /= params.batch[d];
    offsets.a += at * params.a_batch[d];
    offsets.b += at * params.b_batch[d];
  }
  return offsets;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_PLAN_H_
