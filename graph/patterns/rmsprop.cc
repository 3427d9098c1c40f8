// Update: RMSprop, plain or centred, with momentum or without.

#include "graph/update.h"

namespace metal_ops::fusion {
namespace {

using Slot = Update::Slot;

constexpr PatternInfo kInfo = {
    "rmsprop",
    Stage::kUpdate,
    "AssignSubVariableOp",
    "RMSprop as Keras 3 writes it: v = rho v + (1 - rho) gradient^2, centred also average = rho "
    "average + (1 - rho) gradient, step = rate gradient / sqrt(v [- average^2] + epsilon), with "
    "momentum m = momentum m + step, then weights -= m or step. The numbers are one each, and "
    "nothing that has an order with the ops comes between them.",
    R"(
 v = AssignVariableOp(AddV2(Mul(rho, ReadVariableOp(v)), Mul(1 - rho, Square(gradient))))
 [average = AssignVariableOp(AddV2(Mul(rho, ReadVariableOp(average)), Mul(1 - rho, gradient)))]
   |  a control edge
 ReadVariableOp(v)   [Square(ReadVariableOp(average))]
   |
 Sqrt(AddV2([Sub(.., ..)], epsilon))   Mul(rate, gradient)
                                 \      /
                              RealDiv(.., ..)
                                    |
 [m = AssignVariableOp(AddV2(Mul(momentum, ReadVariableOp(m)), ..)), ReadVariableOp(m)]
                                    |
 AssignSubVariableOp(weights, ..)
)",
    R"(
 weights   v   [average]   [m]   gradient   rate   rho   1 - rho   epsilon   [momentum]
       \   |       |        |       |         |     |       |         |       /
  fused: ResourceRmspropStep, n_averages = 0 | 1, n_momenta = 0 | 1
)"};

struct Mean {
  Value rho, one_minus_rho;
};

// rho slot + (1 - rho) of the value that `is` recognises.
template <typename Is>
std::optional<Mean> FindMean(Update* update, const Slot& slot, const Is& is) {
  std::optional<Value> rho;
  const auto part = update->Beside(slot.becomes, "AddV2", [&](const Value& value) {
    rho = update->Beside(value, "Mul",
                         [&](const Value& kept) { return update->ReadsBefore(kept, slot); });
    return rho.has_value();
  });
  if (!part) return std::nullopt;
  const auto one_minus_rho = update->Beside(*part, "Mul", is);
  if (!one_minus_rho) return std::nullopt;
  return Mean{*rho, *one_minus_rho};
}

// The step behind m = momentum m + step, where there is that.
std::optional<Value> FindStep(Update* update, const Value& delta, std::optional<Slot>* m,
                              std::optional<Value>* momentum) {
  *m = update->ReadAfter(delta, "AssignVariableOp");
  if (!*m) return delta;
  return update->Beside((*m)->becomes, "AddV2", [&](const Value& value) {
    *momentum = update->Beside(value, "Mul",
                               [&](const Value& kept) { return update->ReadsBefore(kept, **m); });
    return momentum->has_value();
  });
}

// v or v - average^2.
bool FindSize(Update* update, const Value& value, std::optional<Slot>* v,
              std::optional<Slot>* average) {
  average->reset();
  const auto difference = update->Operands(value, "Sub");
  if (difference) {
    const auto mean = update->SquareRoot(difference->second);
    if (mean) *average = update->ReadAfter(*mean, "AssignVariableOp");
    if (!*average) return false;
  }
  *v = update->ReadAfter(difference ? difference->first : value, "AssignVariableOp");
  return v->has_value();
}

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  if (root.GetOp() != "AssignSubVariableOp") return NotMine();
  const Facts& facts = chain->facts();
  Update update(*chain);
  std::optional<Slot> v, average, m;
  std::optional<Value> momentum, gradient;
  const auto step = FindStep(&update, facts.Input(root, 1), &m, &momentum);
  if (!step) return NotMine();
  const auto quotient = update.Operands(*step, "RealDiv");
  if (!quotient) return NotMine();
  const auto size = update.Operand(quotient->second, "Sqrt");
  if (!size) return NotMine();
  const auto epsilon = update.Beside(
      *size, "AddV2", [&](const Value& value) { return FindSize(&update, value, &v, &average); });
  if (!epsilon) return NotMine();
  const auto mean = FindMean(&update, *v, [&](const Value& value) {
    return (gradient = update.SquareRoot(value)).has_value();
  });
  if (!mean) return NotMine();
  const auto is_gradient = [&](const Value& value) { return value == *gradient; };
  const auto rate = update.Beside(quotient->first, "Mul", is_gradient);
  std::optional<Mean> centre;
  if (average) centre = FindMean(&update, *average, is_gradient);
  std::vector<Slot> slots = {*v};
  if (average) slots.push_back(*average);
  if (m) slots.push_back(*m);
  if (!rate || (average && !centre) || !update.AreDistinct(slots)) return NotMine();

  std::vector<std::pair<Value, std::string>> numbers = {
      {*rate, "rate"}, {mean->rho, "rho"}, {mean->one_minus_rho, "1 - rho"}, {*epsilon, "epsilon"}};
  if (m) numbers.push_back({*momentum, "momentum"});
  if (Refusal refusal = update.Check(*gradient, slots, numbers); !refusal.empty()) {
    return Refused(refusal);
  }
  if (centre && !(update.IsSameNumber(centre->rho, mean->rho) &&
                  update.IsSameNumber(centre->one_minus_rho, mean->one_minus_rho))) {
    return Refused("two_means", Quoted(*average->assign) +
                                    " takes another part of the gradient than " +
                                    Quoted(*v->assign) + " of its square.");
  }
  std::vector<Value> inputs = {facts.Input(root, 0)};
  for (const Slot& slot : slots) inputs.push_back(slot.handle);
  inputs.push_back(*gradient);
  for (const auto& [value, role] : numbers) inputs.push_back(value);
  const Outcome outcome =
      update.Become(chain, "ResourceRmspropStep", inputs, average ? "CenteredRMSprop" : "RMSprop");
  if (outcome.matched()) {
    auto& attrs = *chain->node()->mutable_attr();
    attrs["n_averages"].set_i(average ? 1 : 0);
    attrs["n_momenta"].set_i(m ? 1 : 0);
  }
  return outcome;
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
