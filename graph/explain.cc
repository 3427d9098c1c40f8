// `explain`: reports the pass' changes of a function. The function is not run.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/c_api.h"
#include "graph/facts.h"
#include "graph/json.h"
#include "graph/pass.h"
#include "graph/placed.h"
#include "tensorflow/core/framework/attr_value_util.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace metal_ops::fusion {
namespace {

using absl::Status;
using tensorflow::GraphDef;
using tensorflow::NodeDef;

std::string ShortDevice(const std::string& name) {
  tensorflow::DeviceNameUtils::ParsedName parsed;
  if (!tensorflow::DeviceNameUtils::ParseFullName(name, &parsed) || !parsed.has_type) return name;
  return absl::StrCat(parsed.type, ":", parsed.has_id ? parsed.id : 0);
}

std::string NodesJson(const GraphDef& graph) {
  tensorflow::grappler::GrapplerItem item;
  item.graph = graph;
  tensorflow::grappler::GraphProperties properties(item);
  // Without shapes the drawing still is one.
  const bool shapes_known = properties.InferStatically(false, false, false).ok();
  std::vector<std::string> nodes;
  for (const NodeDef& node : graph.node()) {
    std::map<std::string, std::string> attrs;
    for (const auto& [name, value] : node.attr()) {
      if (name[0] != '_') attrs[name] = JsonString(SummarizeAttrValue(value));
    }
    std::vector<std::string> shapes;
    std::string type;
    if (shapes_known) {
      for (const auto& output : properties.GetOutputProperties(node.name())) {
        Shape shape;
        shape.known_rank = !output.shape().unknown_rank();
        for (const auto& dim : output.shape().dim()) shape.dims.push_back(dim.size());
        if (shapes.empty()) type = tensorflow::DataTypeString(output.dtype());
        shapes.push_back(shape.ToString());
      }
    }
    nodes.push_back(JsonObject({
        {"name", JsonString(node.name())},
        {"op", JsonString(node.op())},
        {"inputs", JsonStrings({node.input().begin(), node.input().end()})},
        {"attrs", JsonObject({attrs.begin(), attrs.end()})},
        {"device", JsonString(ShortDevice(node.device()))},
        {"shapes", JsonStrings(shapes)},
        {"dtype", JsonString(type)},
    }));
  }
  return JsonList(nodes);
}

std::string ExplanationJson(const Recording& recording) {
  std::vector<std::string> fused, missed;
  for (const Fusion& fusion : recording.plan.fused) {
    std::vector<std::string> added;
    for (const NodeDef& helper : fusion.helpers) added.push_back(helper.name());
    std::vector<std::string> removed = fusion.chain;
    removed.insert(removed.end() - 1, fusion.dead.begin(), fusion.dead.end());
    fused.push_back(JsonObject({
        {"pattern", JsonString(fusion.pattern)},
        {"root", JsonString(fusion.root)},
        {"removed", JsonStrings(removed)},
        {"fused_op", JsonString(fusion.fused_op)},
        {"fused_ops", JsonStrings(fusion.fused_ops)},
        {"node", JsonString(fusion.node.name())},
        {"added", JsonStrings(added)},
        {"condition", JsonString(fusion.condition)},
        {"reason", JsonString(fusion.reason)},
    }));
  }
  for (const Miss& miss : recording.plan.missed) {
    missed.push_back(JsonObject({
        {"root", JsonString(miss.root)},
        {"op", JsonString(miss.op)},
        {"condition", JsonString(miss.condition)},
        {"reason", JsonString(miss.reason)},
    }));
  }
  return JsonObject({
      {"before", NodesJson(recording.before)},
      {"after", NodesJson(recording.after)},
      {"fused", JsonList(fused)},
      {"missed", JsonList(missed)},
  });
}

}  // namespace

std::string ExplainJson(const void* request, size_t size) {
  GraphDef message;
  Status status;
  if (!message.ParseFromArray(request, static_cast<int>(size))) {
    status = absl::InvalidArgumentError("the request is not a GraphDef");
  }
  Recording recording;
  if (status.ok()) status = PlaceAndFuse(message, &recording);
  if (!status.ok()) {
    return JsonObject({{"error", JsonString(std::string(status.message()))}});
  }
  return ExplanationJson(recording);
}

std::string GraphJson(const GraphDef& graph) { return NodesJson(graph); }

}  // namespace metal_ops::fusion
