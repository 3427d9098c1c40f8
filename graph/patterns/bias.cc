// Epilogue: a bias, by BiasAdd or by adding a [C].

#include "absl/strings/str_cat.h"
#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {"bias",
                               Stage::kBias,
                               "BiasAdd,BiasAddV1,AddV2,Add",
                               "BiasAdd; or AddV2 or Add whose other operand, on either side, has "
                               "one value a channel: [C] or [1, .., C], with "
                               "NCHW [C, 1, 1] or [1, C, 1, 1].",
                               R"(
 root   bias [C]
    \   /
  BiasAdd | AddV2 | Add
)",
                               R"(
 fused root, fused_ops = [BiasAdd]
 args = [bias]
)"};

// Whether all dimensions but one are 1, so that a bias may have been meant.
bool LooksLikeBias(const Shape& shape) {
  int long_dims = 0;
  for (const int64_t dim : shape.dims) long_dims += dim != 1;
  return shape.known_rank && shape.rank() > 0 && long_dims <= 1;
}

Outcome Match(Chain* chain) {
  const std::optional<Use> use = OnlyUse(*chain);
  if (!use) return NotMine();
  const NodeView& add = *use->node;
  const Facts& facts = chain->facts();
  const bool bias_add = add.GetOp() == "BiasAdd" || add.GetOp() == "BiasAddV1";
  if (!bias_add && add.GetOp() != "AddV2" && add.GetOp() != "Add") return NotMine();

  const Value operand = facts.Input(add, 1 - use->input);
  std::string vector;
  if (bias_add) {
    if (use->input != 0) {
      return Refused("bias_port",
                     StrCat(Quoted(add), " takes ", Quoted(*chain->value().node), " as its bias."));
    }
    const bool nchw = StringAttr(add, "data_format", "NHWC") == "NCHW";
    if (nchw != chain->nchw()) {
      return Refused("data_format",
                     StrCat(Quoted(add), " adds along ", nchw ? "NCHW" : "NHWC", ", ",
                            Quoted(chain->root()), " is ", chain->nchw() ? "NCHW" : "NHWC", "."));
    }
    vector = InputName(operand);
  } else {
    if (!LooksLikeBias(facts.ShapeOf(operand))) return NotMine();
    Refusal why_not;
    vector = chain->ChannelVector(operand, "bias", &why_not);
    // An operand of the output's shape is a residual, also where that is of one channel's size.
    if (vector.empty() && SameShape(facts.ShapeOf(operand), facts.ShapeOf(chain->value()))) {
      return NotMine();
    }
    if (vector.empty()) return Refused(why_not);
  }
  if (Refusal refusal = chain->Absorb({&add}); !refusal.empty()) return Refused(refusal);
  chain->Append(Stage::kBias, "BiasAdd");
  chain->AddArg(vector, chain->type());
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
