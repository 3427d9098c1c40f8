// Epilogue: batch norm in inference, as Keras and tf.nn.batch_normalization spell it out.

#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

using tensorflow::DT_FLOAT;

constexpr PatternInfo kInfo = {"batch_norm_decomposed",
                               Stage::kNorm,
                               "Mul",
                               "A Mul by one value a channel and an AddV2, Add or Sub of another, "
                               "which is what Keras makes of batch norm in "
                               "inference. A bias before it goes into the shift.",
                               R"(
 root [BiasAdd]   scale [C]
          \      /
            Mul   shift [C]
              \   /
          AddV2 | Add | Sub
)",
                               R"(
 fused root, fused_ops = [BatchNorm]
 args = [scale, shift (+ scale * bias)]
)"};

Outcome Match(Chain* chain) {
  const std::optional<Use> use = OnlyUse(*chain);
  if (!use || use->node->GetOp() != "Mul") return NotMine();
  const NodeView& mul = *use->node;
  const Facts& facts = chain->facts();
  Refusal why_not;
  std::string scale = chain->ChannelVector(facts.Input(mul, 1 - use->input), "scale", &why_not);
  // A Mul by something else is no batch norm, only a Mul.
  if (scale.empty()) return NotMine();

  const std::vector<Use> next = facts.Uses({&mul, 0});
  if (next.size() != 1) return NotMine();
  const NodeView& add = *next.front().node;
  const bool sub = add.GetOp() == "Sub";
  if (!sub && add.GetOp() != "AddV2" && add.GetOp() != "Add") return NotMine();
  if (sub && next.front().input != 0) return NotMine();  // shift - x
  std::string shift =
      chain->ChannelVector(facts.Input(add, 1 - next.front().input), "shift", &why_not);
  if (shift.empty()) return Refused(why_not);
  if (Refusal refusal = chain->Absorb({&mul, &add}); !refusal.empty()) return Refused(refusal);

  tensorflow::DataType type = chain->type();
  if (chain->stage() == Stage::kBias) {
    std::string bias = chain->args().front();
    // A product of two parameters may be beyond half precision where the sum that the graph asks
    // for is not.
    if (type != DT_FLOAT) {
      for (std::string* parameter : {&scale, &shift, &bias}) {
        *parameter =
            chain->AddHelper("Cast", "float", {*parameter}, {{"SrcT", type}, {"DstT", DT_FLOAT}});
      }
      type = DT_FLOAT;
    }
    const std::string scaled = chain->AddHelper("Mul", "bias", {scale, bias}, {{"T", type}});
    const char* op = sub ? "Sub" : "AddV2";
    shift = chain->AddHelper(op, "shift", {scaled, shift}, {{"T", type}});
    chain->ReplaceArgs();
  } else if (sub) {
    shift = chain->AddHelper("Neg", "shift", {shift}, {{"T", type}});
  }
  chain->Append(Stage::kNorm, "BatchNorm");
  chain->AddArg(scale, type);
  chain->AddArg(shift, type);
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
