// Epilogue: a residual, added elementwise.

#include "absl/strings/str_cat.h"
#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {"residual",
                               Stage::kAdd,
                               "AddV2,Add,AddN",
                               "AddV2, Add or an AddN of two, on either side, of a tensor that "
                               "provably has the output's shape in every run, "
                               "unknown dimensions included.",
                               R"(
 root [BiasAdd | BatchNorm]   residual, shaped like the output
                 \            /
               AddV2 | Add | AddN
)",
                               R"(
 fused root, fused_ops = [.., Add]
 args = [.., residual]
)"};

Outcome Match(Chain* chain) {
  const std::optional<Use> use = OnlyUse(*chain);
  if (!use) return NotMine();
  const NodeView& add = *use->node;
  const Facts& facts = chain->facts();
  if (add.GetOp() != "AddV2" && add.GetOp() != "Add" && add.GetOp() != "AddN") return NotMine();
  if (add.NumRegularFanins() != 2) {
    return Refused("add_of_two", StrCat(Quoted(add), " adds ", add.NumRegularFanins(),
                                        " tensors, expected two."));
  }
  const Value residual = facts.Input(add, 1 - use->input);
  const Shape theirs = facts.ShapeOf(residual), ours = facts.ShapeOf(chain->value());
  if (!SameShape(theirs, ours)) {
    return Refused("residual_shape",
                   StrCat(Quoted(add), " adds ", Quoted(*residual.node), " of shape ",
                          theirs.ToString(), " to ", Quoted(*chain->value().node), " of shape ",
                          ours.ToString(), ": they are not provably the same in every run."));
  }
  if (Refusal refusal = chain->Absorb({&add}); !refusal.empty()) return Refused(refusal);
  chain->Append(Stage::kAdd, "Add");
  chain->AddArg(InputName(residual), chain->type());
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
