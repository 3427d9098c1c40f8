// Epilogue: swish (SiLU), which TensorFlow writes as x * sigmoid(x).

#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {"swish",
                               Stage::kActivation,
                               "Sigmoid,Mul",
                               "x * sigmoid(x), in either order, also as tf.nn.silu and Keras' "
                               "\"silu\" write it: with beta = 1 and an IdentityN.",
                               R"(
   x ---------.
   |           \
 [Mul by 1]     |
   |            |
 Sigmoid        |
    \           /
       Mul
        |
  [IdentityN]
)",
                               R"(
 fused root, fused_ops = [.., Swish]
)"};

Outcome Match(Chain* chain) {
  const Expression sigmoid =
      AnyOf({Op("Sigmoid", X()), Op("Sigmoid", Op("Mul", Number(1.0), X()))});
  return MatchActivation(chain, "Swish", Op("Mul", X(), sigmoid));
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
