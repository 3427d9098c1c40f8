// Update: Adagrad.

#include "graph/update.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "adagrad",
    Stage::kUpdate,
    "AssignSubVariableOp",
    "Adagrad as Keras 3 writes it: accumulator += gradient^2, then weights -= rate gradient / "
    "sqrt(accumulator + epsilon). The rate and epsilon are one number each, "
    "and nothing that has an order with the ops comes between them.",
    R"(
 accumulator = AssignAddVariableOp(Square(gradient))
   |  a control edge
 ReadVariableOp(accumulator)
   |
 Sqrt(AddV2(.., epsilon))   Mul(rate, gradient)
                      \      /
 AssignSubVariableOp(weights, RealDiv(.., ..))
)",
    R"(
 weights   accumulator   gradient   rate   epsilon
       \        |           |        |     /
  fused: ResourceAdagradStep
)"};

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  if (root.GetOp() != "AssignSubVariableOp") return NotMine();
  const Facts& facts = chain->facts();
  Update update(*chain);
  const auto quotient = update.Operands(facts.Input(root, 1), "RealDiv");
  if (!quotient) return NotMine();
  const auto size = update.Operand(quotient->second, "Sqrt");
  if (!size) return NotMine();
  std::optional<Update::Slot> sum;
  const auto epsilon = update.Beside(*size, "AddV2", [&](const Value& value) {
    return (sum = update.ReadAfter(value, "AssignAddVariableOp")).has_value();
  });
  if (!epsilon) return NotMine();
  const auto gradient = update.SquareRoot(sum->becomes);
  if (!gradient || !update.AreDistinct({*sum})) return NotMine();
  const auto rate =
      update.Beside(quotient->first, "Mul", [&](const Value& value) { return value == *gradient; });
  if (!rate) return NotMine();
  if (Refusal refusal = update.Check(*gradient, {*sum}, {{*rate, "rate"}, {*epsilon, "epsilon"}});
      !refusal.empty()) {
    return Refused(refusal);
  }
  return update.Become(chain, "ResourceAdagradStep",
                       {facts.Input(root, 0), sum->handle, *gradient, *rate, *epsilon}, "Adagrad");
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
