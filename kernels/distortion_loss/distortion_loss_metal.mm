// DistortionLoss and ScaleRays on the Metal device.

#include "kernels/rays/metal_rays.h"

namespace metal_ops {
namespace {

// Asynchronous, so samples that are not in order are no error here: the ray's loss is NaN.
Status DistortionLoss(MetalCall& call) {
  const uint32_t t_gradients = call.Bool("t_gradients") ? 1 : 0;
  return MetalRays::Launch(call, 3, 0, {1, 2, 3}, "distortion_loss",
                           {{"weights", call.in(0)},
                            {"t_starts", call.in(1)},
                            {"t_ends", call.in(2)},
                            {"loss", call.out(0)},
                            {"slope", call.out(1)},
                            {"starts_slope", call.out(2)},
                            {"ends_slope", call.out(3)},
                            {"t_gradients", t_gradients}});
}
METAL_KERNEL("DistortionLoss", DistortionLoss);

Status ScaleRays(MetalCall& call) {
  return MetalRays::Launch(
      call, 2, 1, {0}, "scale_rays",
      {{"d_loss", call.in(0)}, {"slope", call.in(1)}, {"gradient", call.out(0)}});
}
METAL_KERNEL("ScaleRays", ScaleRays);

}  // namespace
}  // namespace metal_ops
