// The C++ face over the TF kernel C API: see op_kernel.h.

#include "kernels/runtime/op_kernel.h"

#include <limits>
#include <memory>
#include <utility>

#include "tensorflow/core/util/determinism.h"

namespace metal_ops {

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string ToString(TF_DataType dtype) {
  switch (dtype) {
    case TF_FLOAT:
      return "float32";
    case TF_HALF:
      return "float16";
    case TF_BFLOAT16:
      return "bfloat16";
    case TF_DOUBLE:
      return "float64";
    case TF_INT8:
      return "int8";
    case TF_INT16:
      return "int16";
    case TF_INT32:
      return "int32";
    case TF_INT64:
      return "int64";
    case TF_UINT8:
      return "uint8";
    case TF_UINT16:
      return "uint16";
    case TF_UINT32:
      return "uint32";
    case TF_UINT64:
      return "uint64";
    case TF_BOOL:
      return "bool";
    default:
      return "dtype " + std::to_string(static_cast<int>(dtype));
  }
}

const char* ShaderType(TF_DataType dtype) {
  switch (dtype) {
    case TF_FLOAT:
      return "float";
    case TF_HALF:
      return "half";
    case TF_BFLOAT16:
      return "bfloat";
    case TF_INT8:
      return "char";
    case TF_INT16:
      return "short";
    case TF_INT32:
      return "int";
    case TF_INT64:
      return "long";
    case TF_UINT8:
      return "uchar";
    case TF_UINT16:
      return "ushort";
    case TF_UINT32:
      return "uint";
    case TF_UINT64:
      return "ulong";
    case TF_BOOL:
      return "bool";
    default:
      return nullptr;
  }
}

int64_t NumElements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0) return -1;
    if (dim == 0) return 0;
    if (count > std::numeric_limits<int64_t>::max() / dim) return -1;
    count *= dim;
  }
  return count;
}

// ---- Tensor
// ---------------------------------------------------------------------------------------------------------

Tensor::Tensor(TF_Tensor* tensor) : tensor_(tensor) {
  for (int i = 0; i < TF_NumDims(tensor); ++i) shape_.push_back(TF_Dim(tensor, i));
}

Tensor::~Tensor() {
  if (tensor_ != nullptr) TF_DeleteTensor(tensor_);
}

Tensor::Tensor(Tensor&& other) noexcept
    : tensor_(std::exchange(other.tensor_, nullptr)), shape_(std::move(other.shape_)) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(tensor_, other.tensor_);
  std::swap(shape_, other.shape_);
  return *this;
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
  CStatus status;
  TF_Tensor* raw = nullptr;
  TF_GetInput(ctx_, i, &raw, status);
  RETURN_IF_ERROR(status.Get());
  *tensor = Tensor(raw);
  return Status();
}

Status KernelContext::AllocateOutput(int i, const Shape& shape, Tensor* tensor) {
  const int64_t elements = NumElements(shape);
  if (elements < 0) {
    return InvalidArgument("output ", i, " would have shape ", ToString(shape),
                           ", more elements than 63 bits count; use a smaller batch");
  }
  CStatus status;
  const TF_DataType dtype = output_dtype(i);
  TF_Tensor* raw =
      TF_AllocateOutput(ctx_, i, dtype, shape.data(), static_cast<int>(shape.size()),
                        static_cast<size_t>(elements) * TF_DataTypeSize(dtype), status);
  RETURN_IF_ERROR(status.Get());
  *tensor = Tensor(raw);
  return Status();
}

Status KernelContext::ForwardInputOrAllocateOutput(int input, int i, const Shape& shape,
                                                   Tensor* tensor) {
  CStatus status;
  int forwarded = -1;
  TF_Tensor* raw = TF_ForwardInputOrAllocateOutput(
      ctx_, &input, 1, i, shape.data(), static_cast<int>(shape.size()), &forwarded, status);
  RETURN_IF_ERROR(status.Get());
  *tensor = Tensor(raw);
  return Status();
}

Status KernelContext::AllocateTemp(TF_DataType dtype, const Shape& shape, Tensor* tensor) {
  CStatus status;
  TF_AllocatorAttributes on_device = {TF_ALLOCATOR_ATTRIBUTES_STRUCT_SIZE, /*on_host=*/0};
  TF_Tensor* raw = TF_AllocateTemp(ctx_, dtype, shape.data(), static_cast<int>(shape.size()),
                                   &on_device, status);
  RETURN_IF_ERROR(status.Get());
  *tensor = Tensor(raw);
  return Status();
}

Status KernelContext::Stream(void** stream) {
  CStatus status;
  *stream = reinterpret_cast<void*>(TF_GetStream(ctx_, status));
  RETURN_IF_ERROR(status.Get());
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
