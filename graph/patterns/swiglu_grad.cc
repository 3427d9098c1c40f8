// Expression: the gradients of a gated linear unit, with respect to both of its operands.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/slopes.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {
    "swiglu_grad",
    Stage::kExpression,
    "Sigmoid,SigmoidGrad",
    "The gradients of silu(gate) * up as tf.GradientTape writes them, silu by tf.nn.silu and "
    "Keras or as x * sigmoid(x), where shapes are provably the same and both are asked for. What "
    "only they read of the unit's own ops is read no more, so that the unit becomes one op, too; "
    "with an unknown batch it stays, as it is asked for its shape.",
    R"(
  d    up       d   gate
   \  /         |     |
   Mul   gate   |  Sigmoid, Mul
     \   /       \    /
  silu's gradient   Mul
        |            |
      d_gate        d_up
)",
    R"(
  d   gate   up
   \   |    /
  fused: SwigluGrad
      :0    :1
       |     |
     d_gate d_up
)"};

Expression Silu() {
  const Expression by_one = Op("Sigmoid", Op("Mul", Number(1.0), X()));
  return Op("Mul", X(), AnyOf({Op("Sigmoid", X()), by_one}));
}

// d silu(gate).
const NodeView* FindOther(const Facts& facts, const Value& d, const Value& gate) {
  static const auto* silu = new Expression(Silu());
  for (const Use& use : facts.Uses(d)) {
    if (use.node->GetOp() != "Mul") continue;
    Region ignored;
    if ((*silu)(facts, facts.Input(*use.node, 1 - use.input), gate, &ignored)) return use.node;
  }
  return nullptr;
}

Outcome Become(Chain* chain, const Region& region, const Value& d, const Value& up) {
  const Facts& facts = chain->facts();
  const NodeView& last = *region.nodes.back();
  const Value gate = region.bound.at("x"), product = region.bound.at("d");
  const NodeView* other = FindOther(facts, d, gate);
  if (other == nullptr || other == product.node) return NotMine();
  const Shape shape = facts.ShapeOf({&last, 0});
  for (const Value& input : {d, gate, up}) {
    if (SameShape(facts.ShapeOf(input), shape)) continue;
    return Refused("gate_shape",
                   StrCat(Quoted(*input.node), " is of shape ", facts.ShapeOf(input).ToString(),
                          ", ", Quoted(last), " of ", shape.ToString(),
                          ": they are not provably the same in every run."));
  }
  const auto type = facts.TypeOf(gate);
  if (Refusal refusal = CheckType(chain->root(), type); !refusal.empty()) return Refused(refusal);
  std::vector<const NodeView*> inner = AllHelpers(region);
  inner.push_back(product.node);
  inner.insert(inner.end(), region.nodes.begin(), region.nodes.end() - 1);
  chain->LeaveShared(last, {d, gate, up}, &inner);
  if (std::find(inner.begin(), inner.end(), &chain->root()) == inner.end()) return NotMine();
  if (Refusal refusal = chain->AbsorbPair(last, *other, "Identity", inner, {gate, up});
      !refusal.empty()) {
    return Refused(refusal);
  }
  chain->Start("SwigluGrad", type, /*nchw=*/false, -1);
  chain->SetInputs({InputName(d), InputName(gate), InputName(up)});
  chain->Append(Stage::kExpression, "SwigluGrad");
  return Matched();
}

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  if (root.GetOp() != "Sigmoid" && root.GetOp() != "SigmoidGrad") return NotMine();
  const Facts& facts = chain->facts();
  Outcome refused;
  for (const auto& [activation, expression] : ActivationSlopes()) {
    if (activation != "Swish") continue;
    for (const Region& region :
         FindExpression(facts, root, {}, {"Mul", "AddV2", "Sub", "AddN", "Add"}, expression)) {
      const auto end = region.nodes.end();
      if (std::find(region.nodes.begin(), end, &root) == end) continue;
      const NodeView& product = *region.bound.at("d").node;
      if (product.GetOp() != "Mul") continue;
      // Which one is d? up and silu have a product as well, the unit's own: a circle.
      for (int i = 0; i < 2; ++i) {
        Chain begun = *chain;
        const Value d = facts.Input(product, i), up = facts.Input(product, 1 - i);
        const Outcome outcome = Become(&begun, region, d, up);
        if (outcome.matched()) *chain = std::move(begun);
        if (outcome.matched()) return outcome;
        if (outcome.mine && !refused.mine) refused = outcome;
      }
    }
  }
  return refused;
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
