// Chains from the registered patterns; conflicts between them; and the two mutations.

#include "graph/rewriter.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/chain.h"
#include "graph/pattern.h"
#include "graph/switches.h"
#include "tensorflow/core/graph/tensor_id.h"

namespace metal_ops::fusion {
namespace {

using absl::Status;
using absl::StrCat;
using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::grappler::GrapplerItem;

// Nothing extends an expression or an update.
bool IsWhole(Stage stage) { return stage == Stage::kExpression || stage == Stage::kUpdate; }

bool Begins(const Pattern& pattern) {
  return pattern.info.stage == Stage::kRoot || IsWhole(pattern.info.stage);
}

bool IsRootOp(const std::string& op) {
  static const auto* ops = [] {  // patterns are all registered by then
    auto* ops = new std::unordered_set<std::string>;
    for (const Pattern* pattern : PatternRegistry::All()) {
      if (!Begins(*pattern)) continue;
      for (const absl::string_view each : absl::StrSplit(pattern->info.ops, ',')) {
        ops->emplace(each);
      }
    }
    return ops;
  }();
  return ops->count(op) > 0;
}

// Both reasons, under the first one's condition.
Refusal Both(Refusal first, const Refusal& second) {
  if (first.empty()) return second;
  if (!second.empty() && !absl::StrContains(first.reason, second.reason)) {
    absl::StrAppend(&first.reason, " ", second.reason);
  }
  return first;
}

// One candidate: the longest chain from its root, or why there is none.
struct Candidate {
  const NodeView* root = nullptr;
  std::optional<Chain> chain;  // with an epilogue or prologue at least, or an expression
  Refusal refusal;             // why it ends here
  bool mine = false;           // whether a pattern begins here at all
  // Where chains want one node, the one of most rank gets it. An expression saves the values
  // between its ops, which is more than an epilogue of one of them does.
  int rank() const {
    if (!chain) return -1;
    return static_cast<int>(chain->shown_ops().size()) + (IsWhole(chain->stage()) ? 100 : 0);
  }
  // The expression that takes more nodes goes first: a gated unit's gradient, not a product in it.
  int taken() const {
    return chain && IsWhole(chain->stage()) ? static_cast<int>(chain->nodes().size()) : 0;
  }
};

class Matcher {
 public:
  explicit Matcher(const Facts& facts) : facts_(facts), patterns_(PatternRegistry::All()) {}

  Candidate Match(const NodeView& root) const {
    Candidate candidate;
    candidate.root = &root;
    Chain chain(facts_, root, claimed_);
    candidate.refusal = Start(&chain, &candidate.mine);
    if (!candidate.refusal.empty()) return candidate;
    const bool whole = IsWhole(chain.stage());
    while (!whole && Extend(&chain, &candidate.refusal)) {
    }
    if (whole || chain.stage() == Stage::kActivation) candidate.refusal = {};
    candidate.refusal = Both(candidate.refusal, chain.aside());
    if (!chain.is_fused()) return candidate;
    Refusal refusal = chain.CheckInputs();
    if (refusal.empty()) refusal = chain.CheckKernels();
    if (!refusal.empty()) {
      candidate.refusal = refusal;
      return candidate;
    }
    candidate.chain = std::move(chain);
    return candidate;
  }

  bool IsClaimed(const NodeView& node) const { return claimed_.nodes.count(node.node_index()) > 0; }

  bool IsFree(const Chain& chain) const {
    return std::none_of(chain.nodes().begin(), chain.nodes().end(),
                        [&](const NodeView* node) { return IsClaimed(*node); }) &&
           chain.CheckCircle().empty();
  }

  void Claim(const Chain& chain) {
    for (const NodeView* node : chain.nodes()) claimed_.nodes.insert(node->node_index());
    std::vector<NodeDef> added = chain.helpers();
    added.push_back(chain.Finished());
    for (const NodeDef& node : added) {
      for (const std::string& input : node.input()) {
        const auto id = tensorflow::ParseTensorName(input);
        const NodeView* from = facts_.view().GetNode(id.node());
        if (from != nullptr) claimed_.inputs.emplace(from->node_index(), id.index());
      }
    }
    for (const Redirect& redirect : chain.Redirects()) claimed_.redirects.push_back(redirect);
    for (const Redirect& edge : chain.Joined()) claimed_.redirects.push_back(edge);
  }

 private:
  Refusal Start(Chain* chain, bool* mine) const {
    const NodeView& root = chain->root();
    for (Pattern* pattern : patterns_) {
      if (!Begins(*pattern)) continue;
      Chain begun = *chain;
      const Outcome outcome = pattern->match(&begun);
      if (!outcome.mine) continue;
      *mine = true;
      const bool waits = pattern->info.stage == Stage::kUpdate;
      if (Refusal refusal = CheckRoot(root, waits); !refusal.empty()) return refusal;
      if (!pattern->enabled) return Off(*pattern);
      if (!outcome.matched()) return outcome.refusal;
      begun.set_pattern(pattern->info.name);
      *chain = std::move(begun);
      return {};
    }
    return {"no_pattern", StrCat("No pattern takes ", Quoted(root), ".")};
  }

  Refusal CheckRoot(const NodeView& root, bool waits) const {
    if (!GlobalSwitches().enabled) return {"disabled", "Fusion is switched off."};
    const std::string device = DeviceType(root.GetDevice());
    if (device.empty()) return {"not_placed", StrCat(Quoted(root), " is not placed on a device.")};
    if (device == "CPU" && !GlobalSwitches().cpu) {
      return {"cpu", StrCat(Quoted(root), " is on the CPU, where TensorFlow fuses by itself.")};
    }
    if (facts_.IsFed(root)) return {"fed", StrCat(Quoted(root), " is fed.")};
    if (!waits && root.NumControllingFanins() > 0) {
      return {"control_edge", StrCat(Quoted(root), " has to wait for ",
                                     Quoted(*root.GetControllingFanins().front().node_view()),
                                     ": a control edge.")};
    }
    return {};
  }

  // By one epilogue, behind Identity nodes if need be; else says why not.
  bool Extend(Chain* chain, Refusal* refusal) const {
    Chain behind = *chain;
    *refusal = {};
    for (;;) {
      if (TryPatterns(&behind, refusal)) {
        *chain = std::move(behind);
        return true;
      }
      const std::optional<Use> use = OnlyUse(behind);
      if (!refusal->empty() || !use || use->node->GetOp() != "Identity") break;
      *refusal = behind.Absorb({use->node});
      if (!refusal->empty()) break;
    }
    if (refusal->empty()) *refusal = DescribeEnd(*chain);
    return false;
  }

  bool TryPatterns(Chain* chain, Refusal* refusal) const {
    for (Pattern* pattern : patterns_) {
      if (pattern->info.stage <= chain->stage() || Begins(*pattern)) continue;
      Chain longer = *chain;
      const Outcome outcome = pattern->match(&longer);
      if (outcome.matched() && pattern->enabled) {
        longer.set_pattern(pattern->info.name);
        *chain = std::move(longer);
        return true;
      }
      if (!outcome.mine) continue;
      const Refusal why = outcome.matched() ? Off(*pattern) : outcome.refusal;
      if (pattern->info.stage == Stage::kPrologue) {
        chain->set_aside(Both(chain->aside(), why));
      } else {
        *refusal = Both(*refusal, why);
      }
    }
    return false;
  }

  static Refusal Off(const Pattern& pattern) {
    return {"pattern_off", StrCat("The pattern '", pattern.info.name, "' is switched off.")};
  }

  Refusal DescribeEnd(const Chain& chain) const {
    const NodeView& last = *chain.value().node;
    const std::vector<Use> uses = facts_.Uses(chain.value());
    if (uses.empty()) return {"no_epilogue", StrCat("Nothing uses ", Quoted(last), ".")};
    if (uses.size() == 1 && facts_.IsReturn(uses[0])) {
      return {"no_epilogue", StrCat("The function returns ", Quoted(last), ".")};
    }
    if (uses.size() == 1) {
      return {"no_epilogue",
              StrCat("No pattern takes ", Quoted(*uses[0].node), " after ", Quoted(last), ".")};
    }
    for (const Use& use : uses) {
      if (!facts_.IsReturn(use)) continue;
      return {"fetched", StrCat("The function returns ", Quoted(last), ".")};
    }
    std::string names;
    for (size_t i = 0; i < uses.size(); ++i) {
      absl::StrAppend(&names, i ? ", " : "", Quoted(*uses[i].node));
    }
    return {"one_consumer", StrCat(Quoted(last), " has ", uses.size(), " consumers: ", names, ".")};
  }

  const Facts& facts_;
  const std::vector<Pattern*> patterns_;
  Claimed claimed_;
};

std::vector<const NodeDef*> NewNodes(const Fusion& fusion) {
  std::vector<const NodeDef*> nodes = {&fusion.node};
  for (const NodeDef& helper : fusion.helpers) nodes.push_back(&helper);
  for (const NodeDef& stand_in : fusion.stand_ins) nodes.push_back(&stand_in);
  return nodes;
}

Fusion ToFusion(const Candidate& candidate) {
  const Chain& chain = *candidate.chain;
  Fusion fusion;
  fusion.pattern = chain.pattern();
  fusion.root = chain.root().GetName();
  const NodeView* last = chain.value().node;  // the root itself, where there is only a prologue
  for (const NodeView* node : chain.nodes()) {
    if (node != last) fusion.chain.push_back(node->GetName());
  }
  fusion.chain.push_back(last->GetName());
  for (const NodeView* node : chain.DeadUsers()) fusion.dead.push_back(node->GetName());
  for (const Redirect& redirect : chain.Redirects()) {
    fusion.shape_inputs.emplace_back(redirect.use.node->GetName(), redirect.use.input);
  }
  fusion.node = chain.Finished();
  fusion.fused_op = chain.shown_op();
  fusion.fused_ops = chain.shown_ops();
  fusion.helpers = chain.helpers();
  fusion.stand_ins = chain.StandIns();
  for (NodeDef& helper : fusion.helpers) {
    const tensorflow::OpDef* op = nullptr;
    if (tensorflow::OpRegistry::Global()->LookUpOpDef(helper.op(), &op).ok()) {
      tensorflow::AddDefaultsToNodeDef(*op, &helper);
    }
  }
  fusion.condition = candidate.refusal.condition;
  fusion.reason = candidate.refusal.empty()
                      ? StrCat(Quoted(*last), " is the last op that can be fused.")
                      : candidate.refusal.reason;
  return fusion;
}

}  // namespace

bool IsCandidate(const std::string& op, const std::string& device) {
  if (!IsRootOp(op)) return false;
  const std::string type = DeviceType(device);
  return !type.empty() && (type != "CPU" || GlobalSwitches().cpu);
}

Status MakePlan(const GrapplerItem& item, Plan* plan) {
  std::unique_ptr<Facts> facts;
  TF_RETURN_IF_ERROR(Facts::Make(item, &facts));
  Matcher matcher(*facts);
  std::vector<Candidate> done;
  std::vector<const NodeView*> open;
  for (int i = 0; i < facts->view().NumNodes(); ++i) {
    const NodeView* node = facts->view().GetNode(i);
    if (IsRootOp(node->GetOp()) && !facts->IsDead(*node)) open.push_back(node);
  }
  // Where two chains want one node, as in Add(conv1, conv2), the longer one gets it, or the one
  // whose root comes first by name; the other one is matched again without it. The outcome does not
  // depend on the order of the nodes.
  while (!open.empty()) {
    std::vector<Candidate> found;
    for (const NodeView* root : open) {
      if (!matcher.IsClaimed(*root)) found.push_back(matcher.Match(*root));
    }
    open.clear();
    bool fewer_readers = false;
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      const auto rank = [](const Candidate& c) {
        return std::make_tuple(-c.rank(), -c.taken(), c.root->GetName());
      };
      return rank(a) < rank(b);
    });
    for (Candidate& candidate : found) {
      if (candidate.chain && !matcher.IsFree(*candidate.chain)) {
        open.push_back(candidate.root);
        continue;
      }
      if (candidate.chain) {
        matcher.Claim(*candidate.chain);
        fewer_readers = fewer_readers || IsWhole(candidate.chain->stage());
      }
      done.push_back(std::move(candidate));
    }
    // Nodes that a gradient read and no longer does, as with a rotary embedding, may be fused now.
    const auto again = [&](const Candidate& c) { return fewer_readers && !c.chain && c.mine; };
    for (const Candidate& candidate : done) {
      if (again(candidate)) open.push_back(candidate.root);
    }
    done.erase(std::remove_if(done.begin(), done.end(), again), done.end());
  }
  std::sort(done.begin(), done.end(), [](const Candidate& a, const Candidate& b) {
    return a.root->node_index() < b.root->node_index();
  });
  for (const Candidate& candidate : done) {
    if (candidate.chain) {
      plan->fused.push_back(ToFusion(candidate));
    } else if (candidate.mine && !matcher.IsClaimed(*candidate.root)) {
      plan->missed.push_back({candidate.root->GetName(), candidate.root->GetOp(),
                              candidate.refusal.condition, candidate.refusal.reason});
    }
  }
  return absl::OkStatus();
}

void Apply(const Plan& plan, GraphDef* graph) {
  std::unordered_map<std::string, const NodeDef*> overwritten;
  std::unordered_set<std::string> deleted;
  std::unordered_map<std::string, std::vector<std::pair<int, std::string>>> redirected;
  for (const Fusion& fusion : plan.fused) {
    for (const auto& [name, input] : fusion.shape_inputs) {
      redirected[name].emplace_back(input, fusion.node.name());
    }
    overwritten[fusion.node.name()] = &fusion.node;
    deleted.insert(fusion.chain.begin(), fusion.chain.end() - 1);
    deleted.insert(fusion.dead.begin(), fusion.dead.end());
  }
  for (const Fusion& fusion : plan.fused) {
    for (const NodeDef& node : fusion.stand_ins) {
      overwritten[node.name()] = &node;
      deleted.erase(node.name());
    }
  }
  google::protobuf::RepeatedPtrField<NodeDef> nodes;
  nodes.Reserve(graph->node_size());
  for (NodeDef& node : *graph->mutable_node()) {
    if (deleted.count(node.name())) continue;
    if (const auto found = redirected.find(node.name()); found != redirected.end()) {
      for (const auto& [input, to] : found->second) *node.mutable_input(input) = to;
    }
    const auto found = overwritten.find(node.name());
    found == overwritten.end() ? nodes.Add()->Swap(&node) : nodes.Add()->CopyFrom(*found->second);
  }
  for (const Fusion& fusion : plan.fused) {
    for (const NodeDef& helper : fusion.helpers) *nodes.Add() = helper;
  }
  graph->mutable_node()->Swap(&nodes);
}

Status Apply(const Plan& plan, tensorflow::Graph* graph) {
  using tensorflow::Edge;
  using tensorflow::Node;
  std::unordered_map<std::string, Node*> nodes;
  for (Node* node : graph->op_nodes()) nodes[node->name()] = node;

  // The steps that can fail come first.
  std::unordered_set<std::string> gone, here;
  for (const Fusion& fusion : plan.fused) {
    gone.insert(fusion.chain.begin(), fusion.chain.end() - 1);
    gone.insert(fusion.dead.begin(), fusion.dead.end());
    for (const NodeDef& helper : fusion.helpers) here.insert(helper.name());
  }
  for (const Fusion& fusion : plan.fused) {
    for (const NodeDef& node : fusion.stand_ins) gone.erase(node.name());
  }
  for (const Fusion& fusion : plan.fused) {
    std::vector<std::string> names = fusion.chain;
    for (const auto& [name, _] : fusion.shape_inputs) names.push_back(name);
    for (const std::string& name : names) {
      if (!nodes.count(name)) return absl::InternalError(absl::StrCat("no node ", name));
    }
    for (const NodeDef* def : NewNodes(fusion)) {
      for (const std::string& input : def->input()) {
        const std::string from(tensorflow::ParseTensorName(input).node());
        if (gone.count(from) || !(nodes.count(from) || here.count(from))) {
          return absl::InternalError(absl::StrCat(def->name(), " needs ", from, ", which is gone"));
        }
      }
    }
  }
  std::vector<std::pair<const NodeDef*, Node*>> added;
  std::unordered_map<std::string, Node*> fused;
  for (const Fusion& fusion : plan.fused) {
    for (const NodeDef* def : NewNodes(fusion)) {
      Status status;
      Node* node = graph->AddNode(*def, &status);
      if (!status.ok()) {
        for (const auto& [_, earlier] : added) graph->RemoveNode(earlier);
        return status;
      }
      node->set_assigned_device_name(def->device());
      added.emplace_back(def, node);
      (nodes.count(def->name()) ? fused : nodes)[def->name()] = node;
    }
  }

  for (const auto& [name, node] : fused) {
    const Node* last = nodes.at(name);
    std::vector<const Edge*> edges(last->out_edges().begin(), last->out_edges().end());
    for (const Edge* edge : edges) {
      Node* user = edge->dst();
      const int input = edge->dst_input();
      const bool control = edge->IsControlEdge();
      // Else to a node without effect, or of the same update: it is deleted.
      const int output = edge->src_output();
      if (!control && output >= node->num_outputs()) continue;
      graph->RemoveEdge(edge);
      control ? graph->AddControlEdge(node, user) : graph->AddEdge(node, output, user, input);
    }
  }
  for (const Fusion& fusion : plan.fused) {
    for (const std::vector<std::string>* names : {&fusion.dead, &fusion.chain}) {
      for (const std::string& name : *names) {
        const auto found = nodes.find(name);
        if (found == nodes.end()) continue;  // dead, and deleted with another chain
        graph->RemoveNode(found->second);
        nodes.erase(found);
      }
    }
  }
  for (const auto& [name, node] : fused) nodes[name] = node;
  for (const Fusion& fusion : plan.fused) {  // their old edges went with the nodes
    for (const auto& [name, input] : fusion.shape_inputs) {
      graph->AddEdge(nodes.at(fusion.node.name()), 0, nodes.at(name), input);
    }
  }
  for (const auto& [def, node] : added) {
    for (int i = 0; i < def->input_size(); ++i) {
      const tensorflow::TensorId input = tensorflow::ParseTensorName(def->input(i));
      Node* from = nodes.at(std::string(input.node()));
      if (input.index() == tensorflow::Graph::kControlSlot) {
        graph->AddControlEdge(from, node);
      } else {
        graph->AddEdge(from, input.index(), node, i);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace metal_ops::fusion
