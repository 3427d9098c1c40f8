// Expression: layer norm or RMS norm over the last dimension.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;
using tensorflow::DT_INT32;

constexpr PatternInfo kInfo = {
    "norm",
    Stage::kExpression,
    "Rsqrt",
    "Layer norm, (x - mean) * rsqrt(variance + epsilon), or RMS norm, x * rsqrt(mean(x^2) + "
    "epsilon), over the last dimension, with scale and offset or without, as Keras, "
    "tf.nn.batch_normalization and typical code write them.",
    R"(
         x
         | \
         |  Mean
         |  / \
  SquaredDifference | Square(Sub) | Square
         |     |
       Mean    |
         |     |   scale [C], offset [C]
     AddV2, Rsqrt     /
           \   |     /
       Mul, Sub, AddV2
)",
    R"(
  x [rows, C]   scale   offset
           \      |      /
             fused: RowNorm, center = true | false
                  |
          Reshape, where x has not two dimensions
)"};

// The last dimension alone, kept as 1.
Refusal CheckMean(const Facts& facts, const NodeView& mean, int rank) {
  const std::optional<std::vector<int64_t>> axes = facts.Ints(facts.Input(mean, 1));
  if (!axes || axes->size() != 1 || ((*axes)[0] != -1 && (*axes)[0] != rank - 1)) {
    return {"norm_axis",
            StrCat(Quoted(mean), " is taken over the dimensions ",
                   axes ? StrCat("[", absl::StrJoin(*axes, ", "), "]") : "that are no constant",
                   ", expected the last of ", rank, ".")};
  }
  if (!BoolAttr(mean, "keep_dims", false)) {
    return {"norm_axis", StrCat(Quoted(mean), " drops its dimension.")};
  }
  return {};
}

// tf.nn.moments computes in float32 and gives halves.
Value BeforeCasts(const Facts& facts, Value value) {
  value = BeforeIdentities(facts, value);
  if (value.node->GetOp() != "Cast") return value;
  return BeforeIdentities(facts, facts.Input(*value.node, 0));
}

// The candidates for the normalized tensor, from the mean of squares.
std::vector<Value> FindX(const Facts& facts, const NodeView& rsqrt) {
  Value at = BeforeIdentities(facts, facts.Input(rsqrt, 0));
  if (at.node->GetOp() != "AddV2" && at.node->GetOp() != "Add") return {};
  for (int i = 0; i < 2; ++i) {
    Value square = BeforeCasts(facts, facts.Input(*at.node, i));
    if (square.node->GetOp() != "Mean") continue;
    square = BeforeIdentities(facts, facts.Input(*square.node, 0));
    const std::string& op = square.node->GetOp();
    if (op != "SquaredDifference" && op != "Square" && op != "Mul" && op != "Pow") return {};
    const Value squared = facts.Input(*square.node, 0);
    const Value base = BeforeIdentities(facts, squared);
    std::vector<Value> found;
    if (base.node->GetOp() == "Sub") {
      found.push_back(facts.Input(*base.node, 0));
      found.push_back(BeforeIdentities(facts, found[0]));
    }
    found.push_back(squared);
    found.push_back(base);
    found.push_back(BeforeCasts(facts, squared));
    return found;
  }
  return {};
}

Expression OrCast(const Expression& expression) {
  return AnyOf({expression, Op("Cast", expression)});
}

// Both norms, with bindings "scale", "offset", "epsilon"; "mean" tells layer norm.
Expression Norm() {
  const Expression scale = Any("scale"), offset = Any("offset");
  const auto normalized = [&](const Expression& centered, const Expression& square) {
    const Expression r = Op("Rsqrt", Op("AddV2", OrCast(Op("Mean", square)), Any("epsilon")));
    const Expression scaled_r = Op("Mul", r, scale);
    return std::vector<Expression>{r, scaled_r,
                                   AnyOf({Op("Mul", Op("Mul", centered, r), scale),
                                          Op("Mul", centered, scaled_r), Op("Mul", centered, r)})};
  };
  const auto squared = [](const Expression& of) {
    return AnyOf({Op("Square", of), Op("Mul", of, of), Op("Pow", of, Number(2.0))});
  };
  const Expression inner = Op("Mean", OrCast(X())), mean = OrCast(inner);
  const Expression centered = Op("Sub", X(), mean);
  const Expression difference =
      AnyOf({Op("SquaredDifference", OrCast(X()), AnyOf({inner, Op("StopGradient", inner)})),
             squared(centered)});
  const auto layer = normalized(centered, difference), rms = normalized(X(), squared(X()));
  std::vector<Expression> forms;
  // x r scale + (offset - mean r scale), as it is written for batch norm.
  for (const Expression& factor : {layer[1], layer[0]}) {
    const Expression scaled = Op("Mul", X(), factor), shift = Op("Mul", mean, factor);
    const Expression minus = AnyOf({Op("Mul", Op("Neg", mean), factor), Op("Neg", shift)});
    forms.push_back(Op("AddV2", scaled, minus));
    forms.push_back(Op("Sub", scaled, shift));
    forms.push_back(Op("AddV2", scaled, Op("Sub", offset, shift)));
    forms.push_back(Op("AddV2", scaled, Op("AddV2", minus, offset)));
  }
  for (const Expression& y : {layer[2], rms[2]}) {
    forms.push_back(y);
    forms.push_back(Op("AddV2", y, offset));
  }
  return AnyOf(forms);
}

// One of the regions: longer ones may take an addition for an offset that is none.
Outcome Become(Chain* chain, const Region& region, const Value& x) {
  const Facts& facts = chain->facts();
  const Shape shape = facts.ShapeOf(x);
  const std::optional<double> epsilon = facts.Scalar(region.bound.at("epsilon"));
  bool center = false;
  int means = 0;
  for (const NodeView* node : region.nodes) {
    if (Refusal refusal = CheckType(*node, facts.TypeOf({node, 0})); !refusal.empty()) {
      return Refused(refusal);
    }
    if (node->GetOp() != "Mean") continue;
    if (Refusal refusal = CheckMean(facts, *node, shape.rank()); !refusal.empty()) {
      return Refused(refusal);
    }
    center = ++means > 1;
  }
  if (!epsilon || *epsilon < 0) {
    return Refused("norm_epsilon",
                   StrCat(Quoted(*region.bound.at("epsilon").node), " is no constant number."));
  }
  const auto type = facts.TypeOf(x);
  const int64_t columns = shape.dims.back();
  if (Refusal refusal = chain->AbsorbAll(region.nodes); !refusal.empty()) return Refused(refusal);
  const bool flat = shape.rank() == 2;
  chain->Start(flat ? "RowNorm" : "Reshape", type, /*nchw=*/false, columns);
  std::vector<std::string> inputs = {InputName(x)};
  for (const char* name : {"scale", "offset"}) {
    if (region.Has(name)) {
      Refusal why_not;
      inputs.push_back(chain->ChannelVector(region.bound.at(name), name, &why_not));
      if (inputs.back().empty()) return Refused(why_not);
      continue;
    }
    const bool scale = inputs.size() == 1;
    inputs.push_back(chain->AddFloats(name, scale ? columns : 0, 1.0f, type, x));
  }
  const auto set_attrs = [&](tensorflow::NodeDef* node) {
    (*node->mutable_attr())["epsilon"].set_f(static_cast<float>(*epsilon));
    (*node->mutable_attr())["center"].set_b(center);
  };
  if (!flat) {
    const std::string rows = chain->AddInts("rows", {-1, columns}, x);
    inputs[0] =
        chain->AddHelper("Reshape", "x", {inputs[0], rows}, {{"T", type}, {"Tshape", DT_INT32}});
    const std::string norm = chain->AddHelper("RowNorm", "norm", inputs, {{"T", type}});
    set_attrs(chain->helper());
    const std::string like =
        chain->AddHelper("Shape", "shape", {InputName(x)}, {{"T", type}, {"out_type", DT_INT32}});
    chain->SetInputs({norm, like});
    (*chain->node()->mutable_attr())["Tshape"].set_type(DT_INT32);
    chain->set_shown_op("RowNorm");
  } else {
    set_attrs(chain->node());
    chain->SetInputs(inputs);
  }
  chain->Append(Stage::kExpression, center ? "LayerNorm" : "RmsNorm");
  return Matched();
}

Outcome Match(Chain* chain) {
  const NodeView& rsqrt = chain->root();
  if (rsqrt.GetOp() != "Rsqrt") return NotMine();
  const Facts& facts = chain->facts();
  static const auto* norm = new Expression(Norm());
  Value x;
  std::vector<Region> regions;
  for (const Value& each : FindX(facts, rsqrt)) {
    x = each;
    regions = FindExpression(facts, rsqrt, x, {"Mul", "AddV2", "Add", "Sub", "Identity"}, *norm);
    if (!regions.empty()) break;
  }
  if (regions.empty()) return NotMine();
  if (Refusal refusal = CheckType(rsqrt, facts.TypeOf(x)); !refusal.empty())
    return Refused(refusal);
  const Shape shape = facts.ShapeOf(x);
  if (shape.rank() < 2 || shape.dims.back() < 1) {
    return Refused("norm_shape",
                   StrCat(Quoted(*x.node), " is ", shape.ToString(),
                          ", expected two dimensions or more, of which the last is known."));
  }
  Outcome first = NotMine();
  for (const Region& region : regions) {
    Chain trial = *chain;
    const Outcome outcome = Become(&trial, region, x);
    if (outcome.matched()) {
      *chain = std::move(trial);
      return outcome;
    }
    if (!first.mine) first = outcome;
  }
  return first;
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
