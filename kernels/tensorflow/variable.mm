// Resource variables in Metal kernels: see variable.h.

#include "kernels/tensorflow/variable.h"

#include <string.h>

namespace metal_ops {

void CopyTensor(TF_OpKernelContext* raw, TF_Tensor* source, TF_Tensor* dest) {
  KernelContext ctx(raw);
  const Tensor from = ToTensor(source), to = ToTensor(dest);
  OP_REQUIRES_OK(&ctx, Encode(&ctx, [&](Encoder& encoder) { return encoder.Copy(from, to); }));
}

VariableLock::VariableLock(KernelContext* ctx, bool exclusive, const std::vector<int>& inputs)
    : ctx_(ctx) {
  CStatus status;
  TF_MaybeLockVariableInputMutexesInOrder(ctx->raw(), exclusive, /*sparse=*/false, inputs.data(),
                                          inputs.size(), CopyTensor, &holder_, status);
}

VariableLock::~VariableLock() { TF_ReleaseVariableInputLockHolder(holder_); }

bool VariableLock::Get(int input, Tensor* tensor) {
  CStatus status;
  TF_Tensor* raw = nullptr;
  // On failure it has already reported to the context, of resources.
  TF_GetInputTensorFromVariable(ctx_->raw(), input, /*lock_held=*/true, /*isVariantType=*/false,
                                /*sparse=*/false, CopyTensor, &raw, status);
  if (raw == nullptr) {
    CStatus ref;
    if (TF_IsRefInput(ctx_->raw(), input, ref)) {
      ctx_->Fail(Status(Code::kFailedPrecondition,
                        StrCat("Attempting to use an uninitialized variable, input ", input,
                               "; run its initializer first")));
    }
    return false;
  }
  *tensor = ToTensor(raw);
  return true;
}

Status SameVariable(KernelContext* ctx, int a, int b, bool* same) {
  Tensor x, y;
  RETURN_IF_ERROR(ctx->Input(a, &x));
  RETURN_IF_ERROR(ctx->Input(b, &y));
  // Handles arrive serialised, with a name that is the variable's alone.
  *same = x.byte_size() == y.byte_size() && memcmp(x.opaque(), y.opaque(), x.byte_size()) == 0;
  return Status();
}

}  // namespace metal_ops
