// Expression: the gradients of an activation and of the bias before it, by one look at the gradient.

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/slopes.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "bias_grad",
    Stage::kExpression,
    "BiasAddGrad,Sum",
    "The gradient of a bias and that of the activation behind it, which it sums: BiasAddGrad, or "
    "Sum over all dimensions but the channels', the last one or the second, of ReluGrad, "
    "Relu6Grad, EluGrad, LeakyReluGrad, SigmoidGrad or TanhGrad; or of the ops of which "
    "tf.GradientTape makes the gradient of GELU, in either form, of silu, by tf.nn.silu and Keras "
    "or as x * sigmoid(x), or of mish, where batch and other shapes are provably the same. Others "
    "may read the sum's operand too, as a layer's other gradients do, and the activation's own "
    "ops.",
    R"(
  gradients   features
          \   /
  ReluGrad | Relu6Grad | EluGrad | LeakyReluGrad | SigmoidGrad | TanhGrad | several ops
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

// The function whose gradient a node computes.
struct Slope {
  std::string activation;
  Value gradients, features;
  std::vector<const NodeView*> inner;  // nodes that nothing else needs
};

std::optional<Slope> OfOneOp(const Facts& facts, const NodeView& node) {
  struct Named {
    const char *op, *activation;
    int gradients;  // which input that is
  };
  static constexpr Named kSlopes[] = {
      {"ReluGrad", "Relu", 0},           {"Relu6Grad", "Relu6", 0},     {"EluGrad", "Elu", 0},
      {"LeakyReluGrad", "LeakyRelu", 0}, {"SigmoidGrad", "Sigmoid", 1}, {"TanhGrad", "Tanh", 1},
  };
  for (const Named& slope : kSlopes) {
    if (node.GetOp() != slope.op) continue;
    return Slope{slope.activation,
                 facts.Input(node, slope.gradients),
                 facts.Input(node, 1 - slope.gradients),
                 {}};
  }
  return std::nullopt;
}

std::optional<Slope> OfSeveral(const Chain& chain, const NodeView& last) {
  const Facts& facts = chain.facts();
  for (const auto& [activation, expression] : ActivationSlopes()) {
    Region region;
    if (!expression(facts, {&last, 0}, {}, &region)) continue;
    Slope slope = {activation, region.bound.at("d"), region.bound.at("x"), AllHelpers(region)};
    for (const NodeView* node : region.nodes) {
      const auto end = slope.inner.end();
      if (node != &last && std::find(slope.inner.begin(), end, node) == end) {
        slope.inner.push_back(node);
      }
    }
    const auto shape = facts.ShapeOf({&last, 0});
    for (const Value& input : {slope.gradients, slope.features}) {
      if (!SameShape(facts.ShapeOf(input), shape)) return std::nullopt;
    }
    chain.LeaveShared(last, {slope.gradients, slope.features}, &slope.inner);
    return slope;
  }
  return std::nullopt;
}

// Whether a Sum is over all dimensions but the channels', the last one or the second: which.
std::optional<int> ChannelsOf(const Facts& facts, const NodeView& sum, int rank) {
  std::optional<std::vector<int64_t>> axes = facts.Ints(facts.Input(sum, 1));
  if (!axes || rank < 2) return std::nullopt;
  for (int64_t& axis : *axes) axis += axis < 0 ? rank : 0;
  std::sort(axes->begin(), axes->end());
  for (const int channels : {rank - 1, 1}) {
    std::vector<int64_t> others(rank);
    std::iota(others.begin(), others.end(), 0);
    others.erase(others.begin() + channels);
    if (*axes == others) return channels;
  }
  return std::nullopt;
}

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  const bool sum = root.GetOp() == "Sum";
  if (!sum && root.GetOp() != "BiasAddGrad") return NotMine();
  const Facts& facts = chain->facts();
  const Value summed = facts.Input(root, 0);
  const int rank = facts.ShapeOf(summed).rank();
  std::optional<int> channels = rank - 1;
  if (sum) {
    channels = ChannelsOf(facts, root, rank);
  } else if (StringAttr(root, "data_format", "NHWC") == "NCHW") {
    channels = 1;
  }
  if (!channels) return NotMine();
  std::optional<Slope> slope = OfOneOp(facts, *summed.node);
  if (!slope) slope = OfSeveral(*chain, *summed.node);
  if (!slope) return NotMine();
  const auto type = facts.TypeOf(summed);
  if (Refusal refusal = CheckType(root, type); !refusal.empty()) return Refused(refusal);
  const bool keeps = sum && BoolAttr(root, "keep_dims", false);
  if (Refusal refusal =
          chain->AbsorbPair(*summed.node, root, keeps ? "Reshape" : "Identity", slope->inner, {});
      !refusal.empty()) {
    return Refused(refusal);
  }
  if (keeps) {
    std::vector<int64_t> shape(rank, 1);
    shape[*channels] = -1;
    chain->reader()->add_input(chain->AddInts("shape", shape, slope->gradients));
    (*chain->reader()->mutable_attr())["Tshape"].set_type(tensorflow::DT_INT32);
  }
  chain->Start("MetalFusedBiasGrad", type, /*nchw=*/false, -1);
  chain->SetInputs({InputName(slope->gradients), InputName(slope->features)});
  auto& attrs = *chain->node()->mutable_attr();
  attrs["activation"].set_s(slope->activation);
  attrs["data_format"].set_s(*channels == rank - 1 ? "NHWC" : "NCHW");
  chain->SetFloatAttr("leakyrelu_alpha", FloatAttr(*summed.node, "alpha", 0.2f));
  chain->Append(Stage::kExpression, slope->activation + "Grad");
  chain->Append(Stage::kExpression, "BiasAddGrad");
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
