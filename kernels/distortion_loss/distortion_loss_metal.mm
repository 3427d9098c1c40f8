// DistortionLoss and ScaleRays on the Metal device.

#include "kernels/rays/metal_rays.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

// Asynchronous, so samples that are not in order are no error here: the ray's loss is NaN.
Status DistortionLoss(MetalCall& call) {
  MetalRays rays;
  RETURN_IF_ERROR(rays.Init(call.op.name.c_str(), call.in(3), call.in(0)));
  const uint32_t t_gradients = call.Bool("t_gradients") ? 1 : 0;
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&call.out(1), &call.out(2), &call.out(3)}));
    return encoder.Launch("distortion_loss", Grid(rays.n_rays()),
                          {{"weights", call.in(0)},
                           {"t_starts", call.in(1)},
                           {"t_ends", call.in(2)},
                           {"spans", rays.spans()},
                           {"loss", call.out(0)},
                           {"slope", call.out(1)},
                           {"starts_slope", call.out(2)},
                           {"ends_slope", call.out(3)},
                           {"layout", rays.layout()},
                           {"t_gradients", t_gradients}});
  });
}
METAL_KERNEL("DistortionLoss", DistortionLoss);

Status ScaleRays(MetalCall& call) {
  MetalRays rays;
  RETURN_IF_ERROR(rays.Init(call.op.name.c_str(), call.in(2), call.in(1)));
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&call.out(0)}));
    return encoder.Launch("scale_rays", Grid(rays.n_rays()),
                          {{"d_loss", call.in(0)},
                           {"slope", call.in(1)},
                           {"spans", rays.spans()},
                           {"gradient", call.out(0)},
                           {"layout", rays.layout()}});
  });
}
METAL_KERNEL("ScaleRays", ScaleRays);

}  // namespace
}  // namespace metal_ops
