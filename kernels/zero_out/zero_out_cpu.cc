// ZeroOut on the CPU.

#include "kernels/runtime/op.h"

static void ZeroOut(metal_ops::CpuCall& call) {
  const auto& to = call.outputs[0];
  if (to.n_elements == 0) return;  // and there is no address
  std::memset(to.data, 0, to.n_bytes);
  std::memcpy(to.data, call.in<char>(0), to.n_bytes / to.n_elements);
}
CPU_KERNEL("ZeroOut", ZeroOut);
