// The POST_PLACEMENT pass. It runs before grappler, so before TensorFlow's and Apple's own
// remappers.

#include "graph/pass.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "graph/switches.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/platform/logging.h"

namespace metal_ops::fusion {
namespace {

using absl::Status;
using tensorflow::GraphOptimizationPassOptions;

thread_local Recording* recording = nullptr;

Status Rewrite(const GraphOptimizationPassOptions& options) {
  tensorflow::Graph* graph = options.graph->get();
  bool any = recording != nullptr;
  for (const tensorflow::Node* node : graph->op_nodes()) {
    any = any || IsCandidate(node->type_string(), node->assigned_device_name());
  }
  if (!any) return absl::OkStatus();
  ++GlobalSwitches().graphs;

  tensorflow::grappler::GrapplerItem item;
  graph->ToGraphDef(&item.graph);
  if (options.flib_def) *item.graph.mutable_library() = options.flib_def->ToProto();
  // Nodes that the function must run although no result needs them are known by name.
  if (options.function_def) {
    for (const auto& [_, node] : options.function_def->control_ret()) item.keep_ops.push_back(node);
  }
  Plan plan;
  const Status status = MakePlan(item, &plan);
  if (recording) {
    ++recording->graphs;
    recording->before = item.graph;
    recording->plan = plan;
    recording->status = status;
  }
  TF_RETURN_IF_ERROR(status);
  TF_RETURN_IF_ERROR(Apply(plan, graph));
  if (recording) graph->ToGraphDef(&recording->after);
  GlobalSwitches().fused += plan.fused.size();
  return absl::OkStatus();
}

class MetalFusionPass : public tensorflow::GraphOptimizationPass {
 public:
  Status Run(const GraphOptimizationPassOptions& options) override {
    // A session's graph is placed before its fetches are known: there any node may be asked for by
    // name.
    if (!options.graph || !options.is_function_graph) return absl::OkStatus();
    if (!GlobalSwitches().enabled && !recording) return absl::OkStatus();
    Status status;
    try {
      status = Rewrite(options);
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
    // An error from here would abort the user's function, which runs as well without us.
    if (!status.ok() && GlobalSwitches().errors++ == 0) {
      LOG(WARNING) << "metal_ops: a graph is left without fused ops, as looking at it failed ("
                   << status.message() << "). Results are not affected. Said once.";
    }
    return absl::OkStatus();
  }
};

// Late in its phase group, so that other passes have done their work on the plain nodes.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_PLACEMENT, 100, MetalFusionPass);

}  // namespace

Switches& GlobalSwitches() {
  static auto* switches = new Switches;
  return *switches;
}

RecordPass::RecordPass(Recording* into) { recording = into; }
RecordPass::~RecordPass() { recording = nullptr; }

}  // namespace metal_ops::fusion
