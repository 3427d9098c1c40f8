// Update: Adam and AMSGrad.

#include "graph/update.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "adam",
    Stage::kUpdate,
    "AssignSubVariableOp",
    "Adam, or AMSGrad, as Keras 3 writes it: m += (gradient - m) (1 - beta1), "
    "v += (gradient^2 - v) (1 - beta2), [hat = max(hat, v),] "
    "weights -= alpha m / (sqrt(v or hat) + epsilon). "
    "alpha, both of 1 - beta and epsilon are one number each and stay what the graph makes them. "
    "Nothing that has an order with the ops comes between them.",
    R"(
 m = AssignAddVariableOp(Mul(Sub(gradient, ReadVariableOp(m)), 1 - beta1))
 v = AssignAddVariableOp(Mul(Sub(Square(gradient), ReadVariableOp(v)), 1 - beta2))
   |  a control edge
 [hat = AssignVariableOp(Maximum(ReadVariableOp(hat), ReadVariableOp(v)))]
   |  a control edge
 ReadVariableOp(m)   ReadVariableOp(v | hat)
   |                   |
 Mul(.., alpha)      AddV2(Sqrt(..), epsilon)
       \              /
 AssignSubVariableOp(weights, RealDiv(.., ..))
)",
    R"(
 weights   m   v   [hat]   gradient   alpha   1 - beta1   1 - beta2   epsilon
       \   |   |     |        |         |         |          /        /
  fused: ResourceAdamStep, n_hats = 0 | 1
)"};

Outcome Match(Chain* chain) {
  using Slot = Update::Slot;
  const NodeView& root = chain->root();
  if (root.GetOp() != "AssignSubVariableOp") return NotMine();
  const Facts& facts = chain->facts();
  Update update(*chain);
  const auto quotient = update.Operands(facts.Input(root, 1), "RealDiv");
  if (!quotient) return NotMine();
  std::optional<Slot> m, v, hat;
  const auto alpha = update.Beside(quotient->first, "Mul", [&](const Value& value) {
    return (m = update.ReadAfter(value, "AssignAddVariableOp")).has_value();
  });
  const auto epsilon = update.Beside(quotient->second, "AddV2", [&](const Value& value) {
    const auto size = update.Operand(value, "Sqrt");
    if (!size) return false;
    hat = update.ReadAfter(*size, "AssignVariableOp");
    if (!hat) v = update.ReadAfter(*size, "AssignAddVariableOp");
    return hat || v;
  });
  if (!alpha || !epsilon) return NotMine();
  if (hat) {
    const auto other = update.Beside(hat->becomes, "Maximum", [&](const Value& value) {
      return update.ReadsBefore(value, *hat);
    });
    if (other) v = update.ReadAfter(*other, "AssignAddVariableOp");
  }
  if (!v) return NotMine();

  std::optional<Value> gradient, squared;
  const auto rate1 = update.Beside(m->becomes, "Mul", [&](const Value& value) {
    const auto away = update.Operands(value, "Sub");
    if (!away || !update.ReadsBefore(away->second, *m)) return false;
    gradient = away->first;
    return true;
  });
  const auto rate2 = update.Beside(v->becomes, "Mul", [&](const Value& value) {
    const auto away = update.Operands(value, "Sub");
    if (!away || !update.ReadsBefore(away->second, *v)) return false;
    squared = update.SquareRoot(away->first);
    return squared.has_value();
  });
  std::vector<Slot> slots = {*m, *v};
  if (hat) slots.push_back(*hat);
  if (!rate1 || !rate2 || !update.AreDistinct(slots)) return NotMine();

  if (Refusal refusal = update.Check(
          *gradient, slots,
          {{*alpha, "rate"}, {*rate1, "1 - beta1"}, {*rate2, "1 - beta2"}, {*epsilon, "epsilon"}});
      !refusal.empty()) {
    return Refused(refusal);
  }
  if (!(*gradient == *squared)) {
    return Refused("two_gradients",
                   Quoted(*v->assign) + " takes another gradient than " + Quoted(*m->assign) + ".");
  }
  std::vector<Value> inputs = {facts.Input(root, 0)};
  for (const Slot& slot : slots) inputs.push_back(slot.handle);
  for (const Value& value : {*gradient, *alpha, *rate1, *rate2, *epsilon}) inputs.push_back(value);
  const Outcome outcome =
      update.Become(chain, "ResourceAdamStep", inputs, hat ? "AMSGrad" : "Adam");
  if (outcome.matched()) (*chain->node()->mutable_attr())["n_hats"].set_i(hat ? 1 : 0);
  return outcome;
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
