// Prints the ops as PyTorch's adapter declares them, without PyTorch: for the test beside it.

#include <cstdio>

#include "kernels/runtime/op.h"
#include "kernels/torch/schema.h"

namespace metal_ops {
DeclaredOp::DeclaredOp(const OpBuilder& builder) { internal::Remember(builder.op_); }

CpuKernel::CpuKernel(const char*, void (*)(CpuCall&)) {}

}  // namespace metal_ops

int main() {
  for (const metal_ops::OpDeclaration* op : metal_ops::internal::AllOps()) {
    if (op->has_variables()) continue;
    std::fputs(metal_ops::Described(metal_ops::MakeTorchOp(*op, nullptr)).c_str(), stdout);
  }
}
