// Backward matching of small expressions.

#include "graph/expression.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "tensorflow/core/framework/types.h"

namespace metal_ops::fusion {
namespace {

constexpr int kMostNodes = 32;  // of one activation; GELU has 9

// The longest activation is a constant, not a search through the graph behind it.
bool IsPartOfActivations(const NodeView& node) {
  for (const char* op :
       {"Mul", "AddV2", "Add", "Sigmoid", "Erf", "Erfc", "Neg", "Tanh", "RealDiv", "Softplus",
        "Exp", "Log", "Log1p", "Pow", "Square", "Identity", "IdentityN"}) {
    if (node.GetOp() == op) return true;
  }
  return false;
}

// The tensor that Identity nodes pass on. Gradients of custom functions leave them behind.
Value BehindIdentities(const Facts& facts, Value at, const Value& x, Region* region) {
  while (!(at == x) && (at.node->GetOp() == "Identity" || at.node->GetOp() == "IdentityN")) {
    region->nodes.push_back(at.node);
    at = facts.Input(*at.node, at.port);
  }
  return at;
}

Expression Operands(const std::string& op, const std::vector<Expression>& operands) {
  return [=](const Facts& facts, Value at, const Value& x, Region* region) {
    Region seen = *region;
    at = BehindIdentities(facts, at, x, &seen);
    if (at == x) return false;
    const bool add = op == "AddV2";
    if (at.node->GetOp() != op && !(add && at.node->GetOp() == "Add")) return false;
    seen.nodes.push_back(at.node);
    const int n = static_cast<int>(operands.size());
    const int orders = n == 2 && (add || op == "Mul") ? 2 : 1;
    for (int order = 0; order < orders; ++order) {
      Region inside = seen;
      bool all = true;
      for (int i = 0; all && i < n; ++i) {
        all = operands[i](facts, facts.Input(*at.node, order == 0 ? i : 1 - i), x, &inside);
      }
      if (!all) continue;
      *region = inside;
      return true;
    }
    return false;
  };
}

// In a set, as an Identity may have been passed twice, with the last node last.
void Tidy(Region* region, const NodeView* last) {
  auto& nodes = region->nodes;
  std::sort(nodes.begin(), nodes.end(),
            [](const NodeView* a, const NodeView* b) { return a->node_index() < b->node_index(); });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  nodes.erase(std::find(nodes.begin(), nodes.end(), last));
  nodes.push_back(last);
}

}  // namespace

Value BehindBroadcast(const Facts& facts, Value value, Region* region) {
  while (value.node->GetOp() == "Reshape") {
    const NodeView& sum = *facts.Input(*value.node, 0).node;
    if (sum.GetOp() != "Sum") break;
    const Value before = facts.Input(sum, 0);
    if (!SameShape(facts.ShapeOf(before), facts.ShapeOf(value))) break;
    region->helpers.insert(region->helpers.end(), {value.node, &sum});
    value = before;
  }
  return value;
}

std::vector<const NodeView*> AllHelpers(const Region& region) {
  std::vector<const NodeView*> all = region.helpers;
  for (size_t i = 0; i < all.size(); ++i) {
    for (const auto& fanin : all[i]->GetRegularFanins()) {
      const NodeView* node = fanin.node_view();
      const bool of_shapes = AsksForShape(*node) || node->GetOp() == "BroadcastGradientArgs" ||
                             node->GetOp() == "ConcatOffset" || node->GetOp() == "FloorMod";
      if (of_shapes && std::find(all.begin(), all.end(), node) == all.end()) all.push_back(node);
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Value BeforeIdentities(const Facts& facts, Value value) {
  Region ignored;
  return BehindIdentities(facts, value, {}, &ignored);
}

Expression Any(const std::string& name) {
  return [name](const Facts&, Value at, const Value&, Region* region) {
    return region->bound.emplace(name, at).first->second == at;
  };
}

Expression X() {
  return [](const Facts& facts, Value at, const Value& x, Region* region) {
    Region seen = *region;
    if (!(BehindIdentities(facts, at, x, &seen) == x)) return false;
    *region = seen;
    return true;
  };
}

// The value of a constant once it is written in a graph of this type.
double Rounded(double value, tensorflow::DataType type) {
  if (type == tensorflow::DT_HALF)
    return static_cast<float>(Eigen::half(static_cast<float>(value)));
  if (type == tensorflow::DT_BFLOAT16) {
    return static_cast<float>(Eigen::bfloat16(static_cast<float>(value)));
  }
  return value;
}

Expression Number(double value) {
  return [value](const Facts& facts, Value at, const Value&, Region*) {
    const std::optional<double> constant = facts.Scalar(at);
    if (!constant) return false;
    for (const double expected : {value, Rounded(value, facts.TypeOf(at))}) {
      if (std::abs(*constant - expected) <= 1e-6 * std::abs(expected)) return true;
    }
    return false;
  };
}

Expression Op(const std::string& op, const Expression& operand) { return Operands(op, {operand}); }

Expression Op(const std::string& op, const Expression& first, const Expression& second) {
  return Operands(op, {first, second});
}

Expression AnyOf(const std::vector<Expression>& expressions) {
  return [=](const Facts& facts, Value at, const Value& x, Region* region) {
    return std::any_of(expressions.begin(), expressions.end(), [&](const Expression& expression) {
      return expression(facts, at, x, region);
    });
  };
}

Outcome MatchActivation(Chain* chain, const std::string& fused_op, const Expression& expression) {
  const Facts& facts = chain->facts();
  const Value x = chain->value();
  std::deque<const NodeView*> queue;
  std::vector<const NodeView*> visited;
  const auto visit_users = [&](const Value& value) {
    for (const Use& use : facts.Uses(value)) {
      if (visited.size() >= kMostNodes || !IsPartOfActivations(*use.node) ||
          std::find(visited.begin(), visited.end(), use.node) != visited.end()) {
        continue;
      }
      visited.push_back(use.node);
      queue.push_back(use.node);
    }
  };
  visit_users(x);
  while (!queue.empty()) {
    const NodeView* node = queue.front();
    queue.pop_front();
    Region region;
    if (node->GetOp() == "Mul" && expression(facts, {node, 0}, x, &region)) {
      Tidy(&region, node);
      // The IdentityN of a custom gradient passes x on as well, to no reader.
      const std::vector<Use> uses = facts.Uses({node, 0});
      if (uses.size() == 1 && uses[0].node->GetOp() == "IdentityN" && uses[0].input == 0) {
        region.nodes.push_back(uses[0].node);
      }
      if (Refusal refusal = chain->Absorb(region.nodes, /*shared=*/true); !refusal.empty()) {
        return Refused(refusal);
      }
      chain->Append(Stage::kActivation, fused_op);
      return Matched();
    }
    for (int port = 0; port < static_cast<int>(node->GetRegularFanouts().size()); ++port) {
      visit_users({node, port});
    }
  }
  return NotMine();
}

std::vector<Region> FindExpression(const Facts& facts, const NodeView& from, const Value& x,
                                   const std::vector<std::string>& ops,
                                   const Expression& expression) {
  std::vector<const NodeView*> visited = {&from};
  std::vector<Region> found;
  for (size_t i = 0; i < visited.size(); ++i) {
    const NodeView* node = visited[i];
    Region region;
    const bool passes = node->GetOp() == "Identity" || node->GetOp() == "IdentityN";
    if (!passes && expression(facts, {node, 0}, x, &region)) {
      Tidy(&region, node);
      found.push_back(std::move(region));
    }
    for (const Use& use : facts.Uses({node, 0})) {
      if (visited.size() >= kMostNodes ||
          std::find(ops.begin(), ops.end(), use.node->GetOp()) == ops.end() ||
          std::find(visited.begin(), visited.end(), use.node) != visited.end()) {
        continue;
      }
      visited.push_back(use.node);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Region& a, const Region& b) {
    return a.nodes.size() > b.nodes.size();
  });
  return found;
}

}  // namespace metal_ops::fusion
