// Updates of variables: how they are found, and the conditions on their nodes, which wait for others.

#include "graph/update.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "graph/expression.h"

namespace metal_ops::fusion {

using absl::StrCat;
using tensorflow::NodeDef;

namespace {

// An op with an effect is run by its name, and the NoOp of that name will do; a fetched read not.
bool MayVanish(const Facts& facts, const NodeView& node) {
  if (!facts.IsPreserved(node)) return true;
  const std::string& op = node.GetOp();
  return op == "AssignVariableOp" || op == "AssignAddVariableOp" || op == "AssignSubVariableOp" ||
         (op == "ReadVariableOp" && !facts.IsFetched(node));
}

std::unordered_set<int> Numbers(const std::vector<const NodeView*>& nodes) {
  std::unordered_set<int> numbers;
  for (const NodeView* node : nodes) numbers.insert(node->node_index());
  return numbers;
}

}  // namespace

// ---- Chain's part ----

Refusal Chain::AbsorbUpdate(const std::vector<const NodeView*>& nodes) {
  const std::unordered_set<int> inside = Numbers(nodes);
  std::set<std::string> waits;
  for (const NodeView* node : nodes) {
    if (claimed_->nodes.count(node->node_index())) {
      return {"overlap", StrCat(Quoted(*node), " is fused with another chain already.")};
    }
    if (facts_->IsFed(*node)) return {"fed", StrCat(Quoted(*node), " is fed.")};
    if (node->GetDevice() != root().GetDevice()) {
      return {"one_device", StrCat(Quoted(*node), " is on ", node->GetDevice(), ", ",
                                   Quoted(root()), " on ", root().GetDevice(), ".")};
    }
    if (!MayVanish(*facts_, *node)) {
      return {"fetched", StrCat(Quoted(*node), " is fetched, or kept by name.")};
    }
    for (const auto& fanin : node->GetControllingFanins()) {
      if (!inside.count(fanin.node_index())) waits.insert(fanin.node_view()->GetName());
    }
    for (int port = 0; port < static_cast<int>(node->GetRegularFanouts().size()); ++port) {
      for (const Use& use : facts_->ShapeUses({node, port})) {
        return {"shape_asked",
                StrCat(Quoted(*use.node), " asks ", Quoted(*node), " for its shape.")};
      }
      for (const Use& use : facts_->Uses({node, port})) {
        if (inside.count(use.node->node_index())) continue;
        if (facts_->IsReturn(use)) {
          return {"fetched", StrCat("The function returns ", Quoted(*node), ".")};
        }
        return {"one_consumer", StrCat(Quoted(*use.node), " needs ", Quoted(*node), " too.")};
      }
    }
  }
  if (Refusal refusal = CheckBetween(nodes); !refusal.empty()) return refusal;
  waits_.assign(waits.begin(), waits.end());
  std::vector<const NodeView*> sorted = {&root()};
  for (const NodeView* node : nodes) {
    if (node != &root()) sorted.push_back(node);
  }
  nodes_ = std::move(sorted);
  value_ = {&root(), 0};
  return {};
}

// As one op the nodes are run at one moment: nothing may wait for one of them that another one waits
// for, be it directly or over nodes that other updates become.
Refusal Chain::CheckBetween(const std::vector<const NodeView*>& nodes) const {
  const std::unordered_set<int> inside = Numbers(nodes);
  for (const NodeView* node : nodes) {
    std::vector<const NodeView*> after;
    for (const auto& fanout : node->GetControlledFanouts()) {
      if (!inside.count(fanout.node_index())) after.push_back(fanout.node_view());
    }
    for (const Redirect& edge : claimed_->redirects) {
      if (edge.to == node) after.push_back(edge.use.node);
    }
    if (const NodeView* last = facts_->FirstDependent(inside, after, claimed_->redirects)) {
      return {"between", StrCat("Something comes between: it waits for ", Quoted(*node), ", and ",
                                Quoted(*last), " for it.")};
    }
  }
  return {};
}

std::vector<NodeDef> Chain::StandIns() const {
  std::vector<NodeDef> stand_ins = stand_ins_;
  if (stage_ != Stage::kUpdate) return stand_ins;
  const std::unordered_set<int> inside = Numbers(nodes_);
  for (const NodeView* node : nodes_) {
    if (node == &root()) continue;  // the new op has its name
    const auto& fanouts = node->GetControlledFanouts();
    const bool needed =
        facts_->IsPreserved(*node) || std::any_of(fanouts.begin(), fanouts.end(), [&](auto& to) {
          return !inside.count(to.node_index()) && !facts_->IsDead(*to.node_view());
        });
    if (!needed) continue;
    NodeDef stand_in;
    stand_in.set_name(node->GetName());
    stand_in.set_op("NoOp");
    stand_in.set_device(node->GetDevice());
    stand_in.add_input(StrCat("^", root().GetName()));
    stand_ins.push_back(std::move(stand_in));
  }
  return stand_ins;
}

std::vector<Redirect> Chain::Joined() const {
  if (stage_ != Stage::kUpdate) return joined_;
  std::vector<Redirect> edges;
  for (const NodeView* node : nodes_) {
    if (node == &root()) continue;
    edges.push_back({{node, 0}, &root()});
    edges.push_back({{&root(), 0}, node});
  }
  return edges;
}

// ---- the patterns' part ----

void Update::Take(const NodeView& node) {
  if (std::find(nodes_.begin(), nodes_.end(), &node) == nodes_.end()) nodes_.push_back(&node);
}

Value Update::Behind(Value value) {
  while (value.node->GetOp() == "Identity") {
    Take(*value.node);
    value = facts_.Input(*value.node, 0);
  }
  return value;
}

std::optional<Update::Slot> Update::ReadAfter(const Value& read, const std::string& op) {
  const Value value = BeforeIdentities(facts_, read);
  if (value.node->GetOp() != "ReadVariableOp") return std::nullopt;
  Slot slot;
  slot.handle = facts_.Input(*value.node, 0);
  for (const auto& fanin : value.node->GetControllingFanins()) {
    const NodeView& node = *fanin.node_view();
    if (node.GetOp() == op && facts_.Input(node, 0) == slot.handle) slot.assign = &node;
  }
  if (slot.assign == nullptr) return std::nullopt;
  slot.becomes = facts_.Input(*slot.assign, 1);
  slot.after = value;
  Behind(read);
  Take(*value.node);
  Take(*slot.assign);
  return slot;
}

bool Update::ReadsBefore(const Value& read, const Slot& slot) {
  const Value value = BeforeIdentities(facts_, read);
  if (value.node->GetOp() != "ReadVariableOp") return false;
  if (!(facts_.Input(*value.node, 0) == slot.handle)) return false;
  Behind(read);
  Take(*value.node);
  return true;
}

std::optional<std::pair<Value, Value>> Update::Operands(const Value& value, const std::string& op) {
  const std::string& found = value.node->GetOp();
  if (found != op && !(op == "AddV2" && found == "Add")) return std::nullopt;
  Take(*value.node);
  return std::make_pair(facts_.Input(*value.node, 0), facts_.Input(*value.node, 1));
}

std::optional<Value> Update::Operand(const Value& value, const std::string& op) {
  if (value.node->GetOp() != op) return std::nullopt;
  Take(*value.node);
  return facts_.Input(*value.node, 0);
}

std::optional<Value> Update::SquareRoot(const Value& value) {
  if (const auto root = Operand(value, "Square")) return root;
  const std::vector<const NodeView*> before = nodes_;
  const auto both = Operands(value, "Mul");
  if (both && both->first == both->second) return both->first;
  nodes_ = before;
  return std::nullopt;
}

bool Update::IsSameNumber(const Value& a, const Value& b) const {
  if (a == b) return true;
  const auto x = facts_.Scalar(a), y = facts_.Scalar(b);
  return x && y && *x == *y;
}

bool Update::AreDistinct(const std::vector<Slot>& slots) const {
  std::vector<Value> handles = {facts_.Input(root_, 0)};
  for (const Slot& slot : slots) {
    if (std::find(handles.begin(), handles.end(), slot.handle) != handles.end()) return false;
    handles.push_back(slot.handle);
  }
  return true;
}

Refusal Update::CheckNumber(const Value& value, const std::string& role) const {
  if (IsNumber(value)) return {};
  return {"one_number", StrCat("The ", role, " ", Quoted(*value.node), " is of shape ",
                               ShapeOf(value).ToString(), ", expected one number, of shape [].")};
}

Refusal Update::CheckGradient(const Value& gradient, const Slot& slot) const {
  const Shape ours = ShapeOf(gradient), theirs = ShapeOf(slot.after);
  if (SameShape(ours, theirs)) return {};
  return {"gradient_shape",
          StrCat("The gradient ", Quoted(*gradient.node), " is of shape ", ours.ToString(), ", ",
                 Quoted(*slot.after.node), " of ", theirs.ToString(),
                 ": they are not provably the same in every run.")};
}

Refusal Update::Check(const Value& gradient, const std::vector<Slot>& slots,
                      const std::vector<std::pair<Value, std::string>>& numbers) const {
  for (const auto& [value, role] : numbers) {
    if (Refusal refusal = CheckNumber(value, role); !refusal.empty()) return refusal;
  }
  for (const Slot& slot : slots) {
    if (Refusal refusal = CheckGradient(gradient, slot); !refusal.empty()) return refusal;
  }
  return {};
}

Outcome Update::Become(Chain* chain, const std::string& op, const std::vector<Value>& inputs,
                       const std::string& shown) const {
  std::vector<const NodeView*> nodes = nodes_;
  nodes.push_back(&root_);
  if (Refusal refusal = chain->AbsorbUpdate(nodes); !refusal.empty()) return Refused(refusal);
  chain->Start(op, TypeAttr(root_, "dtype"), /*nchw=*/false, -1);
  std::vector<std::string> names;
  for (const Value& input : inputs) names.push_back(InputName(input));
  chain->SetInputs(names);
  chain->Append(Stage::kUpdate, shown);
  return Matched();
}

}  // namespace metal_ops::fusion
