// ShEncode and its gradient: real spherical harmonics of directions.

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"
#include "kernels/sh_encode/sh_encode_params.h"

namespace metal_ops {
namespace {

void SetOutputs(OpCall& call) {
  const int64_t degree = call.Int("degree");
  call.out_shapes[0] = ArgShape({call.Size("points"), degree * degree});
}

void CheckGradients(OpCall& call) {
  const int64_t degree = call.Int("degree");
  call.shapes.Expect("gradients", call.in_shapes[0], {"points", std::to_string(degree * degree)},
                     "There are degree^2 coefficients.");
}

DECLARE_OP("ShEncode")
    .Doc(
        "Real spherical harmonics of directions, as polynomials of their coordinates, computed in "
        "float32.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("degree: int = 4", "Bands, 1 to 8.", Between(1, SH_ENCODE_MAX_DEGREE))
    .Input("directions: float", "[points, 3]", "[points, 3], of length 1.")
    .Output("outputs: T", "any",
            "[points, degree^2], Y_l^m at l^2 + l + m, with the Condon-Shortley phase.")
    .Check(SetOutputs);

DECLARE_OP("ShEncodeGrad")
    .Doc(
        "The gradient of ShEncode with respect to its directions, as if they could have any "
        "length.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("degree: int = 4", "", Between(1, SH_ENCODE_MAX_DEGREE))
    .Input("gradients: T", "any",
           "Gradient of the loss with respect to ShEncode's outputs, [points, degree^2].")
    .Input("directions: float", "[points, 3]", "As given to ShEncode.")
    .Output("directions_gradient: float", "[points, 3]", "[points, 3].")
    .Check(CheckGradients);

DECLARE_GRADIENT("ShEncode", "directions = ShEncodeGrad(d outputs, directions)");

}  // namespace
}  // namespace metal_ops
