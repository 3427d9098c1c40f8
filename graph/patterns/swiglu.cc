// Expression: a gated linear unit, silu(gate) up.

#include "absl/strings/str_cat.h"
#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {
    "swiglu",
    Stage::kExpression,
    "Sigmoid",
    "silu(gate) * up, silu written as x * sigmoid(x) or by tf.nn.silu or Keras, of two tensors "
    "that provably have one shape, or of the halves of one that is split along its last dimension.",
    R"(
  [Split in two]
    gate     up
   /    |    |
 Sigmoid |   |
    \   /    |
     Mul     |
  [IdentityN] |
        \   /
         Mul
)",
    R"(
  gate, up | both in one
        |
  fused: Swiglu
)"};

// The two halves of one tensor, the gate before: the op takes them as they lie.
const NodeView* FindSplit(const Facts& facts, const Value& gate, const Value& up) {
  if (gate.node != up.node || gate.port != 0 || up.port != 1) return nullptr;
  const NodeView& split = *gate.node;
  const auto* parts = split.GetAttr("num_split");
  if (split.GetOp() != "Split" || !parts || parts->i() != 2) return nullptr;
  const std::optional<std::vector<int64_t>> axis = facts.Ints(facts.Input(split, 0));
  const Shape whole = facts.ShapeOf(facts.Input(split, 1));
  if (!axis || axis->size() != 1 || whole.rank() < 1) return nullptr;
  return (*axis)[0] == -1 || (*axis)[0] == whole.rank() - 1 ? &split : nullptr;
}

Outcome Become(Chain* chain, Region region, const Value& gate) {
  const Facts& facts = chain->facts();
  const Value up = region.bound.at("up");
  const Shape theirs = facts.ShapeOf(up), ours = facts.ShapeOf(gate);
  // A broadcast factor is no gate, but a squeeze-and-excitation block or the like.
  if (DifferentShape(theirs, ours)) return NotMine();
  if (!SameShape(theirs, ours)) {
    return Refused("gate_shape",
                   StrCat(Quoted(*gate.node), " of shape ", ours.ToString(), " is multiplied with ",
                          Quoted(*up.node), " of shape ", theirs.ToString(),
                          ": they are not provably the same in every run."));
  }
  const auto type = facts.TypeOf(gate);
  if (Refusal refusal = CheckType(chain->root(), type); !refusal.empty()) return Refused(refusal);
  std::vector<std::string> inputs = {InputName(gate), InputName(up)};
  const NodeView* split = FindSplit(facts, gate, up);
  if (split != nullptr) {
    std::vector<const NodeView*> with_split = region.nodes;
    with_split.insert(with_split.begin(), split);
    if (chain->AbsorbAll(with_split).empty()) {
      inputs[0] = InputName(facts.Input(*split, 1));
      inputs[1] = chain->AddFloats("up", 0, 0.0f, type, facts.Input(*split, 1));
    } else {
      split = nullptr;
    }
  }
  if (split == nullptr) {
    if (Refusal refusal = chain->AbsorbAll(region.nodes); !refusal.empty()) return Refused(refusal);
  }
  chain->Start("Swiglu", type, /*nchw=*/false, -1);
  chain->SetInputs(inputs);
  chain->Append(Stage::kExpression, "Swiglu");
  return Matched();
}

Outcome Match(Chain* chain) {
  const NodeView& sigmoid = chain->root();
  if (sigmoid.GetOp() != "Sigmoid") return NotMine();
  const Facts& facts = chain->facts();
  static const auto* gated = new Expression([] {
    const Expression by_one = Op("Sigmoid", Op("Mul", Number(1.0), X()));
    const Expression s = AnyOf({Op("Sigmoid", X()), by_one});
    return AnyOf(
        {Op("Mul", Op("Mul", X(), s), Any("up")), Op("Mul", X(), Op("Mul", s, Any("up")))});
  }());
  const Value input = facts.Input(sigmoid, 0);
  const Value first = BeforeIdentities(facts, input);
  std::vector<Value> gates = {input, first};
  // By 1 is how tf.nn.silu multiplies with beta.
  for (int i = 0; i < 2 && first.node->GetOp() == "Mul"; ++i) {
    if (facts.Scalar(facts.Input(*first.node, i)) != 1.0) continue;
    gates.push_back(facts.Input(*first.node, 1 - i));
    gates.push_back(BeforeIdentities(facts, gates.back()));
  }
  for (const Value& gate : gates) {
    for (const Region& region :
         FindExpression(facts, sigmoid, gate, {"Mul", "Identity", "IdentityN"}, *gated)) {
      const Outcome outcome = Become(chain, region, gate);
      if (outcome.mine) return outcome;
    }
  }
  return NotMine();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
