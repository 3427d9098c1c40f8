// SoftmaxCrossEntropyWithLogits and SparseSoftmaxCrossEntropyWithLogits.

#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

class CrossEntropyOp {
 public:
  static constexpr char kOp[] = "SoftmaxCrossEntropyWithLogits";

  explicit CrossEntropyOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor logits, labels, loss, d_logits;
    Shape shape;
    RETURN_IF_ERROR(ctx->Input(0, &logits));
    RETURN_IF_ERROR(ctx->Input(1, &labels));
    RETURN_IF_ERROR(BroadcastShape(kOp, logits.shape(), labels.shape(), &shape));
    if (shape.size() != 2) {
      return InvalidArgument(kOp, ": logits and labels must be 2-dimensional, got ",
                             ToString(logits.shape()), " and ", ToString(labels.shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {shape[0]}, &loss));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, shape, &d_logits));
    RETURN_IF_ERROR(CheckGrid(kOp, "rows", shape[0]));
    RETURN_IF_ERROR(CheckGrid(kOp, "classes", shape[1]));
    const auto columns = static_cast<uint32_t>(shape[1]);
    const Walk x = Broadcast(logits.shape(), shape), y = Broadcast(labels.shape(), shape);
    struct {
      uint32_t strides[4];
    } strides = {{static_cast<uint32_t>(x.strides[0]), static_cast<uint32_t>(x.strides[1]),
                  static_cast<uint32_t>(y.strides[0]), static_cast<uint32_t>(y.strides[1])}};
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"softmax_cross_entropy", logits.dtype()}, Grid(shape[0]),
                            {{"logits", logits},
                             {"labels", labels},
                             {"loss", loss},
                             {"d_logits", d_logits},
                             {"columns", columns},
                             {"strides", strides}});
    });
  }
};
REGISTER_METAL_KERNEL(CrossEntropyOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

class SparseCrossEntropyOp {
 public:
  static constexpr char kOp[] = "SparseSoftmaxCrossEntropyWithLogits";

  explicit SparseCrossEntropyOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor logits, labels, loss, d_logits;
    RETURN_IF_ERROR(ctx->Input(0, &logits));
    RETURN_IF_ERROR(ctx->Input(1, &labels));
    if (logits.rank() != 2 || labels.shape() != Shape{logits.dim(0)}) {
      return InvalidArgument(
          kOp, ": logits must be 2-D, [rows, classes], and labels must be 1-D, [rows], got ",
          ToString(logits.shape()), " and ", ToString(labels.shape()));
    }
    if (logits.dim(1) == 0) {
      return InvalidArgument(kOp, ": Must have at least one class, but got logits shape ",
                             ToString(logits.shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, labels.shape(), &loss));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, logits.shape(), &d_logits));
    RETURN_IF_ERROR(CheckGrid(kOp, "rows", logits.dim(0)));
    RETURN_IF_ERROR(CheckGrid(kOp, "classes", logits.dim(1)));
    const auto columns = static_cast<uint32_t>(logits.dim(1));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"sparse_softmax_cross_entropy", logits.dtype(), labels.dtype()},
                            Grid(logits.dim(0)),
                            {{"logits", logits},
                             {"labels", labels},
                             {"loss", loss},
                             {"d_logits", d_logits},
                             {"columns", columns}});
    });
  }
};
REGISTER_METAL_KERNEL(SparseCrossEntropyOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).Where("Tlabels", TF_INT32));
REGISTER_METAL_KERNEL(SparseCrossEntropyOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).Where("Tlabels", TF_INT64));

}  // namespace
}  // namespace metal_ops
