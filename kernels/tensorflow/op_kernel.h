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

#ifndef METAL_OPS_KERNELS_TENSORFLOW_OP_KERNEL_H_
#define METAL_OPS_KERNELS_TENSORFLOW_OP_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/runtime/encoder.h"
#include "kernels/runtime/profile.h"
#include "kernels/runtime/status.h"
#include "kernels/runtime/tensor.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_status.h"

namespace metal_ops {

// Names of both for one type.
inline bool operator==(DType a, TF_DataType b) { return static_cast<TF_DataType>(a) == b; }
inline bool operator!=(DType a, TF_DataType b) { return !(a == b); }

// Owns the handle.
Tensor ToTensor(TF_Tensor* handle);

// Owns the TF_Status that a C API call wants.
class CStatus {
 public:
  CStatus() : status_(TF_NewStatus()) {}
  ~CStatus() { TF_DeleteStatus(status_); }
  CStatus(const CStatus&) = delete;
  CStatus& operator=(const CStatus&) = delete;

  operator TF_Status*() { return status_; }
  bool ok() const { return TF_GetCode(status_) == TF_OK; }
  Status Get() const {
    if (ok()) return Status();
    return Status(static_cast<Code>(TF_GetCode(status_)), TF_Message(status_));
  }
  void Set(const Status& status) {
    TF_SetStatus(status_, static_cast<TF_Code>(status.code()), status.message().c_str());
  }
  // The status of Get(), and OK from then on.
  Status Take() {
    if (ok()) return Status();
    const Status taken = Get();
    TF_SetStatus(status_, TF_OK, "");
    return taken;
  }

 private:
  TF_Status* status_;
};

// The argument of a kernel's constructor: attributes, and where to report that it cannot be built.
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
  // One of type `shape`, known whole.
  Status GetShapeAttr(const char* name, Shape* value);
  // How many elements an attribute has that is a list.
  Status GetListSize(const char* name, int32_t* size);

  // The error that Compute will return instead of running (registrar.h).
  void Fail(const Status& status) { error_ = status; }
  const Status& error() const { return error_; }

 private:
  TF_OpKernelConstruction* ctx_;
  Status error_;
};

// The argument of Compute: inputs, outputs, temporaries, the stream.
class KernelContext {
 public:
  explicit KernelContext(TF_OpKernelContext* ctx) : ctx_(ctx) {}

  int num_inputs() const { return TF_NumInputs(ctx_); }
  DType output_dtype(int i) const { return static_cast<DType>(TF_ExpectedOutputDataType(ctx_, i)); }

  Status Input(int i, Tensor* tensor);
  Status AllocateOutput(int i, const Shape& shape, Tensor* tensor);
  // Reuses the memory of input `input` for output `i` when nothing else reads it, else allocates.
  Status ForwardInputOrAllocateOutput(int input, int i, const Shape& shape, Tensor* tensor);
  // Output `i` is the memory of input `input`, as its dtype and in `shape`, of as many bytes.
  Status ShareInput(int input, int i, const Shape& shape);
  // Device memory that lives until the work encoded on it is done.
  Status AllocateTemp(DType dtype, const Shape& shape, Tensor* tensor);
  Status AllocateTemp(TF_DataType dtype, const Shape& shape, Tensor* tensor) {
    return AllocateTemp(static_cast<DType>(dtype), shape, tensor);
  }

  // The device's stream handle, an id<TF_MetalStream> (Encode below casts it).
  Status Stream(void** stream);

  void Fail(const Status& status);

  // For functions that this face does not cover.
  TF_OpKernelContext* raw() const { return ctx_; }

 private:
  TF_OpKernelContext* ctx_;
  CStatus status_;  // of all its calls: to make one takes as long as a call
};

// The name, for profiles, of the kernel that a thread is at. The kernel keeps the names' numbers.
RunningOp ToRunningOp(const char* type, TF_OpKernelContext* ctx, const KernelNames* names);

// Encodes on the context's stream the launches of `body`: Status(Encoder&).
template <typename Body>
Status Encode(KernelContext* ctx, const Body& body) {
  void* stream = nullptr;
  RETURN_IF_ERROR(ctx->Stream(&stream));
  return EncodeOn(static_cast<id<TF_MetalStream>>(stream), /*wait=*/false, body);
}

// The same, and returns when the device is done: for values that the host must read before it goes
// on. All else is asynchronous.
template <typename Body>
Status EncodeAndWait(KernelContext* ctx, const Body& body) {
  void* stream = nullptr;
  RETURN_IF_ERROR(ctx->Stream(&stream));
  return EncodeOn(static_cast<id<TF_MetalStream>>(stream), /*wait=*/true, body);
}

}  // namespace metal_ops

// Stock TensorFlow's idiom: on failure report to `ctx` and leave the (void) function.
#define OP_REQUIRES(ctx, condition, ...) \
  do {                                   \
    if (!(condition)) {                  \
      (ctx)->Fail(__VA_ARGS__);          \
      return;                            \
    }                                    \
  } while (0)

#define OP_REQUIRES_OK(ctx, ...)                                          \
  do {                                                                    \
    if (::metal_ops::Status op_status = (__VA_ARGS__); !op_status.ok()) { \
      (ctx)->Fail(op_status);                                             \
      return;                                                             \
    }                                                                     \
  } while (0)

#endif  // METAL_OPS_KERNELS_TENSORFLOW_OP_KERNEL_H_
