// The graph of a package: the one that TensorFlow would make of a function before its first run,
// kept.

#ifndef METAL_OPS_GRAPH_PACKAGE_H_
#define METAL_OPS_GRAPH_PACKAGE_H_

#include <string>

#include "graph/rewriter.h"

namespace metal_ops::fusion {

// The graph of a function, inlined, placed, and fused if fusion is on. See placed.h for the request.
absl::Status FusedGraph(const tensorflow::GraphDef& request, tensorflow::GraphDef* graph);

// The graph after grappler. The request: a "Device" for each device, with a name and a type; a
// "Fetch" for each result, by name.
absl::Status OptimizedGraph(const tensorflow::GraphDef& request, tensorflow::GraphDef* graph);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_PACKAGE_H_
