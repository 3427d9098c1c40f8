// Epilogue: GELU, exact or by tanh, as tf.nn.gelu and Keras write it.

#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {"gelu",
                               Stage::kActivation,
                               "Erf,Erfc,Tanh",
                               "0.5 x (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) (x + "
                               "0.044715 x^3)) for erf, as tf.nn.gelu and Keras "
                               "write them; 0.5 x erfc(-x / sqrt 2), as TensorFlow 2.20 and "
                               "later do.",
                               R"(
        x ---------------.
        |                 \
 x / sqrt 2  |  sqrt(2 / pi) (x + 0.044715 x^3)
        |                   \
       Erf   |   Tanh        |
        |                    |
      1 + ..              0.5 * x
          \                /
                 Mul
)",
                               R"(
 fused root, fused_ops = [.., GeluExact | GeluApproximate]
)"};

// 0.5 x sum, multiplied in any order.
Expression HalfOf(const Expression& sum) {
  return AnyOf({Op("Mul", Op("Mul", Number(0.5), X()), sum),
                Op("Mul", X(), Op("Mul", Number(0.5), sum)),
                Op("Mul", Number(0.5), Op("Mul", X(), sum))});
}

// 0.5 x (1 + inner)
Expression Half(const Expression& inner) { return HalfOf(Op("AddV2", Number(1.0), inner)); }

Outcome Match(Chain* chain) {
  const Expression scaled = AnyOf(
      {Op("RealDiv", X(), Number(1.4142135623730951)), Op("Mul", X(), Number(0.7071067811865476))});
  const Outcome exact = MatchActivation(chain, "GeluExact", Half(Op("Erf", scaled)));
  if (exact.mine) return exact;
  const Expression minus = AnyOf({Op("Neg", scaled), Op("Mul", X(), Number(-0.7071067811865476)),
                                  Op("Mul", Op("Neg", X()), Number(0.7071067811865476))});
  const Outcome complement = MatchActivation(chain, "GeluExact", HalfOf(Op("Erfc", minus)));
  if (complement.mine) return complement;

  const Expression cube = AnyOf({Op("Pow", X(), Number(3.0)), Op("Mul", X(), Op("Mul", X(), X())),
                                 Op("Mul", X(), Op("Square", X()))});
  const Expression polynomial = Op("AddV2", X(), Op("Mul", Number(0.044715), cube));
  return MatchActivation(chain, "GeluApproximate",
                         Half(Op("Tanh", Op("Mul", Number(0.7978845608028654), polynomial))));
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
