// ResourceFusedAdam, ResourceFusedSgd: an optimizer's update of a variable in one pass over memory.

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckAdam(OpCall& call) {
  for (const char* name : {"beta1", "beta2"}) {
    if (call.HostValue(call.Index(name)) == nullptr) continue;
    const double beta = call.Scalar<double>(name);
    call.shapes.Require(beta >= 0 && beta < 1,
                        "beta1 and beta2 must be in [0, 1), got " + std::to_string(beta) + ".");
  }
  if (call.HostValue(call.Index("step")) == nullptr) return;
  const int64_t step = call.Scalar<int64_t>("step");
  call.shapes.Require(step >= 1, "step must count from 1, got " + std::to_string(step) + ".");
}

constexpr char kSkipZeroRows[] =
    "Leaves rows (of all but the first dimension) whose gradient is all zero as they are, moments "
    "included.";

void Number(OpBuilder& op, const char* name, const char* doc) {
  op.Input((std::string(name) + ": double").c_str(), "[]", doc, Memory::kHost);
}

void Decay(OpBuilder& op) {
  Number(op, "weight_decay", "Part of lr by which the variable shrinks.");
  op.Input("gradient: T", "any", "Shaped like var.");
}

void AdamNumbers(OpBuilder& op) {
  op.Input("step: int64", "[]", "1 for the first update.", Memory::kHost);
  Number(op, "lr", "Learning rate.");
  Number(op, "beta1", "");
  Number(op, "beta2", "");
  Number(op, "epsilon", "Added to the square root.");
}

void SgdNumbers(OpBuilder& op) {
  Number(op, "lr", "Learning rate.");
  Number(op, "momentum", "");
}

DECLARE_OP("ResourceFusedAdam")
    .Doc(R"doc(
Updates a variable by Adam with decoupled weight decay and, with a `hats`, by AMSGrad.

var -= lr weight_decay var; m += (gradient - m) (1 - beta1); v += (gradient^2 - v) (1 - beta2); hat = max(hat, v);
var -= lr sqrt(1 - beta2^step) / (1 - beta1^step) m / (sqrt(hat or v) + epsilon).)doc")
    .Attr("T: {float, half, bfloat16, double}")
    .Attr("n_hats: int >= 0 = 0", "", Between(0, 1))
    .Attr("skip_zero_rows: bool = false", kSkipZeroRows)
    .Attr(
        "float32_powers: bool = false",
        "Rounds beta^step to float32, which makes 1 - 0.999^2 wrong by 1e-5 of it, as Keras does. "
        "Not if T is double.")
    .Variable("var: T", "like gradient", "The variable, of dtype T.")
    .Variable("m: float(T)", "like gradient",
              "First moment, float32 (float64 if T is), shaped like var.")
    .Variable("v: float(T)", "like gradient", "Second moment, likewise.")
    .Variable("hats: n_hats * float(T)", "like gradient",
              "None, or AMSGrad's maximum of the second moment.")
    .With(AdamNumbers)
    .With(Decay)
    .Check(CheckAdam);

DECLARE_OP("ResourceFusedSgd")
    .Doc(R"doc(
Updates a variable by gradient descent with momentum and decoupled weight decay.

var -= lr weight_decay var; m = momentum m - lr gradient; var += m (Nesterov: momentum m - lr gradient). Without momenta:
var -= lr gradient.)doc")
    .Attr("T: {float, half, bfloat16, double}")
    .Attr("n_momenta: int >= 0 = 0", "", Between(0, 1))
    .Attr("nesterov: bool = false", "Nesterov's momentum.")
    .Attr("skip_zero_rows: bool = false", kSkipZeroRows)
    .Variable("var: T", "like gradient", "The variable, of dtype T.")
    .Variable("momenta: n_momenta * float(T)", "like gradient",
              "None, or m, float32 (float64 if T is), shaped like var.")
    .With(SgdNumbers)
    .With(Decay);

}  // namespace
}  // namespace metal_ops
