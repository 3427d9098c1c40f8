// FusedMlp and its gradient: small fully connected networks in one pass over a batch.

#include <string>

#include "kernels/fused_mlp/fused_mlp_plan.h"
#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckSizes(OpCall& call) {
  const int64_t width = call.Int("n_neurons");
  call.shapes.Require(width == 16 || width == 32 || width == 64 || width == 128,
                      "n_neurons must be 16, 32, 64 or 128, got " + std::to_string(width) + ".");
}

void CheckWeights(OpCall& call, int weights) {
  const int64_t inputs = call.Size("inputs");
  if (inputs < 0) return;
  const std::string most = std::to_string(MLP_MOST_COLUMNS);
  call.shapes.Require(inputs >= 1 && inputs <= MLP_MOST_COLUMNS,
                      "x must have 1 to " + most + " columns, got " + std::to_string(inputs) + ".");
  if (!call.shapes.ok()) return;
  const MlpPlan plan(call);
  std::string sum;
  for (int l = 0; l < plan.n_layers; ++l) {
    sum += (l == 0 ? "" : " + ") + std::to_string(plan.rows(l)) + " x " +
           std::to_string(plan.columns(l));
    if (plan.use_bias) sum += " + " + std::to_string(plan.columns(l));
  }
  call.shapes.Expect("weights", call.in_shapes[weights], {std::to_string(plan.n_weights())},
                     "The layers have " + sum + " numbers.");
}

void CheckForward(OpCall& call) {
  CheckWeights(call, 1);
  call.out_shapes[0] = ArgShape({call.Size("batch"), call.Int("n_outputs")});
}

void CheckGrad(OpCall& call) {
  call.shapes.Expect("gradients", call.in_shapes[0],
                     {"batch", std::to_string(call.Int("n_outputs"))},
                     "They are shaped like the outputs.");
  CheckWeights(call, 2);
}

DECLARE_OP("FusedMlp")
    .Doc(R"doc(
A small fully connected network in one pass over a batch.

y_0 = x, y_l+1 = activation(y_l W_l + b_l). Sums are float32; each layer's result is rounded to T, as if it were a tensor.)doc")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("n_outputs: int", "Columns of the result, 1 to 128.", Between(1, MLP_MOST_COLUMNS))
    .Attr("n_neurons: int = 64", "Columns of the hidden layers: 16, 32, 64 or 128.")
    .Attr("n_hidden_layers: int = 2", "1 to 8.", Between(1, MLP_MOST_HIDDEN))
    .Attr(
        "activation: {'none', 'relu', 'exponential', 'sigmoid', 'squareplus', 'leaky_relu', "
        "'softplus', 'tanh'} = 'relu'",
        "Activation of the hidden layers.")
    .Attr(
        "output_activation: {'none', 'relu', 'exponential', 'sigmoid', 'squareplus', 'leaky_relu', "
        "'softplus', 'tanh'} = 'none'")
    .Attr("use_bias: bool = false")
    .Attr("squareplus_b: float = 4.0", "b of squareplus, (x + sqrt(x^2 + b)) / 2.",
          Between(1e-6, 1e6))
    .Attr("softplus_beta: float = 1.0", "b of softplus, log(1 + exp(b x)) / b.", Between(1e-3, 1e3))
    .Attr("negative_slope: float = 0.01", "Slope of leaky_relu below 0.", Between(0, 1))
    .Input("x: T", "[batch, inputs]", "[batch, inputs], with 1 to 128 inputs.")
    .Input(
        "weights: T", "[weights]",
        "All matrices, one after the other: of each its rows, an input each, and behind them its "
        "biases if there are any.")
    .Output("outputs: T", "any", "[batch, n_outputs].")
    .CheckAttrs(CheckSizes)
    .Check(CheckForward);

DECLARE_OP("FusedMlpGrad")
    .Doc(R"doc(
The gradient of FusedMlp with respect to its inputs and weights.

The hidden layers are computed again, a part of the batch at a time, and not kept from the first pass. The weights' gradient is
summed in float32, in an order that depends on the sizes alone.)doc")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("n_outputs: int", "", Between(1, MLP_MOST_COLUMNS))
    .Attr("n_neurons: int = 64")
    .Attr("n_hidden_layers: int = 2", "", Between(1, MLP_MOST_HIDDEN))
    .Attr(
        "activation: {'none', 'relu', 'exponential', 'sigmoid', 'squareplus', 'leaky_relu', "
        "'softplus', 'tanh'} = 'relu'")
    .Attr(
        "output_activation: {'none', 'relu', 'exponential', 'sigmoid', 'squareplus', 'leaky_relu', "
        "'softplus', 'tanh'} = 'none'")
    .Attr("use_bias: bool = false")
    .Attr("squareplus_b: float = 4.0", "", Between(1e-6, 1e6))
    .Attr("softplus_beta: float = 1.0", "", Between(1e-3, 1e3))
    .Attr("negative_slope: float = 0.01", "", Between(0, 1))
    .Attr("x_gradient: bool = true", "Whether the first output is made.")
    .Input("gradients: T", "any",
           "Gradient of the loss with respect to the outputs, [batch, n_outputs].")
    .Input("x: T", "[batch, inputs]", "As given to FusedMlp.")
    .Input("weights: T", "[weights]", "As given to FusedMlp.")
    .Output("d_x: T", "like x if x_gradient", "[batch, inputs], or [0].")
    .Output("d_weights: T", "like weights", "[weights].")
    .CheckAttrs(CheckSizes)
    .Check(CheckGrad);

DECLARE_GRADIENT("FusedMlp",
                 "x, weights = FusedMlpGrad(d outputs, x, weights; x_gradient=wanted x)");

}  // namespace
}  // namespace metal_ops
