// Swiglu and its gradient on the Metal device.

#include "kernels/runtime/metal_call.h"
#include "kernels/swiglu/swiglu_call.h"

namespace metal_ops {
namespace {

Grid ElementsOf(const SwigluParams& p) {
  return p.up_offset > 0 ? Grid(p.columns, p.rows) : Grid::Flat(p.columns);
}

Status Swiglu(MetalCall& call) {
  const SwigluParams params = ToSwigluParams(call, 0);
  return call.Launch({"swiglu", call.in(0).dtype()}, ElementsOf(params),
                     {{"gate", call.in(0)},
                      {"up", call.in(params.up_offset > 0 ? 0 : 1)},
                      {"y", call.out(0)},
                      {"params", params}});
}
METAL_KERNEL("Swiglu", Swiglu);

Status SwigluGrad(MetalCall& call) {
  const SwigluParams params = ToSwigluParams(call, 1);
  return call.Launch({"swiglu_grad", call.in(0).dtype()}, ElementsOf(params),
                     {{"d_y", call.in(0)},
                      {"gate", call.in(1)},
                      {"up", call.in(params.up_offset > 0 ? 1 : 2)},
                      {"d_gate", call.out(0)},
                      {"d_up", call.out(params.up_offset > 0 ? 0 : 1)},
                      {"params", params}});
}
METAL_KERNEL("SwigluGrad", SwigluGrad);

}  // namespace
}  // namespace metal_ops
