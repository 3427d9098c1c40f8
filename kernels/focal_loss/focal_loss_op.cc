// SigmoidFocalLoss, SoftmaxFocalLoss: the focal loss (Lin et al. 2017) with its derivative.

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckSigmoid(OpCall& call) {
  const ArgShape& logits = call.in_shapes[0];
  const bool reduce_last = call.Bool("reduce_last");
  call.shapes.Require(!reduce_last || logits.rank() != 0,
                      "logits must have a last dimension to reduce, got a scalar.");
  call.out_shapes[0] = WithoutLastIf(reduce_last, logits);
}

void CheckSoftmax(OpCall& call) {
  if (call.Type("Ttargets") == DType::kFloat) {
    call.shapes.Expect("targets", call.in_shapes[1], {"rows", "classes"});
  } else {
    call.shapes.Expect("targets", call.in_shapes[1], {"rows"},
                       "Integer targets are the rows' classes.");
  }
}

constexpr char kGamma[] =
    "Strength of the focus on rows far from their target; 0 for the cross entropy.";
constexpr char kCrossEntropy[] = "0 is the cross entropy.";

DECLARE_OP("SigmoidFocalLoss")
    .Doc(
        "The focal loss of independent binary classes (Lin et al. 2017, equations 4 and 5), with "
        "its derivative, in float32.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("alpha: float = 0.25",
          "Weight of the positive class where balanced, 1 - alpha being that of the negative one.")
    .Attr("gamma: float = 2.0", kGamma, AtLeast(0, kCrossEntropy))
    .Attr("label_smoothing: float = 0.0", "Moves targets towards 1/2 by this part of the way.",
          Between(0, 1))
    .Attr("balanced: bool = false", "Whether alpha weighs the classes.")
    .Attr("reduce_last: bool = false", "Whether the loss is the mean over the last dimension.")
    .Input("logits: T", "any", "Logits of any shape.")
    .Input("targets: T", "like logits", "Shaped like logits, in [0, 1].")
    .Output("loss: T", "any", "Shaped like logits, or without their last dimension.")
    .Output("slope: T", "like logits", "d loss / d logits. Not differentiable.")
    .Check(CheckSigmoid);

DECLARE_OP("SoftmaxFocalLoss")
    .Doc("The focal loss of exclusive classes (Lin et al. 2017), with its derivative, in float32.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Ttargets: {float, int32, int64} = DT_FLOAT")
    .Attr("alpha: float = 0.25", "A factor.")
    .Attr("gamma: float = 2.0", kGamma, AtLeast(0, kCrossEntropy))
    .Attr("label_smoothing: float = 0.0",
          "Moves targets towards 1 / classes by this part of the way.", Between(0, 1))
    .Attr("z_loss: float = 0.0", "Weight of the square of log sum_c e^logits_c, which is added.",
          AtLeast(0))
    .Attr("ignores: bool = false", "Whether there is a class whose rows count for nothing.")
    .Attr("ignore_index: int = 0",
          "The number of that class, which may lie outside of [0, classes).")
    .Input("logits: T", "[rows, classes]", "[rows, classes].")
    // Classes' numbers are looked at before anything runs.
    .Input("targets: Ttargets", "any",
           "Probabilities of the classes, [rows, classes], or the classes' numbers, [rows].",
           Memory::kHostIfInteger)
    .Output("loss: T", "[rows]",
            "- alpha sum_c targets_c (1 - p_c)^gamma log p_c with p = softmax(logits), and the z "
            "loss; 0 where a row is ignored, [rows].")
    .Output("slope: T", "like logits", "d loss / d logits. Not differentiable.")
    .Check(CheckSoftmax);

DECLARE_GRADIENT("SigmoidFocalLoss", "logits = ScaleSlope(d loss, slope)");
DECLARE_GRADIENT("SoftmaxFocalLoss", "logits = ScaleSlope(d loss, slope)");

}  // namespace
}  // namespace metal_ops
