// Encoding on the TF_MetalStream: arguments, dispatch, fill and copy, with every limit checked.
//
//   OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
//     return encoder.Dispatch("twice_float", Grid(n), {x, y, Bytes(params)});   // buffers 0, 1, 2
//   }));
//
// Encode() runs its body on the stream's queue and says `commit` when it is done. The work itself
// happens after the kernel has returned, so the body may not keep pointers to its own locals in
// what it encodes; Bytes() copies.

#ifndef METAL_OPS_KERNELS_COMMON_ENCODER_H_
#define METAL_OPS_KERNELS_COMMON_ENCODER_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <type_traits>

#include "kernels/common/metal_buffer.h"
#include "kernels/common/op_kernel.h"
#include "kernels/common/pipeline_cache.h"
#include "kernels/common/tf_metal_stream.h"

namespace metal_ops {

// Memory that shaders write and the host reads after EncodeAndWait: sizes of outputs, errors found.
class ReadBack {
 public:
  ReadBack() = default;
  ~ReadBack() { [buffer_ release]; }
  ReadBack(const ReadBack&) = delete;
  ReadBack& operator=(const ReadBack&) = delete;

  template <typename T>
  const T* data() const {
    return static_cast<const T*>([buffer_ contents]);
  }

 private:
  friend class Encoder;
  id<MTLBuffer> buffer_ = nil;
};

// One argument of a shader; its place in the list is its [[buffer(i)]].
struct Argument {
  Argument(const Tensor& tensor) : tensor(&tensor) {}
  Argument(const ReadBack& read_back) : read_back(&read_back) {}

  const Tensor* tensor = nullptr;
  const ReadBack* read_back = nullptr;
  const void* bytes = nullptr;
  size_t size = 0;

 private:
  Argument(const void* bytes, size_t size) : bytes(bytes), size(size) {}
  template <typename T>
  friend Argument Bytes(const T& value);
  template <typename T>
  friend Argument HostArray(const T* values, int64_t n);
};

// A struct or number, copied at encoding (setBytes). At most 4096 bytes, Metal's limit.
template <typename T>
Argument Bytes(const T& value) {
  static_assert(std::is_trivially_copyable<T>::value, "the shader gets a copy of the bytes");
  static_assert(sizeof(T) <= 4096, "setBytes takes 4 KiB at most; use a temporary tensor");
  return Argument(&value, sizeof(T));
}

// n values in host memory, for HostMemory inputs that the shader reads too. Copied at encoding like
// Bytes; beyond 4096 bytes into a buffer of its own, which the command buffer retains.
template <typename T>
Argument HostArray(const T* values, int64_t n) {
  static_assert(std::is_trivially_copyable<T>::value, "the shader gets a copy of the bytes");
  return Argument(values, static_cast<size_t>(n) * sizeof(T));
}

// How many threads, in one to three dimensions. Counts are 64 bit, so that a too large one is seen
// and not wrapped.
struct Grid {
  explicit Grid(int64_t width, int64_t height = 1, int64_t depth = 1)
      : width(width), height(height), depth(depth) {}

  // One thread an element, for any number of elements: rows of 2^30 threads, the last row partly
  // idle. The shader asks flat_index() of kernels/msl/grid.h which element it is.
  static Grid Flat(int64_t elements) {
    constexpr int64_t kRow = int64_t{1} << 30;
    return elements <= kRow ? Grid(elements) : Grid(kRow, (elements + kRow - 1) / kRow);
  }

  int64_t width, height, depth;
};

class Encoder {
 public:
  explicit Encoder(id<TF_MetalStream> stream) : stream_(stream) {}
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Runs `function` once a thread of `grid`. The threadgroup's size follows from the pipeline's
  // limit. Dispatches of one kernel run in order, each seeing what the one before wrote. An empty
  // grid encodes nothing.
  Status Dispatch(const Function& function, Grid grid, std::initializer_list<Argument> arguments);

  // Sets every byte of `tensor`, whose size must be a multiple of 4 bytes.
  Status Fill(const Tensor& tensor, uint8_t value);

  // Copies a tensor onto another of the same size in bytes.
  Status Copy(const Tensor& from, const Tensor& to);

  // Makes memory for a ReadBack, which may be an argument of shaders from then on.
  Status Allocate(size_t bytes, ReadBack* read_back);

  bool used() const { return used_; }

 private:
  void EndCompute();
  // Ends computing and begins a blit, which the caller ends.
  Status Blit(id<MTLBlitCommandEncoder>* blit);

  id<TF_MetalStream> stream_;
  id<MTLComputeCommandEncoder> compute_ = nil;
  bool used_ = false;
};

// dispatch_sync on the stream's queue around `body`, then `commit` if anything was encoded.
Status Encode(KernelContext* ctx, const std::function<Status(Encoder&)>& body);

// The same, and returns when the device is done: for what the host must read before it goes on. All
// else is asynchronous.
Status EncodeAndWait(KernelContext* ctx, const std::function<Status(Encoder&)>& body);

// Elements for a one-dimensional grid; more than Metal's 32-bit thread positions is a clear error.
Status CheckGrid(const char* op, const char* what, int64_t count);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_ENCODER_H_
