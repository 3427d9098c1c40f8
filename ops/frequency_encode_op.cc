// FrequencyEncode and its gradient: sines and cosines of octaves (Mildenhall et al. 2020, equation
// 4).

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/frequency_encode/frequency_encode_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status Check(InferenceContext* c, ArgShapes* shapes, FrequencyEncodeAttrs* attrs) {
  TF_RETURN_IF_ERROR(c->GetAttr("n_frequencies", &attrs->n_frequencies));
  TF_RETURN_IF_ERROR(c->GetAttr("include_input", &attrs->include_input));
  CheckFrequencyEncodeAttrs(shapes, *attrs);
  TF_RETURN_IF_ERROR(ToStatus(*shapes));
  CheckFrequencyEncode(shapes, InputShapes(c), *attrs);
  return ToStatus(*shapes);
}

Status FrequencyEncodeShape(InferenceContext* c) {
  ArgShapes shapes("FrequencyEncode");
  FrequencyEncodeAttrs attrs;
  TF_RETURN_IF_ERROR(Check(c, &shapes, &attrs));
  const int64_t n_dims = shapes.Size("dims");
  c->set_output(0, ToShape(c, {shapes.Size("points"), n_dims < 0 ? -1 : n_dims * attrs.Columns()}));
  return tensorflow::OkStatus();
}

Status FrequencyEncodeGradShape(InferenceContext* c) {
  ArgShapes shapes("FrequencyEncodeGrad");
  FrequencyEncodeAttrs attrs;
  TF_RETURN_IF_ERROR(Check(c, &shapes, &attrs));
  c->set_output(0, c->input(1));
  return tensorflow::OkStatus();
}

REGISTER_OP("FrequencyEncode")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("n_frequencies: int = 10")
    .Attr("include_input: bool = true")
    .Attr("times_pi: bool = true")
    .Input("inputs: float")
    .Output("outputs: T")
    .SetShapeFn(FrequencyEncodeShape)
    .Doc(R"doc(
Sines and cosines of octaves of the inputs. Phases are exact to float32 whatever their size.

inputs: x, [points, dims].
n_frequencies: Octaves, 0 to 32.
include_input: Whether x itself comes first.
times_pi: Whether the first octave is sin(pi x) or sin(x).
outputs: (x, sin w_0 x, cos w_0 x, sin w_1 x, ...), w_k = 2^k pi or 2^k, [points, dims (2 n_frequencies + 1)].
)doc");

REGISTER_OP("FrequencyEncodeGrad")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("n_frequencies: int = 10")
    .Attr("include_input: bool = true")
    .Attr("times_pi: bool = true")
    .Input("gradients: T")
    .Input("inputs: float")
    .Output("inputs_gradient: float")
    .SetShapeFn(FrequencyEncodeGradShape)
    .Doc(R"doc(
The gradient of FrequencyEncode.

gradients: Gradient of the loss with respect to FrequencyEncode's outputs.
inputs: As given to FrequencyEncode; so the attributes.
inputs_gradient: [points, dims].
)doc");

}  // namespace
}  // namespace metal_ops
