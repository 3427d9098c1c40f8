// Products of matrices within kernels of other ops.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_H_
#define METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_H_

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_plan.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

inline Status RunProduct(KernelContext* ctx, const GemmParams& params, const Tensor& a,
                         const Tensor& b, const Tensor& out) {
  void* stream = nullptr;
  RETURN_IF_ERROR(ctx->Stream(&stream));
  const auto floats = [&](const Shape& shape, Tensor* tensor) {
    return ctx->AllocateTemp(DType::kFloat, shape, tensor);
  };
  return RunGemm(static_cast<id<TF_MetalStream>>(stream), floats, params, a, b, nullptr, out);
}

// out = a b of matrices whose shapes are known to agree, each turned round if asked. An empty result
// is left alone.
inline Status RunProduct(KernelContext* ctx, const char* op, const Tensor& a, bool transpose_a,
                         const Tensor& b, bool transpose_b, const Tensor& out) {
  if (out.num_elements() == 0) return Status();
  ArgShapes shapes(op);
  const GemmParams params = PlanMatMul(
      &shapes,
      ToMatMulSizes(ArgShape(a.shape()), ArgShape(b.shape()), transpose_a, ArgShape(out.shape())),
      transpose_a, transpose_b);
  RETURN_IF_ERROR(ToStatus(shapes));
  return RunProduct(ctx, params, a, b, out);
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_H_
