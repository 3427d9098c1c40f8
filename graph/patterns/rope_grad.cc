// Expression: the gradient of rotary position embedding, with respect to the embedded tensor.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/turn.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "rope_grad",
    Stage::kExpression,
    "Neg",
    "The gradient of what the pattern 'rope' looks for, as tf.GradientTape writes it: d * cos + "
    "s(d * sin), where s(z) has the halves of a row, or its even and odd elements, the other way "
    "round and what was second negated; of tensors of four dimensions at most, whose tables may "
    "be learned or not. The tables do not make x larger, provably: then the gradient is summed, "
    "and stays.",
    R"(
        d ------------.
        |  sin         |
        Mul = z        |
       /    \          |
  Slice | Unpack, Reshape | StridedSlice
     z1       z2       |
      |       |        |
     Neg      |        |
       \     /         |   cos
  ConcatV2 | StridedSliceGrad
          |           Mul
           \         /
              AddN
)",
    R"(
  d   cos   sin
   \   |   /
  fused: MetalRopeTables, interleaved = false | true, backward = true
)"};

// The part of z that a gradient of Concat takes: ConcatOffset says where it begins, and the sizes are
// its inputs.
std::optional<Part> ConcatPart(const Facts& facts, const NodeView& slice, int64_t size,
                               Region* region) {
  const Value begin = facts.Input(slice, 1);
  if (begin.node->GetOp() != "ConcatOffset" || begin.node->NumRegularFanins() != 3) return {};
  if (!(facts.Input(slice, 2) == facts.Input(*begin.node, 1 + begin.port))) return std::nullopt;
  // Rows are whole except for the last dimension: any other would be cut beyond its end.
  const Shape of = facts.ShapeOf({&slice, 0}), z = facts.ShapeOf(facts.Input(slice, 0));
  if (of.rank() != z.rank() || of.dims.back() != size / 2) return std::nullopt;
  if (!std::equal(of.dims.begin(), of.dims.end() - 1, z.dims.begin(), SameDim)) return std::nullopt;
  region->helpers.push_back(begin.node);
  return HalfOf(size, false, begin.port);
}

// The part of z that the gradient of Pack takes: the rows are reshaped to two of halves, or to
// pairs.
std::optional<Part> PackPart(const Facts& facts, const Value& value, int rank, int64_t size,
                             const Value& z, Region* region) {
  const NodeView& unpack = *value.node;
  const Value reshaped = facts.Input(unpack, 0);
  const auto* axis = unpack.GetAttr("axis");
  const Shape shape = facts.ShapeOf(reshaped);
  if (reshaped.node->GetOp() != "Reshape" || !(facts.Input(*reshaped.node, 0) == z)) return {};
  if (shape.rank() != rank + 1 || !axis) return std::nullopt;
  for (const bool neighbours : {false, true}) {
    if (!IsAxis(axis->i(), rank + 1, neighbours ? 0 : 1)) continue;
    const int64_t inner = neighbours ? 2 : size / 2;
    if (shape.dims[rank] != inner || shape.dims[rank - 1] != size / inner) continue;
    region->nodes.push_back(reshaped.node);
    return HalfOf(size, neighbours, value.port);
  }
  return std::nullopt;
}

// The half of z's rows that a tensor has.
std::optional<Part> TakenOf(const Facts& facts, const Value& value, const Value& z,
                            Region* region) {
  const Shape shape = facts.ShapeOf(z);
  const int64_t size = shape.dims.back();
  const std::string& op = value.node->GetOp();
  std::optional<Part> part;
  if (op == "Slice" && facts.Input(*value.node, 0) == z) {
    part = ConcatPart(facts, *value.node, size, region);
  } else if (op == "Unpack") {
    part = PackPart(facts, value, shape.rank(), size, z, region);
  } else {
    part = PartOf(facts, value, z, shape.rank(), size);
  }
  if (part) region->nodes.push_back(value.node);
  return part;
}

// A half of z: its second half as it is, or its first one negated. Returns which.
std::optional<int> Half(const Facts& facts, const Value& value, const Value& z, bool neighbours,
                        Region* region) {
  const bool negated = value.node->GetOp() == "Neg";
  if (negated) region->nodes.push_back(value.node);
  const auto part = TakenOf(facts, negated ? facts.Input(*value.node, 0) : value, z, region);
  const int half = negated ? 0 : 1;
  if (!part || !(*part == HalfOf(facts.ShapeOf(z).dims.back(), neighbours, half))) {
    return std::nullopt;
  }
  return half;
}

// [z2, -z1], joined.
bool Joined(const Facts& facts, const Value& value, const Value& z, Region* region) {
  const NodeView& join = *value.node;
  if (join.GetOp() != "ConcatV2" || join.NumRegularFanins() != 3) return false;
  const auto axis = facts.Ints(facts.Input(join, 2));
  if (!axis || axis->size() != 1 || !IsAxis((*axis)[0], facts.ShapeOf(z).rank(), 0)) return false;
  region->nodes.push_back(&join);
  return Half(facts, facts.Input(join, 0), z, false, region) == 1 &&
         Half(facts, facts.Input(join, 1), z, false, region) == 0;
}

// One half of that, with zeros in place of the other.
std::optional<int> Padded(const Facts& facts, const Value& value, const Value& z, bool neighbours,
                          Region* region) {
  const NodeView& grad = *value.node;
  const Shape shape = facts.ShapeOf(z);
  if (grad.GetOp() != "StridedSliceGrad") return std::nullopt;
  const auto part = SlicePart(facts, grad, shape.rank(), shape.dims.back());
  region->nodes.push_back(&grad);
  const auto half = Half(facts, facts.Input(grad, 4), z, neighbours, region);
  if (!part || !half) return std::nullopt;
  if (!(*part == HalfOf(shape.dims.back(), neighbours, 1 - *half))) return std::nullopt;
  return half;
}

// s(z), in one term or two.
bool Turned(const Facts& facts, const std::vector<Value>& terms, const Value& z, Region* region) {
  if (terms.size() == 1) return Joined(facts, terms[0], z, region);
  for (const bool neighbours : {false, true}) {
    Region seen = *region;
    const auto one = Padded(facts, terms[0], z, neighbours, &seen);
    const auto other = Padded(facts, terms[1], z, neighbours, &seen);
    if (!one || !other || *one == *other) continue;
    *region = seen;
    if (neighbours) region->bound["neighbours"] = z;
    return true;
  }
  return false;
}

// d * table; binds both.
bool Product(const Facts& facts, Value at, const Value& d, const std::string& table,
             Region* region) {
  at = BehindBroadcast(facts, at, region);
  if (at.node->GetOp() != "Mul") return false;
  for (int i = 0; i < 2; ++i) {
    Region seen = *region;
    if (!(BehindBroadcast(facts, facts.Input(*at.node, i), &seen) == d)) continue;
    *region = seen;
    region->nodes.push_back(at.node);
    region->bound[table] = facts.Input(*at.node, 1 - i);
    return true;
  }
  return false;
}

// The tensor of whose product with a table a Neg has a part, before Reshape and slices.
std::optional<Value> FindZ(const Facts& facts, const NodeView& neg) {
  const Value part = facts.Input(neg, 0);
  const std::string& op = part.node->GetOp();
  if (op == "Split") return facts.Input(*part.node, 1);
  if (op == "Slice" || op == "StridedSlice") return facts.Input(*part.node, 0);
  if (op != "Unpack") return std::nullopt;
  const Value reshaped = facts.Input(*part.node, 0);
  if (reshaped.node->GetOp() != "Reshape") return std::nullopt;
  return facts.Input(*reshaped.node, 0);
}

Outcome Match(Chain* chain) {
  const NodeView& neg = chain->root();
  if (neg.GetOp() != "Neg") return NotMine();
  const Facts& facts = chain->facts();
  const auto z = FindZ(facts, neg);
  if (!z) return NotMine();
  Region before;
  const Value product = BehindBroadcast(facts, *z, &before);
  if (product.node->GetOp() != "Mul") return NotMine();
  const Shape shape = facts.ShapeOf(*z);
  if (shape.rank() < 1 || shape.dims.back() < 2 || shape.dims.back() % 2 != 0) return NotMine();
  for (int i = 0; i < 2; ++i) {
    const Value d = BehindBroadcast(facts, facts.Input(*product.node, i), &before);
    const Expression grad = [&](const Facts&, Value at, const Value&, Region* region) {
      const NodeView& sum = *at.node;
      const std::string& op = sum.GetOp();
      if (op != "AddN" && op != "AddV2" && op != "Add") return false;
      const int n = sum.NumRegularFanins();
      for (int k = 0; n <= 3 && k < n; ++k) {
        Region seen = *region;
        std::vector<Value> others;
        for (int j = 0; j < n; ++j) {
          if (j != k) others.push_back(facts.Input(sum, j));
        }
        if (!Product(facts, facts.Input(sum, k), d, "cos", &seen)) continue;
        if (!Product(facts, *z, d, "sin", &seen)) continue;
        if (!Turned(facts, others, *z, &seen)) continue;
        *region = seen;
        region->nodes.push_back(&sum);
        return true;
      }
      return false;
    };
    for (Region& region : FindExpression(
             facts, neg, d, {"ConcatV2", "StridedSliceGrad", "AddN", "AddV2", "Add"}, grad)) {
      if (Refusal refusal = CheckType(neg, facts.TypeOf(d)); !refusal.empty()) {
        return Refused(refusal);
      }
      std::vector<const NodeView*> alone = AllHelpers(region);
      const NodeView& last = *region.nodes.back();
      alone.insert(alone.end(), region.nodes.begin(), region.nodes.end() - 1);
      chain->LeaveShared(last, {d}, &alone);
      for (const NodeView* node : alone) {
        const auto end = region.nodes.end();
        if (std::find(region.nodes.begin(), end, node) == end)
          region.nodes.insert(region.nodes.begin(), node);
      }
      return BecomeTurn(chain, region, d, /*backward=*/true);
    }
  }
  return NotMine();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
