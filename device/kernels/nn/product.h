// Products of matrices within kernels of other ops.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_H_
#define METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_H_

#include "device/kernels/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_plan.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// Calls run(stream, floats) with the arguments of the products of kernels/gemm.
template <typename Run>
Status WithFloats(KernelContext* ctx, const Run& run) {
  void* stream = nullptr;
  RETURN_IF_ERROR(ctx->Stream(&stream));
  const auto floats = [&](const Shape& shape, Tensor* tensor) {
    return ctx->AllocateTemp(DType::kFloat, shape, tensor);
  };
  return run(static_cast<id<TF_MetalStream>>(stream), floats);
}

// For integers and complex numbers, which kernels/gemm does not have. `conjugated`: 1 if a is, 2 if
// b is.
Status RunOtherProduct(KernelContext* ctx, GemmParams params, const Tensor& a, const Tensor& b,
                       const Tensor& out, uint32_t conjugated = 0);

inline Status RunProduct(KernelContext* ctx, const GemmParams& params, const Tensor& a,
                         const Tensor& b, const Tensor& out) {
  if (!IsFloat(out.dtype())) return RunOtherProduct(ctx, params, a, b, out);
  return WithFloats(ctx, [&](id<TF_MetalStream> stream, const auto& floats) {
    return RunGemm(stream, floats, params, a, b, nullptr, out);
  });
}

// A convolution of long sums and a small result, as a filter's gradient is: in parts where that keeps more of the
// device busy. The elements of `out` are those of the product, in whatever order, and no others.
Status RunLongConv(KernelContext* ctx, const GemmParams& params, const Tensor& a, const Tensor& b,
                   const Tensor& out);

inline Status PackProduct(KernelContext* ctx, const ThreadTile& tile, int64_t terms,
                          const GemmParams& params, const Tensor& b, GemmParams* packed,
                          Tensor* panels) {
  return WithFloats(ctx, [&](id<TF_MetalStream> stream, const auto& floats) {
    return PackGemm(stream, floats, tile, terms, params, b, packed, panels);
  });
}

// b for `uses` products a b, of these shapes.
inline Status PrepareProduct(KernelContext* ctx, const char* op, const Shape& a, const Tensor& b,
                             bool transpose_b, const Shape& out, int64_t uses, GemmFactor* factor) {
  ArgShapes shapes(op);
  const MatMulSizes sizes =
      ToMatMulSizes(ArgShape(a), ArgShape(b.shape()), /*transpose_a=*/false, ArgShape(out));
  const GemmParams params = PlanMatMul(&shapes, sizes, /*transpose_a=*/false, transpose_b);
  RETURN_IF_ERROR(ToStatus(shapes));
  return WithFloats(ctx, [&](id<TF_MetalStream> stream, const auto& floats) {
    return PrepareGemm(stream, floats, params, b, uses, factor);
  });
}

inline Status RunProduct(KernelContext* ctx, const GemmFactor& factor, const Tensor& a,
                         const Tensor& out) {
  void* stream = nullptr;
  RETURN_IF_ERROR(ctx->Stream(&stream));
  return RunGemm(static_cast<id<TF_MetalStream>>(stream), factor, a, nullptr, out);
}

// Matrices [..., m, k] (or [..., k, m]) by [..., k, n] (or [..., n, k]); an empty result is left alone, and
// sums without terms are zeros. `conjugated` as above, of complex numbers alone.
Status EncodeProduct(KernelContext* ctx, const char* op, const MatMulSizes& sizes, bool transpose_a,
                     bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& out,
                     uint32_t conjugated = 0);

// The same of tensors whose shapes are known to agree.
inline Status RunProduct(KernelContext* ctx, const char* op, const Tensor& a, bool transpose_a,
                         const Tensor& b, bool transpose_b, const Tensor& out) {
  const MatMulSizes sizes =
      ToMatMulSizes(ArgShape(a.shape()), ArgShape(b.shape()), transpose_a, ArgShape(out.shape()));
  return EncodeProduct(ctx, op, sizes, transpose_a, transpose_b, a, b, out);
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_H_
