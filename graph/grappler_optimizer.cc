// The same as a grappler optimizer, "metal_fusion", for RewriterConfigs that name it, before
// "remap": behind it there is nothing left to fuse. Unlike the pass it also sees the graphs of
// sessions, as grappler knows their fetches.

#include "graph/rewriter.h"
#include "graph/switches.h"
#include "tensorflow/core/grappler/clusters/cluster.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"

namespace metal_ops::fusion {
namespace {

using absl::Status;
using tensorflow::GraphDef;
using tensorflow::grappler::Cluster;
using tensorflow::grappler::GrapplerItem;

class MetalFusionOptimizer : public tensorflow::grappler::CustomGraphOptimizer {
 public:
  Status Init(const tensorflow::RewriterConfig_CustomGraphOptimizer*) override {
    return absl::OkStatus();
  }
  std::string name() const override { return "metal_fusion"; }
  bool UsesFunctionLibrary() const override { return true; }

  Status Optimize(Cluster*, const GrapplerItem& item, GraphDef* optimized) override {
    bool any = false;
    for (const auto& node : item.graph.node()) any = any || IsCandidate(node.op(), node.device());
    // Without fetches any node may be asked for. grappler keeps the graph if it hears "aborted".
    if (!any || !GlobalSwitches().enabled || item.fetch.empty()) {
      return absl::AbortedError("Nothing to do.");
    }
    ++GlobalSwitches().graphs;
    Plan plan;
    const Status status = MakePlan(item, &plan);
    if (!status.ok()) ++GlobalSwitches().errors;
    TF_RETURN_IF_ERROR(status);
    *optimized = item.graph;
    Apply(plan, optimized);
    GlobalSwitches().fused += plan.fused.size();
    return absl::OkStatus();
  }
};

REGISTER_GRAPH_OPTIMIZER_AS(MetalFusionOptimizer, "metal_fusion");

}  // namespace
}  // namespace metal_ops::fusion
