// Several ops: an expression of x and other tensors, matched backwards from its last node.

#ifndef METAL_OPS_GRAPH_EXPRESSION_H_
#define METAL_OPS_GRAPH_EXPRESSION_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/pattern.h"

namespace metal_ops::fusion {

// Nodes seen on the way, x and constants excluded, and tensors by the names that they were given.
struct Region {
  std::vector<const NodeView*> nodes;
  std::vector<const NodeView*> helpers;  // vanish with them where nothing else reads them
  std::map<std::string, Value> bound;
  bool Has(const std::string& name) const { return bound.count(name) > 0; }
};
// Whether `at` is the expression of x; adds its nodes to the region, which is kept on success only.
using Expression = std::function<bool(const Facts&, Value at, const Value& x, Region* region)>;

Expression X();
// A constant, to the precision of its dtype.
Expression Number(double value);
// Any tensor; where the name comes again, the same one.
Expression Any(const std::string& name);
Expression Op(const std::string& op, const Expression& operand);
// An op of two operands. The order does not matter for Mul and AddV2 (which also stands for Add).
Expression Op(const std::string& op, const Expression& first, const Expression& second);
Expression AnyOf(const std::vector<Expression>& expressions);

// `value` before Sum and Reshape by which a tape takes back a broadcast, where nothing was broadcast:
// it has provably the same shape as before. They become helpers.
Value BehindBroadcast(const Facts& facts, Value value, Region* region);
// The helpers, and nodes that only serve to find shapes for them.
std::vector<const NodeView*> AllHelpers(const Region& region);
// `value` before Identity nodes.
Value BeforeIdentities(const Facts& facts, Value value);

// The expression at a node and wherever its result goes through these ops, a few steps far: the
// largest regions first, each without repetitions and with its last node last.
std::vector<Region> FindExpression(const Facts& facts, const NodeView& from, const Value& x,
                                   const std::vector<std::string>& ops,
                                   const Expression& expression);

// Looks for the expression of the chain's value, Absorbs and Appends it. A Mul is the last node of
// any of them.
Outcome MatchActivation(Chain* chain, const std::string& fused_op, const Expression& expression);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_EXPRESSION_H_
