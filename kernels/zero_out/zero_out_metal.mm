// ZeroOut on the Metal device.

#include "kernels/runtime/metal_call.h"

static metal_ops::Status ZeroOut(metal_ops::MetalCall& call) {
  const uint64_t n = static_cast<uint64_t>(call.in(0).num_elements());
  return call.Launch({"zero_out", call.in(0).element_bytes()}, metal_ops::Grid::Flat(n),
                     {{"to_zero", call.in(0)}, {"zeroed", call.out(0)}, {"n_elements", n}});
}
METAL_KERNEL("ZeroOut", ZeroOut);
