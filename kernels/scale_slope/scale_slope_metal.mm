// ScaleSlope and ScaleSlopeSum on the Metal device.

#include "kernels/runtime/metal_call.h"
#include "kernels/scale_slope/scale_slope_params.h"

namespace metal_ops {
namespace {

// Elements of slope for each value of d_loss.
uint64_t PerLossGradient(const MetalCall& call) {
  return static_cast<uint64_t>(call.in(1).num_elements() / call.in(0).num_elements());
}

Status ScaleSlope(MetalCall& call) {
  const int64_t n = call.out(0).num_elements();
  if (n == 0) return Status();
  const ScaleSlopeParams params = {static_cast<uint64_t>(n), PerLossGradient(call)};
  return call.Launch({"scale_slope", call.out(0).dtype()}, Grid::Flat(n),
                     {{"d_loss", call.in(0)},
                      {"slope", call.in(1)},
                      {"gradient", call.out(0)},
                      {"params", params}});
}
METAL_KERNEL("ScaleSlope", ScaleSlope);

Status ScaleSlopeSum(MetalCall& call) {
  const Tensor &slope = call.in(1), &gradient = call.out(0);
  const int64_t n = slope.num_elements(), channels = gradient.num_elements();
  if (channels == 0) return Status();
  if (n == 0) return call.Encode([&](Encoder& encoder) { return encoder.Fill(gradient, 0); });

  // Passes, the last of which leaves one sum per channel.
  std::vector<ScaleSlopeSumParams> passes;
  std::vector<Tensor> sums;
  for (int64_t rows = n / channels; rows > 1 || passes.empty();) {
    ScaleSlopeSumParams params = {};
    params.n_elements = static_cast<uint64_t>(rows * channels);
    rows = (rows + SCALE_SLOPE_TERMS - 1) / SCALE_SLOPE_TERMS;
    params.n_sums = static_cast<uint64_t>(rows * channels);
    params.per_d_loss = PerLossGradient(call);
    passes.push_back(params);
    sums.emplace_back();
    if (rows > 1)
      RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {rows * channels}, &sums.back()));
  }
  return call.Encode([&](Encoder& encoder) -> Status {
    for (size_t i = 0; i < passes.size(); ++i) {
      const Tensor& to = i + 1 < passes.size() ? sums[i] : gradient;
      const Grid grid = Grid::Flat(static_cast<int64_t>(passes[i].n_sums));
      if (i == 0) {
        RETURN_IF_ERROR(encoder.Launch(
            {"scale_slope_sum", slope.dtype()}, grid,
            {{"d_loss", call.in(0)}, {"slope", slope}, {"sums", to}, {"params", passes[i]}}));
      } else {
        RETURN_IF_ERROR(
            encoder.Launch("scale_slope_fold", grid,
                           {{"terms", sums[i - 1]}, {"sums", to}, {"params", passes[i]}}));
      }
    }
    return Status();
  });
}
METAL_KERNEL("ScaleSlopeSum", ScaleSlopeSum);

}  // namespace
}  // namespace metal_ops
