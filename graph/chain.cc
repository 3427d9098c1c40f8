// The conditions under which nodes may vanish into a fused one, each with its reason.

#include "graph/chain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/tensor_id.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace metal_ops::fusion {

using absl::StrCat;
using tensorflow::DataType;
using tensorflow::NodeDef;
using tensorflow::Tensor;

std::string DeviceType(const std::string& device) {
  tensorflow::DeviceNameUtils::ParsedName parsed;
  if (!tensorflow::DeviceNameUtils::ParseFullName(device, &parsed) || !parsed.has_type) return "";
  return parsed.type;
}

Chain::Chain(const Facts& facts, const NodeView& root, const Claimed& claimed)
    : facts_(&facts), claimed_(&claimed), nodes_{&root}, value_{&root, 0} {}

void Chain::Start(const std::string& op, DataType type, bool nchw, int64_t channels) {
  type_ = type;
  nchw_ = nchw;
  channels_ = channels;
  node_.set_op(op);
  node_.set_device(root().GetDevice());
  (*node_.mutable_attr())["T"].set_type(type);
  inputs_.clear();
  for (int i = 0; i < 2; ++i) {
    if (i < root().NumRegularFanins()) inputs_.push_back(InputName(facts_->Input(root(), i)));
  }
}

Refusal Chain::CheckFree(const NodeView& node) const {
  if (claimed_->nodes.count(node.node_index())) {
    return {"overlap", StrCat(Quoted(node), " is fused with another chain already.")};
  }
  if (facts_->IsFed(node)) return {"fed", StrCat(Quoted(node), " is fed.")};
  if (node.GetDevice() != root().GetDevice()) {
    return {"one_device", StrCat(Quoted(node), " is on ", node.GetDevice(), ", ", Quoted(root()),
                                 " on ", root().GetDevice(), ".")};
  }
  return {};
}

Refusal Chain::CheckTaken(const NodeView& node) const {
  if (Refusal refusal = CheckFree(node); !refusal.empty()) return refusal;
  if (node.NumControllingFanins() == 0) return {};
  return {"control_edge",
          StrCat(Quoted(node), " has to wait for ",
                 Quoted(*node.GetControllingFanins().front().node_view()), ": a control edge.")};
}

// A node that is fused with another chain reads no more, unless that chain's new op does.
std::vector<Use> Chain::NotClaimed(const Value& value, std::vector<Use> uses) const {
  if (claimed_->inputs.count({value.node->node_index(), value.port})) return uses;
  uses.erase(
      std::remove_if(uses.begin(), uses.end(),
                     [&](const Use& use) { return claimed_->nodes.count(use.node->node_index()); }),
      uses.end());
  return uses;
}

std::vector<Use> Chain::Uses(const Value& value) const {
  return NotClaimed(value, facts_->Uses(value));
}

std::vector<Use> Chain::ShapeUses(const Value& value) const {
  return NotClaimed(value, facts_->ShapeUses(value));
}

void Chain::LeaveShared(const NodeView& last, const std::vector<Value>& inputs,
                        std::vector<const NodeView*>* nodes) const {
  std::unordered_set<int> inside = {last.node_index()}, before;
  for (const NodeView* node : *nodes) inside.insert(node->node_index());
  for (const Value& input : inputs) before.insert(input.node->node_index());
  const auto stays = [&](const NodeView* node) {
    if (!CheckFree(*node).empty() || !CheckVanishes(*node, inside).empty()) return true;
    for (const Use& use : ShapeUses({node, 0})) {
      if (!inside.count(use.node->node_index())) return true;
    }
    for (const auto& fanin : node->GetControllingFanins()) {
      const int from = fanin.node_index();
      if (!inside.count(from) && !before.count(from)) return true;
    }
    return false;
  };
  for (size_t n = inside.size() + 1; n != inside.size();) {
    n = inside.size();
    for (const NodeView* node : *nodes) {
      if (inside.count(node->node_index()) && stays(node)) inside.erase(node->node_index());
    }
  }
  nodes->erase(
      std::remove_if(nodes->begin(), nodes->end(),
                     [&](const NodeView* node) { return !inside.count(node->node_index()); }),
      nodes->end());
}

Refusal Chain::CheckVanishes(const NodeView& node, const std::unordered_set<int>& inside) const {
  if (facts_->IsPreserved(node)) {
    return {"fetched", StrCat(Quoted(node), " is fetched, or kept by name.")};
  }
  for (const auto& fanout : node.GetControlledFanouts()) {
    const int to = fanout.node_index();
    if (facts_->IsDead(*fanout.node_view()) || inside.count(to)) continue;
    if (claimed_->nodes.count(to) && !claimed_->inputs.count({node.node_index(), -1})) continue;
    return {"control_edge", StrCat(Quoted(*fanout.node_view()), " has to wait for ", Quoted(node),
                                   ": a control edge.")};
  }
  for (int port = 0; port < static_cast<int>(node.GetRegularFanouts().size()); ++port) {
    std::vector<Use> uses = Uses({&node, port});
    // Only output 0 has the shape of the fused node; that of an IdentityN may be anything.
    if (port > 0 || node.GetOp() == "IdentityN") {
      const std::vector<Use> shape_uses = ShapeUses({&node, port});
      uses.insert(uses.end(), shape_uses.begin(), shape_uses.end());
    }
    for (const Use& use : uses) {
      if (inside.count(use.node->node_index())) continue;
      if (facts_->IsReturn(use)) {
        return {"fetched", StrCat("The function returns ", Quoted(node), ".")};
      }
      if (port != value_.port || &node != value_.node) {
        return {"one_consumer",
                StrCat(Quoted(*use.node), " needs ",
                       port > 0 ? StrCat("output ", port, " of ") : "", Quoted(node), " too.")};
      }
      return {"one_consumer", StrCat(Quoted(node), " has ", uses.size(), " consumers, one of them ",
                                     Quoted(*use.node), ".")};
    }
  }
  return {};
}

// The fused node has no more.
Refusal Chain::CheckOutputs(const NodeView& last, int outputs) const {
  for (int port = outputs; port < static_cast<int>(last.GetRegularFanouts().size()); ++port) {
    for (const auto& uses : {Uses({&last, port}), ShapeUses({&last, port})}) {
      if (uses.empty()) continue;
      return {"one_output", StrCat(Quoted(*uses.front().node), " needs output ", port, " of ",
                                   Quoted(last), ".")};
    }
  }
  return {};
}

Refusal Chain::Absorb(const std::vector<const NodeView*>& nodes, bool shared) {
  std::unordered_set<int> inside;
  for (const NodeView* node : nodes) inside.insert(node->node_index());
  for (const NodeView* node : nodes) {
    if (Refusal refusal = CheckTaken(*node); !refusal.empty()) return refusal;
    if (node == nodes.back()) continue;
    if (Refusal refusal = CheckVanishes(*node, inside); !refusal.empty()) return refusal;
  }
  if (Refusal refusal = CheckVanishes(*value_.node, inside); !refusal.empty()) return refusal;
  if (!shared && facts_->Uses(value_).size() != 1) {
    return {"one_consumer",
            StrCat(Quoted(*nodes.back()), " takes ", Quoted(*value_.node), " twice.")};
  }
  const NodeView& last = *nodes.back();
  if (Refusal refusal = CheckOutputs(last, 1); !refusal.empty()) return refusal;
  std::vector<Use> shape_uses = shape_uses_;
  std::vector<const NodeView*> vanishing = {value_.node};
  vanishing.insert(vanishing.end(), nodes.begin(), nodes.end() - 1);
  for (const NodeView* node : vanishing) {
    for (const Use& use : ShapeUses({node, 0})) shape_uses.push_back(use);
  }
  if (Refusal refusal = CheckCircle(last, shape_uses); !refusal.empty()) return refusal;
  shape_uses_ = std::move(shape_uses);
  nodes_.insert(nodes_.end(), nodes.begin(), nodes.end());
  value_ = {&last, 0};
  return {};
}

Refusal Chain::AbsorbInput(const NodeView& node) {
  if (Refusal refusal = CheckTaken(node); !refusal.empty()) return refusal;
  if (Refusal refusal = CheckVanishes(node, {root().node_index()}); !refusal.empty()) {
    return refusal;
  }
  for (const Use& use : ShapeUses({&node, 0})) {
    return {"shape_asked", StrCat(Quoted(*use.node), " asks ", Quoted(node), " for its shape.")};
  }
  stage_ = Stage::kPrologue;
  nodes_.insert(nodes_.begin() + 1, &node);
  inputs_[0] = InputName(facts_->Input(node, 0));
  return {};
}

Refusal Chain::AbsorbAll(const std::vector<const NodeView*>& nodes, int outputs) {
  const NodeView& last = *nodes.back();
  std::unordered_set<int> inside;
  for (const NodeView* node : nodes) inside.insert(node->node_index());
  std::vector<Use> shape_uses;
  for (const NodeView* node : nodes) {
    if (Refusal refusal = CheckTaken(*node); !refusal.empty()) return refusal;
    if (node == &last) continue;
    if (Refusal refusal = CheckVanishes(*node, inside); !refusal.empty()) return refusal;
    for (const Use& use : ShapeUses({node, 0})) {
      if (inside.count(use.node->node_index())) continue;
      if (!SameShape(facts_->ShapeOf({node, 0}), facts_->ShapeOf({&last, 0}))) {
        return {"shape_asked", StrCat(Quoted(*use.node), " asks ", Quoted(*node),
                                      " for its shape, which is not that of ", Quoted(last), ".")};
      }
      shape_uses.push_back(use);
    }
  }
  if (Refusal refusal = CheckOutputs(last, outputs); !refusal.empty()) return refusal;
  if (Refusal refusal = CheckCircle(last, shape_uses); !refusal.empty()) return refusal;
  shape_uses_ = std::move(shape_uses);
  // The root stays first.
  std::vector<const NodeView*> sorted = {&root()};
  for (const NodeView* node : nodes) {
    if (node != &root()) sorted.push_back(node);
  }
  nodes_ = std::move(sorted);
  value_ = {&last, 0};
  return {};
}

Refusal Chain::AbsorbPair(const NodeView& first, const NodeView& second, const std::string& op,
                          const std::vector<const NodeView*>& inner,
                          const std::vector<Value>& inputs) {
  for (const NodeView* node : {&second, &first}) {
    if (Refusal refusal = CheckTaken(*node); !refusal.empty()) return refusal;
  }
  for (const Value& input : inputs) joined_.push_back({{&second, -1}, input.node});
  if (Refusal refusal = CheckCircle(); !refusal.empty()) return refusal;
  nodes_ = {&root()};
  std::vector<const NodeView*> others = {&second, &first};
  others.insert(others.end(), inner.begin(), inner.end());
  for (const NodeView* node : others) {
    if (node != &root()) nodes_.push_back(node);
  }
  value_ = {&first, 0};
  NodeDef reader;
  reader.set_name(second.GetName());
  reader.set_op(op);
  reader.set_device(root().GetDevice());
  reader.add_input(StrCat(first.GetName(), ":1"));
  (*reader.mutable_attr())["T"].set_type(facts_->TypeOf(value_));
  stand_ins_.push_back(std::move(reader));
  return {};
}

Refusal Chain::CheckCircle(const NodeView& last, const std::vector<Use>& shape_uses) const {
  if (shape_uses.empty()) return {};
  std::vector<Redirect> redirects = claimed_->redirects;
  for (const Use& use : shape_uses) redirects.push_back({use, &last});
  for (const Use& use : shape_uses) {
    if (!facts_->DependsOn(last, *use.node, redirects)) continue;
    return {"shape_circle",
            StrCat(Quoted(*use.node), " asks for the shape of a node before ", Quoted(last),
                   ", and what it says is needed for ", Quoted(last), ".")};
  }
  return {};
}

Refusal Chain::CheckCircle() const {
  if (stage_ == Stage::kUpdate) return CheckBetween(nodes_);
  for (const Redirect& edge : joined_) {
    if (!facts_->DependsOn(*edge.to, *edge.use.node, claimed_->redirects)) continue;
    return {"pair_circle", StrCat(Quoted(*edge.to), ", which the new op reads, needs ",
                                  Quoted(*edge.use.node), ".")};
  }
  return CheckCircle(*value_.node, shape_uses_);
}

std::vector<Redirect> Chain::Redirects() const {
  std::vector<Redirect> redirects;
  for (const Use& use : shape_uses_) {
    if (claimed_->nodes.count(use.node->node_index())) continue;  // asks no more
    redirects.push_back({use, value_.node});
  }
  return redirects;
}

void Chain::Append(Stage stage, const std::string& fused_op) {
  stage_ = stage;
  fused_ops_.push_back(fused_op);
}

void Chain::AddArg(const std::string& input, DataType type) {
  args_.push_back(input);
  arg_types_.push_back(type);
}

void Chain::ReplaceArgs() {
  fused_ops_.clear();
  args_.clear();
  arg_types_.clear();
}

void Chain::SetFloatAttr(const std::string& name, float value) {
  (*node_.mutable_attr())[name].set_f(value);
}

void Chain::set_pattern(const std::string& name) {
  pattern_ = pattern_.empty() ? name : StrCat(pattern_, "+", name);
}

std::string Chain::ChannelVector(const Value& operand, const std::string& role, Refusal* why_not) {
  const Shape shape = facts_->ShapeOf(operand);
  const int rank = facts_->ShapeOf(value_).rank();
  const auto refuse = [&](const std::string& condition, const std::string& expected) {
    *why_not = {condition, StrCat("The ", role, " ", Quoted(*operand.node), " is ",
                                  shape.ToString(), ", expected ", expected, ".")};
    return "";
  };
  const std::string channels = channels_ < 0 ? "C" : StrCat(channels_);
  if (!shape.known_rank || shape.rank() < 1 || shape.rank() > rank) {
    return refuse("bias_shape", StrCat("[", channels, "]"));
  }
  // Broadcasting aligns the last dimensions: a [C] on NCHW runs along the width.
  const int channel_dim = nchw_ ? shape.rank() - (rank - 1) : shape.rank() - 1;
  if (channel_dim < 0) {
    return refuse("bias_layout",
                  StrCat("[", channels, ", 1, 1] with NCHW, where [C] runs along the width"));
  }
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t expected = i == channel_dim ? channels_ : 1;
    if (shape.dims[i] != expected || expected < 0) {
      return refuse("bias_shape", nchw_ ? StrCat("[", channels, ", 1, 1]")
                                        : StrCat("[", channels, "] or [1, .., ", channels, "]"));
    }
  }
  if (shape.rank() == 1) return InputName(operand);
  const std::string name =
      AddHelper("Squeeze", "squeeze", {InputName(operand)}, {{"T", facts_->TypeOf(operand)}});
  auto* dims = (*helpers_.back().mutable_attr())["squeeze_dims"].mutable_list();
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != channel_dim) dims->add_i(i);
  }
  return name;
}

std::string Chain::AddHelper(const std::string& op, const std::string& what,
                             const std::vector<std::string>& inputs,
                             const std::vector<std::pair<std::string, DataType>>& types) {
  NodeDef helper;
  helper.set_op(op);
  // Names of one chain differ by the number, those of two chains by the root.
  std::string name = StrCat(root().GetName(), "/metal_fusion/", what, "_", helpers_.size());
  while (facts_->view().HasNode(name)) name += "_";
  helper.set_name(name);
  helper.set_device(root().GetDevice());
  for (const std::string& input : inputs) helper.add_input(input);
  for (const auto& [attr, type] : types) (*helper.mutable_attr())[attr].set_type(type);
  helpers_.push_back(std::move(helper));
  return name;
}

std::vector<std::string> Chain::shown_ops() const {
  std::vector<std::string> ops = before_;
  ops.insert(ops.end(), fused_ops_.begin(), fused_ops_.end());
  return ops;
}

std::string Chain::AddConst(const std::string& what, const Tensor& value, const Value& beside) {
  const std::string name =
      AddHelper("Const", what, {StrCat("^", beside.node->GetName())}, {{"dtype", value.dtype()}});
  value.AsProtoTensorContent((*helper()->mutable_attr())["value"].mutable_tensor());
  return name;
}

std::string Chain::AddInts(const std::string& what, const std::vector<int64_t>& values,
                           const Value& beside) {
  Tensor tensor(tensorflow::DT_INT32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.flat<int32_t>().data());
  return AddConst(what, tensor, beside);
}

std::string Chain::AddFloats(const std::string& what, int64_t n, float number, DataType type,
                             const Value& beside) {
  Tensor tensor(type, {n});
  if (type == tensorflow::DT_HALF) {
    tensor.flat<Eigen::half>().setConstant(static_cast<Eigen::half>(number));
  } else if (type == tensorflow::DT_BFLOAT16) {
    tensor.flat<Eigen::bfloat16>().setConstant(static_cast<Eigen::bfloat16>(number));
  } else {
    tensor.flat<float>().setConstant(number);
  }
  return AddConst(what, tensor, beside);
}

NodeDef Chain::Finished() const {
  NodeDef node = node_;
  node.set_name(value_.node->GetName());
  for (const std::string& input : inputs_) node.add_input(input);
  for (const std::string& arg : args_) node.add_input(arg);
  auto& attrs = *node.mutable_attr();
  if (stage_ == Stage::kPrologue) {  // with nothing behind it the root does its work
    node.set_op(root().GetOp());
  } else if (stage_ == Stage::kUpdate) {
    for (const std::string& name : waits_) node.add_input(StrCat("^", name));
  } else if (stage_ != Stage::kExpression) {
    auto* types = attrs["TArgs"].mutable_list();
    for (const DataType type : arg_types_) types->add_type(type);
    auto* ops = attrs["fused_ops"].mutable_list();
    for (const std::string& op : fused_ops_) ops->add_s(op);
  }
  // Errors of the new node name the nodes that the user wrote.
  for (const NodeView* from : nodes_) {
    node.mutable_experimental_debug_info()->add_original_node_names(from->GetName());
  }
  const tensorflow::OpDef* op_def = nullptr;
  if (tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op_def).ok()) {
    tensorflow::AddDefaultsToNodeDef(*op_def, &node);
  }
  return node;
}

Refusal Chain::CheckInputs() const {
  std::vector<NodeDef> nodes = helpers_;
  nodes.push_back(Finished());
  for (const NodeDef& node : nodes) {
    for (const std::string& input : node.input()) {
      const std::string from(tensorflow::ParseTensorName(input).node());
      for (const NodeView* gone : nodes_) {
        if (gone->GetName() != from) continue;
        return {"one_consumer", StrCat(Quoted(*value_.node), " needs ", Quoted(*gone), " twice.")};
      }
    }
  }
  return {};
}

Refusal Chain::CheckKernels() const {
  const std::string device = DeviceType(root().GetDevice());
  std::vector<NodeDef> nodes = helpers_;
  for (const NodeDef& node : StandIns()) nodes.push_back(node);
  nodes.push_back(Finished());
  for (NodeDef& node : nodes) {
    const tensorflow::OpDef* op_def = nullptr;
    absl::Status status = tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op_def);
    if (status.ok()) {
      tensorflow::AddDefaultsToNodeDef(*op_def, &node);
      status = tensorflow::ValidateNodeDef(node, *op_def);
    }
    if (status.ok()) {
      status = tensorflow::FindKernelDef(tensorflow::DeviceType(device), node, nullptr, nullptr);
    }
    if (!status.ok()) {
      return {"kernel",
              StrCat("No kernel of ", node.op(), " for ", tensorflow::DataTypeString(type_), " on ",
                     device, " devices takes ", Quoted(root()), ".")};
    }
  }
  return {};
}

std::vector<const NodeView*> Chain::DeadUsers() const {
  std::vector<const NodeView*> dead, queue;
  const auto visit = [&](const NodeView* node) {
    if (!facts_->IsDead(*node) || std::find(dead.begin(), dead.end(), node) != dead.end()) return;
    dead.push_back(node);
    queue.push_back(node);
  };
  const auto visit_users = [&](const NodeView& node, int first_port) {
    const auto& fanouts = node.GetRegularFanouts();
    for (size_t port = first_port; port < fanouts.size(); ++port) {
      for (const auto& fanout : fanouts[port]) visit(fanout.node_view());
    }
    if (first_port > 0) return;
    for (const auto& fanout : node.GetControlledFanouts()) visit(fanout.node_view());
  };
  // Output 0 of the last node lives on under its name.
  for (const NodeView* node : nodes_) visit_users(*node, node == value_.node ? 1 : 0);
  while (!queue.empty()) {
    const NodeView* node = queue.back();
    queue.pop_back();
    visit_users(*node, 0);
  }
  return dead;
}

}  // namespace metal_ops::fusion
