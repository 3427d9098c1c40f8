// Tensor -> (MTLBuffer, offset). The one place that interprets TensorFlow's opaque device pointers.

#ifndef METAL_OPS_KERNELS_RUNTIME_METAL_BUFFER_H_
#define METAL_OPS_KERNELS_RUNTIME_METAL_BUFFER_H_

#import <Metal/Metal.h>

#include "kernels/runtime/status.h"
#include "kernels/runtime/tensor.h"

namespace metal_ops {

struct BufferRef {
  id<MTLBuffer> buffer =
      nil;  // not retained: the tensor owns it, and the command buffer retains the buffers of its
            // work
  NSUInteger offset = 0;  // bytes
};

// An empty tensor has no memory: buffer is nil then.
Status ResolveBuffer(const Tensor& tensor, BufferRef* ref);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_METAL_BUFFER_H_
