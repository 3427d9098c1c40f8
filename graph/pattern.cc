// The registry of fusion patterns.

#include "graph/pattern.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace metal_ops::fusion {
namespace {

std::vector<std::unique_ptr<Pattern>>& Patterns() {
  static auto* patterns = new std::vector<std::unique_ptr<Pattern>>;
  return *patterns;
}

}  // namespace

std::vector<Pattern*> PatternRegistry::All() {
  std::vector<Pattern*> all;
  for (const auto& pattern : Patterns()) all.push_back(pattern.get());
  std::sort(all.begin(), all.end(), [](const Pattern* a, const Pattern* b) {
    return std::make_tuple(a->info.stage, std::string(a->info.name)) <
           std::make_tuple(b->info.stage, std::string(b->info.name));
  });
  return all;
}

Pattern* PatternRegistry::Find(const std::string& name) {
  for (const auto& pattern : Patterns()) {
    if (name == pattern->info.name) return pattern.get();
  }
  return nullptr;
}

bool PatternRegistry::Register(const PatternInfo& info, MatchFunction match) {
  auto pattern = std::make_unique<Pattern>();
  pattern->info = info;
  pattern->match = match;
  Patterns().push_back(std::move(pattern));
  return true;
}

Refusal CheckType(const NodeView& node, tensorflow::DataType type) {
  if (type == tensorflow::DT_FLOAT || type == tensorflow::DT_HALF ||
      type == tensorflow::DT_BFLOAT16) {
    return {};
  }
  return {"dtype", absl::StrCat(Quoted(node), " is of ", tensorflow::DataTypeString(type),
                                ", expected float, half or bfloat16.")};
}

std::optional<Use> OnlyUse(const Chain& chain) {
  const std::vector<Use> uses = chain.facts().Uses(chain.value());
  if (uses.size() != 1) return std::nullopt;
  return uses.front();
}

}  // namespace metal_ops::fusion
