// The core: finds chains in a graph, decides which become one node, and says why others do not. The
// placement pass, the grappler optimizer and `explain` all come here.

#ifndef METAL_OPS_GRAPH_REWRITER_H_
#define METAL_OPS_GRAPH_REWRITER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/grappler/grappler_item.h"

namespace metal_ops::fusion {

// A chain that becomes one node.
struct Fusion {
  std::string pattern;
  std::string root;
  std::vector<std::string> chain;  // names of its nodes; the last one's goes to the new node
  std::vector<std::string> dead;   // nodes without effect that used them and go with them
  // Inputs, by node and number, that asked one of them for its shape: they ask the new node.
  std::vector<std::pair<std::string, int>> shape_inputs;
  tensorflow::NodeDef node;
  std::string fused_op;  // its name: its op, or that of the helper that does the work
  std::vector<std::string> fused_ops;
  std::vector<tensorflow::NodeDef> helpers;
  std::vector<tensorflow::NodeDef> stand_ins;  // take the names of nodes that others wait for
  // Why it is not longer; empty if there is no more to add.
  std::string condition, reason;
};

// A root that stays as it is.
struct Miss {
  std::string root, op, condition, reason;
};

struct Plan {
  std::vector<Fusion> fused;
  std::vector<Miss> missed;
};

// Whether a node of this op on this device is worth a look.
bool IsCandidate(const std::string& op, const std::string& device);

// Looks at item.graph; its feeds, fetches and kept nodes are left alone.
absl::Status MakePlan(const tensorflow::grappler::GrapplerItem& item, Plan* plan);

// Two mutations: the last node of each chain is overwritten, the others are deleted.
void Apply(const Plan& plan, tensorflow::GraphDef* graph);
// The same on a Graph. On error the graph is unchanged.
absl::Status Apply(const Plan& plan, tensorflow::Graph* graph);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_REWRITER_H_
