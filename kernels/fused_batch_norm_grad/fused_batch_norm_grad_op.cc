// MetalFusedBatchNormGrad: gradients of a batch norm and of the ReLU behind it, which the fusion pass
// makes of the two ops.

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckShapes(OpCall& call) {
  static const char* const kNames[] = {"scale", "mean", "variance"};
  const ArgShape& gradients = call.in_shapes[0];
  if (!gradients.known_rank) return;
  call.shapes.Require(
      gradients.rank() > 0,
      "gradients must have at least one dimension, the last one that of the channels, got []. "
      "Reshape them to [rows, channels].");
  if (gradients.rank() == 0) return;
  const int64_t channels = gradients.dims.back();
  for (int i = 3; i < 6; ++i) {
    const ArgShape& shape = call.in_shapes[i];
    const bool fits =
        shape.rank() < 0 ||
        (shape.rank() == 1 && (channels < 0 || shape.dims[0] < 0 || shape.dims[0] == channels));
    call.shapes.Require(fits, std::string(kNames[i - 3]) + " must have shape [" +
                                  (channels < 0 ? "channels" : std::to_string(channels)) +
                                  "], the last dimension of gradients, got " + ToText(shape) + ".");
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
    .Input("gradients: T", "any", "[..., channels]: of the loss with respect to the ReLU.")
    .Input("features: T", "like gradients", "What the ReLU gave.")
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
