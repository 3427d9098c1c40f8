// RobustLoss on the Metal device.

#include "kernels/losses/row_means.h"
#include "kernels/robust_loss/robust_loss_checks.h"
#include "kernels/robust_loss/robust_loss_params.h"

namespace metal_ops {
namespace {

Status RobustLoss(MetalCall& call) {
  RobustLossParams params = {};
  params.compare = call.in(1).num_elements() > 0 ? 1 : 0;
  for (const int i : {2, 3}) {
    RETURN_IF_ERROR(CheckGrid(call.op.name.c_str(), i == 2 ? "values of alpha" : "values of scale",
                              call.in(i).num_elements()));
  }
  params.alpha_period = static_cast<uint32_t>(call.in(2).num_elements());
  params.scale_period = static_cast<uint32_t>(call.in(3).num_elements());
  // The few values of scale are looked at before anything runs, so they and alpha are the host's.
  CheckRobustScale(&call.shapes, call.in(3).host<float>(), params.scale_period);
  RETURN_IF_ERROR(call.Checked());
  const Shader shader("robust_loss", call.Bool("parameter_gradients") ? "parameters" : "",
                      call.in(0).dtype());
  return EncodeRowMeans(call, call.in(0).shape(), call.Bool("reduce_last"), call.out(0),
                        [&](Encoder& encoder, Grid grid, const RowMeansParams& rows, Value parts) {
                          return encoder.Launch(
                              shader, grid,
                              {{"predictions", call.in(0)},
                               {"targets", call.in(1)},
                               {"alphas", HostArray(call.in(2).host<float>(), params.alpha_period)},
                               {"scales", HostArray(call.in(3).host<float>(), params.scale_period)},
                               {"losses", call.out(0)},
                               {"parts", parts},
                               {"slopes", call.out(1)},
                               {"slopes_alpha", call.out(2)},
                               {"slopes_scale", call.out(3)},
                               {"params", params},
                               {"rows", rows}});
                        });
}
METAL_KERNEL("RobustLoss", RobustLoss);

}  // namespace
}  // namespace metal_ops
