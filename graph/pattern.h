// How a fusion pattern is written and registered: one file in graph/patterns/, no list to add to.

#ifndef METAL_OPS_GRAPH_PATTERN_H_
#define METAL_OPS_GRAPH_PATTERN_H_

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "graph/chain.h"

namespace metal_ops::fusion {

struct PatternInfo {
  const char* name;  // also that of its switch
  Stage stage;       // where it stands in a chain; kRoot begins one; kExpression, kUpdate are one
  const char* ops;   // the ops that it looks for, separated by commas
  const char* summary;
  const char* before;  // drawings of the graph, for docs/fusions.md
  const char* after;
};

// A pattern's answer about a chain: no match, done, or nearly: then the failed condition.
struct Outcome {
  bool mine = false;
  Refusal refusal;
  bool matched() const { return mine && refusal.empty(); }
};
inline Outcome NotMine() { return {}; }
inline Outcome Refused(Refusal refusal) { return {true, std::move(refusal)}; }
inline Outcome Refused(const std::string& condition, const std::string& reason) {
  return Refused({condition, reason});
}
inline Outcome Matched() { return {true, {}}; }

// Root: the chain holds the root alone; check it and call Start. Prologue: AbsorbInput. Epilogue: look at the
// readers of chain->value(), Absorb one, Append. Expression: the root is one of its nodes, of an op that few
// graphs have; AbsorbAll or AbsorbPair, Start, SetInputs and Append. Update: the root is the op that changes the
// weights, which comes last; AbsorbUpdate, and the same. A chain is thrown away unless the outcome is Matched.
using MatchFunction = Outcome (*)(Chain* chain);

struct Pattern {
  PatternInfo info;
  MatchFunction match;
  std::atomic<bool> enabled{true};
};

class PatternRegistry {
 public:
  // By stage, then by name: the order in which they are tried. Fixed once the library is loaded.
  static std::vector<Pattern*> All();
  static Pattern* Find(const std::string& name);
  static bool Register(const PatternInfo& info, MatchFunction match);
};

#define REGISTER_FUSION(info, match)                               \
  [[maybe_unused]] static const bool metal_ops_fusion_registered = \
      ::metal_ops::fusion::PatternRegistry::Register(info, match)

// The fused ops are for float32, half and bfloat16.
Refusal CheckType(const NodeView& node, tensorflow::DataType type);

// The only consumer of the chain's value, if there is one only.
std::optional<Use> OnlyUse(const Chain& chain);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_PATTERN_H_
