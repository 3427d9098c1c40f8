// Gradients of GELU, silu and mish.

#include "graph/slopes.h"

#include <algorithm>
#include <numeric>

namespace metal_ops::fusion {
namespace {

// By the sums of a tape over broadcast dimensions, where nothing was broadcast.
Expression Taped(const Expression& expression) {
  return [=](const Facts& facts, Value at, const Value& x, Region* region) {
    Region seen = *region;
    if (!expression(facts, BehindBroadcast(facts, at, &seen), x, &seen)) return false;
    *region = seen;
    return true;
  };
}

// The sum by an AddN, or by AddV2 of two, in either order.
Expression SumOf(const std::vector<Expression>& terms) {
  return [=](const Facts& facts, Value at, const Value& x, Region* region) {
    const NodeView& sum = *at.node;
    const int n = static_cast<int>(terms.size());
    const std::string& op = sum.GetOp();
    if (op != "AddN" && op != "AddV2" && op != "Add") return false;
    if (sum.NumRegularFanins() != n) return false;
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    do {
      Region inside = *region;
      bool all = true;
      for (int i = 0; all && i < n; ++i) {
        all = terms[i](facts, facts.Input(sum, order[i]), x, &inside);
      }
      if (!all) continue;
      *region = inside;
      region->nodes.push_back(&sum);
      return true;
    } while (std::next_permutation(order.begin(), order.end()));
    return false;
  };
}

}  // namespace

const std::vector<std::pair<std::string, Expression>>& ActivationSlopes() {
  // Each begins with the ops that leave no choice of x and d.
  static const auto* const all = [] {
    const Expression x = Any("x"), d = Taped(Any("d")), one = Number(1.0), half = Number(0.5);
    auto* found = new std::vector<std::pair<std::string, Expression>>;
    // x sigmoid(x), and by the gradient that tf.nn.silu and Keras give it.
    const Expression s = Op("Sigmoid", x);
    found->emplace_back(
        "Swish", SumOf({Taped(Op("Mul", s, d)), Op("SigmoidGrad", s, Taped(Op("Mul", x, d)))}));
    const Expression by_one = AnyOf({Op("Mul", one, x), x});
    const Expression of_one = Op("Sigmoid", by_one);
    found->emplace_back(
        "Swish",
        Op("Mul", Op("Mul", of_one, Op("AddV2", one, Op("Mul", Op("Sub", one, of_one), by_one))),
           d));
    const Expression w = Op("Tanh", Op("Softplus", x));
    const Expression of_w = Op("TanhGrad", w, Taped(Op("Mul", x, d)));
    found->emplace_back(
        "Mish", SumOf({Taped(Op("Mul", w, d)),
                       AnyOf({Op("Mul", of_w, Op("Sigmoid", x)), Op("SoftplusGrad", of_w, x)})}));
    // The gradient that reaches (1 + erf) or (1 + tanh) by the product with x / 2.
    const Expression by_half = Taped(Op("Mul", Op("Mul", half, x), d));
    const Expression root = Number(1.4142135623730951), y = Op("RealDiv", x, root);
    const Expression bell = Op("Exp", Op("Neg", Op("Square", y)));
    found->emplace_back(
        "GeluExact",
        SumOf({Op("Mul", half, Taped(Op("Mul", Op("AddV2", one, Op("Erf", y)), d))),
               Op("RealDiv", Op("Mul", bell, Op("Mul", by_half, Number(1.1283791670955126))),
                  root)}));
    // And the gradient that reaches erfc(-x / sqrt 2), as TensorFlow 2.20 and later write it.
    const Expression small = Number(0.7071067811865476), minus = Op("Mul", Op("Neg", x), small);
    const Expression by_bell = Op("Mul", Op("Mul", by_half, Number(-1.1283791670955126)),
                                  Op("Exp", Op("Neg", Op("Square", minus))));
    found->emplace_back("GeluExact", SumOf({Op("Mul", half, Taped(Op("Mul", Op("Erfc", minus), d))),
                                            Op("Neg", Op("Mul", by_bell, small))}));
    const Expression third = Number(0.044715), three = Number(3.0),
                     factor = Number(0.7978845608028654);
    const Expression t =
        Op("Tanh", Op("Mul", factor, Op("AddV2", Op("Mul", third, Op("Pow", x, three)), x)));
    const Expression inner = Taped(Op("Mul", factor, Op("TanhGrad", t, by_half)));
    const Expression square = Op("Pow", x, AnyOf({Number(2.0), Op("Sub", three, one)}));
    found->emplace_back("GeluApproximate",
                        SumOf({Op("Mul", half, Taped(Op("Mul", Op("AddV2", one, t), d))), inner,
                               Op("Mul", square, Op("Mul", Op("Mul", third, inner), three))}));
    return found;
  }();
  return *all;
}

}  // namespace metal_ops::fusion
