// The C++ face over the TF kernel C API: see op_kernel.h.

#include "kernels/tensorflow/op_kernel.h"

#include <utility>

#include "kernels/tensorflow/cc_tensor.h"
#include "tensorflow/core/util/determinism.h"

namespace metal_ops {

Tensor ToTensor(TF_Tensor* handle) {
  const int rank = TF_NumDims(handle);
  Shape shape(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) shape[static_cast<size_t>(i)] = TF_Dim(handle, i);
  const auto release = [](void* owner) { TF_DeleteTensor(static_cast<TF_Tensor*>(owner)); };
  const TF_DataType dtype = TF_TensorType(handle);
  return Tensor(static_cast<DType>(dtype), TF_DataTypeSize(dtype), std::move(shape),
                TF_TensorData(handle), TF_TensorByteSize(handle), handle, release);
}

// ---- KernelConstruction
// ---------------------------------------------------------------------------------------------

namespace {

// One of TensorFlow's readers of a number, and the same for a list.
template <typename T>
using Getter = void (*)(TF_OpKernelConstruction*, const char*, T*, TF_Status*);
template <typename T>
using ListGetter = void (*)(TF_OpKernelConstruction*, const char*, T*, int, TF_Status*);

template <typename T>
Status Get(TF_OpKernelConstruction* ctx, Getter<T> get, const char* name, T* value) {
  CStatus status;
  get(ctx, name, value, status);
  return status.Get();
}

// How many elements a list has, and how many bytes are in a string or in all of a list's.
struct Sizes {
  int32_t list = 0, total = 0;

  Status Get(TF_OpKernelConstruction* ctx, const char* name) {
    CStatus status;
    TF_OpKernelConstruction_GetAttrSize(ctx, name, &list, &total, status);
    return status.Get();
  }
};

template <typename T>
Status Get(TF_OpKernelConstruction* ctx, ListGetter<T> get, const char* name,
           std::vector<T>* value) {
  Sizes sizes;
  RETURN_IF_ERROR(sizes.Get(ctx, name));
  value->resize(sizes.list);
  CStatus status;
  get(ctx, name, value->data(), sizes.list, status);
  return status.Get();
}

}  // namespace

Status KernelConstruction::GetAttr(const char* name, TF_DataType* value) {
  return Get(ctx_, TF_OpKernelConstruction_GetAttrType, name, value);
}

Status KernelConstruction::GetAttr(const char* name, int32_t* value) {
  return Get(ctx_, TF_OpKernelConstruction_GetAttrInt32, name, value);
}

Status KernelConstruction::GetAttr(const char* name, int64_t* value) {
  return Get(ctx_, TF_OpKernelConstruction_GetAttrInt64, name, value);
}

Status KernelConstruction::GetAttr(const char* name, float* value) {
  return Get(ctx_, TF_OpKernelConstruction_GetAttrFloat, name, value);
}

Status KernelConstruction::GetAttr(const char* name, bool* value) {
  TF_Bool flag = 0;
  const Status status = Get(ctx_, TF_OpKernelConstruction_GetAttrBool, name, &flag);
  *value = flag != 0;
  return status;
}

Status KernelConstruction::GetAttr(const char* name, std::vector<int64_t>* value) {
  return Get(ctx_, TF_OpKernelConstruction_GetAttrInt64List, name, value);
}

Status KernelConstruction::GetAttr(const char* name, std::vector<float>* value) {
  return Get(ctx_, TF_OpKernelConstruction_GetAttrFloatList, name, value);
}

Status KernelConstruction::GetAttr(const char* name, std::vector<TF_DataType>* value) {
  return Get(ctx_, TF_OpKernelConstruction_GetAttrTypeList, name, value);
}

// The C API has it among the experiments that TensorFlow's libraries dropped.
Status KernelConstruction::GetShapeAttr(const char* name, Shape* value) {
  tensorflow::TensorShape shape;
  auto* const cc = reinterpret_cast<tensorflow::OpKernelConstruction*>(ctx_);
  RETURN_IF_ERROR(FromCc(cc->GetAttr(name, &shape)));
  value->clear();
  for (int d = 0; d < shape.dims(); ++d) value->push_back(shape.dim_size(d));
  return Status();
}

Status KernelConstruction::GetListSize(const char* name, int32_t* size) {
  Sizes sizes;
  RETURN_IF_ERROR(sizes.Get(ctx_, name));
  *size = sizes.list;
  return Status();
}

Status KernelConstruction::GetAttr(const char* name, std::string* value) {
  Sizes sizes;
  RETURN_IF_ERROR(sizes.Get(ctx_, name));
  value->resize(sizes.total);
  CStatus status;
  TF_OpKernelConstruction_GetAttrString(ctx_, name, value->data(), sizes.total, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, std::vector<std::string>* value) {
  Sizes sizes;
  RETURN_IF_ERROR(sizes.Get(ctx_, name));
  value->clear();
  // TensorFlow says a total of -1 then.
  if (sizes.list == 0) return Status();
  std::vector<char*> begins(sizes.list);
  std::vector<size_t> lengths(sizes.list);
  std::vector<char> storage(sizes.total);
  CStatus status;
  TF_OpKernelConstruction_GetAttrStringList(ctx_, name, begins.data(), lengths.data(), sizes.list,
                                            storage.data(), sizes.total, status);
  RETURN_IF_ERROR(status.Get());
  for (int32_t i = 0; i < sizes.list; ++i) value->emplace_back(begins[i], lengths[i]);
  return Status();
}

// ---- KernelContext
// --------------------------------------------------------------------------------------------------

Status KernelContext::Input(int i, Tensor* tensor) {
  TF_Tensor* raw = nullptr;
  TF_GetInput(ctx_, i, &raw, status_);
  RETURN_IF_ERROR(status_.Take());
  *tensor = ToTensor(raw);
  return Status();
}

Status KernelContext::AllocateOutput(int i, const Shape& shape, Tensor* tensor) {
  const int64_t elements = NumElements(shape);
  if (elements < 0) {
    return InvalidArgument("output ", i, " would have shape ", ToString(shape),
                           ", more elements than 63 bits count; use a smaller batch");
  }
  const auto dtype = static_cast<TF_DataType>(output_dtype(i));
  TF_Tensor* raw =
      TF_AllocateOutput(ctx_, i, dtype, shape.data(), static_cast<int>(shape.size()),
                        static_cast<size_t>(elements) * TF_DataTypeSize(dtype), status_);
  RETURN_IF_ERROR(status_.Take());
  *tensor = ToTensor(raw);
  return Status();
}

Status KernelContext::ForwardInputOrAllocateOutput(int input, int i, const Shape& shape,
                                                   Tensor* tensor) {
  int forwarded = -1;
  TF_Tensor* raw = TF_ForwardInputOrAllocateOutput(
      ctx_, &input, 1, i, shape.data(), static_cast<int>(shape.size()), &forwarded, status_);
  RETURN_IF_ERROR(status_.Take());
  *tensor = ToTensor(raw);
  return Status();
}

Status KernelContext::ShareInput(int input, int i, const Shape& shape) {
  TF_Tensor* raw = nullptr;
  TF_GetInput(ctx_, input, &raw, status_);
  RETURN_IF_ERROR(status_.Take());
  const Tensor in = ToTensor(raw);
  const auto dtype = static_cast<TF_DataType>(output_dtype(i));
  const int64_t none = 0;
  TF_Tensor* const shared = TF_AllocateTensor(dtype, &none, 1, 0);
  const Tensor out = ToTensor(shared);
  TF_TensorBitcastFrom(raw, dtype, shared, shape.data(), static_cast<int>(shape.size()), status_);
  RETURN_IF_ERROR(status_.Take());
  TF_SetOutput(ctx_, i, shared, status_);
  return status_.Take();
}

Status KernelContext::AllocateTemp(DType dtype, const Shape& shape, Tensor* tensor) {
  TF_AllocatorAttributes on_device = {TF_ALLOCATOR_ATTRIBUTES_STRUCT_SIZE, /*on_host=*/0};
  TF_Tensor* raw = TF_AllocateTemp(ctx_, static_cast<TF_DataType>(dtype), shape.data(),
                                   static_cast<int>(shape.size()), &on_device, status_);
  RETURN_IF_ERROR(status_.Take());
  *tensor = ToTensor(raw);
  return Status();
}

Status KernelContext::Stream(void** stream) {
  *stream = reinterpret_cast<void*>(TF_GetStream(ctx_, status_));
  RETURN_IF_ERROR(status_.Take());
  if (*stream == nullptr) {
    return Internal(
        "the device gave this kernel no stream; Metal kernels run on a METAL \"GPU\" only");
  }
  return Status();
}

void KernelContext::Fail(const Status& status) {
  CStatus c_status;
  c_status.Set(status);
  TF_OpKernelContext_Failure(ctx_, c_status);
}

RunningOp ToRunningOp(const char* type, TF_OpKernelContext* ctx, const KernelNames* names) {
  const auto node = [](void* context, size_t* length) {
    const TF_StringView name = TF_GetOpKernelName(static_cast<TF_OpKernelContext*>(context));
    *length = name.len;
    return name.data;
  };
  return {type, ctx, node, names};
}

bool OpDeterminismRequired() { return tensorflow::OpDeterminismRequired(); }

}  // namespace metal_ops
