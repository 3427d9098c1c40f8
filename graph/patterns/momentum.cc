// Update: stochastic gradient descent with momentum, plain or Nesterov's.

#include "graph/update.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "momentum",
    Stage::kUpdate,
    "AssignAddVariableOp",
    "SGD with momentum, plain or Nesterov's, as Keras 3 writes it: m = momentum m - rate gradient, "
    "then weights += m, or weights += momentum m - rate gradient. The rate and the momentum are "
    "one "
    "number each, and nothing that has an order with the ops comes between them.",
    R"(
 m = AssignVariableOp(Sub(Mul(ReadVariableOp(m), momentum), Mul(gradient, rate)))
   |  a control edge
 ReadVariableOp(m)
   |
 [Sub(Mul(.., momentum), Mul(gradient, rate))]
   |
 AssignAddVariableOp(weights, ..)
)",
    R"(
 weights   m   rate   gradient   momentum
       \   |    |      /        /
  fused: ResourceApplyKerasMomentum, use_nesterov = false | true
)"};

struct Terms {
  Value m, momentum, gradient, rate;
};

// momentum m - rate gradient, where `is_m` says which the m is. Either of two numbers may be the rate.
template <typename IsM>
std::optional<Terms> Velocity(Update* update, const Value& value, const IsM& is_m) {
  const auto difference = update->Operands(value, "Sub");
  if (!difference) return std::nullopt;
  const auto kept = update->Operands(difference->first, "Mul");
  const auto step = update->Operands(difference->second, "Mul");
  if (!kept || !step) return std::nullopt;
  Terms terms;
  if (is_m(kept->first)) {
    terms = {kept->first, kept->second, step->first, step->second};
  } else if (is_m(kept->second)) {
    terms = {kept->second, kept->first, step->first, step->second};
  } else {
    return std::nullopt;
  }
  if (!update->IsNumber(terms.rate)) std::swap(terms.rate, terms.gradient);
  return terms;
}

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  if (root.GetOp() != "AssignAddVariableOp") return NotMine();
  const Facts& facts = chain->facts();
  Update update(*chain);
  const Value delta = facts.Input(root, 1);
  auto slot = update.ReadAfter(delta, "AssignVariableOp");
  const bool nesterov = !slot;
  std::optional<Terms> ahead;
  if (nesterov) {
    ahead = Velocity(&update, delta, [&](const Value& value) {
      if (!slot) slot = update.ReadAfter(value, "AssignVariableOp");
      return slot.has_value();
    });
    if (!ahead) return NotMine();
  }
  const auto terms = Velocity(&update, slot->becomes,
                              [&](const Value& value) { return update.ReadsBefore(value, *slot); });
  if (!terms || !update.AreDistinct({*slot})) return NotMine();
  if (Refusal refusal = update.Check(terms->gradient, {*slot},
                                     {{terms->rate, "rate"}, {terms->momentum, "momentum"}});
      !refusal.empty()) {
    return Refused(refusal);
  }
  if (ahead && !(ahead->rate == terms->rate && ahead->gradient == terms->gradient &&
                 ahead->momentum == terms->momentum)) {
    return Refused("two_steps",
                   "The step of the weights has another rate, gradient or momentum "
                   "than that of " +
                       Quoted(*slot->assign) + ".");
  }
  const Outcome outcome = update.Become(
      chain, "ResourceApplyKerasMomentum",
      {facts.Input(root, 0), slot->handle, terms->rate, terms->gradient, terms->momentum},
      nesterov ? "Nesterov" : "Momentum");
  if (outcome.matched()) (*chain->node()->mutable_attr())["use_nesterov"].set_b(nesterov);
  return outcome;
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
