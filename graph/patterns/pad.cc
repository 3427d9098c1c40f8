// Prologue: zeros around a convolution's input.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {
    "pad",
    Stage::kPrologue,
    "Pad,PadV2,MirrorPad",
    "Zeros around the height and width of a convolution's input, as Keras' ZeroPadding2D writes "
    "them, before padding VALID or EXPLICIT. Without an epilogue the result is a Conv2D.",
    R"(
  x   paddings
   \   /
    Pad   filter
      \   /
     Conv2D, VALID or EXPLICIT
)",
    R"(
 fused root, padding = EXPLICIT, explicit_paddings = paddings (+ its own)
)"};

Outcome Match(Chain* chain) {
  const NodeView& conv = chain->root();
  if (conv.GetOp() != "Conv2D") return NotMine();
  const Facts& facts = chain->facts();
  const NodeView& pad = *facts.Input(conv, 0).node;
  const std::string& op = pad.GetOp();
  if (op != "Pad" && op != "PadV2" && op != "MirrorPad") return NotMine();
  if (op == "MirrorPad") {
    return Refused("pad_value", StrCat(Quoted(pad), " repeats its input, expected zeros."));
  }
  if (op == "PadV2" && facts.Scalar(facts.Input(pad, 2)) != 0.0) {
    return Refused("pad_value", StrCat(Quoted(pad), " may pad with other values than 0."));
  }
  const std::optional<std::vector<int64_t>> paddings = facts.Ints(facts.Input(pad, 1));
  if (!paddings || paddings->size() != 8) {
    return Refused("pad_dimensions", StrCat("The paddings of ", Quoted(pad), " are not constant."));
  }
  const int channel_dim = chain->nchw() ? 1 : 3;
  for (const int dim : {0, channel_dim}) {
    if ((*paddings)[2 * dim] == 0 && (*paddings)[2 * dim + 1] == 0) continue;
    return Refused("pad_dimensions", StrCat(Quoted(pad), " pads batch or channels: [",
                                            absl::StrJoin(*paddings, ", "), "]."));
  }
  const std::string padding = StringAttr(conv, "padding", "");
  std::vector<int64_t> sum = *paddings;
  if (padding == "EXPLICIT") {
    const std::vector<int64_t> own = IntsAttr(conv, "explicit_paddings");
    for (size_t i = 0; i < own.size() && i < sum.size(); ++i) sum[i] += own[i];
  } else if (padding != "VALID") {
    return Refused("pad_same", StrCat(Quoted(conv), " has padding ", padding,
                                      ", which depends on the padded size; expected VALID or "
                                      "EXPLICIT."));
  }
  if (Refusal refusal = chain->AbsorbInput(pad); !refusal.empty()) return Refused(refusal);
  chain->Prepend("Pad");
  auto& attrs = *chain->node()->mutable_attr();
  attrs["padding"].set_s("EXPLICIT");
  attrs["explicit_paddings"].Clear();
  for (const int64_t each : sum) attrs["explicit_paddings"].mutable_list()->add_i(each);
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
