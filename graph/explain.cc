// `explain`: has TensorFlow inline, place and optimize a function as it would before the first run,
// with the pass's own eyes open, and says what the pass did. The function is not run.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/c_api.h"
#include "graph/facts.h"
#include "graph/json.h"
#include "graph/pass.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/common_runtime/graph_constructor.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/common_runtime/placer.h"
#include "tensorflow/core/framework/attr_value_util.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace metal_ops::fusion {
namespace {

using absl::Status;
using tensorflow::Graph;
using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::OptimizationPassRegistry;

// A device that can be placed on, and nothing else: the real ones belong to TensorFlow's runtime.
class NamedDevice : public tensorflow::Device {
 public:
  NamedDevice(const std::string& name, const std::string& type)
      : Device(nullptr, BuildDeviceAttributes(name, tensorflow::DeviceType(type),
                                              tensorflow::Bytes(1 << 30), {})) {}
  Status Sync() override { return absl::OkStatus(); }
  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes) override { return nullptr; }
};

// The request: functions in the library; nodes say the rest: one "Function", whose name is the
// function's; "Device"s with a name and a device type; one "_Arg" for each argument in order, with
// a device and attributes that hold its shape.
struct Request {
  std::string function;
  std::vector<std::unique_ptr<NamedDevice>> devices;
  std::vector<const NodeDef*> args;
};

Status Explain(const GraphDef& message, Recording* recording) {
  Request request;
  for (const NodeDef& node : message.node()) {
    if (node.op() == "Function") request.function = node.name();
    if (node.op() == "_Arg") request.args.push_back(&node);
    if (node.op() == "Device") {
      request.devices.push_back(std::make_unique<NamedDevice>(node.name(), node.device()));
    }
  }
  tensorflow::FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                                message.library());
  const tensorflow::FunctionDef* function = library.Find(request.function);
  if (!function) return absl::NotFoundError(absl::StrCat("no function '", request.function, "'"));
  std::unique_ptr<tensorflow::FunctionBody> body;
  TF_RETURN_IF_ERROR(FunctionDefToBodyHelper(*function, tensorflow::AttrSlice(), &library, &body));

  auto graph = std::make_unique<Graph>(library);
  CopyGraph(*body->graph, graph.get());
  for (tensorflow::Node* node : graph->op_nodes()) {
    if (!node->IsArg()) continue;
    const size_t index = node->attrs().Find("index")->i();
    if (index >= request.args.size()) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", index, " is not described"));
    }
    for (const auto& [name, value] : request.args[index]->attr()) node->AddAttr(name, value);
    if (!request.args[index]->device().empty()) {
      node->set_assigned_device_name(request.args[index]->device());
    }
  }

  tensorflow::DeviceSet devices;
  for (const auto& device : request.devices) {
    devices.AddDevice(device.get());
    if (device->device_type() == "CPU" && !devices.client_device()) {
      devices.set_client_device(device.get());
    }
  }
  tensorflow::SessionOptions session;
  // As TensorFlow does for functions, unlike its default for sessions.
  session.config.mutable_graph_options()->mutable_optimizer_options()->set_do_function_inlining(
      true);
  tensorflow::GraphOptimizationPassOptions options;
  options.session_options = &session;
  options.flib_def = &library;
  options.device_set = &devices;
  options.graph = &graph;
  options.is_function_graph = true;
  options.function_def = function;
  auto* passes = OptimizationPassRegistry::Global();
  TF_RETURN_IF_ERROR(passes->RunGrouping(OptimizationPassRegistry::PRE_PLACEMENT, options));
  tensorflow::Placer placer(graph.get(), request.function, &library, &devices,
                            /*default_local_device=*/nullptr, /*allow_soft_placement=*/true,
                            /*log_device_placement=*/false);
  TF_RETURN_IF_ERROR(placer.Run(options));
  RecordPass record(recording);
  TF_RETURN_IF_ERROR(passes->RunGrouping(OptimizationPassRegistry::POST_PLACEMENT, options));
  if (recording->graphs == 0) return absl::InternalError("the pass was not run");
  return recording->status;
}

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
    const auto& ops = fusion.node.attr().at("fused_ops").list().s();
    fused.push_back(JsonObject({
        {"pattern", JsonString(fusion.pattern)},
        {"root", JsonString(fusion.chain.front())},
        {"removed", JsonStrings(removed)},
        {"fused_op", JsonString(fusion.node.op())},
        {"fused_ops", JsonStrings({ops.begin(), ops.end()})},
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
  if (status.ok()) status = Explain(message, &recording);
  if (!status.ok()) {
    return JsonObject({{"error", JsonString(std::string(status.message()))}});
  }
  return ExplanationJson(recording);
}

}  // namespace metal_ops::fusion
