// Variables in Metal kernels, through the experimental kernel C API: resources, and the ref inputs of
// TensorFlow 1's graphs, which are tensors of the device's.
//
//   void Compute(KernelContext* ctx) {
//     VariableLock lock(ctx, /*exclusive=*/true, {0});
//     Tensor var;
//     if (!lock.Get(0, &var)) return;
//     ... encode a shader that writes var; the stream runs it after all that was encoded before ...
//   }
//
// Register the resource inputs with HostMemory: a handle is the host's on every device.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_VARIABLE_H_
#define METAL_OPS_KERNELS_TENSORFLOW_VARIABLE_H_

#include <vector>

#include "kernels/tensorflow/op_kernel.h"
#include "tensorflow/c/kernels_experimental.h"

namespace metal_ops {

// What TensorFlow calls when a variable must not be written in place, because somebody still holds
// what it read. Takes both tensors.
void CopyTensor(TF_OpKernelContext* ctx, TF_Tensor* source, TF_Tensor* dest);

// Holds the mutexes of the variables behind some inputs, taken in one order by all ops.
class VariableLock {
 public:
  // `exclusive` false: as TensorFlow's use_locking=false has it.
  VariableLock(KernelContext* ctx, bool exclusive, const std::vector<int>& inputs);
  ~VariableLock();
  VariableLock(const VariableLock&) = delete;
  VariableLock& operator=(const VariableLock&) = delete;

  // The variable's tensor, which may be written: nobody else's results lie in its memory. False if
  // there is no such variable; that is reported already.
  bool Get(int input, Tensor* tensor);

 private:
  KernelContext* ctx_;
  TF_VariableInputLockHolder* holder_ = nullptr;
};

// Whether two resource inputs are one variable.
Status SameVariable(KernelContext* ctx, int a, int b, bool* same);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_VARIABLE_H_
