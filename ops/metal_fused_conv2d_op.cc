// MetalFusedConv2D: a convolution and what follows it - bias or batch norm, residual, activation -
// in one pass over memory.

#include <string>
#include <vector>

#include "kernels/common/conv_checks.h"
#include "kernels/common/fused_ops.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::DataType;
using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

Status FusedConv2DShape(InferenceContext* c) {
  ArgShapes shapes("MetalFusedConv2D");
  ConvAttrs attrs;
  std::string data_format;
  std::vector<int32_t> strides, dilations, paddings;
  TF_RETURN_IF_ERROR(c->GetAttr("strides", &strides));
  TF_RETURN_IF_ERROR(c->GetAttr("dilations", &dilations));
  TF_RETURN_IF_ERROR(c->GetAttr("explicit_paddings", &paddings));
  TF_RETURN_IF_ERROR(c->GetAttr("padding", &attrs.padding));
  TF_RETURN_IF_ERROR(c->GetAttr("data_format", &data_format));
  attrs.nchw = data_format == "NCHW";
  attrs.strides.assign(strides.begin(), strides.end());
  attrs.dilations.assign(dilations.begin(), dilations.end());
  attrs.explicit_paddings.assign(paddings.begin(), paddings.end());
  CheckConvAttrs(&shapes, attrs);

  DataType type;
  std::vector<DataType> arg_types;
  std::vector<std::string> names;
  TF_RETURN_IF_ERROR(c->GetAttr("T", &type));
  TF_RETURN_IF_ERROR(c->GetAttr("TArgs", &arg_types));
  TF_RETURN_IF_ERROR(c->GetAttr("fused_ops", &names));
  FusedOps fused;
  ParseFusedOps(&shapes, names, static_cast<int>(arg_types.size()), &fused);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  std::vector<FloatType> types;
  for (const DataType arg_type : arg_types) types.push_back(ToFloatType(arg_type));
  CheckFusedTypes(&shapes, fused, ToFloatType(type), types);
  TF_RETURN_IF_ERROR(ToStatus(shapes));

  // What is wrong is said here, in the kernels' words; TensorFlow's function finds the sizes.
  const std::vector<ArgShape> inputs = InputShapes(c);
  CheckConvRanks(&shapes, attrs, inputs[0], inputs[1]);
  if (shapes.ok() && inputs[0].known_rank && inputs[1].known_rank) {
    CheckConvChannels(&shapes, attrs, inputs[0].dims[attrs.dim_c()], inputs[1].dims[2]);
    ConvSizes sizes;
    if (IsKnown(inputs[0]) && IsKnown(inputs[1])) {
      CheckConv(&shapes, attrs, inputs[0], inputs[1], &sizes);
    }
  }
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  TF_RETURN_IF_ERROR(tensorflow::shape_inference::Conv2DShapeWithExplicitPadding(c));
  ShapeHandle output = c->output(0);
  CheckFusedShapes(&shapes, fused, ToArgShape(c, output), attrs.dim_c(),
                   {inputs.begin() + 2, inputs.end()});
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  // The residual may know more of the output's shape than the input does.
  if (fused.add) {
    TF_RETURN_IF_ERROR(c->Merge(output, c->input(c->num_inputs() - 1), &output));
    c->set_output(0, output);
  }
  return tensorflow::OkStatus();
}

REGISTER_OP("MetalFusedConv2D")
    .Attr("T: {float, half, bfloat16}")
    .Attr("TArgs: list({float, half, bfloat16}) >= 0")
    .Attr("strides: list(int)")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
    .Attr("explicit_paddings: list(int) = []")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Attr("dilations: list(int) = [1, 1, 1, 1]")
    .Attr("fused_ops: list(string)")
    .Attr("epsilon: float = 0.0001")
    .Attr("leakyrelu_alpha: float = 0.2")
    .Input("input: T")
    .Input("filter: T")
    .Input("args: TArgs")
    .Output("output: T")
    .SetShapeFn(FusedConv2DShape)
    .Doc(R"doc(
A two-dimensional convolution and what follows it, in one op: sums and what follows in float32, rounded once.

fused_ops is [BiasAdd or BatchNorm], [Add], [activation] in this order, each optional, one at least.

input: [batch, height, width, channels], or [batch, channels, height, width] with NCHW.
filter: [height, width, channels, output channels].
args: What fused_ops takes, in their order. BiasAdd: bias of T. BatchNorm: gamma, beta, mean, variance of float32, or
  scale, shift of T or float32. All of these are [output channels]. Add: a residual of T, shaped like output.
output: The result, in input's layout.
strides: Steps along each of input's dimensions; 1 for batch and channels.
padding: SAME, VALID or EXPLICIT.
explicit_paddings: Before and after, for each of input's dimensions, with padding EXPLICIT.
data_format: Layout of input, residual and output.
dilations: Steps between the filter's points along each of input's dimensions; 1 for batch and channels.
fused_ops: BiasAdd, BatchNorm, Add, Relu, Relu6, Elu, LeakyRelu, Sigmoid, Tanh, Swish, GeluExact, GeluApproximate.
epsilon: Added to the variance by BatchNorm.
leakyrelu_alpha: Slope of LeakyRelu below zero.
)doc");

}  // namespace
}  // namespace metal_ops
