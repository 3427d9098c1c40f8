// Uses, liveness, shapes and constants, from grappler's graph view and shape inference.

#include "graph/facts.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor.pb.h"

namespace metal_ops::fusion {

using absl::Status;
using tensorflow::DataType;
using tensorflow::NodeDef;
using tensorflow::grappler::GraphProperties;
using tensorflow::grappler::GrapplerItem;
using tensorflow::grappler::utils::GraphView;

bool AsksForShape(const NodeView& node) {
  const std::string& op = node.GetOp();
  return op == "Shape" || op == "ShapeN" || op == "Size" || op == "Rank";
}

std::string Shape::ToString() const {
  if (!known_rank) return "unknown";
  return absl::StrCat("[",
                      absl::StrJoin(dims, ", ",
                                    [](std::string* out, int64_t dim) {
                                      absl::StrAppend(
                                          out, dim < 0 ? std::string("?") : absl::StrCat(dim));
                                    }),
                      "]");
}

bool SameDim(int64_t a, int64_t b) { return a == b && a != -1; }

bool SameShape(const Shape& a, const Shape& b) {
  return a.known_rank && b.known_rank &&
         std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(), SameDim);
}

bool DifferentShape(const Shape& a, const Shape& b) {
  if (!a.known_rank || !b.known_rank) return false;
  if (a.rank() != b.rank()) return true;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dims[i] >= 0 && b.dims[i] >= 0 && a.dims[i] != b.dims[i]) return true;
  }
  return false;
}

Status Facts::Make(const GrapplerItem& item, std::unique_ptr<Facts>* facts) {
  std::unique_ptr<Facts> made(new Facts);
  Status status;
  made->view_ = std::make_unique<GraphView>(&item.graph, &status);
  TF_RETURN_IF_ERROR(status);
  made->properties_ = std::make_unique<GraphProperties>(item);
  // A fed tensor may have any shape: that of its node proves nothing.
  TF_RETURN_IF_ERROR(made->properties_->InferStatically(/*assume_valid_feeds=*/false,
                                                        /*aggressive_shape_inference=*/false,
                                                        /*include_tensor_values=*/false));
  made->preserved_ = item.NodesToPreserve();
  for (const auto& feed : item.feed) {
    made->fed_.insert(std::string(tensorflow::ParseTensorName(feed.first).node()));
  }
  for (const std::string& fetch : item.fetch) {
    made->fetched_.insert(std::string(tensorflow::ParseTensorName(fetch).node()));
  }
  made->FindLive();
  *facts = std::move(made);
  return absl::OkStatus();
}

void Facts::FindLive() {
  live_.assign(view_->NumNodes(), false);
  std::vector<const NodeView*> queue;
  const auto reach = [&](const NodeView* node) {
    if (live_[node->node_index()]) return;
    live_[node->node_index()] = true;
    queue.push_back(node);
  };
  for (int i = 0; i < view_->NumNodes(); ++i) {
    const NodeView* node = view_->GetNode(i);
    const tensorflow::OpDef* op = nullptr;
    // An op that is not in the registry is the call of a function, which may have effects.
    const bool effects = !tensorflow::OpRegistry::Global()->LookUpOpDef(node->GetOp(), &op).ok() ||
                         op->is_stateful() || op->output_arg_size() == 0;
    if (effects || IsPreserved(*node)) reach(node);
  }
  while (!queue.empty()) {
    const NodeView* node = queue.back();
    queue.pop_back();
    for (const auto& fanin : node->GetRegularFanins()) reach(fanin.node_view());
    for (const auto& fanin : node->GetControllingFanins()) reach(fanin.node_view());
  }
}

Value Facts::Input(const NodeView& node, int input) const {
  if (input < 0 || input >= node.NumRegularFanins()) return {};
  const auto& fanin = node.GetRegularFanin(input);
  return {fanin.node_view(), fanin.index()};
}

std::vector<Use> Facts::LiveUses(const Value& value, bool of_shape) const {
  std::vector<Use> uses;
  for (const auto& fanout : value.node->GetRegularFanout(value.port)) {
    const NodeView* node = fanout.node_view();
    if (IsDead(*node) || AsksForShape(*node) != of_shape) continue;
    uses.push_back({node, fanout.index()});
  }
  return uses;
}

std::vector<Use> Facts::Uses(const Value& value) const { return LiveUses(value, false); }

std::vector<Use> Facts::ShapeUses(const Value& value) const { return LiveUses(value, true); }

bool Facts::DependsOn(const NodeView& to, const NodeView& from,
                      const std::vector<Redirect>& redirects) const {
  return FirstDependent({to.node_index()}, {&from}, redirects) != nullptr;
}

const NodeView* Facts::FirstDependent(const std::unordered_set<int>& to,
                                      const std::vector<const NodeView*>& from,
                                      const std::vector<Redirect>& redirects) const {
  std::unordered_map<const NodeView*, std::vector<const NodeView*>> added;
  for (const Redirect& redirect : redirects) added[redirect.to].push_back(redirect.use.node);
  std::vector<bool> seen(view_->NumNodes(), false);
  std::vector<const NodeView*> queue;
  const auto reach = [&](const NodeView* node) {
    if (seen[node->node_index()]) return;
    seen[node->node_index()] = true;
    queue.push_back(node);
  };
  for (const NodeView* each : from) reach(each);
  while (!queue.empty()) {
    const NodeView* node = queue.back();
    queue.pop_back();
    if (to.count(node->node_index())) return node;
    // The next turn of a loop may depend on this one.
    if (node->GetOp() == "NextIteration" || node->GetOp() == "RefNextIteration") continue;
    for (const auto& fanouts : node->GetRegularFanouts()) {
      for (const auto& fanout : fanouts) reach(fanout.node_view());
    }
    for (const auto& fanout : node->GetControlledFanouts()) reach(fanout.node_view());
    if (const auto found = added.find(node); found != added.end()) {
      for (const NodeView* asking : found->second) reach(asking);
    }
  }
  return nullptr;
}

bool Facts::IsReturn(const Use& use) const {
  if (use.node->GetOp() != "Identity") return use.node->GetOp() == "_Retval";
  const std::vector<Use> uses = Uses({use.node, 0});
  return uses.size() == 1 && IsReturn(uses[0]);
}

bool Facts::IsPreserved(const NodeView& node) const { return preserved_.count(node.GetName()) > 0; }

bool Facts::IsFetched(const NodeView& node) const { return fetched_.count(node.GetName()) > 0; }

bool Facts::IsFed(const NodeView& node) const { return fed_.count(node.GetName()) > 0; }

Shape Facts::ShapeOf(const Value& value) const {
  Shape shape;
  const auto& outputs = properties_->GetOutputProperties(value.node->GetName());
  if (value.port < 0 || value.port >= static_cast<int>(outputs.size())) return shape;
  const auto& proto = outputs[value.port].shape();
  shape.known_rank = !proto.unknown_rank();
  for (const auto& dim : proto.dim()) shape.dims.push_back(dim.size());
  return shape;
}

DataType Facts::TypeOf(const Value& value) const {
  const auto& outputs = properties_->GetOutputProperties(value.node->GetName());
  if (value.port < 0 || value.port >= static_cast<int>(outputs.size())) {
    return tensorflow::DT_INVALID;
  }
  return outputs[value.port].dtype();
}

std::optional<double> Facts::Scalar(const Value& value) const {
  Value at = value;
  while (at.node && (at.node->GetOp() == "Identity" || at.node->GetOp() == "Cast")) {
    if (IsFed(*at.node)) return std::nullopt;
    at = Input(*at.node, 0);
  }
  if (!at.node || at.node->GetOp() != "Const" || IsFed(*at.node)) return std::nullopt;
  const auto* attr = at.node->GetAttr("value");
  tensorflow::Tensor tensor;
  if (!attr || !tensor.FromProto(attr->tensor()) || tensor.NumElements() != 1 ||
      tensor.dims() > 1) {
    return std::nullopt;
  }
  switch (tensor.dtype()) {
    case tensorflow::DT_FLOAT:
      return tensor.flat<float>()(0);
    case tensorflow::DT_DOUBLE:
      return tensor.flat<double>()(0);
    case tensorflow::DT_HALF:
      return static_cast<float>(tensor.flat<Eigen::half>()(0));
    case tensorflow::DT_BFLOAT16:
      return static_cast<float>(tensor.flat<Eigen::bfloat16>()(0));
    default:
      return std::nullopt;
  }
}

std::optional<std::vector<int64_t>> Facts::Ints(const Value& value) const {
  Value at = value;
  while (at.node && at.node->GetOp() == "Identity" && !IsFed(*at.node)) at = Input(*at.node, 0);
  if (!at.node || at.node->GetOp() != "Const" || IsFed(*at.node)) return std::nullopt;
  const auto* attr = at.node->GetAttr("value");
  tensorflow::Tensor tensor;
  if (!attr || !tensor.FromProto(attr->tensor())) return std::nullopt;
  std::vector<int64_t> ints;
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    if (tensor.dtype() == tensorflow::DT_INT32) {
      ints.push_back(tensor.flat<int32_t>()(i));
    } else if (tensor.dtype() == tensorflow::DT_INT64) {
      ints.push_back(tensor.flat<int64_t>()(i));
    } else {
      return std::nullopt;
    }
  }
  return ints;
}

std::string StringAttr(const NodeView& node, const std::string& name,
                       const std::string& otherwise) {
  const auto* attr = node.GetAttr(name);
  return attr ? attr->s() : otherwise;
}

bool BoolAttr(const NodeView& node, const std::string& name, bool otherwise) {
  const auto* attr = node.GetAttr(name);
  return attr ? attr->b() : otherwise;
}

float FloatAttr(const NodeView& node, const std::string& name, float otherwise) {
  const auto* attr = node.GetAttr(name);
  return attr ? attr->f() : otherwise;
}

DataType TypeAttr(const NodeView& node, const std::string& name) {
  const auto* attr = node.GetAttr(name);
  return attr ? attr->type() : tensorflow::DT_INVALID;
}

std::vector<int64_t> IntsAttr(const NodeView& node, const std::string& name) {
  const auto* attr = node.GetAttr(name);
  if (!attr) return {};
  return {attr->list().i().begin(), attr->list().i().end()};
}

std::string Quoted(const NodeView& node) {
  return absl::StrCat("'", node.GetName(), "' (", node.GetOp(), ")");
}

std::string InputName(const Value& value) {
  return value.port == 0 ? value.node->GetName()
                         : absl::StrCat(value.node->GetName(), ":", value.port);
}

}  // namespace metal_ops::fusion
