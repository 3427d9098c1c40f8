// ScaleSlope and ScaleSlopeSum on the Metal device.

#include <string>
#include <vector>

#include "kernels/common/encoder.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/registrar.h"
#include "kernels/scale_slope/scale_slope_checks.h"
#include "kernels/scale_slope/scale_slope_params.h"

namespace metal_ops {
namespace {

class ScaleSlopeOp {
 public:
  static constexpr char kOp[] = "ScaleSlope";
  explicit ScaleSlopeOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor incoming, slope, gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &incoming));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &slope));
    ArgShapes shapes(kOp);
    CheckScaleSlope(&shapes, ShapesOf(incoming, slope));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(1, 0, slope.shape(), &gradient));
    const int64_t n = slope.num_elements();
    if (n == 0) return;
    ScaleSlopeParams params = {};
    params.n_elements = static_cast<uint64_t>(n);
    params.per_incoming = static_cast<uint64_t>(n / incoming.num_elements());
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"scale_slope", slope.dtype()}, Grid::Flat(n),
                                           {{"incoming", incoming},
                                            {"slope", slope},
                                            {"gradient", gradient},
                                            {"params", params}});
                   }));
  }
};

class ScaleSlopeSumOp {
 public:
  static constexpr char kOp[] = "ScaleSlopeSum";
  explicit ScaleSlopeSumOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor incoming, slope, parameter, gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &incoming));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &slope));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &parameter));
    const std::vector<ArgShape> args = ShapesOf(incoming, slope, parameter);
    ArgShapes shapes(kOp);
    CheckScaleSlopeSum(&shapes, args);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, parameter.shape(), &gradient));
    const int64_t n = slope.num_elements(), channels = ScaleSlopeChannels(args[2]);
    if (channels == 0) return;

    // Passes, the last of which leaves one sum a channel.
    std::vector<ScaleSlopeSumParams> passes;
    std::vector<Tensor> sums;
    for (int64_t rows = n / channels; rows > 1 || passes.empty();) {
      ScaleSlopeSumParams params = {};
      params.n_elements = static_cast<uint64_t>(rows * channels);
      rows = (rows + SCALE_SLOPE_TERMS - 1) / SCALE_SLOPE_TERMS;
      params.n_sums = static_cast<uint64_t>(rows * channels);
      params.per_incoming =
          n > 0 ? static_cast<uint64_t>(n / incoming.num_elements()) : uint64_t{1};
      passes.push_back(params);
      sums.emplace_back();
      if (rows > 1)
        OP_REQUIRES_OK(ctx, ctx->AllocateTemp(TF_FLOAT, {rows * channels}, &sums.back()));
    }
    OP_REQUIRES_OK(
        ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
          if (n == 0) return encoder.Fill(gradient, 0);
          for (size_t i = 0; i < passes.size(); ++i) {
            const Tensor& to = i + 1 < passes.size() ? sums[i] : gradient;
            const Grid grid = Grid::Flat(static_cast<int64_t>(passes[i].n_sums));
            if (i == 0) {
              RETURN_IF_ERROR(encoder.Launch(
                  {"scale_slope_sum", slope.dtype()}, grid,
                  {{"incoming", incoming}, {"slope", slope}, {"sums", to}, {"params", passes[i]}}));
            } else {
              RETURN_IF_ERROR(
                  encoder.Launch("scale_slope_fold", grid,
                                 {{"terms", sums[i - 1]}, {"sums", to}, {"params", passes[i]}}));
            }
          }
          return Status();
        }));
  }
};

REGISTER_METAL_KERNEL(ScaleSlopeSumOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(ScaleSlopeOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
