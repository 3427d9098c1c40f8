// The C interface of the fusion pass.

#include "graph/c_api.h"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "graph/json.h"
#include "graph/package.h"
#include "graph/pattern.h"
#include "graph/switches.h"

namespace {

using metal_ops::fusion::GlobalSwitches;
using metal_ops::fusion::JsonList;
using metal_ops::fusion::JsonObject;
using metal_ops::fusion::JsonString;
using metal_ops::fusion::Pattern;
using metal_ops::fusion::PatternRegistry;
using metal_ops::fusion::Stage;

char* Copy(const std::string& text) { return strdup(text.c_str()); }

const char* Kind(Stage stage) {
  switch (stage) {
    case Stage::kRoot:
      return "root";
    case Stage::kPrologue:
      return "prologue";
    case Stage::kExpression:
      return "expression";
    case Stage::kUpdate:
      return "update";
    default:
      return "epilogue";
  }
}

std::string Bool(bool value) { return value ? "true" : "false"; }

// Has one of graph/package.h's functions answer.
template <typename Function>
char* Reply(const Function& function, const void* request, size_t request_size, const void* graph,
            size_t size, size_t* reply_size) {
  tensorflow::GraphDef asked, answer;
  std::string text;
  *reply_size = 0;
  try {
    if (!asked.ParseFromArray(request, static_cast<int>(request_size)) ||
        !answer.ParseFromArray(graph, static_cast<int>(size))) {
      return Copy("the request is not a GraphDef");
    }
    const absl::Status status = function(asked, &answer);
    if (!status.ok()) return Copy(std::string(status.message()));
    if (!answer.SerializeToString(&text)) return Copy("the graph is larger than 2 GiB");
  } catch (const std::exception& error) {
    return Copy(error.what());
  }
  auto* bytes = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(bytes, text.data(), text.size());
  *reply_size = text.size();
  return bytes;
}

}  // namespace

char* metal_ops_fusion_patterns() {
  std::vector<std::string> patterns;
  for (const Pattern* pattern : PatternRegistry::All()) {
    const auto& info = pattern->info;
    patterns.push_back(JsonObject({
        {"name", JsonString(info.name)},
        {"kind", JsonString(Kind(info.stage))},
        {"ops", JsonString(info.ops)},
        {"summary", JsonString(info.summary)},
        {"before", JsonString(info.before)},
        {"after", JsonString(info.after)},
        {"enabled", Bool(pattern->enabled)},
    }));
  }
  return Copy(JsonList(patterns));
}

char* metal_ops_fusion_state() {
  const auto& switches = GlobalSwitches();
  return Copy(JsonObject({
      {"enabled", Bool(switches.enabled)},
      {"cpu", Bool(switches.cpu)},
      {"graphs", std::to_string(switches.graphs)},
      {"fused", std::to_string(switches.fused)},
      {"errors", std::to_string(switches.errors)},
  }));
}

void metal_ops_fusion_set(int enabled, int cpu) {
  GlobalSwitches().enabled = enabled != 0;
  GlobalSwitches().cpu = cpu != 0;
}

int metal_ops_fusion_set_pattern(const char* name, int enabled) {
  Pattern* pattern = PatternRegistry::Find(name);
  if (pattern) pattern->enabled = enabled != 0;
  return pattern != nullptr;
}

char* metal_ops_fusion_explain(const void* request, size_t size) {
  try {
    return Copy(metal_ops::fusion::ExplainJson(request, size));
  } catch (const std::exception& error) {
    return Copy(JsonObject({{"error", JsonString(error.what())}}));
  }
}

void metal_ops_fusion_free(char* text) { std::free(text); }

char* metal_ops_graph_fuse(const void* request, size_t request_size, const void* graph, size_t size,
                           size_t* reply_size) {
  return Reply(metal_ops::fusion::FusedGraph, request, request_size, graph, size, reply_size);
}

char* metal_ops_graph_optimize(const void* request, size_t request_size, const void* graph,
                               size_t size, size_t* reply_size) {
  return Reply(metal_ops::fusion::OptimizedGraph, request, request_size, graph, size, reply_size);
}

char* metal_ops_graph_nodes(const void* graph, size_t size) {
  tensorflow::GraphDef parsed;
  if (!parsed.ParseFromArray(graph, static_cast<int>(size))) return Copy("[]");
  try {
    return Copy(metal_ops::fusion::GraphJson(parsed));
  } catch (const std::exception& error) {
    return Copy("[]");
  }
}
