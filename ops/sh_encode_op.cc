// ShEncode and its gradient: real spherical harmonics of directions.

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/sh_encode/sh_encode_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status Check(InferenceContext* c, ArgShapes* shapes, int64_t* degree) {
  TF_RETURN_IF_ERROR(c->GetAttr("degree", degree));
  CheckShDegree(shapes, *degree);
  TF_RETURN_IF_ERROR(ToStatus(*shapes));
  CheckShEncode(shapes, InputShapes(c), *degree);
  return ToStatus(*shapes);
}

Status ShEncodeShape(InferenceContext* c) {
  ArgShapes shapes("ShEncode");
  int64_t degree;
  TF_RETURN_IF_ERROR(Check(c, &shapes, &degree));
  c->set_output(0, ToShape(c, {shapes.Size("points"), degree * degree}));
  return tensorflow::OkStatus();
}

Status ShEncodeGradShape(InferenceContext* c) {
  ArgShapes shapes("ShEncodeGrad");
  int64_t degree;
  TF_RETURN_IF_ERROR(Check(c, &shapes, &degree));
  c->set_output(0, ToShape(c, {shapes.Size("points"), 3}));
  return tensorflow::OkStatus();
}

REGISTER_OP("ShEncode")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("degree: int = 4")
    .Input("directions: float")
    .Output("outputs: T")
    .SetShapeFn(ShEncodeShape)
    .Doc(R"doc(
Real spherical harmonics of directions, as polynomials of their coordinates, computed in float32.

directions: [points, 3], of length 1.
degree: Bands, 1 to 8.
outputs: [points, degree^2], Y_l^m at l^2 + l + m, with the Condon-Shortley phase.
)doc");

REGISTER_OP("ShEncodeGrad")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("degree: int = 4")
    .Input("gradients: T")
    .Input("directions: float")
    .Output("directions_gradient: float")
    .SetShapeFn(ShEncodeGradShape)
    .Doc(R"doc(
The gradient of ShEncode with respect to its directions, as if they could have any length.

gradients: Gradient of the loss with respect to ShEncode's outputs, [points, degree^2].
directions: As given to ShEncode.
directions_gradient: [points, 3].
)doc");

}  // namespace
}  // namespace metal_ops
