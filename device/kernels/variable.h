// Access to resource variables from kernels, through the experimental kernel C API. Its functions
// want TensorFlow's own context, so kernels here have `void Compute(KernelContext*,
// TF_OpKernelContext*)` and register with RawFunctions.

#ifndef METAL_OPS_DEVICE_KERNELS_VARIABLE_H_
#define METAL_OPS_DEVICE_KERNELS_VARIABLE_H_

#include <vector>

#include "kernels/common/op_kernel.h"
#include "kernels/common/registrar.h"
#include "tensorflow/c/kernels_experimental.h"

namespace metal_ops {

// What TensorFlow calls when a variable must not be written in place because somebody still reads
// it.
void CopyTensor(TF_OpKernelContext* ctx, TF_Tensor* source, TF_Tensor* dest);

// Holds the mutexes of the variables behind some inputs.
class VariableLock {
 public:
  VariableLock(TF_OpKernelContext* ctx, bool exclusive, const std::vector<int>& inputs);
  ~VariableLock();
  VariableLock(const VariableLock&) = delete;
  VariableLock& operator=(const VariableLock&) = delete;

  // The variable's tensor, safe to write. False if there is no such variable; that is reported
  // already.
  bool Get(int input, Tensor* tensor);

 private:
  TF_OpKernelContext* ctx_;
  TF_VariableInputLockHolder* holder_ = nullptr;
};

template <typename Kernel>
KernelFunctions RawFunctions() {
  return {&KernelThunks<Kernel>::Create,
          [](void* kernel, TF_OpKernelContext* raw) {
            KernelContext ctx(raw);
            @autoreleasepool {
              @try {
                static_cast<Kernel*>(kernel)->Compute(&ctx, raw);
              } @catch (NSException* e) {
                ctx.Fail(Internal(Kernel::kOp, ": ", [[e name] UTF8String], ": ",
                                  [[e reason] UTF8String]));
              }
            }
          },
          &KernelThunks<Kernel>::Delete};
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_VARIABLE_H_
