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
  for (const char* op : {"Mul", "AddV2", "Add", "Sigmoid", "Erf", "Erfc", "Neg", "Tanh", "RealDiv",
                         "Pow", "Square", "Identity", "IdentityN"}) {
    if (node.GetOp() == op) return true;
  }
  return false;
}

// The tensor that Identity nodes pass on. Gradients of custom functions leave them behind.
Value BehindIdentities(const Facts& facts, Value at, const Value& x, Region* region) {
  while (!(at == x) && (at.node->GetOp() == "Identity" || at.node->GetOp() == "IdentityN")) {
    region->push_back(at.node);
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
    seen.push_back(at.node);
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

}  // namespace

Expression X() {
  return [](const Facts& facts, Value at, const Value& x, Region* region) {
    Region seen = *region;
    if (!(BehindIdentities(facts, at, x, &seen) == x)) return false;
    *region = seen;
    return true;
  };
}

// What becomes of a constant that is written in a graph of this type.
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
      // In a set: an Identity may have been passed twice.
      std::sort(region.begin(), region.end(), [](const NodeView* a, const NodeView* b) {
        return a->node_index() < b->node_index();
      });
      region.erase(std::unique(region.begin(), region.end()), region.end());
      region.erase(std::find(region.begin(), region.end(), node));
      region.push_back(node);
      // The IdentityN of a custom gradient passes x on as well, for nobody.
      const std::vector<Use> uses = facts.Uses({node, 0});
      if (uses.size() == 1 && uses[0].node->GetOp() == "IdentityN" && uses[0].input == 0) {
        region.push_back(uses[0].node);
      }
      if (Refusal refusal = chain->Absorb(region, /*shared=*/true); !refusal.empty()) {
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

}  // namespace metal_ops::fusion
