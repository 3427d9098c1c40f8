// Variables in Metal kernels: see variable.h.

#include "kernels/tensorflow/variable.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <set>

#include "kernels/tensorflow/cc_tensor.h"
#include "tensorflow/core/framework/ref_var.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace metal_ops {

using tensorflow::Var;

struct VariableLock::State {
  KernelContext* ctx;
  std::map<int, tensorflow::core::RefCountPtr<Var>> vars;  // by input
  std::set<Var*> own;                                      // their memory is shared with nothing
                                                           // else
  std::vector<std::unique_ptr<tensorflow::mutex_lock>> locks;
  std::vector<std::unique_ptr<tensorflow::tf_shared_lock>> shared_locks;
  bool locked_refs = false;

  Status Find(int input, tensorflow::Tensor** resource, tensorflow::Tensor* ref) {
    tensorflow::OpKernelContext* const cc = CcContext(ctx);
    const auto found = vars.find(input);
    if (found != vars.end() && found->second->is_initialized) {
      *resource = found->second->tensor();
      return Status();
    }
    if (cc->input_is_ref(input)) {
      *ref = cc->mutable_input(input, locked_refs);
      if (ref->IsInitialized()) return Status();
    }
    return Status(Code::kFailedPrecondition,
                  StrCat("Attempting to use an uninitialized variable, input ", input,
                         "; run its initializer first"));
  }
};

VariableLock::VariableLock(KernelContext* ctx, bool exclusive, const std::vector<int>& inputs)
    : state_(new State()) {
  state_->ctx = ctx;
  tensorflow::OpKernelContext* const cc = CcContext(ctx);
  std::vector<tensorflow::mutex*> mutexes;
  bool any_resource = false;
  for (const int input : inputs) {
    if (cc->input_is_ref(input)) {
      mutexes.push_back(cc->input_ref_mutex(input));
      continue;
    }
    any_resource = true;
    tensorflow::core::RefCountPtr<Var> var;
    // Get() names a missing one.
    if (!LookupResource(cc, tensorflow::HandleFromInput(cc, input), &var).ok()) continue;
    mutexes.push_back(var->mu());
    state_->vars[input] = std::move(var);
  }
  // Refs without locking are read and written as they are.
  if (!exclusive && !any_resource) return;
  state_->locked_refs = true;
  std::sort(mutexes.begin(), mutexes.end());
  mutexes.erase(std::unique(mutexes.begin(), mutexes.end()), mutexes.end());
  for (tensorflow::mutex* const mutex : mutexes) {
    if (exclusive) {
      state_->locks.push_back(std::make_unique<tensorflow::mutex_lock>(*mutex));
    } else {
      state_->shared_locks.push_back(std::make_unique<tensorflow::tf_shared_lock>(*mutex));
    }
  }
}

VariableLock::~VariableLock() {
  // Before the variables that they are of.
  state_->locks.clear();
  state_->shared_locks.clear();
}

Status VariableLock::Get(int input, Tensor* tensor) {
  tensorflow::Tensor *resource = nullptr, ref;
  RETURN_IF_ERROR(state_->Find(input, &resource, &ref));
  if (resource == nullptr) return FromCc(ref, tensor);
  Var* const var = state_->vars[input].get();
  // Values that were read are still held; not by this op, for a variable that is two of its inputs. In
  // copy_on_read_mode, too: reads copy then, and writers with a shared lock are shut out by this one.
  if (state_->own.insert(var).second && !resource->RefCountIsOne()) {
    tensorflow::Tensor own;
    RETURN_IF_ERROR(OwnCopyCc(state_->ctx, *resource, &own));
    *resource = own;
  }
  return FromCc(*resource, tensor);
}

Status VariableLock::Read(int input, Tensor* tensor) {
  tensorflow::Tensor *resource = nullptr, ref;
  RETURN_IF_ERROR(state_->Find(input, &resource, &ref));
  return FromCc(resource == nullptr ? ref : *resource, tensor);
}

Status SameVariable(KernelContext* ctx, int a, int b, bool* same) {
  Tensor x, y;
  RETURN_IF_ERROR(ctx->Input(a, &x));
  RETURN_IF_ERROR(ctx->Input(b, &y));
  // Handles arrive serialised, with a name that is the variable's alone.
  *same = x.byte_size() == y.byte_size() && memcmp(x.opaque(), y.opaque(), x.byte_size()) == 0;
  return Status();
}

Status AssignVariable(KernelContext* ctx, int variable, int value, bool validate_shape) {
  tensorflow::OpKernelContext* const cc = CcContext(ctx);
  const tensorflow::Tensor& to = cc->input(value);
  tensorflow::core::RefCountPtr<Var> var;
  RETURN_IF_ERROR(FromCc(tensorflow::LookupOrCreateResource<Var>(
      cc, tensorflow::HandleFromInput(cc, variable), &var, [&](Var** created) {
        *created = new Var(to.dtype());
        return absl::OkStatus();
      })));
  tensorflow::mutex_lock lock(*var->mu());
  tensorflow::Tensor* const tensor = var->tensor();
  if (tensor->dtype() != to.dtype()) {
    return InvalidArgument("Trying to assign variable with wrong dtype. Expected ",
                           DataTypeString(tensor->dtype()), " got ", DataTypeString(to.dtype()));
  }
  if (validate_shape && var->is_initialized && !tensor->shape().IsSameSize(to.shape())) {
    return InvalidArgument("Trying to assign to variable with tensor with wrong shape. Expected ",
                           tensor->shape().DebugString(), " got ", to.shape().DebugString());
  }
  if (var->copy_on_read_mode.load()) {
    tensorflow::Tensor own;
    RETURN_IF_ERROR(OwnCopyCc(ctx, to, &own));
    *tensor = own;
  } else {
    *tensor = to;
  }
  var->is_initialized = true;
  return Status();
}

Status AssignRef(KernelContext* ctx, int variable, int value, bool use_locking,
                 bool validate_shape) {
  Status copied;
  tensorflow::AssignRefVariable(
      CcContext(ctx), variable, /*output_ref_index=*/0, value, use_locking, validate_shape,
      /*relax_constraints=*/false,
      [&](tensorflow::OpKernelContext*, tensorflow::Tensor* to, const tensorflow::Tensor& from) {
        copied = CopyCc(ctx, from, *to);
      });
  return copied;
}

void ForwardRef(KernelContext* ctx, int input, int output) {
  CcContext(ctx)->forward_ref_input_to_ref_output(input, output);
}

}  // namespace metal_ops
