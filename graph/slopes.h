// The gradients of activations that are several ops, as tf.GradientTape writes them.

#ifndef METAL_OPS_GRAPH_SLOPES_H_
#define METAL_OPS_GRAPH_SLOPES_H_

#include <string>
#include <utility>
#include <vector>

#include "graph/expression.h"

namespace metal_ops::fusion {

// By the activation's name; "d" is the gradient of its output, "x" its input.
const std::vector<std::pair<std::string, Expression>>& ActivationSlopes();

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_SLOPES_H_
