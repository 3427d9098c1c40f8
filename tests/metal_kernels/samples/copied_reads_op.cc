// The first step of kernels for rows of a variable (EnsureSparseVariableAccess of TensorFlow's
// headers): from then on all reads of it are copies.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace {

using namespace tensorflow;

REGISTER_OP("SampleCopiedReads").Input("variable: resource").SetIsStateful();

class CopiedReads : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    core::RefCountPtr<Var> var;
    OP_REQUIRES_OK(ctx, LookupResource(ctx, HandleFromInput(ctx, 0), &var));
    mutex_lock lock(*var->mu());
    var->copy_on_read_mode.store(true);
  }
};

REGISTER_KERNEL_BUILDER(Name("SampleCopiedReads").Device(DEVICE_DEFAULT).HostMemory("variable"),
                        CopiedReads);

}  // namespace
