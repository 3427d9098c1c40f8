// Checks of a product of batched matrices, and its sizes, for every device.

#ifndef METAL_OPS_KERNELS_GEMM_MATMUL_CHECKS_H_
#define METAL_OPS_KERNELS_GEMM_MATMUL_CHECKS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

// Products of [m, k] and [k, n]. The batch dimensions decide which matrices of a and b make which
// of the product: strides in matrices, 0 where one is repeated.
struct MatMulSizes {
  int64_t m = 0, k = 0, n = 0;
  std::vector<int64_t> batch;
  std::vector<int64_t> a_strides, b_strides;

  int64_t n_products() const {
    int64_t product = 1;
    for (const int64_t size : batch) product *= size;
    return product;
  }
  // The matrix of a or b that product `i` is made of.
  static int64_t Matrix(const std::vector<int64_t>& batch, const std::vector<int64_t>& strides,
                        int64_t i) {
    int64_t matrix = 0;
    for (size_t d = batch.size(); d-- > 0;) {
      matrix += i % batch[d] * strides[d];
      i /= batch[d];
    }
    return matrix;
  }
  std::vector<int64_t> OutputShape() const {
    std::vector<int64_t> shape = batch;
    shape.push_back(m);
    shape.push_back(n);
    return shape;
  }
};

// Checks of shape functions and kernels; sizes may be unknown. `output` gets the product's shape.
inline void CheckMatMul(ArgShapes* shapes, const ArgShape& a, const ArgShape& b, bool transpose_a,
                        bool transpose_b, ArgShape* output) {
  *output = ArgShape();
  shapes->Require(a.rank() < 0 || a.rank() >= 2,
                  "a must have at least 2 dimensions, got " + ToText(a) + ".");
  shapes->Require(b.rank() < 0 || b.rank() >= 2,
                  "b must have at least 2 dimensions, got " + ToText(b) + ".");
  if (!shapes->ok() || a.rank() < 0 || b.rank() < 0) return;
  const int ra = a.rank(), rb = b.rank();
  const int64_t ka = a.dims[transpose_a ? ra - 2 : ra - 1];
  const int64_t kb = b.dims[transpose_b ? rb - 1 : rb - 2];
  shapes->Require(
      ka < 0 || kb < 0 || ka == kb,
      "Matrix size-incompatible: a and b must agree in the dimension that is summed over, got " +
          ToText(a) + (transpose_a ? " (transposed)" : "") + " and " + ToText(b) +
          (transpose_b ? " (transposed)" : "") + ".");
  std::vector<int64_t> dims;
  const int batch_dims = std::max(ra, rb) - 2;
  for (int i = 0; i < batch_dims; ++i) {
    const int ia = i - (batch_dims - (ra - 2)), ib = i - (batch_dims - (rb - 2));
    const int64_t da = ia < 0 ? 1 : a.dims[ia], db = ib < 0 ? 1 : b.dims[ib];
    shapes->Require(da < 0 || db < 0 || da == db || da == 1 || db == 1,
                    "the batch dimensions of a and b must be equal or 1, got " + ToText(a) +
                        " and " + ToText(b) + ".");
    // An unknown one is the other, unless that is 1.
    dims.push_back(da == 1 ? db : db == 1 ? da : da < 0 ? db : da);
  }
  dims.push_back(a.dims[transpose_a ? ra - 1 : ra - 2]);
  dims.push_back(b.dims[transpose_b ? rb - 2 : rb - 1]);
  if (shapes->ok()) *output = ArgShape(dims);
}

// After CheckMatMul, with all shapes known.
inline MatMulSizes ToMatMulSizes(const ArgShape& a, const ArgShape& b, bool transpose_a,
                                 const ArgShape& output) {
  MatMulSizes sizes;
  const int rank = output.rank();
  sizes.m = output.dims[rank - 2];
  sizes.n = output.dims[rank - 1];
  sizes.k = a.dims[transpose_a ? a.rank() - 2 : a.rank() - 1];
  sizes.batch.assign(output.dims.begin(), output.dims.end() - 2);
  const auto strides = [&](const ArgShape& shape) {
    std::vector<int64_t> result(rank - 2, 0);
    int64_t step = 1;
    for (int i = shape.rank() - 3, d = rank - 3; i >= 0; --i, --d) {
      if (shape.dims[i] != 1) result[d] = step;
      step *= shape.dims[i];
    }
    return result;
  };
  sizes.a_strides = strides(a);
  sizes.b_strides = strides(b);
  return sizes;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_MATMUL_CHECKS_H_
