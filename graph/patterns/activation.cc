// Epilogue: an activation that is one op.

#include <iterator>

#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "activation",
    Stage::kActivation,
    "Relu,Relu6,Elu,LeakyRelu,Sigmoid,Tanh",
    "An activation that is one op: Relu, Relu6, Elu, LeakyRelu, Sigmoid or Tanh.",
    R"(
 root [BiasAdd | BatchNorm] [Add]
              |
 Relu | Relu6 | Elu | LeakyRelu | Sigmoid | Tanh
)",
    R"(
 fused root, fused_ops = [.., the activation's name]
)"};

Outcome Match(Chain* chain) {
  const std::optional<Use> use = OnlyUse(*chain);
  if (!use) return NotMine();
  const NodeView& node = *use->node;
  const std::string& op = node.GetOp();
  bool known = false;
  for (const char* each : {"Relu", "Relu6", "Elu", "LeakyRelu", "Sigmoid", "Tanh"}) {
    known |= op == each;
  }
  if (!known) return NotMine();
  if (Refusal refusal = chain->Absorb({&node}); !refusal.empty()) return Refused(refusal);
  chain->Append(Stage::kActivation, op);
  if (op == "LeakyRelu") chain->SetFloatAttr("leakyrelu_alpha", FloatAttr(node, "alpha", 0.2f));
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
