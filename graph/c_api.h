// The functions that Python calls through ctypes. Strings that are returned are JSON, and freed by
// metal_ops_fusion_free.

#ifndef METAL_OPS_GRAPH_C_API_H_
#define METAL_OPS_GRAPH_C_API_H_

#include <cstddef>
#include <string>

#include "tensorflow/core/framework/graph.pb.h"

#define METAL_OPS_EXPORT extern "C" __attribute__((visibility("default"), used))

// The registered patterns: name, kind, ops, summary, before, after, enabled.
METAL_OPS_EXPORT char* metal_ops_fusion_patterns();
// Switches and counts: enabled, cpu, graphs, fused, errors.
METAL_OPS_EXPORT char* metal_ops_fusion_state();
METAL_OPS_EXPORT void metal_ops_fusion_set(int enabled, int cpu);
// 0 if there is no such pattern.
METAL_OPS_EXPORT int metal_ops_fusion_set_pattern(const char* name, int enabled);
// See graph/explain.cc for the request.
METAL_OPS_EXPORT char* metal_ops_fusion_explain(const void* request, size_t size);
METAL_OPS_EXPORT void metal_ops_fusion_free(char* text);

// For packages (graph/package.h). A serialized GraphDef of `*reply_size` bytes; or, where that is
// set to 0, the error. `graph` may be empty where the request has all.
METAL_OPS_EXPORT char* metal_ops_graph_fuse(const void* request, size_t request_size,
                                            const void* graph, size_t size, size_t* reply_size);
METAL_OPS_EXPORT char* metal_ops_graph_optimize(const void* request, size_t request_size,
                                                const void* graph, size_t size, size_t* reply_size);
// The nodes of a graph, as `explain` has them.
METAL_OPS_EXPORT char* metal_ops_graph_nodes(const void* graph, size_t size);

namespace metal_ops::fusion {
std::string ExplainJson(const void* request, size_t size);
std::string GraphJson(const tensorflow::GraphDef& graph);
}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_C_API_H_
