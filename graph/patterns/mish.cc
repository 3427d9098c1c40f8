// Epilogue: mish, as Keras and typical code write it.

#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {"mish",
                               Stage::kActivation,
                               "Softplus,Tanh",
                               "x * tanh(softplus(x)), in either order, as Keras' \"mish\" is; "
                               "softplus may be written as log(1 + exp(x)).",
                               R"(
   x ---------.
   |           \
 Softplus | Log1p(Exp)
   |            |
  Tanh          |
    \           /
       Mul
)",
                               R"(
 fused root, fused_ops = [.., Mish]
)"};

Outcome Match(Chain* chain) {
  const Expression exp = Op("Exp", X());
  const Expression softplus =
      AnyOf({Op("Softplus", X()), Op("Log1p", exp), Op("Log", Op("AddV2", Number(1.0), exp))});
  return MatchActivation(chain, "Mish", Op("Mul", X(), Op("Tanh", softplus)));
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
