// The layout of a buffer's elements, as a compiled shader's reflection has it.

#ifndef METAL_OPS_KERNELS_RUNTIME_LAYOUT_H_
#define METAL_OPS_KERNELS_RUNTIME_LAYOUT_H_

#import <Metal/Metal.h>

#include <string>

namespace metal_ops {

// MSL's name of a scalar, vector or matrix type, packed or not: "float", "uint3", "half4x4". "" for
// others.
std::string TypeName(MTLDataType type);

// JSON: [whether the kernel refers to exactly one element or null if Metal does not say, the
// element's alignment, its type]. Types: "float3" where the type has such a name, ["array", length,
// stride, type], ["struct", [name, offset, type], ...], or null where the reflection has no word for
// it (a pointer, a bit field).
std::string DescribeLayout(id<MTLBufferBinding> binding);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_LAYOUT_H_
