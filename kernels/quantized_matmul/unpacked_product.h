// Shared by kernels of products with packed weights on the Metal device: the threads that share an
// output, and a product with weights that a launch unpacks into memory.

#ifndef METAL_OPS_KERNELS_QUANTIZED_MATMUL_UNPACKED_PRODUCT_H_
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_UNPACKED_PRODUCT_H_

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_plan.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {

// Whether a simdgroup's threads share an output, which want neighbouring codes, or one thread has it
// and many codes. METAL_OPS_QUANTIZED, or the device.
inline Status ChooseGroups(bool* groups) {
  *groups = ThreadgroupsRunAtOnce();
  return AskedFor("METAL_OPS_QUANTIZED", "groups", "threads", groups);
}

// y = x w^T of input 0; `unpack(weights)` launches the shader that fills them, [outputs, inputs].
template <typename Unpack>
Status UnpackedProduct(MetalCall& call, int64_t outputs, int64_t inputs, const Unpack& unpack) {
  // Kernels that multiply in tiles or blocks take both factors in one type; else b is packed as float32
  // anyway.
  bool tiles = false;
  RETURN_IF_ERROR(ChooseTiles(call.in_shapes[0].dims[0] >= 16 && outputs >= 16, &tiles));
  Tensor weights;
  RETURN_IF_ERROR(
      call.AllocateTemp(tiles ? call.in(0).dtype() : DType::kFloat, {outputs, inputs}, &weights));
  RETURN_IF_ERROR(unpack(weights));
  const MatMulSizes sizes = ToMatMulSizes(call.in_shapes[0], ArgShape(weights.shape()),
                                          /*transpose_a=*/false, call.out_shapes[0]);
  const GemmParams product =
      PlanMatMul(&call.shapes, sizes, /*transpose_a=*/false, /*transpose_b=*/true);
  RETURN_IF_ERROR(call.Checked());
  const auto floats = [&](const Shape& shape, Tensor* tensor) {
    return call.AllocateTemp(DType::kFloat, shape, tensor);
  };
  // Nothing is fused to it: no args, no activation.
  const GemmEpilogue epilogue = {};
  return RunGemm(call.stream(), floats, product, call.in(0), weights, &epilogue, call.out(0));
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_UNPACKED_PRODUCT_H_
