// Epilogue: batch norm in inference, by TensorFlow's own op.

#include "absl/strings/str_cat.h"
#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;
using tensorflow::DT_FLOAT;

constexpr PatternInfo kInfo = {
    "batch_norm",
    Stage::kNorm,
    "FusedBatchNorm,FusedBatchNormV2,FusedBatchNormV3",
    "FusedBatchNorm, V2 or V3, in inference. A bias before it is taken off the mean.",
    R"(
 root [BiasAdd]   gamma beta mean variance [C]
        \           |    |    |    |
     FusedBatchNormV3, is_training = false
)",
    R"(
 fused root, fused_ops = [BatchNorm]
 args = [gamma, beta, mean (- bias), variance]
)"};

Outcome Match(Chain* chain) {
  const std::optional<Use> use = OnlyUse(*chain);
  if (!use || use->node->GetOp().rfind("FusedBatchNorm", 0) != 0) return NotMine();
  const NodeView& norm = *use->node;
  const Facts& facts = chain->facts();
  if (norm.GetOp() != "FusedBatchNorm" && norm.GetOp() != "FusedBatchNormV2" &&
      norm.GetOp() != "FusedBatchNormV3") {
    return NotMine();  // a gradient
  }
  if (use->input != 0) {
    return Refused("batch_norm_port", StrCat(Quoted(norm), " takes ", Quoted(*chain->value().node),
                                             " as a parameter."));
  }
  if (BoolAttr(norm, "is_training", true)) {
    return Refused("batch_norm_training",
                   StrCat(Quoted(norm), " is in training: it computes the batch's own mean."));
  }
  const std::string format = StringAttr(norm, "data_format", "NHWC");
  if (format != (chain->nchw() ? "NCHW" : "NHWC")) {
    return Refused("data_format",
                   StrCat(Quoted(norm), " has data format ", format, ", ", Quoted(chain->root()),
                          " is ", chain->nchw() ? "NCHW" : "NHWC", "."));
  }
  if (norm.GetOp() != "FusedBatchNorm" && TypeAttr(norm, "U") != DT_FLOAT) {
    return Refused("dtype",
                   StrCat("The parameters of ", Quoted(norm), " are of ",
                          tensorflow::DataTypeString(TypeAttr(norm, "U")), ", expected float."));
  }
  if (Refusal refusal = chain->Absorb({&norm}); !refusal.empty()) return Refused(refusal);

  std::vector<std::string> parameters;  // gamma, beta, mean, variance
  for (int i = 1; i <= 4; ++i) parameters.push_back(InputName(facts.Input(norm, i)));
  if (chain->stage() == Stage::kBias) {
    std::string bias = chain->args().front();
    if (chain->type() != DT_FLOAT) {
      bias =
          chain->AddHelper("Cast", "bias", {bias}, {{"SrcT", chain->type()}, {"DstT", DT_FLOAT}});
    }
    parameters[2] = chain->AddHelper("Sub", "mean", {parameters[2], bias}, {{"T", DT_FLOAT}});
    chain->ReplaceArgs();
  }
  chain->Append(Stage::kNorm, "BatchNorm");
  for (const std::string& parameter : parameters) chain->AddArg(parameter, DT_FLOAT);
  chain->SetFloatAttr("epsilon", FloatAttr(norm, "epsilon", 1e-4f));
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
