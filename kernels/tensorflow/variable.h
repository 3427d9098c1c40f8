// Variables in Metal kernels: resources, and the ref inputs of TensorFlow 1's graphs, which are tensors of the
// device's.
//
//   void Compute(KernelContext* ctx) {
//     VariableLock lock(ctx, /*exclusive=*/true, {0});
//     Tensor var;
//     OP_REQUIRES_OK(ctx, lock.Get(0, &var));
//     ... encode a shader that writes var; the stream runs it after all that was encoded before ...
//   }
//
// Register the resource inputs with HostMemory: a handle is the host's on every device.
//
// The kernel C API's functions for this, kernels_experimental.h, are not in TensorFlow's libraries from 2.20 on,
// although their header is. So this uses TensorFlow's own Var, which every release has.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_VARIABLE_H_
#define METAL_OPS_KERNELS_TENSORFLOW_VARIABLE_H_

#include <memory>
#include <vector>

#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// Holds the mutexes of the variables behind some inputs, taken in one order by all ops.
class VariableLock {
 public:
  // `exclusive` false: as TensorFlow's use_locking=false has it.
  VariableLock(KernelContext* ctx, bool exclusive, const std::vector<int>& inputs);
  ~VariableLock();
  VariableLock(const VariableLock&) = delete;
  VariableLock& operator=(const VariableLock&) = delete;

  // The variable's tensor, which may be written: no other results lie in its memory. An error if there is no such
  // variable, or no value in it.
  Status Get(int input, Tensor* tensor);
  // The same to be read only, for which no copy is made.
  Status Read(int input, Tensor* tensor);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Whether two resource inputs are one variable.
Status SameVariable(KernelContext* ctx, int a, int b, bool* same);

// Makes the value in input `value` that of the variable in input `variable`: a resource, which is created if need be,
// or a ref input, which is output 0 then, too.
Status AssignVariable(KernelContext* ctx, int variable, int value, bool validate_shape);
Status AssignRef(KernelContext* ctx, int variable, int value, bool use_locking,
                 bool validate_shape);

// A ref input as an output.
void ForwardRef(KernelContext* ctx, int input, int output);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_VARIABLE_H_
