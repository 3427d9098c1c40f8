// ResourceAdamStep, ResourceRmspropStep, ResourceAdagradStep: the fusion pass makes them of optimizers in
// elementary ops. All of one dtype, and every number that the graph has is an input, so that the result
// is the graph's to rounding: ResourceFusedAdam's, of numbers in float64, is not.

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void Number(OpBuilder& op, const char* name, const char* doc) {
  op.Input((std::string(name) + ": T").c_str(), "[]", doc);
}

void Gradient(OpBuilder& op) { op.Input("gradient: T", "any", "Shaped like var."); }

void AdamNumbers(OpBuilder& op) {
  Number(op, "alpha", "Learning rate sqrt(1 - beta2^step) / (1 - beta1^step).");
  Number(op, "one_minus_beta1", "How much of the gradient m takes.");
  Number(op, "one_minus_beta2", "How much of its square v takes.");
  Number(op, "epsilon", "Added to the square root.");
}

void RmspropNumbers(OpBuilder& op) {
  Number(op, "lr", "Learning rate.");
  Number(op, "rho", "How much of velocity and average stays.");
  Number(op, "one_minus_rho", "How much of the gradient they take.");
  Number(op, "epsilon", "Added below the square root.");
  op.Input("momentum: n_momenta * T", "[]", "How much of the momentum stays, if there is one.");
}

void AdagradNumbers(OpBuilder& op) {
  Number(op, "lr", "Learning rate.");
  Number(op, "epsilon", "Added below the square root.");
}

constexpr char kTypes[] = "T: {float, half, bfloat16, double}";

DECLARE_OP("ResourceAdamStep")
    .Doc(R"doc(
Updates a variable by Adam and, with a `hats`, by AMSGrad, with numbers that a graph computed.

m += (gradient - m) one_minus_beta1; v += (gradient^2 - v) one_minus_beta2; hat = max(hat, v);
var -= alpha m / (sqrt(hat or v) + epsilon). In float32 whatever T, but for float64.)doc")
    .Attr(kTypes)
    .Attr("n_hats: int >= 0 = 0", "", Between(0, 1))
    .Variable("var: T", "like gradient", "The variable.")
    .Variable("m: T", "like gradient", "First moment.")
    .Variable("v: T", "like gradient", "Second moment.")
    .Variable("hats: n_hats * T", "like gradient",
              "None, or AMSGrad's maximum of the second moment.")
    .With(Gradient)
    .With(AdamNumbers);

DECLARE_OP("ResourceRmspropStep")
    .Doc(R"doc(
Updates a variable by RMSprop, centred with an `averages`, with numbers that a graph computed.

velocity = rho velocity + one_minus_rho gradient^2; average = rho average + one_minus_rho gradient;
step = lr gradient / sqrt(velocity - average^2 + epsilon); with momentum m = momentum m + step; var -= m or step.
In float32 whatever T, but for float64.)doc")
    .Attr(kTypes)
    .Attr("n_averages: int >= 0 = 0", "", Between(0, 1))
    .Attr("n_momenta: int >= 0 = 0", "", Between(0, 1))
    .Variable("var: T", "like gradient", "The variable.")
    .Variable("velocity: T", "like gradient", "Mean of the gradient's squares.")
    .Variable("averages: n_averages * T", "like gradient", "None, or the gradient's mean.")
    .Variable("momenta: n_momenta * T", "like gradient", "None, or the mean of steps.")
    .With(Gradient)
    .With(RmspropNumbers);

DECLARE_OP("ResourceAdagradStep")
    .Doc(R"doc(
Updates a variable by Adagrad, with numbers that a graph computed.

accumulator += gradient^2; var -= lr gradient / sqrt(accumulator + epsilon). In float32 whatever T, but for float64.)doc")
    .Attr(kTypes)
    .Variable("var: T", "like gradient", "The variable.")
    .Variable("accumulator: T", "like gradient", "Sum of the gradient's squares.")
    .With(Gradient)
    .With(AdagradNumbers);

}  // namespace
}  // namespace metal_ops
