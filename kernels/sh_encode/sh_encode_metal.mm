// ShEncode and ShEncodeGrad on the Metal device.

#include "kernels/runtime/metal_call.h"
#include "kernels/sh_encode/sh_encode_plan.h"

namespace metal_ops {
namespace {

Status ShEncode(MetalCall& call) {
  const int64_t n = call.Size("points"), degree = call.Int("degree");
  const ShEncodeParams params = MakeShEncodeParams(n, degree);
  return call.Launch(
      Shader("sh_encode", call.out(0).dtype()).Constant(0, static_cast<uint32_t>(degree)),
      Grid::Flat(n), {{"directions", call.in(0)}, {"outputs", call.out(0)}, {"params", params}});
}
METAL_KERNEL("ShEncode", ShEncode);

Status ShEncodeGrad(MetalCall& call) {
  const int64_t n = call.Size("points"), degree = call.Int("degree");
  const ShEncodeParams params = MakeShEncodeParams(n, degree);
  return call.Launch(
      Shader("sh_encode_grad", call.in(0).dtype()).Constant(0, static_cast<uint32_t>(degree)),
      Grid::Flat(n),
      {{"d_outputs", call.in(0)},
       {"directions", call.in(1)},
       {"directions_gradient", call.out(0)},
       {"params", params}});
}
METAL_KERNEL("ShEncodeGrad", ShEncodeGrad);

}  // namespace
}  // namespace metal_ops
