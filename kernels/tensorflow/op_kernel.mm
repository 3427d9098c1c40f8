// The C++ face over the TF kernel C API: see op_kernel.h.

#include "kernels/tensorflow/op_kernel.h"

#include <utility>

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

Status KernelConstruction::GetAttr(const char* name, TF_DataType* value) {
  CStatus status;
  TF_OpKernelConstruction_GetAttrType(ctx_, name, value, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, int32_t* value) {
  CStatus status;
  TF_OpKernelConstruction_GetAttrInt32(ctx_, name, value, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, int64_t* value) {
  CStatus status;
  TF_OpKernelConstruction_GetAttrInt64(ctx_, name, value, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, float* value) {
  CStatus status;
  TF_OpKernelConstruction_GetAttrFloat(ctx_, name, value, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, bool* value) {
  CStatus status;
  TF_Bool flag = 0;
  TF_OpKernelConstruction_GetAttrBool(ctx_, name, &flag, status);
  *value = flag != 0;
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, std::string* value) {
  CStatus status;
  int32_t list_size = 0, total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(ctx_, name, &list_size, &total_size, status);
  RETURN_IF_ERROR(status.Get());
  value->resize(total_size);
  TF_OpKernelConstruction_GetAttrString(ctx_, name, value->data(), total_size, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, std::vector<int64_t>* value) {
  CStatus status;
  int32_t list_size = 0, total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(ctx_, name, &list_size, &total_size, status);
  RETURN_IF_ERROR(status.Get());
  value->resize(list_size);
  TF_OpKernelConstruction_GetAttrInt64List(ctx_, name, value->data(), list_size, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, std::vector<float>* value) {
  CStatus status;
  int32_t list_size = 0, total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(ctx_, name, &list_size, &total_size, status);
  RETURN_IF_ERROR(status.Get());
  value->resize(list_size);
  TF_OpKernelConstruction_GetAttrFloatList(ctx_, name, value->data(), list_size, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, std::vector<std::string>* value) {
  CStatus status;
  int32_t list_size = 0, total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(ctx_, name, &list_size, &total_size, status);
  RETURN_IF_ERROR(status.Get());
  value->clear();
  // TensorFlow says a total of -1 then.
  if (list_size == 0) return Status();
  std::vector<char*> begins(list_size);
  std::vector<size_t> lengths(list_size);
  std::vector<char> storage(total_size);
  TF_OpKernelConstruction_GetAttrStringList(ctx_, name, begins.data(), lengths.data(), list_size,
                                            storage.data(), total_size, status);
  RETURN_IF_ERROR(status.Get());
  for (int32_t i = 0; i < list_size; ++i) value->emplace_back(begins[i], lengths[i]);
  return Status();
}

Status KernelConstruction::GetListSize(const char* name, int32_t* size) {
  CStatus status;
  int32_t total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(ctx_, name, size, &total_size, status);
  return status.Get();
}

Status KernelConstruction::GetAttr(const char* name, std::vector<TF_DataType>* value) {
  CStatus status;
  int32_t list_size = 0, total_size = 0;
  TF_OpKernelConstruction_GetAttrSize(ctx_, name, &list_size, &total_size, status);
  RETURN_IF_ERROR(status.Get());
  value->resize(list_size);
  TF_OpKernelConstruction_GetAttrTypeList(ctx_, name, value->data(), list_size, status);
  return status.Get();
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

bool OpDeterminismRequired() { return tensorflow::OpDeterminismRequired(); }

}  // namespace metal_ops
