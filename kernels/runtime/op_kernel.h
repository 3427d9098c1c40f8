// A thin C++ face over the TF kernel C API (tensorflow/c/kernels.h), so that Metal kernels read
// like stock ones.
//
//   class TwiceOp {
//    public:
//     static constexpr char kOp[] = "Twice";
//     explicit TwiceOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("scale",
//     &scale_)); } void Compute(KernelContext* ctx) { ... }
//   };
//   REGISTER_METAL_KERNEL(TwiceOp, .Types("T", {TF_FLOAT, TF_HALF}));
//
// Nothing here knows Metal: encoder.h does.

#ifndef METAL_OPS_KERNELS_RUNTIME_OP_KERNEL_H_
#define METAL_OPS_KERNELS_RUNTIME_OP_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/runtime/status.h"
#include "tensorflow/c/kernels.h"

namespace metal_ops {

using Shape = std::vector<int64_t>;
enum class DType : int32_t;  // op.h: TensorFlow's numbers

// "[3, 4]"
std::string ToString(const Shape& shape);

// "float32": the name that Python users know.
std::string ToString(TF_DataType dtype);

// "float": what shaders call a dtype; null if they do not calculate in it.
const char* ShaderType(TF_DataType dtype);

// Number of elements; -1 if it does not fit in 63 bits.
int64_t NumElements(const Shape& shape);

// Owns a TF_Tensor handle. The memory behind it belongs to TensorFlow; the command buffer retains
// what it encodes.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TF_Tensor* tensor);
  ~Tensor();
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;

  bool valid() const { return tensor_ != nullptr; }
  TF_DataType dtype() const { return TF_TensorType(tensor_); }
  DType type() const { return static_cast<DType>(dtype()); }
  size_t element_bytes() const { return TF_DataTypeSize(dtype()); }
  const Shape& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t num_elements() const { return TF_TensorElementCount(tensor_); }
  size_t byte_size() const { return TF_TensorByteSize(tensor_); }

  // What TensorFlow holds: host memory for HostMemory arguments, else opaque device memory that
  // only ResolveBuffer (metal_buffer.h) may interpret.
  const void* opaque() const { return TF_TensorData(tensor_); }

  // Elements of an argument registered with HostMemory.
  template <typename T>
  const T* host() const {
    return static_cast<const T*>(TF_TensorData(tensor_));
  }
  template <typename T>
  T* mutable_host() const {
    return static_cast<T*>(TF_TensorData(tensor_));
  }

 private:
  TF_Tensor* tensor_ = nullptr;
  Shape shape_;
};

// What a kernel's constructor gets: attributes, and where to report that it cannot be built.
class KernelConstruction {
 public:
  explicit KernelConstruction(TF_OpKernelConstruction* ctx) : ctx_(ctx) {}

  Status GetAttr(const char* name, TF_DataType* value);
  Status GetAttr(const char* name, int32_t* value);
  Status GetAttr(const char* name, int64_t* value);
  Status GetAttr(const char* name, float* value);
  Status GetAttr(const char* name, bool* value);
  Status GetAttr(const char* name, std::string* value);
  Status GetAttr(const char* name, std::vector<int64_t>* value);
  Status GetAttr(const char* name, std::vector<float>* value);
  Status GetAttr(const char* name, std::vector<std::string>* value);
  Status GetAttr(const char* name, std::vector<TF_DataType>* value);
  // How many elements an attribute has that is a list.
  Status GetListSize(const char* name, int32_t* size);

  // What Compute will say instead of running (registrar.h).
  void Fail(const Status& status) { error_ = status; }
  const Status& error() const { return error_; }

 private:
  TF_OpKernelConstruction* ctx_;
  Status error_;
};

// What Compute gets: inputs, outputs, temporaries, the stream.
class KernelContext {
 public:
  explicit KernelContext(TF_OpKernelContext* ctx) : ctx_(ctx) {}

  int num_inputs() const { return TF_NumInputs(ctx_); }
  TF_DataType output_dtype(int i) const { return TF_ExpectedOutputDataType(ctx_, i); }

  Status Input(int i, Tensor* tensor);
  Status AllocateOutput(int i, const Shape& shape, Tensor* tensor);
  // Reuses the memory of input `input` for output `i` when nobody else reads it, else allocates.
  Status ForwardInputOrAllocateOutput(int input, int i, const Shape& shape, Tensor* tensor);
  // Device memory that lives until the work encoded on it is done.
  Status AllocateTemp(TF_DataType dtype, const Shape& shape, Tensor* tensor);
  Status AllocateTemp(DType type, const Shape& shape, Tensor* tensor) {
    return AllocateTemp(static_cast<TF_DataType>(type), shape, tensor);
  }

  // The device's stream handle, an id<TF_MetalStream> (encoder.h casts it).
  Status Stream(void** stream);

  void Fail(const Status& status);

  // For what this face does not cover.
  TF_OpKernelContext* raw() const { return ctx_; }

 private:
  TF_OpKernelContext* ctx_;
};

// True under tf.config.experimental.enable_op_determinism() or TF_DETERMINISTIC_OPS=1. A kernel
// whose result depends on the order of the device's threads must then take another path, or answer
// Unimplemented.
bool OpDeterminismRequired();

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_OP_KERNEL_H_
