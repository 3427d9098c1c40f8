// The graph of a package: see package.h.

#include "graph/package.h"

#include <memory>
#include <utility>
#include <vector>

#include "graph/pass.h"
#include "graph/placed.h"
#include "graph/switches.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/grappler/clusters/virtual_cluster.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/meta_optimizer.h"
#include "tensorflow/core/protobuf/config.pb.h"
#include "tensorflow/core/protobuf/rewriter_config.pb.h"

namespace metal_ops::fusion {

using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::RewriterConfig;

absl::Status FusedGraph(const GraphDef& request, GraphDef* graph) {
  Recording recording;
  TF_RETURN_IF_ERROR(PlaceAndFuse(request, &recording));
  // Someone who watches the pass sees it at work although it is switched off.
  *graph = std::move(GlobalSwitches().enabled ? recording.after : recording.before);
  return absl::OkStatus();
}

absl::Status OptimizedGraph(const GraphDef& request, GraphDef* graph) {
  tensorflow::grappler::GrapplerItem item;
  item.id = "package";
  item.graph = std::move(*graph);
  std::vector<std::unique_ptr<NamedDevice>> owned;
  tensorflow::DeviceSet devices;
  bool all_on_cpu = true;
  for (const NodeDef& node : request.node()) {
    if (node.op() == "Fetch") item.fetch.push_back(node.name());
    if (node.op() != "Device") continue;
    owned.push_back(std::make_unique<NamedDevice>(node.name(), node.device()));
    devices.AddDevice(owned.back().get());
    all_on_cpu = all_on_cpu && node.device() == "CPU";
  }
  tensorflow::ConfigProto config;
  RewriterConfig* rewrites = config.mutable_graph_options()->mutable_rewrite_options();
  rewrites->set_min_graph_nodes(-1);  // small ones too
  // Ops are fused for the device already; TensorFlow's fusions for GPUs have no kernel there.
  if (!all_on_cpu) rewrites->set_remapping(RewriterConfig::OFF);
  rewrites->set_layout_optimizer(RewriterConfig::OFF);
  rewrites->set_memory_optimization(RewriterConfig::NO_MEM_OPT);
  tensorflow::grappler::VirtualCluster cluster(&devices);
  return RunMetaOptimizer(std::move(item), config, /*cpu_device=*/nullptr, &cluster, graph);
}

}  // namespace metal_ops::fusion
