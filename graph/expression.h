// Activations that are several ops: an expression of x, matched backwards from its last node.

#ifndef METAL_OPS_GRAPH_EXPRESSION_H_
#define METAL_OPS_GRAPH_EXPRESSION_H_

#include <functional>
#include <string>
#include <vector>

#include "graph/pattern.h"

namespace metal_ops::fusion {

// Nodes seen on the way, x excluded.
using Region = std::vector<const NodeView*>;
// Whether `at` is the expression of x; adds its nodes to the region, which is kept on success only.
using Expression = std::function<bool(const Facts&, Value at, const Value& x, Region* region)>;

Expression X();
// A constant, to the precision of its dtype.
Expression Number(double value);
Expression Op(const std::string& op, const Expression& operand);
// Of two operands. The order does not matter for Mul and AddV2 (which also stands for Add).
Expression Op(const std::string& op, const Expression& first, const Expression& second);
Expression AnyOf(const std::vector<Expression>& expressions);

// Looks for the expression of the chain's value, Absorbs and Appends it. A Mul is the last node of
// any of them.
Outcome MatchActivation(Chain* chain, const std::string& fused_op, const Expression& expression);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_EXPRESSION_H_
