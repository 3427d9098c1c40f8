// The parts of rows that rotary position embedding turns.

#include "graph/turn.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace metal_ops::fusion {

using absl::StrCat;

namespace {

std::optional<Part> SplitPart(const Facts& facts, const Value& value, int rank, int64_t size) {
  const auto* parts = value.node->GetAttr("num_split");
  const auto axis = facts.Ints(facts.Input(*value.node, 0));
  if (!parts || parts->i() != 2 || !axis || axis->size() != 1) return std::nullopt;
  if ((*axis)[0] != -1 && (*axis)[0] != rank - 1) return std::nullopt;
  return Part{value.port * size / 2, 1};
}

}  // namespace

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

Outcome BecomeTurn(Chain* chain, const Region& region, const Value& x, bool backward) {
  const Facts& facts = chain->facts();
  const Shape shape = facts.ShapeOf(x);
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
  chain->Start("MetalRopeTables", facts.TypeOf(x), /*nchw=*/false, -1);
  auto& attrs = *chain->node()->mutable_attr();
  attrs["interleaved"].set_b(region.Has("neighbours"));
  attrs["backward"].set_b(backward);
  chain->SetInputs(inputs);
  chain->Append(Stage::kExpression, backward ? "RopeGrad" : "Rope");
  return Matched();
}

}  // namespace metal_ops::fusion
