// MetalFusedBiasGrad: gradients of a bias and of the activation behind it, which the fusion pass
// makes of the two ops.

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckShapes(OpCall& call) {
  const ArgShape& gradients = call.in_shapes[0];
  if (!gradients.known_rank) return;
  if (call.Text("data_format") == "NCHW") {
    call.shapes.Require(gradients.rank() > 1,
                        "gradients must have at least two dimensions in NCHW, the second one that "
                        "of the bias, got " +
                            ToText(gradients) + ". Reshape them to [pictures, columns, elements].");
    if (gradients.rank() < 2) return;
    call.out_shapes[1].known_rank = true;
    call.out_shapes[1].dims = {gradients.dims[1]};
    return;
  }
  call.shapes.Require(
      gradients.rank() > 0,
      "gradients must have at least one dimension, the last one that of the bias, got []. "
      "Reshape them to [rows, columns].");
  if (gradients.rank() == 0) return;
  call.out_shapes[1].known_rank = true;
  call.out_shapes[1].dims = {gradients.dims.back()};
}

DECLARE_OP("MetalFusedBiasGrad")
    .Doc(R"doc(
The gradient of an activation, and its sums over all dimensions but the channels': that of a bias before it.

In float32 whatever T. The order of the sums follows from the shape alone: the same bits in every run.)doc")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr(
        "activation: {'Relu', 'Relu6', 'Elu', 'LeakyRelu', 'Sigmoid', 'Tanh', 'Swish', "
        "'GeluExact', 'GeluApproximate', 'Mish'} = 'Relu'",
        "'Relu', 'Relu6', 'Elu', 'LeakyRelu', 'Sigmoid', 'Tanh', 'Swish', 'GeluExact', "
        "'GeluApproximate' or 'Mish'.")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'",
          "'NHWC' where channels are the last dimension, 'NCHW' where they are the second.")
    .Attr("leakyrelu_alpha: float = 0.2", "Slope of LeakyRelu below zero.")
    .Input(
        "gradients: T", "any",
        "[..., columns], or [pictures, columns, ...]: of the loss with respect to the activation.")
    .Input("features: T", "like gradients",
           "The activation's output; the input of LeakyRelu, Swish, GELU and Mish.")
    .Output("backprops: T", "like gradients", "Gradients of the loss with respect to its input.")
    .Output("d_bias: T", "any", "[columns].")
    .Check(CheckShapes)
    .Reuses(0)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
