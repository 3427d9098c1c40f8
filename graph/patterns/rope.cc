// Expression: rotary position embedding, written with tables of cosines and sines.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {
    "rope",
    Stage::kExpression,
    "Neg",
    "Rotary position embedding by tables, x * cos + r(x) * sin, where r(x) is [-x2, x1] of the "
    "halves of a row, concatenated or stacked and reshaped, as Keras Hub and Hugging Face write "
    "it, "
    "or has a row's odd elements negated and its even ones in turn; of tensors of four dimensions "
    "at most. Its gradient stays elementary ops; where that asks an inner node for its shape, as "
    "with an unknown batch, so does the embedding.",
    R"(
           x ----------.
         /   \          \
  Split | StridedSlice   |
     x1       x2         |
      |       |          |
      |      Neg         |
       \     /           |
  ConcatV2 | Pack, Reshape
          |   sin        |   cos
          Mul           Mul
             \         /
                AddV2
)",
    R"(
  x   cos   sin
   \   |   /
  fused: MetalRopeTables, interleaved = false | true
)"};

// Which elements of a row of x a tensor has: `begin`, `begin + stride`, ..., half of them.
struct Part {
  int64_t begin, stride;
};

std::optional<Part> SplitPart(const Facts& facts, const Value& value, int rank, int64_t size) {
  const auto* parts = value.node->GetAttr("num_split");
  const auto axis = facts.Ints(facts.Input(*value.node, 0));
  if (!parts || parts->i() != 2 || !axis || axis->size() != 1) return std::nullopt;
  if ((*axis)[0] != -1 && (*axis)[0] != rank - 1) return std::nullopt;
  return Part{value.port * size / 2, 1};
}

std::optional<Part> SlicePart(const Facts& facts, const NodeView& slice, int rank, int64_t size) {
  const auto mask = [&](const char* name) {
    const auto* attr = slice.GetAttr(name);
    return attr ? attr->i() : 0;
  };
  const auto begin = facts.Ints(facts.Input(slice, 1)), end = facts.Ints(facts.Input(slice, 2));
  const auto strides = facts.Ints(facts.Input(slice, 3));
  if (!begin || !end || !strides || begin->empty()) return std::nullopt;
  const int last = static_cast<int>(begin->size()) - 1;
  const int64_t before = (int64_t{1} << last) - 1;  // the bits of all but the last
  // [..., a:b:c], or [:, :, a:b:c].
  const bool whole = last == rank - 1 && mask("ellipsis_mask") == 0 &&
                     (mask("begin_mask") & before) == before &&
                     (mask("end_mask") & before) == before;
  if (!whole && !(last == 1 && mask("ellipsis_mask") == 1)) return std::nullopt;
  if (mask("new_axis_mask") != 0 || mask("shrink_axis_mask") != 0) return std::nullopt;
  for (int i = 0; whole && i < last; ++i) {
    if ((*strides)[i] != 1) return std::nullopt;
  }
  const auto place = [&](const std::vector<int64_t>& at, const char* name, int64_t otherwise) {
    if (mask(name) >> last & 1) return otherwise;
    return at[last] < 0 ? at[last] + size : at[last];
  };
  const Part part = {place(*begin, "begin_mask", 0), strides->back()};
  const int64_t stop = std::min(place(*end, "end_mask", size), size);
  if (part.begin < 0 || part.stride < 1 || stop <= part.begin) return std::nullopt;
  if ((stop - part.begin + part.stride - 1) / part.stride != size / 2) return std::nullopt;
  return part;
}

std::optional<Part> PartOf(const Facts& facts, const Value& value, const Value& x, int rank,
                           int64_t size) {
  const std::string& op = value.node->GetOp();
  if (op == "Split" && facts.Input(*value.node, 1) == x) {
    return SplitPart(facts, value, rank, size);
  }
  if (op == "StridedSlice" && facts.Input(*value.node, 0) == x) {
    return SlicePart(facts, *value.node, rank, size);
  }
  return std::nullopt;
}

// Whether an axis is the dimension `from_last` before the last.
bool IsAxis(int64_t axis, int rank, int from_last) {
  return axis == -1 - from_last || axis == rank - 1 - from_last;
}

// Whether a tensor made of as many elements has provably x's shape: one size that is not known
// follows from the others, unless one of those may be 0.
bool HasShapeOf(const Shape& a, const Shape& x) {
  if (SameShape(a, x)) return true;
  if (a.rank() != x.rank()) return false;
  int unknown = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (a.dims[i] < 0 || x.dims[i] < 0) {
      ++unknown;
    } else if (a.dims[i] != x.dims[i] || x.dims[i] == 0) {
      return false;
    }
  }
  return unknown == 1;
}

// r(x); binds `neighbours` where that is what pairs are, and the `reshaped`, whose shape somebody gave.
bool Rotated(const Facts& facts, Value at, const Value& x, Region* region) {
  std::vector<const NodeView*> nodes;
  for (; at.node->GetOp() == "Identity"; at = facts.Input(*at.node, 0)) nodes.push_back(at.node);
  const Value result = at;
  const Shape shape = facts.ShapeOf(x);
  const int rank = shape.rank();
  if (rank < 1 || shape.dims.back() < 2) return false;
  const int64_t size = shape.dims.back();
  if (size % 2 != 0) return false;
  const bool reshaped = at.node->GetOp() == "Reshape";
  if (reshaped) {
    nodes.push_back(at.node);
    at = facts.Input(*at.node, 0);
  }
  const NodeView& join = *at.node;
  nodes.push_back(&join);
  bool neighbours = false;
  if (reshaped) {
    const auto* axis = join.GetAttr("axis");
    if (join.GetOp() != "Pack" || join.NumRegularFanins() != 2 || !axis) return false;
    neighbours = IsAxis(axis->i(), rank + 1, 0);
    if (!neighbours && !IsAxis(axis->i(), rank + 1, 1)) return false;
  } else {
    if (join.GetOp() != "ConcatV2" || join.NumRegularFanins() != 3) return false;
    const auto axis = facts.Ints(facts.Input(join, 2));
    if (!axis || axis->size() != 1 || !IsAxis((*axis)[0], rank, 0)) return false;
  }
  const Value negated = facts.Input(join, 0), first = facts.Input(join, 1);
  if (negated.node->GetOp() != "Neg") return false;
  const Value second = facts.Input(*negated.node, 0);
  const auto one = PartOf(facts, first, x, rank, size),
             other = PartOf(facts, second, x, rank, size);
  if (!one || !other) return false;
  const int64_t stride = neighbours ? 2 : 1, begin = neighbours ? 1 : size / 2;
  if (one->begin != 0 || one->stride != stride) return false;
  if (other->begin != begin || other->stride != stride) return false;
  for (const NodeView* node : {negated.node, first.node, second.node}) nodes.push_back(node);
  region->nodes.insert(region->nodes.end(), nodes.begin(), nodes.end());
  if (neighbours) region->bound["neighbours"] = result;
  if (reshaped) region->bound["reshaped"] = result;
  return true;
}

Outcome Become(Chain* chain, const Region& region, const Value& x) {
  const Facts& facts = chain->facts();
  const auto type = facts.TypeOf(x);
  if (Refusal refusal = CheckType(chain->root(), type); !refusal.empty()) return Refused(refusal);
  const Shape shape = facts.ShapeOf(x);
  if (region.Has("reshaped")) {
    const Value reshaped = region.bound.at("reshaped");
    if (const Shape to = facts.ShapeOf(reshaped); !HasShapeOf(to, shape)) {
      return Refused("rope_shape", StrCat(Quoted(*reshaped.node), " is of shape ", to.ToString(),
                                          ", ", Quoted(*x.node), " of ", shape.ToString(),
                                          ": they are not provably the same in every run."));
    }
  }
  std::vector<std::string> inputs = {InputName(x)};
  for (const Value& table : {region.bound.at("cos"), region.bound.at("sin")}) {
    const Shape of = facts.ShapeOf(table);
    if (shape.rank() > 4 || of.rank() < 1 || of.rank() > 4 || of.dims.back() != shape.dims.back()) {
      return Refused("rope_shape", StrCat("The table ", Quoted(*table.node), " is of shape ",
                                          of.ToString(), " beside ", shape.ToString(),
                                          ", expected at most four dimensions, "
                                          "the last one of ",
                                          shape.dims.back(), "."));
    }
    inputs.push_back(InputName(table));
  }
  if (Refusal refusal = chain->AbsorbAll(region.nodes); !refusal.empty()) return Refused(refusal);
  chain->Start("MetalRopeTables", type, /*nchw=*/false, -1);
  (*chain->node()->mutable_attr())["interleaved"].set_b(region.Has("neighbours"));
  chain->SetInputs(inputs);
  chain->Append(Stage::kExpression, "Rope");
  return Matched();
}

Outcome Match(Chain* chain) {
  const NodeView& neg = chain->root();
  if (neg.GetOp() != "Neg") return NotMine();
  const Facts& facts = chain->facts();
  const Value part = facts.Input(neg, 0);
  const std::string& op = part.node->GetOp();
  if (op != "Split" && op != "StridedSlice") return NotMine();
  const Value x = facts.Input(*part.node, op == "Split" ? 1 : 0);
  static const auto* rope =
      new Expression(Op("AddV2", Op("Mul", X(), Any("cos")), Op("Mul", Rotated, Any("sin"))));
  for (const Region& region :
       FindExpression(facts, neg, x,
                      {"ConcatV2", "Pack", "Reshape", "Mul", "AddV2", "Add", "Identity"}, *rope)) {
    return Become(chain, region, x);
  }
  return NotMine();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
