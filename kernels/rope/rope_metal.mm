// Rope on the Metal device.

#include "kernels/rope/rope_call.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

Status Rope(MetalCall& call) {
  const RopeParams params = ToRopeParams(call);
  return call.Launch({"rope", call.in(0).dtype()},
                     Grid(params.size - params.pairs, params.length, params.batch * params.heads),
                     {{"x", call.in(0)},
                      {"positions", call.in(1)},
                      {"turns", call.in(2)},
                      {"y", call.out(0)},
                      {"params", params}});
}
METAL_KERNEL("Rope", Rope);

}  // namespace
}  // namespace metal_ops
