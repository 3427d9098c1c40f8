// Expression: attention without its matrix of scores.

#include <algorithm>
#include <cctype>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;
using tensorflow::DT_INT32;

constexpr PatternInfo kInfo = {
    "attention",
    Stage::kExpression,
    "Softmax",
    "softmax(scale q k^T + bias) v of three or four dimensions, by products of batches of matrices "
    "or by einsum, as Keras' MultiHeadAttention writes it; in place of the bias a mask by which "
    "scores are replaced with a large negative number, not in half. A query whose biases are all "
    "-infinity gives 0, where softmax gives NaN. On the CPU alone: through hostmetal the Metal "
    "device's three ops take about half the time.",
    R"(
   q    k
    \  /
  BatchMatMulV2 | Einsum
     |
 [Mul | RealDiv by a constant]
     |
 [AddV2 of a bias | SelectV2]
     |
  Softmax    v
       \    /
  BatchMatMulV2 | Einsum
)",
    R"(
  q   k   v   [bias]    as [batch, heads, length, size]
   \  |  /   /
  fused: ScaledDotProductAttention
)"};

constexpr int64_t kMostSize = 256;  // of a head
// Scores that are replaced with this or less count for nothing beside others.
constexpr double kMasked = -1e4;
// Their replacement as an addend: so much that for a query without keys all scores are this number,
// whatever they were, and softmax makes the same weights of them.
constexpr float kMaskedBias = -1e30f;

// A tensor whose dimensions have names, a letter each.
struct Factor {
  Value value;
  std::string dims;
};

// q k^T, or weights times v: its factors and its result.
struct Product {
  const NodeView* node = nullptr;
  Factor left, right;
  std::string result;
};

bool IsProduct(const NodeView& node) {
  const std::string& op = node.GetOp();
  return op == "BatchMatMul" || op == "BatchMatMulV2" || op == "Einsum";
}

// One einsum of two tensors, its names kept.
bool ReadEinsum(const Facts& facts, const NodeView& node, Product* product) {
  std::string equation = StringAttr(node, "equation", "");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  if (sides.size() != 2 || node.NumRegularFanins() != 2) return false;
  const std::vector<std::string> inputs = absl::StrSplit(sides[0], ',');
  if (inputs.size() != 2) return false;
  for (const std::string& dims : {inputs[0], inputs[1], sides[1]}) {
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!std::isalpha(static_cast<unsigned char>(dims[i])) ||
          dims.find(dims[i], i + 1) != std::string::npos) {
        return false;  // a diagonal or an ellipsis
      }
    }
  }
  *product = {
      &node, {facts.Input(node, 0), inputs[0]}, {facts.Input(node, 1), inputs[1]}, sides[1]};
  return true;
}

// A product of batches: names are given, [b, h, m, k] times [b, h, k, n].
bool ReadBatchMatMul(const Facts& facts, const NodeView& node, Product* product) {
  const int rank = facts.ShapeOf({&node, 0}).rank();
  if (rank != 3 && rank != 4) return false;
  const std::string batch = rank == 4 ? "bh" : "b";
  *product = {&node,
              {facts.Input(node, 0), batch + (BoolAttr(node, "adj_x", false) ? "km" : "mk")},
              {facts.Input(node, 1), batch + (BoolAttr(node, "adj_y", false) ? "nk" : "kn")},
              batch + "mn"};
  return true;
}

// A factor before the Transpose that made it, which then stays behind without a use, or for others.
Factor BeforeTranspose(const Facts& facts, const Factor& factor) {
  const Value at = BeforeIdentities(facts, factor.value);
  if (at.node->GetOp() != "Transpose") return factor;
  const auto permutation = facts.Ints(facts.Input(*at.node, 1));
  if (!permutation || permutation->size() != factor.dims.size()) return factor;
  Factor before = {facts.Input(*at.node, 0), factor.dims};
  for (size_t i = 0; i < permutation->size(); ++i) {
    const int64_t from = (*permutation)[i];
    if (from < 0 || from >= static_cast<int64_t>(before.dims.size())) return factor;
    before.dims[from] = factor.dims[i];
  }
  return before;
}

bool Read(const Facts& facts, const NodeView& node, Product* product) {
  return node.GetOp() == "Einsum" ? ReadEinsum(facts, node, product)
                                  : ReadBatchMatMul(facts, node, product);
}

// A number that follows from constants.
std::optional<double> Constant(const Facts& facts, const Value& value) {
  if (const std::optional<double> scalar = facts.Scalar(value)) return scalar;
  const NodeView& node = *BeforeIdentities(facts, value).node;
  const std::string& op = node.GetOp();
  if (op != "Sqrt" && op != "Rsqrt" && op != "RealDiv") return std::nullopt;
  const std::optional<double> of = Constant(facts, facts.Input(node, 0));
  if (!of) return std::nullopt;
  if (op == "Sqrt") return std::sqrt(*of);
  if (op == "Rsqrt") return 1 / std::sqrt(*of);
  const std::optional<double> by = Constant(facts, facts.Input(node, 1));
  if (!by) return std::nullopt;
  return *of / *by;
}

// The ops between the first product and the softmax.
struct Scores {
  const NodeView* product = nullptr;
  const NodeView* unknown_scale = nullptr;
  const NodeView* select = nullptr;
  int replaced = 0;  // input of select that has the number
  double scale = 1;
  Value bias;
  std::vector<const NodeView*> nodes;
  std::vector<std::string> steps;
};

// Backwards from `at`, the scores last: each step at most once, and bias or mask after scale.
bool FindScores(const Facts& facts, Value at, bool may_add, bool may_scale, Scores* scores) {
  for (; at.node->GetOp() == "Identity"; at = facts.Input(*at.node, 0)) {
    scores->nodes.push_back(at.node);
  }
  const NodeView& node = *at.node;
  const std::string& op = node.GetOp();
  if (IsProduct(node)) {
    scores->product = &node;
    scores->nodes.push_back(&node);
    return true;
  }
  const bool select =
      (op == "SelectV2" || op == "Select") && may_add && may_scale && scores->select == nullptr;
  const bool add = op == "AddV2" || op == "Add", scale = op == "Mul" || op == "RealDiv";
  if (!(select || (add && may_add) || (scale && may_scale))) return false;
  const int first = select ? 1 : 0, end = select ? 3 : op == "RealDiv" ? 1 : 2;
  for (int i = first; i < end; ++i) {
    Scores before = *scores;
    before.nodes.push_back(&node);
    if (select) {
      before.select = &node;
      before.replaced = 3 - i;
    }
    if (!FindScores(facts, facts.Input(node, i), add ? false : may_add && !scale,
                    scale ? false : may_scale, &before)) {
      continue;
    }
    if (select) before.steps.push_back("Mask");
    if (add) {
      before.bias = facts.Input(node, 1 - i);
      before.steps.push_back("Add");
    }
    if (scale) {
      const std::optional<double> by = Constant(facts, facts.Input(node, 1 - i));
      if (!by) before.unknown_scale = &node;
      before.scale = op == "Mul" ? by.value_or(1) : 1 / by.value_or(1);
      before.steps.push_back("Scale");
    }
    *scores = std::move(before);
    return true;
  }
  return false;
}

// All that is known of one attention.
struct Attention {
  Scores scores;
  Factor q, k, v;
  std::string batch;  // names of the dimensions that q, k and v share: one or two
  char queries = 0, keys = 0, size = 0, value_size = 0;
  std::string result;  // names of the result's dimensions, those of q, k and v
  const NodeView* last = nullptr;
  bool by_einsum = true;  // then dimensions of one name are the same
};

bool IsPermutation(std::string a, std::string b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

// The order of the factors, by the names of their dimensions.
bool ReadProducts(const Facts& facts, const NodeView& softmax, Attention* attention) {
  Product first, second;
  if (!Read(facts, *attention->scores.product, &first)) return false;
  if (!Read(facts, *attention->last, &second)) return false;
  attention->by_einsum = first.node->GetOp() == "Einsum" && second.node->GetOp() == "Einsum";
  const size_t rank = first.result.size();
  if (rank != 3 && rank != 4) return false;
  attention->batch = first.result.substr(0, rank - 2);
  attention->queries = first.result[rank - 2];
  attention->keys = first.result[rank - 1];
  const auto has = [](const Factor& factor, char dim) {
    return factor.dims.find(dim) != std::string::npos;
  };
  attention->q = has(first.left, attention->queries) ? first.left : first.right;
  attention->k = has(first.left, attention->queries) ? first.right : first.left;
  for (const char dim : attention->q.dims) {
    if (first.result.find(dim) == std::string::npos) attention->size = dim;
  }
  // The second product's names, translated into the first one's.
  const bool weights_left = BeforeIdentities(facts, second.left.value).node == &softmax;
  const Factor weights = weights_left ? second.left : second.right;
  attention->v = weights_left ? second.right : second.left;
  if (BeforeIdentities(facts, weights.value).node != &softmax) return false;
  if (weights.dims.size() != rank) return false;
  const std::string value_dims = attention->v.dims;
  char other = 0;
  for (const char dim : value_dims) {
    if (weights.dims.find(dim) == std::string::npos) other = dim;
  }
  attention->value_size = '*';
  const auto translate = [&](std::string dims) {
    for (char& dim : dims) {
      const size_t at = weights.dims.find(dim);
      dim = at != std::string::npos ? first.result[at] : dim == other ? '*' : '?';
    }
    return dims;
  };
  attention->v.dims = translate(value_dims);
  attention->result = translate(second.result);
  const std::string& batch = attention->batch;
  return IsPermutation(attention->q.dims, batch + attention->queries + attention->size) &&
         IsPermutation(attention->k.dims, batch + attention->keys + attention->size) &&
         IsPermutation(attention->v.dims, batch + attention->keys + '*') &&
         IsPermutation(attention->result, batch + attention->queries + '*');
}

int64_t DimOf(const Facts& facts, const Factor& factor, char name) {
  const Shape shape = facts.ShapeOf(factor.value);
  const size_t at = factor.dims.find(name);
  return static_cast<int>(at) < shape.rank() ? shape.dims[at] : -1;
}

Refusal CheckShapes(const Facts& facts, const Attention& attention) {
  for (const Factor* factor : {&attention.q, &attention.k, &attention.v}) {
    const Shape shape = facts.ShapeOf(factor->value);
    if (shape.rank() != static_cast<int>(factor->dims.size())) {
      return {"attention_shape", StrCat(Quoted(*factor->value.node), " is ", shape.ToString(),
                                        ", expected ", factor->dims.size(), " dimensions.")};
    }
    const int64_t size = DimOf(facts, *factor, factor == &attention.v ? '*' : attention.size);
    if (size < 1 || size > kMostSize) {
      return {"attention_shape",
              StrCat(Quoted(*factor->value.node), " is ", shape.ToString(),
                     ", expected a known size of 1 to ", kMostSize, " for each head.")};
    }
    for (const char dim : attention.by_einsum ? std::string() : attention.batch) {
      if (SameDim(DimOf(facts, attention.q, dim), DimOf(facts, *factor, dim))) continue;
      return {"attention_shape", StrCat(Quoted(*factor->value.node), " of shape ", shape.ToString(),
                                        " and ", Quoted(*attention.q.value.node), " of shape ",
                                        facts.ShapeOf(attention.q.value).ToString(),
                                        " have not provably the same batches in every run.")};
    }
  }
  return {};
}

// Whether scores are replaced in a way that a bias can stand for.
Refusal CheckMask(const Facts& facts, const Scores& scores, tensorflow::DataType type) {
  if (scores.select == nullptr) return {};
  const std::optional<double> number = facts.Scalar(facts.Input(*scores.select, scores.replaced));
  if (!number || *number > kMasked || std::isinf(*number)) {
    return {"attention_mask",
            StrCat(Quoted(*scores.select), " does not replace scores with a constant of ", kMasked,
                   " or less, and finite.")};
  }
  if (scores.select->GetOp() != "SelectV2" || scores.bias.node != nullptr ||
      type == tensorflow::DT_HALF) {
    return {"attention_mask", StrCat(Quoted(*scores.select),
                                     scores.bias.node != nullptr ? " replaces scores with a bias."
                                     : type == tensorflow::DT_HALF
                                         ? " replaces scores in half, which has no such bias."
                                         : " does not broadcast its mask.")};
  }
  return {};
}

// The bias, or mask, as four dimensions, each of them 1 or that of the scores; -1 where one is not
// known.
Refusal BiasDims(const Facts& facts, const Attention& attention, const Value& value,
                 std::vector<int64_t>* dims) {
  const Shape bias = facts.ShapeOf(value);
  const Shape scores = facts.ShapeOf({attention.scores.product, 0});
  bool fits = bias.known_rank && bias.rank() >= 1 && bias.rank() <= scores.rank();
  int unknown = 0;
  *dims = {1, 1, 1, 1};
  for (int i = 1; fits && i <= bias.rank(); ++i) {
    const int64_t dim = bias.dims[bias.rank() - i], full = scores.dims[scores.rank() - i];
    fits = dim == 1 || SameDim(dim, full);
    unknown += dim < 0;
    // Three dimensions have no heads.
    (*dims)[scores.rank() == 3 && i == 3 ? 0 : 4 - i] = dim < 0 ? -1 : dim;
  }
  if (fits && (unknown < 2 || bias.rank() == 4)) return {};
  return {"attention_bias",
          StrCat("The bias ", Quoted(*value.node), " is ", bias.ToString(),
                 ", expected each dimension to be 1 or provably that of the scores, ",
                 scores.ToString(), ".")};
}

// Its dimensions in this order, and four of them.
std::string ToHeads(Chain* chain, const std::string& what, const Factor& factor,
                    const std::string& order, tensorflow::DataType type) {
  std::string name = InputName(factor.value);
  if (factor.dims != order) {
    std::vector<int64_t> permutation;
    for (const char dim : order) permutation.push_back(factor.dims.find(dim));
    const std::string perm = chain->AddInts("perm", permutation, factor.value);
    name = chain->AddHelper("Transpose", what, {name, perm}, {{"T", type}, {"Tperm", DT_INT32}});
  }
  if (order.size() == 3) {
    const std::string dim = chain->AddInts("dim", {1}, factor.value);
    name = chain->AddHelper("ExpandDims", what, {name, dim}, {{"T", type}, {"Tdim", DT_INT32}});
  }
  return name;
}

Outcome Become(Chain* chain, const Attention& attention) {
  const Facts& facts = chain->facts();
  const Scores& scores = attention.scores;
  const auto type = TypeAttr(chain->root(), "T");
  if (Refusal refusal = CheckType(chain->root(), type); !refusal.empty()) return Refused(refusal);
  // Measured on hostmetal's CPU driver, 8 heads of 64: 0.5 to 0.65 of the speed of the three ops.
  if (const std::string device = DeviceType(chain->root().GetDevice()); device != "CPU") {
    return Refused("attention_device",
                   StrCat(Quoted(chain->root()), " is on a device of type ", device,
                          ", where attention in one op was not measured to be faster."));
  }
  if (Refusal refusal = CheckMask(facts, scores, type); !refusal.empty()) return Refused(refusal);
  if (scores.unknown_scale != nullptr || !std::isfinite(scores.scale) || scores.scale == 0) {
    return Refused("attention_scale", StrCat("The factor of the scores ", Quoted(*scores.product),
                                             " is no constant number other than 0."));
  }
  if (Refusal refusal = CheckShapes(facts, attention); !refusal.empty()) return Refused(refusal);
  std::vector<int64_t> bias_dims;
  const Value bias = scores.select != nullptr ? facts.Input(*scores.select, 0) : scores.bias;
  const bool has_bias = bias.node != nullptr;
  if (has_bias) {
    if (Refusal refusal = BiasDims(facts, attention, bias, &bias_dims); !refusal.empty()) {
      return Refused(refusal);
    }
  }
  std::vector<const NodeView*> nodes = scores.nodes;
  nodes.push_back(&chain->root());
  // Identity nodes between softmax and product.
  for (int i = 0; i < 2; ++i) {
    Value at = facts.Input(*attention.last, i);
    if (BeforeIdentities(facts, at).node != &chain->root()) continue;
    for (; at.node != &chain->root(); at = facts.Input(*at.node, at.port)) nodes.push_back(at.node);
  }
  nodes.push_back(attention.last);
  if (Refusal refusal = chain->AbsorbAll(nodes); !refusal.empty()) return Refused(refusal);

  const std::string &batch = attention.batch, queries(1, attention.queries);
  const std::string keys(1, attention.keys), size(1, attention.size);
  const bool expanded = batch.size() == 1;
  const Value& beside = attention.q.value;
  std::vector<std::string> inputs = {
      ToHeads(chain, "q", attention.q, batch + queries + size, type),
      ToHeads(chain, "k", attention.k, batch + keys + size, type),
      ToHeads(chain, "v", attention.v, batch + keys + "*", type),
      chain->AddConst("mask", tensorflow::Tensor(tensorflow::DT_BOOL, {0}), beside)};
  std::string added = has_bias ? InputName(bias) : chain->AddFloats("bias", 0, 0.0f, type, beside);
  if (scores.select != nullptr) {
    std::vector<std::string> choice = {added, chain->AddFloats("seen", 1, 0.0f, type, bias),
                                       chain->AddFloats("unseen", 1, kMaskedBias, type, bias)};
    if (scores.replaced == 1) std::swap(choice[1], choice[2]);
    added = chain->AddHelper("SelectV2", "bias", choice, {{"T", type}});
  }
  if (has_bias && facts.ShapeOf(bias).rank() != 4) {
    const std::string dims = chain->AddInts("dims", bias_dims, bias);
    added = chain->AddHelper("Reshape", "bias", {added, dims}, {{"T", type}, {"Tshape", DT_INT32}});
  }
  inputs.push_back(added);
  inputs.push_back(chain->AddInts("key_lengths", {}, beside));
  inputs.push_back(chain->AddInts("seed", {0, 0}, beside));

  const auto set_attrs = [&](tensorflow::NodeDef* node) {
    (*node->mutable_attr())["scale"].set_f(static_cast<float>(scores.scale));
    (*node->mutable_attr())["use_bias"].set_b(has_bias);
  };
  // The result has the order [batch, heads, queries, size]; the order that the graph asks for comes
  // last.
  const std::string order = batch + queries + "*";
  const bool turned = attention.result != order;
  chain->Start(turned     ? "Transpose"
               : expanded ? "Squeeze"
                          : "ScaledDotProductAttention",
               type,
               /*nchw=*/false, -1);
  chain->set_shown_op("ScaledDotProductAttention");
  if (!turned && !expanded) {
    set_attrs(chain->node());
    chain->SetInputs(inputs);
  } else {
    std::string name =
        chain->AddHelper("ScaledDotProductAttention", "attention", inputs, {{"T", type}});
    set_attrs(chain->helper());
    if (expanded && turned) {
      name = chain->AddHelper("Squeeze", "squeeze", {name}, {{"T", type}});
      (*chain->helper()->mutable_attr())["squeeze_dims"].mutable_list()->add_i(1);
    } else if (expanded) {
      (*chain->node()->mutable_attr())["squeeze_dims"].mutable_list()->add_i(1);
    }
    std::vector<std::string> last = {name};
    if (turned) {
      std::vector<int64_t> permutation;
      for (const char dim : attention.result) permutation.push_back(order.find(dim));
      last.push_back(chain->AddInts("perm", permutation, beside));
      (*chain->node()->mutable_attr())["Tperm"].set_type(DT_INT32);
    }
    chain->SetInputs(last);
  }
  chain->Append(Stage::kExpression, "MatMul");
  for (const std::string& step : scores.steps) chain->Append(Stage::kExpression, step);
  for (const char* step : {"Softmax", "MatMul"}) chain->Append(Stage::kExpression, step);
  return Matched();
}

Outcome Match(Chain* chain) {
  const NodeView& softmax = chain->root();
  if (softmax.GetOp() != "Softmax") return NotMine();
  const Facts& facts = chain->facts();
  Attention attention;
  if (!FindScores(facts, facts.Input(softmax, 0), true, true, &attention.scores)) return NotMine();
  std::vector<Use> uses = facts.Uses({&softmax, 0});
  for (size_t i = 0; i < uses.size() && uses.size() < 32; ++i) {
    if (uses[i].node->GetOp() == "Identity") {
      const std::vector<Use> behind = facts.Uses({uses[i].node, 0});
      uses.insert(uses.end(), behind.begin(), behind.end());
    } else if (IsProduct(*uses[i].node)) {
      attention.last = uses[i].node;
      if (!ReadProducts(facts, softmax, &attention)) continue;
      attention.k = BeforeTranspose(facts, attention.k);
      return Become(chain, attention);
    }
  }
  return NotMine();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
