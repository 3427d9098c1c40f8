// DistortionLoss and ScaleRays on the Metal device.

#include "kernels/common/metal_rays.h"
#include "kernels/common/registrar.h"
#include "kernels/distortion_loss/distortion_loss_checks.h"

namespace metal_ops {
namespace {

// Asynchronous, so samples that are not in order are no error here: the ray's loss is NaN.
class DistortionLossOp {
 public:
  static constexpr char kOp[] = "DistortionLoss";

  explicit DistortionLossOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("t_gradients", &t_gradients_));
  }

  void Compute(KernelContext* ctx) {
    Tensor weights, t_starts, t_ends, packed_info, loss, slope, starts_slope, ends_slope;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &weights));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &t_starts));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &t_ends));
    OP_REQUIRES_OK(ctx, ctx->Input(3, &packed_info));
    ArgShapes shapes(kOp);
    CheckDistortionLoss(&shapes, ShapesOf(weights, t_starts, t_ends, packed_info));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    MetalRays rays;
    OP_REQUIRES_OK(ctx, rays.Init(kOp, packed_info, weights));
    const Shape t_shape = t_gradients_ ? weights.shape() : Shape{0};
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {rays.n_rays()}, &loss));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(1, weights.shape(), &slope));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(2, t_shape, &starts_slope));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(3, t_shape, &ends_slope));
    const uint32_t t_gradients = t_gradients_ ? 1 : 0;
    OP_REQUIRES_OK(
        ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
          RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&slope, &starts_slope, &ends_slope}));
          return encoder.Launch("distortion_loss", Grid(rays.n_rays()),
                                {{"weights", weights},
                                 {"t_starts", t_starts},
                                 {"t_ends", t_ends},
                                 {"spans", rays.spans()},
                                 {"loss", loss},
                                 {"slope", slope},
                                 {"starts_slope", starts_slope},
                                 {"ends_slope", ends_slope},
                                 {"layout", rays.layout()},
                                 {"t_gradients", t_gradients}});
        }));
  }

 private:
  bool t_gradients_ = false;
};

class ScaleRaysOp {
 public:
  static constexpr char kOp[] = "ScaleRays";

  explicit ScaleRaysOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor incoming, slope, packed_info, gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &incoming));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &slope));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &packed_info));
    ArgShapes shapes(kOp);
    CheckScaleRays(&shapes, ShapesOf(incoming, slope, packed_info));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    MetalRays rays;
    OP_REQUIRES_OK(ctx, rays.Init(kOp, packed_info, slope));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, slope.shape(), &gradient));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&gradient}));
                     return encoder.Launch("scale_rays", Grid(rays.n_rays()),
                                           {{"incoming", incoming},
                                            {"slope", slope},
                                            {"spans", rays.spans()},
                                            {"gradient", gradient},
                                            {"layout", rays.layout()}});
                   }));
  }
};

REGISTER_METAL_KERNEL(DistortionLossOp, .HostMemory("packed_info"));
REGISTER_METAL_KERNEL(ScaleRaysOp, .HostMemory("packed_info"));

}  // namespace
}  // namespace metal_ops
