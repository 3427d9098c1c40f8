// MetalFusedBatchNormGrad: gradients of a batch norm and of the ReLU behind it, which the fusion pass
// makes of the two ops.

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckShapes(OpCall& call) {
  static const char* const kNames[] = {"scale", "mean", "variance"};
  const ArgShape& gradients = call.in_shapes[0];
  if (!gradients.known_rank) return;
  const bool nchw = call.Text("data_format") == "NCHW";
  const int least = nchw ? 2 : 1;
  call.shapes.Require(
      gradients.rank() >= least,
      nchw ? "gradients must have at least two dimensions in NCHW, the second one that of the "
             "channels, got " +
                 ToText(gradients) + ". Reshape them to [pictures, channels, elements]."
           : "gradients must have at least one dimension, the last one that of the channels, got "
             "[]. Reshape them to [rows, channels].");
  if (gradients.rank() < least) return;
  const int64_t channels = nchw ? gradients.dims[1] : gradients.dims.back();
  for (int i = 3; i < 6; ++i) {
    const ArgShape& shape = call.in_shapes[i];
    const bool fits =
        shape.rank() < 0 ||
        (shape.rank() == 1 && (channels < 0 || shape.dims[0] < 0 || shape.dims[0] == channels));
    call.shapes.Require(fits, std::string(kNames[i - 3]) + " must have shape [" +
                                  (channels < 0 ? "channels" : std::to_string(channels)) +
                                  "], the " + (nchw ? "second" : "last") +
                                  " dimension of gradients, got " + ToText(shape) + ".");
  }
}

DECLARE_OP("MetalFusedBatchNormGrad")
    .Doc(R"doc(
The gradient of a batch norm behind which is a ReLU, or ReLU6.

In float32 whatever T. The order of the sums follows from the shape alone: the same bits in every run.)doc")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("activation: {'Relu', 'Relu6'} = 'Relu'", "'Relu' or 'Relu6'.")
    .Attr("epsilon: float = 0.0001", "Added to the variance.", AtLeast(0))
    .Attr("is_training: bool = true",
          "Whether mean and variance are those of x, through which gradients flow; else constants.")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'",
          "'NHWC' where channels are the last dimension, 'NCHW' where they are the second.")
    .Input("gradients: T", "any",
           "[..., channels], or [pictures, channels, ...]: of the loss with respect to the ReLU.")
    .Input("features: T", "like gradients", "The ReLU's output.")
    .Input("x: T", "like gradients", "As given to the batch norm.")
    .Input("scale: float", "any", "[channels], as given to it.")
    .Input("mean: float", "any", "[channels], with which it normalised.")
    .Input("variance: float", "any", "[channels], the same.")
    .Output("d_x: T", "like gradients", "Shaped like x.")
    .Output("d_scale: float", "like scale", "[channels].")
    .Output("d_offset: float", "like scale", "[channels].")
    .Check(CheckShapes)
    .Reuses(0)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
