// Encoding on the TF_MetalStream: arguments, dispatch, fill and copy, with every limit checked.
//
//   EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) -> Status {
//     return encoder.Launch({"twice", x.dtype()}, Grid(n),
//                           {{"x", x}, {"y", y}, {"params", params}});
//   });
//
// Arguments are bound by name, as the compiled shader calls them, and checked against it: a missing
// or surplus one, one of another kind or size is an error that shows both sides. EncodeOn() runs its
// body on the stream's queue and says `commit` when it is done. The work itself happens after the
// kernel has returned; bytes are copied when they are encoded.

#ifndef METAL_OPS_KERNELS_RUNTIME_ENCODER_H_
#define METAL_OPS_KERNELS_RUNTIME_ENCODER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/runtime/counters.h"
#include "kernels/runtime/metal_buffer.h"
#include "kernels/runtime/profile.h"
#include "kernels/runtime/shader.h"
#include "kernels/runtime/tensor.h"
#include "kernels/runtime/tf_metal_stream.h"

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

// An argument that the shader is told not to touch.
struct Nothing {};

// The value of a shader's argument: memory of the device, or bytes. A view: whatever it is made of
// has to live until Launch returns, which copies the bytes.
class Value {
 public:
  Value(const Tensor& tensor) : kind_(kTensor), data_(&tensor) {}
  Value(const ReadBack& read_back) : kind_(kReadBack), data_(&read_back) {}
  Value(Nothing) {}

  // A struct or number, copied at encoding (setBytes). At most 4096 bytes, Metal's limit.
  template <typename T>
  Value(const T& value) : kind_(kBytes), data_(&value), size_(sizeof(T)), element_(sizeof(T)) {
    static_assert(std::is_trivially_copyable_v<T>, "the shader gets a copy of the bytes");
    static_assert(!std::is_pointer_v<T> && !std::is_array_v<T>, "say how many: HostArray(p, n)");
    static_assert(sizeof(T) <= 4096, "setBytes takes 4 KiB at most; use a temporary tensor");
  }

  // A buffer object with elements of a dtype, whole. It has to live until the work is encoded; nil
  // stands for no elements.
  static Value Buffer(id<MTLBuffer> buffer, DType dtype) {
    Value value{Nothing()};
    value.kind_ = kBuffer;
    value.data_ = buffer;
    value.element_ = SizeOf(dtype);
    return value;
  }

  // Memory that the threads of a group share, for an argument in `threadgroup`.
  static Value Threadgroup(size_t bytes) {
    Value value{Nothing()};
    value.kind_ = kThreadgroup;
    value.size_ = bytes;
    return value;
  }

  // For shaders that know by a parameter the type of the elements.
  Value Untyped() const {
    Value value = *this;
    value.typed_ = false;
    return value;
  }

  // A shader that may write to it is refused.
  Value ReadOnly() const {
    Value value = *this;
    value.read_only_ = true;
    return value;
  }

 private:
  friend class Encoder;
  template <typename T>
  friend Value HostArray(const T* values, int64_t n);

  const Tensor* tensor() const {
    return kind_ == kTensor ? static_cast<const Tensor*>(data_) : nullptr;
  }
  // The error of this value for the binding: null, or words that follow its name.
  const char* Check(const Binding& binding) const;
  std::string Describe() const;

  enum Kind { kNothing, kTensor, kReadBack, kBytes, kBuffer, kThreadgroup };
  Kind kind_ = kNothing;
  bool typed_ = true;
  bool read_only_ = false;
  const void* data_ = nullptr;
  size_t size_ = 0;     // kBytes, kThreadgroup
  size_t element_ = 0;  // kBytes, kBuffer: of one of them
};

// n values in host memory, for HostMemory inputs that the shader reads too. Copied at encoding;
// beyond 4096 bytes into a buffer of its own, which the command buffer retains.
template <typename T>
Value HostArray(const T* values, int64_t n) {
  static_assert(std::is_trivially_copyable_v<T>, "the shader gets a copy of the bytes");
  Value value{Nothing()};
  if (n == 0) return value;
  value.kind_ = Value::kBytes;
  value.data_ = values;
  value.size_ = static_cast<size_t>(n) * sizeof(T);
  value.element_ = sizeof(T);
  return value;
}

// {"features", x}: the shader's argument of that name.
struct Argument {
  const char* name;
  Value value;
};

// A list in braces, or one made at run time.
class Arguments {
 public:
  Arguments(std::initializer_list<Argument> list) : begin_(list.begin()), size_(list.size()) {}
  Arguments(const std::vector<Argument>& list) : begin_(list.data()), size_(list.size()) {}

  const Argument* begin() const { return begin_; }
  const Argument* end() const { return begin_ + size_; }
  size_t size() const { return size_; }

 private:
  const Argument* begin_;
  size_t size_;
};

// How many threads, in one to three dimensions. Counts are 64 bit, so that a too large one is seen
// and not wrapped.
struct Grid {
  explicit Grid(int64_t width, int64_t height = 1, int64_t depth = 1)
      : width(width), height(height), depth(depth) {}

  // One thread per element, for any number of elements: rows of 2^30 threads, the last row partly
  // idle. The shader asks flat_index() of kernels/msl/grid.h which element it is.
  static Grid Flat(int64_t elements) {
    constexpr int64_t kRow = int64_t{1} << 30;
    return elements <= kRow ? Grid(elements) : Grid(kRow, (elements + kRow - 1) / kRow);
  }

  // In groups of so many threads and not of as many as the shader allows.
  Grid InGroupsOf(int64_t group_width, int64_t group_height, int64_t group_depth) const {
    Grid grid = *this;
    grid.group[0] = group_width;
    grid.group[1] = group_height;
    grid.group[2] = group_depth;
    return grid;
  }

  int64_t width, height, depth;
  int64_t group[3] = {0, 0, 0};  // 0: follows from the pipeline
};

class Encoder {
 public:
  explicit Encoder(id<TF_MetalStream> stream) : stream_(stream) {}
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Runs the shader once per thread of `grid`. The threadgroup's size follows from the pipeline's
  // limit. Launches of one kernel run in order, each seeing the results of the one before. An empty
  // grid encodes nothing. `file` and `line` are the caller's, for VisitedLaunches.
  Status Launch(const Shader& shader, Grid grid, Arguments arguments,
                const char* file = __builtin_FILE(), int line = __builtin_LINE());

  // Sets every byte of `tensor`, whose size must be a multiple of 4 bytes.
  Status Fill(const Tensor& tensor, uint8_t value);

  // Copies a tensor onto another of the same size in bytes.
  Status Copy(const Tensor& from, const Tensor& to);

  // Makes memory for a ReadBack, which may be an argument of shaders from then on.
  Status Allocate(size_t bytes, ReadBack* read_back);

  // For the next launch.
  Status Counters(LaunchCounters* counters);

  // That a launch may have, in bytes.
  Status MostThreadgroupMemory(size_t* bytes);

  bool used() const { return used_; }

 private:
  // Where the arguments go: which binding each is for.
  static Status Bind(const Pipeline& pipeline, Arguments arguments, uint8_t* places);
  static Status Mismatch(const Pipeline& pipeline, Arguments arguments, const std::string& what);
  // `sampled` gets the profile that the profiler wants to have after the launch.
  Status Set(const Pipeline& pipeline, Arguments arguments, const uint8_t* places, MTLSize threads,
             MTLSize group, void** sampled);
  void EndCompute();
  // Ends computing and begins a blit, which the caller ends.
  Status Blit(PassKind kind, uint64_t bytes, id<MTLBlitCommandEncoder>* blit);

  // The stream's, once for all: it changes with a commit, which comes when encoding is done.
  Status Commands();

  id<TF_MetalStream> stream_;
  id<MTLCommandBuffer> commands_ = nil;  // the stream's
  id<MTLDevice> device_ = nil;
  id<MTLComputeCommandEncoder> compute_ = nil;
  bool used_ = false;
};

// dispatch_sync on the stream's queue around `body`, then `commit` if anything was encoded; with
// `wait`, returns when the device is done. Objects that encoding makes go with the caller's
// autorelease pool.
Status EncodeOn(id<TF_MetalStream> stream, bool wait, Status (*body)(void*, Encoder&),
                void* context);
template <typename Body>
Status EncodeOn(id<TF_MetalStream> stream, bool wait, const Body& body) {
  const auto call = [](void* context, Encoder& encoder) -> Status {
    return (*static_cast<const Body*>(context))(encoder);
  };
  return EncodeOn(stream, wait, call, const_cast<Body*>(&body));
}

// Elements for a one-dimensional grid; more than Metal's 32-bit thread positions is a clear error.
Status CheckGrid(const char* op, const char* what, int64_t count);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_ENCODER_H_
