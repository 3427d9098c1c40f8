// int32 of the ops that shapes are made with lies in host memory, as on TensorFlow's other GPUs: its readers, other
// ops' shapes and axes, are there. TensorFlow has such kernels for any device of AddV2, ConcatV2, Range and others; of
// those here it has them in its builds for CUDA alone.

#ifndef METAL_OPS_DEVICE_KERNELS_HOST_INT32_H_
#define METAL_OPS_DEVICE_KERNELS_HOST_INT32_H_

#include <cstdint>
#include <vector>

#include "device/kernels/layout.h"
#include "device/kernels/strided.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// For a kernel that is registered for int32 in host memory, as each caller is.
inline bool IsInHostMemory(const Tensor& tensor) { return tensor.dtype() == TF_INT32; }

// visit(i, j) for every element of a loop over `shape`: where the walks are.
template <typename Visit>
void ForEachElement(const Shape& shape, const Walk& from, const Walk& to, const Visit& visit) {
  if (NumElements(shape) == 0) return;
  int64_t i = from.offset, j = to.offset;
  std::vector<int64_t> at(shape.size(), 0);
  while (true) {
    visit(i, j);
    size_t d = shape.size();
    while (true) {
      if (d-- == 0) return;
      i += from.strides[d];
      j += to.strides[d];
      if (++at[d] < shape[d]) break;
      i -= shape[d] * from.strides[d];
      j -= shape[d] * to.strides[d];
      at[d] = 0;
    }
  }
}

// Ops that move elements by shaders, and those that do so in host memory.
class ShaderCopies {
 public:
  ShaderCopies(Encoder* encoder, const char* op) : encoder_(*encoder), op_(op) {}

  Status Copy(const Shape& shape, const Tensor& in, const Walk& from, const Tensor& out,
              const Walk& to) {
    return EncodeCopy(encoder_, op_, shape, in, from, out, to);
  }
  Status CopyWhole(const Tensor& in, const Tensor& out) { return encoder_.Copy(in, out); }
  Status Zero(const Tensor& out) { return EncodeZeros(encoder_, op_, out); }
  // One element, in host memory, for all of `out`.
  Status Fill(const void* element, const Tensor& out) {
    const auto bytes = static_cast<int64_t>(out.element_bytes());
    return EncodeSpread(encoder_, op_, HostArray(static_cast<const uint8_t*>(element), bytes), {},
                        out);
  }

 private:
  Encoder& encoder_;
  const char* const op_;
};

class HostCopies {
 public:
  Status Copy(const Shape& shape, const Tensor& in, const Walk& from, const Tensor& out,
              const Walk& to);
  Status CopyWhole(const Tensor& in, const Tensor& out);
  Status Zero(const Tensor& out);
  Status Fill(const void* element, const Tensor& out);
};

// Runs `body` with the copies for where the tensors lie.
template <typename Body>
Status MoveElements(KernelContext* ctx, const char* op, bool in_host_memory, const Body& body) {
  if (in_host_memory) {
    HostCopies copies;
    return body(copies);
  }
  return Encode(ctx, [&](Encoder& encoder) {
    ShaderCopies copies(&encoder, op);
    return body(copies);
  });
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_HOST_INT32_H_
