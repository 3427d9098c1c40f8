// RobustLoss on the Metal device.

#include <string>

#include "kernels/common/registrar.h"
#include "kernels/common/row_means.h"
#include "kernels/robust_loss/robust_loss_checks.h"
#include "kernels/robust_loss/robust_loss_params.h"

namespace metal_ops {
namespace {

class RobustLossOp {
 public:
  static constexpr char kOp[] = "RobustLoss";

  explicit RobustLossOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reduce_last", &reduce_last_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("parameter_gradients", &parameter_gradients_));
  }

  void Compute(KernelContext* ctx) {
    Tensor predictions, targets, alpha, scale;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &predictions));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &targets));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &alpha));
    OP_REQUIRES_OK(ctx, ctx->Input(3, &scale));
    ArgShapes shapes(kOp);
    CheckRobustLoss(&shapes, ShapesOf(predictions, targets, alpha, scale), reduce_last_);
    CheckRobustScale(&shapes, scale.host<float>(), scale.num_elements());
    OP_REQUIRES_OK(ctx, ToStatus(shapes));

    const Shape& shape = predictions.shape();
    const Shape parameter_shape = parameter_gradients_ ? shape : Shape{0};
    Tensor loss, slope, slope_alpha, slope_scale;
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, RowMeansShape(shape, reduce_last_), &loss));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(1, shape, &slope));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(2, parameter_shape, &slope_alpha));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(3, parameter_shape, &slope_scale));

    RobustLossParams params = {};
    params.compare = targets.num_elements() > 0 ? 1 : 0;
    params.alpha_period = static_cast<uint32_t>(alpha.num_elements());
    params.scale_period = static_cast<uint32_t>(scale.num_elements());
    const Shader shader("robust_loss", parameter_gradients_ ? "parameters" : "",
                        predictions.dtype());
    OP_REQUIRES_OK(
        ctx,
        EncodeRowMeans(ctx, shape, reduce_last_, loss,
                       [&](Encoder& encoder, Grid grid, const RowMeansParams& rows, Value parts) {
                         return encoder.Launch(
                             shader, grid,
                             {{"predictions", predictions},
                              {"targets", targets},
                              {"alphas", HostArray(alpha.host<float>(), params.alpha_period)},
                              {"scales", HostArray(scale.host<float>(), params.scale_period)},
                              {"losses", loss},
                              {"parts", parts},
                              {"slopes", slope},
                              {"slopes_alpha", slope_alpha},
                              {"slopes_scale", slope_scale},
                              {"params", params},
                              {"rows", rows}});
                       }));
  }

 private:
  bool reduce_last_ = false;
  bool parameter_gradients_ = false;
};

// The few values of scale are looked at before anything runs, so they and alpha stay on the host.
REGISTER_METAL_KERNEL(
    RobustLossOp,
    .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("alpha").HostMemory("scale"));

}  // namespace
}  // namespace metal_ops
