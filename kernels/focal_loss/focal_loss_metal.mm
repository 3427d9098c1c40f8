// SigmoidFocalLoss and SoftmaxFocalLoss on the Metal device.

#include <string>
#include <vector>

#include "kernels/common/registrar.h"
#include "kernels/common/row_means.h"
#include "kernels/focal_loss/focal_loss_checks.h"
#include "kernels/focal_loss/focal_loss_params.h"

namespace metal_ops {
namespace {

// Shaders that share a row count on it.
constexpr int64_t kSimdGroup = 32;

Status ReadAttrs(const char* op, KernelConstruction* ctx, FocalLossParams* params) {
  RETURN_IF_ERROR(ctx->GetAttr("alpha", &params->alpha));
  RETURN_IF_ERROR(ctx->GetAttr("gamma", &params->gamma));
  RETURN_IF_ERROR(ctx->GetAttr("label_smoothing", &params->label_smoothing));
  ArgShapes attrs(op);
  CheckFocalAttrs(&attrs, params->gamma, params->label_smoothing);
  return ToStatus(attrs);
}

class SigmoidFocalLossOp {
 public:
  static constexpr char kOp[] = "SigmoidFocalLoss";

  explicit SigmoidFocalLossOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ReadAttrs(kOp, ctx, &params_));
    bool balanced = false, reduce_last = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("balanced", &balanced));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reduce_last", &reduce_last));
    params_.balanced = balanced;
    params_.reduce_last = reduce_last;
  }

  void Compute(KernelContext* ctx) {
    Tensor logits, targets, loss, slope;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &logits));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &targets));
    ArgShapes shapes(kOp);
    CheckSigmoidFocal(&shapes, ShapesOf(logits, targets), params_.reduce_last);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const Shape loss_shape = RowMeansShape(logits.shape(), params_.reduce_last);
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, loss_shape, &loss));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(1, logits.shape(), &slope));
    OP_REQUIRES_OK(
        ctx,
        EncodeRowMeans(ctx, logits.shape(), params_.reduce_last, loss,
                       [&](Encoder& encoder, Grid grid, const RowMeansParams& rows, Value parts) {
                         return encoder.Launch({"sigmoid_focal_loss", logits.dtype()}, grid,
                                               {{"logits", logits},
                                                {"targets", targets},
                                                {"losses", loss},
                                                {"parts", parts},
                                                {"slopes", slope},
                                                {"params", params_},
                                                {"rows", rows}});
                       }));
  }

 private:
  FocalLossParams params_ = {};
};

class SoftmaxFocalLossOp {
 public:
  static constexpr char kOp[] = "SoftmaxFocalLoss";

  explicit SoftmaxFocalLossOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ReadAttrs(kOp, ctx, &params_));
  }

  void Compute(KernelContext* ctx) {
    Tensor logits, targets, loss, slope;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &logits));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &targets));
    const bool sparse = targets.dtype() != TF_FLOAT;
    ArgShapes shapes(kOp);
    CheckSoftmaxFocal(&shapes, ShapesOf(logits, targets), sparse);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const int64_t n_rows = logits.dim(0), n_classes = logits.dim(1);
    std::vector<uint32_t> labels;
    if (n_classes > 0 && targets.dtype() == TF_INT32)
      labels = Labels<int32_t>(&shapes, logits, targets);
    if (n_classes > 0 && targets.dtype() == TF_INT64)
      labels = Labels<int64_t>(&shapes, logits, targets);
    if (n_classes == 0) labels.resize(n_rows);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, CheckGrid(kOp, "rows", n_rows));
    OP_REQUIRES_OK(ctx, CheckGrid(kOp, "classes", n_classes));

    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {n_rows}, &loss));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(1, logits.shape(), &slope));
    SoftmaxFocalParams params = {};
    params.loss = params_;
    params.n_classes = static_cast<uint32_t>(n_classes);
    params.n_rows = static_cast<uint64_t>(n_rows);
    const bool shared = n_classes >= FOCAL_LOSS_SHARED_ROW;
    const Shader shader("softmax_focal_loss", sparse ? "sparse" : "", shared ? "shared" : "",
                        logits.dtype());
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch(shader, shared ? Grid(kSimdGroup, n_rows) : Grid(n_rows),
                                           {{"logits", logits},
                                            {sparse ? "labels" : "targets",
                                             sparse ? HostArray(labels.data(), n_rows) : targets},
                                            {"losses", loss},
                                            {"slopes", slope},
                                            {"params", params}});
                   }));
  }

 private:
  // As the shader reads them; what is wrong with them goes to `shapes`.
  template <typename Label>
  static std::vector<uint32_t> Labels(ArgShapes* shapes, const Tensor& logits,
                                      const Tensor& targets) {
    const Label* const labels = targets.host<Label>();
    CheckFocalClasses(shapes, labels, logits.dim(0), logits.dim(1));
    return std::vector<uint32_t>(labels, labels + (shapes->ok() ? logits.dim(0) : 0));
  }

  FocalLossParams params_ = {};
};

REGISTER_METAL_KERNEL(SigmoidFocalLossOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(SoftmaxFocalLossOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).Where("Ttargets", TF_FLOAT));
// Classes' numbers are looked at before anything runs, so they stay on the host.
REGISTER_METAL_KERNEL(SoftmaxFocalLossOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16})
                                              .Where("Ttargets", TF_INT32)
                                              .HostMemory("targets"));
REGISTER_METAL_KERNEL(SoftmaxFocalLossOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16})
                                              .Where("Ttargets", TF_INT64)
                                              .HostMemory("targets"));

}  // namespace
}  // namespace metal_ops
