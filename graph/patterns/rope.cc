// Expression: rotary position embedding, written with tables of cosines and sines.

#include "absl/strings/str_cat.h"
#include "graph/turn.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {
    "rope",
    Stage::kExpression,
    "Neg",
    "Rotary position embedding by tables, x * cos + r(x) * sin, where r(x) is [-x2, x1] of the "
    "halves of a row, concatenated or stacked and reshaped, as Keras Hub and Hugging Face write "
    "it, or has a row's odd elements negated and its even ones in turn; of tensors of four "
    "dimensions at most. Where its gradient, which 'rope_grad' looks for, stays elementary ops and "
    "asks an inner node for its shape, as with an unknown length, so does the embedding.",
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

// r(x); binds `neighbours` where the pairs are neighbours, and the `reshaped`, whose shape is given.
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
  return BecomeTurn(chain, region, x, /*backward=*/false);
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
