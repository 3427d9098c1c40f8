// Registration of Metal kernels with TensorFlow: see registrar.h.

#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Static initialisers cannot report; the library's loader asks metal_kernels_error() afterwards.
std::string& RegistrationError() {
  static std::string* error = new std::string();
  return *error;
}

void RegisterOne(const char* op, const KernelFunctions& functions, const KernelOptions& options,
                 const TF_DataType* dtype) {
  CStatus status;
  TF_KernelBuilder* builder =
      TF_NewKernelBuilder(op, "GPU", functions.create, functions.compute, functions.destroy);
  std::string name = std::string("metal_ops/") + op;
  if (dtype != nullptr) {
    TF_KernelBuilder_TypeConstraint(builder, options.type_attr.c_str(), *dtype, status);
    name += "/" + ToString(static_cast<DType>(*dtype));
  }
  for (const auto& [attr, type] : options.where) {
    if (status.ok()) TF_KernelBuilder_TypeConstraint(builder, attr.c_str(), type, status);
    name += "/" + ToString(static_cast<DType>(type));
  }
  for (const std::string& arg : options.host_memory) {
    TF_KernelBuilder_HostMemory(builder, arg.c_str());
  }
  if (status.ok()) {
    TF_RegisterKernelBuilder(name.c_str(), builder, status);
  } else {
    TF_DeleteKernelBuilder(builder);
  }
  if (!status.ok()) ReportRegistrationError(name + ": " + status.Get().message());
}

}  // namespace

void ReportRegistrationError(const std::string& line) { RegistrationError() += line + "\n"; }

KernelRegistrar::KernelRegistrar(const char* op, const KernelFunctions& functions,
                                 const KernelOptions& options) {
  const auto left_out = [&](TF_DataType dtype) {
    return dtype == TF_BFLOAT16 && !kShadersHaveBfloat && !options.calculates_in_no_bfloat;
  };
  for (const auto& [attr, dtype] : options.where) {
    if (left_out(dtype)) return;
  }
  if (options.types.empty()) RegisterOne(op, functions, options, nullptr);
  for (const TF_DataType& dtype : options.types) {
    if (!left_out(dtype)) RegisterOne(op, functions, options, &dtype);
  }
}

}  // namespace metal_ops

// Empty when every kernel was registered, else one line per kernel that was not.
extern "C" __attribute__((visibility("default"))) const char* metal_kernels_error() {
  return metal_ops::RegistrationError().c_str();
}
