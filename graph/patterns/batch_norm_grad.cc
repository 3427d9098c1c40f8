// Expression: the gradients of a batch norm and of the ReLU behind it.

#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "batch_norm_grad",
    Stage::kExpression,
    "FusedBatchNormGrad,FusedBatchNormGradV2,FusedBatchNormGradV3",
    "FusedBatchNormGrad, V2 or V3, in training or not, with the channels last or second, of what "
    "ReluGrad or Relu6Grad gives and nothing else reads.",
    R"(
  gradients   features
          \   /
  ReluGrad | Relu6Grad   x   scale   mean   variance
             \           |     |      |     /
                  FusedBatchNormGradV3
                    :0    :1    :2
)",
    R"(
  gradients   features   x   scale   mean   variance
          \        |     |     |      |     /
         fused: MetalFusedBatchNormGrad
                    :0    :1    :2
)"};

constexpr int kOutputs = 3;  // the others are placeholders

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  if (root.GetOp().rfind("FusedBatchNormGrad", 0) != 0) return NotMine();
  const Facts& facts = chain->facts();
  const Value passed = facts.Input(root, 0);
  const std::string& op = passed.node->GetOp();
  if (op != "ReluGrad" && op != "Relu6Grad") return NotMine();
  const std::string layout = StringAttr(root, "data_format", "NHWC");
  const auto type = facts.TypeOf(passed);
  if (Refusal refusal = CheckType(root, type); !refusal.empty()) return Refused(refusal);
  if (Refusal refusal = chain->AbsorbAll({passed.node, &root}, kOutputs); !refusal.empty()) {
    return Refused(refusal);
  }
  chain->Start("MetalFusedBatchNormGrad", type, /*nchw=*/false, -1);
  std::vector<std::string> inputs;
  for (int i = 0; i < 2; ++i) inputs.push_back(InputName(facts.Input(*passed.node, i)));
  for (int i = 1; i < 5; ++i) inputs.push_back(InputName(facts.Input(root, i)));
  chain->SetInputs(inputs);
  auto& attrs = *chain->node()->mutable_attr();
  attrs["activation"].set_s(op == "ReluGrad" ? "Relu" : "Relu6");
  attrs["data_format"].set_s(layout == "NCHW" || layout == "NCDHW" ? "NCHW" : "NHWC");
  attrs["is_training"].set_b(BoolAttr(root, "is_training", true));
  chain->SetFloatAttr("epsilon", FloatAttr(root, "epsilon", 1e-4f));
  chain->Append(Stage::kExpression, op);
  chain->Append(Stage::kExpression, "BatchNormGrad");
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
