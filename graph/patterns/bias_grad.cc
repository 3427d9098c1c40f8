// Expression: the gradients of an activation and of the bias before it, by one look at the gradient.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {
    "bias_grad",
    Stage::kExpression,
    "BiasAddGrad,Sum",
    "The gradient of a bias and that of the activation behind it, which it sums: BiasAddGrad, "
    "NHWC, "
    "or Sum over all dimensions but the last, of ReluGrad, Relu6Grad, EluGrad, LeakyReluGrad, "
    "SigmoidGrad or TanhGrad. Others may read the latter too, as a layer's other gradients do.",
    R"(
  gradients   features
          \   /
  ReluGrad | Relu6Grad | EluGrad | LeakyReluGrad | SigmoidGrad | TanhGrad
          |       \
          |   BiasAddGrad | Sum
          |        |
)",
    R"(
  gradients   features
          \   /
  fused: MetalFusedBiasGrad
        :0    :1
         |     |
)"};

// The activation, and which input of its gradient is the incoming one.
struct Slope {
  const char *op, *activation;
  int gradients;
};

const Slope* FindSlope(const std::string& op) {
  static constexpr Slope kSlopes[] = {
      {"ReluGrad", "Relu", 0},           {"Relu6Grad", "Relu6", 0},     {"EluGrad", "Elu", 0},
      {"LeakyReluGrad", "LeakyRelu", 0}, {"SigmoidGrad", "Sigmoid", 1}, {"TanhGrad", "Tanh", 1},
  };
  for (const Slope& slope : kSlopes) {
    if (op == slope.op) return &slope;
  }
  return nullptr;
}

// Whether a Sum is over all dimensions but the last: that of one value a channel.
bool LeavesChannels(const Facts& facts, const NodeView& sum, int rank) {
  std::optional<std::vector<int64_t>> axes = facts.Ints(facts.Input(sum, 1));
  if (!axes || rank < 2) return false;
  std::vector<int64_t> all;
  for (int64_t& axis : *axes) axis += axis < 0 ? rank : 0;
  for (int64_t axis = 0; axis + 1 < rank; ++axis) all.push_back(axis);
  std::sort(axes->begin(), axes->end());
  return *axes == all;
}

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  const bool sum = root.GetOp() == "Sum";
  if (!sum && root.GetOp() != "BiasAddGrad") return NotMine();
  const Facts& facts = chain->facts();
  const Value summed = facts.Input(root, 0);
  const Slope* const slope = FindSlope(summed.node->GetOp());
  if (slope == nullptr) return NotMine();
  const int rank = facts.ShapeOf(summed).rank();
  if (sum && !LeavesChannels(facts, root, rank)) return NotMine();
  if (!sum && StringAttr(root, "data_format", "NHWC") == "NCHW") {
    return Refused(
        "bias_layout",
        StrCat(Quoted(root), " sums along NCHW, expected NHWC, where channels are last."));
  }
  const auto type = facts.TypeOf(summed);
  if (Refusal refusal = CheckType(root, type); !refusal.empty()) return Refused(refusal);
  const bool keeps = sum && BoolAttr(root, "keep_dims", false);
  if (Refusal refusal = chain->AbsorbReader(*summed.node, keeps ? "Reshape" : "Identity");
      !refusal.empty()) {
    return Refused(refusal);
  }
  const Value gradients = facts.Input(*summed.node, slope->gradients);
  if (keeps) {
    std::vector<int64_t> shape(rank, 1);
    shape.back() = -1;
    chain->reader()->add_input(chain->AddInts("shape", shape, gradients));
    (*chain->reader()->mutable_attr())["Tshape"].set_type(tensorflow::DT_INT32);
  }
  chain->Start("MetalFusedBiasGrad", type, /*nchw=*/false, -1);
  chain->SetInputs(
      {InputName(gradients), InputName(facts.Input(*summed.node, 1 - slope->gradients))});
  (*chain->node()->mutable_attr())["activation"].set_s(slope->activation);
  chain->SetFloatAttr("leakyrelu_alpha", FloatAttr(*summed.node, "alpha", 0.2f));
  chain->Append(Stage::kExpression, slope->op);
  chain->Append(Stage::kExpression, "BiasAddGrad");
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
