// Tensor -> (MTLBuffer, offset): see metal_buffer.h.

#include "kernels/runtime/metal_buffer.h"

#include "kernels/runtime/platform.h"

namespace metal_ops {

Status ResolveBuffer(const Tensor& tensor, BufferRef* ref) {
  *ref = BufferRef();
  if (tensor.num_elements() == 0) return Status();
  void* buffer = nullptr;
  uint64_t offset = 0;
  RETURN_IF_ERROR(ResolveOpaque(tensor.opaque(), &buffer, &offset));
  ref->buffer = static_cast<id<MTLBuffer>>(buffer);
  ref->offset = static_cast<NSUInteger>(offset);
  // A tensor that reaches past its buffer would make the shader read another tensor's memory, or
  // fault.
  if (ref->offset + tensor.byte_size() > [ref->buffer length]) {
    return Internal("a ", ToString(tensor.dtype()), " ", ToString(tensor.shape()), " tensor needs ",
                    tensor.byte_size(), " bytes at offset ", offset, ", but its device buffer has ",
                    static_cast<uint64_t>([ref->buffer length]));
  }
  return Status();
}

}  // namespace metal_ops
