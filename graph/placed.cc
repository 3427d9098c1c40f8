// Has TensorFlow inline, place and optimize a function as it would before the first run.

#include "graph/placed.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/common_runtime/graph_constructor.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/common_runtime/placer.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/public/session_options.h"

namespace metal_ops::fusion {
namespace {

using absl::Status;
using tensorflow::Graph;
using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::OptimizationPassRegistry;

struct Request {
  std::string function;
  std::vector<std::unique_ptr<NamedDevice>> devices;
  std::vector<const NodeDef*> args;
};

}  // namespace

Status PlaceAndFuse(const GraphDef& message, Recording* recording) {
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

}  // namespace metal_ops::fusion
