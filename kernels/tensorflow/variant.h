// AddN and ZerosLike of variants, whose elements lie on the device: TensorLists and optionals.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_VARIANT_H_
#define METAL_OPS_KERNELS_TENSORFLOW_VARIANT_H_

#include <functional>

#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// Output 0 is the sum of all inputs; `add` encodes out = a + b of two elements.
Status AddVariants(
    KernelContext* ctx,
    const std::function<Status(const Tensor& a, const Tensor& b, const Tensor& out)>& add);

// Output 0 is input 0 with zeros; `zero` encodes those of an element.
Status ZerosLikeVariant(KernelContext* ctx, const std::function<Status(const Tensor& out)>& zero);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_VARIANT_H_
