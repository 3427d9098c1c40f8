// Root: a two-dimensional convolution.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;

constexpr PatternInfo kInfo = {"conv2d",
                               Stage::kRoot,
                               "Conv2D",
                               "A two-dimensional convolution, NHWC or NCHW, with any padding, "
                               "strides and dilations; not a grouped one.",
                               R"(
  x   filter
   \   /
  Conv2D
    |
 what follows
)",
                               R"(
  x   filter   args
   \    |      /
  MetalFusedConv2D
)"};

Outcome Match(Chain* chain) {
  const NodeView& conv = chain->root();
  if (conv.GetOp() != "Conv2D") return NotMine();
  const Facts& facts = chain->facts();
  const auto type = TypeAttr(conv, "T");
  if (Refusal refusal = CheckType(conv, type); !refusal.empty()) return Refused(refusal);
  const std::string format = StringAttr(conv, "data_format", "NHWC");
  if (format != "NHWC" && format != "NCHW") {
    return Refused("data_format", StrCat(Quoted(conv), " has data format ", format, "."));
  }
  const bool nchw = format == "NCHW";
  const int channel_dim = nchw ? 1 : 3;
  for (const char* name : {"strides", "dilations"}) {
    const std::vector<int64_t> steps = IntsAttr(conv, name);
    if (steps.empty() && name == std::string("dilations")) continue;  // its default is all ones
    if (steps.size() != 4 || steps[0] != 1 || steps[channel_dim] != 1) {
      return Refused("strides",
                     StrCat(Quoted(conv), " has ", name, " [", absl::StrJoin(steps, ", "),
                            "], expected 1 for batch and channels."));
    }
  }
  const Shape input = facts.ShapeOf(facts.Input(conv, 0));
  const Shape filter = facts.ShapeOf(facts.Input(conv, 1));
  const int64_t in = input.rank() == 4 ? input.dims[channel_dim] : -1;
  const int64_t taken = filter.rank() == 4 ? filter.dims[2] : -1;
  if (in < 0 || taken < 0) {
    return Refused("grouped", StrCat(Quoted(conv), " may be a grouped convolution: its input is ",
                                     input.ToString(), ", its filter ", filter.ToString(), "."));
  }
  if (in != taken) {
    return Refused("grouped", StrCat(Quoted(conv), " is a grouped convolution: ", in,
                                     " channels, of which a filter takes ", taken, "."));
  }
  chain->Start("MetalFusedConv2D", type, nchw, filter.dims[3] < 0 ? -1 : filter.dims[3]);
  for (const char* name : {"strides", "padding", "explicit_paddings", "data_format", "dilations"}) {
    if (const auto* attr = conv.GetAttr(name)) (*chain->node()->mutable_attr())[name] = *attr;
  }
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
