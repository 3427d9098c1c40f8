// RobustLoss: Barron's general and adaptive robust loss with its derivatives.

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void Check(OpCall& call) {
  const std::vector<ArgShape>& in = call.in_shapes;
  const ArgShape &predictions = in[0], &targets = in[1];
  const bool reduce_last = call.Bool("reduce_last");
  call.out_shapes[0] = WithoutLastIf(reduce_last, predictions);
  if (predictions.rank() < 0) return;
  const bool none = targets.rank() == 1 && targets.dims[0] <= 0;
  if (!none) call.shapes.ExpectLike("targets", targets, "predictions", predictions);
  call.shapes.Require(!reduce_last || predictions.rank() > 0,
                      "predictions must have a last dimension to reduce, got a scalar.");
  const int64_t channels = predictions.rank() > 0 ? predictions.dims.back() : 1;
  for (int i = 2; i < 4; ++i) {
    if (in[i].rank() <= 0) continue;
    call.shapes.Require(
        in[i].rank() == 1 && (channels < 0 || in[i].dims[0] < 0 || in[i].dims[0] == channels),
        std::string(i == 2 ? "alpha" : "scale") +
            " must be a scalar or a vector of predictions' last dimension, " +
            std::to_string(channels) + ", got shape " + ToText(in[i]) + ".");
  }
}

DECLARE_OP("RobustLoss")
    .Doc(
        "The general robust loss (Barron, CVPR 2019, equation 8) of predictions - targets, with "
        "its derivatives, in float32.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("reduce_last: bool = false", "Whether the loss is the mean over the last dimension.")
    .Attr("parameter_gradients: bool = false", "Whether the last two outputs are made.")
    .Input("predictions: T", "any", "Predictions of any shape.")
    .Input("targets: T", "any", "Shaped like predictions; or [0] for none.")
    .Input("alpha: float", "any",
           "Shape of the loss, any number or infinity: a scalar, or a vector of predictions' last "
           "dimension.",
           Memory::kHost)
    .Input("scale: float", "any",
           "Size of a residual from which on alpha matters, above 0; likewise.", Memory::kHost)
    .Output("loss: T", "any", "Shaped like predictions, or without their last dimension.")
    .Output("slope: T", "like predictions",
            "d loss / d predictions. Not differentiable, like the next two.")
    .Output("slope_alpha: T", "like predictions if parameter_gradients",
            "d loss / d alpha of each element, or [0].")
    .Output("slope_scale: T", "like predictions if parameter_gradients",
            "d loss / d scale of each element, or [0].")
    .Check(Check);

DECLARE_GRADIENT("RobustLoss", "predictions = ScaleSlope(d loss, slope)",
                 "targets = -ScaleSlope(d loss, slope)",
                 "alpha = ScaleSlopeSum(d loss, slope_alpha, alpha) if parameter_gradients",
                 "scale = ScaleSlopeSum(d loss, slope_scale, scale) if parameter_gradients");

}  // namespace
}  // namespace metal_ops
