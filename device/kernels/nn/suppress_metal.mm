// NonMaxSuppressionV2, V3 and V4.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/half.h"
#include "device/kernels/nn/suppress_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Waits, as how many boxes are left has to be known for the result's shape.
template <typename Op>
class SuppressOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SuppressOp(KernelConstruction* ctx) {
    if (Op::kPads) OP_REQUIRES_OK(ctx, ctx->GetAttr("pad_to_max_output_size", &pad_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Number(KernelContext* ctx, int input, const char* name, float* value) {
    Tensor tensor;
    RETURN_IF_ERROR(ctx->Input(input, &tensor));
    if (tensor.rank() != 0) {
      return InvalidArgument(kOp, ": ", name, " must be a scalar, got shape ",
                             ToString(tensor.shape()));
    }
    *value = tensor.dtype() == TF_HALF ? FromHalf(*tensor.host<uint16_t>()) : *tensor.host<float>();
    return Status();
  }

  Status Run(KernelContext* ctx) const {
    Tensor boxes, scores, most, gone, out, valid;
    SuppressParams p = {};
    RETURN_IF_ERROR(ctx->Input(0, &boxes));
    RETURN_IF_ERROR(ctx->Input(1, &scores));
    RETURN_IF_ERROR(ctx->Input(2, &most));
    if (boxes.rank() != 2 || boxes.dim(1) != 4) {
      return InvalidArgument(kOp, ": boxes must have shape [n, 4], got ", ToString(boxes.shape()));
    }
    if (scores.shape() != Shape{boxes.dim(0)}) {
      return InvalidArgument(kOp, ": scores must have shape [", boxes.dim(0),
                             "] as there are boxes, got ", ToString(scores.shape()));
    }
    if (most.rank() != 0 || *most.host<int32_t>() < 0) {
      return InvalidArgument(kOp, ": max_output_size must be one number that is not negative");
    }
    RETURN_IF_ERROR(Number(ctx, 3, "iou_threshold", &p.threshold));
    if (!(p.threshold >= 0.0f && p.threshold <= 1.0f)) {
      return InvalidArgument(kOp, ": iou_threshold must be in [0, 1], got ", p.threshold);
    }
    p.least_score = boxes.dtype() == TF_HALF ? -65504.0f : std::numeric_limits<float>::lowest();
    if (Op::kScores) RETURN_IF_ERROR(Number(ctx, 4, "score_threshold", &p.least_score));
    RETURN_IF_ERROR(CheckGrid(kOp, "boxes", boxes.dim(0)));
    p.boxes = static_cast<uint32_t>(boxes.dim(0));
    p.most = std::min(p.boxes, static_cast<uint32_t>(*most.host<int32_t>()));
    std::vector<int32_t> found;
    if (p.most > 0) {
      ReadBack selected;
      RETURN_IF_ERROR(ctx->AllocateTemp(TF_UINT8, {p.boxes}, &gone));
      RETURN_IF_ERROR(EncodeAndWait(ctx, [&](Encoder& encoder) -> Status {
        RETURN_IF_ERROR(encoder.Allocate((1 + size_t{p.most}) * sizeof(int32_t), &selected));
        return encoder.Launch({"suppress_boxes", boxes.dtype()},
                              Grid(SUPPRESS_THREADS).InGroupsOf(SUPPRESS_THREADS, 1, 1),
                              {{"boxes", boxes},
                               {"scores", scores},
                               {"gone", gone},
                               {"selected", selected},
                               {"p", p}});
      }));
      const auto* const first = selected.data<int32_t>() + 1;
      found.assign(first, first + first[-1]);
    }
    const auto count = static_cast<int32_t>(found.size());
    if (pad_) found.resize(static_cast<size_t>(*most.host<int32_t>()), 0);
    const auto n = static_cast<int64_t>(found.size());
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {n}, &out));
    if (Op::kPads) RETURN_IF_ERROR(ctx->AllocateOutput(1, {}, &valid));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch("cast_int_int", Grid(n),
                                     {{"x", HostArray(found.data(), n)}, {"out", out}}));
      if (!Op::kPads) return Status();
      return encoder.Launch("cast_int_int", Grid(1), {{"x", HostArray(&count, 1)}, {"out", valid}});
    });
  }

  bool pad_ = false;
};
#define SUPPRESS(op, scores, pads)          \
  struct op {                               \
    static constexpr char kOp[] = #op;      \
    static constexpr bool kScores = scores; \
    static constexpr bool kPads = pads;     \
  }
SUPPRESS(NonMaxSuppressionV2, false, false);
SUPPRESS(NonMaxSuppressionV3, true, false);
SUPPRESS(NonMaxSuppressionV4, true, true);
// tf.image hands thresholds of float32 over with any boxes.
#define OF_TYPE(threshold)             \
  .Types("T", {TF_FLOAT, TF_HALF})     \
      .Where("T_threshold", threshold) \
      .HostMemory("max_output_size")   \
      .HostMemory("iou_threshold")
#define WITH_SCORE(threshold) OF_TYPE(threshold).HostMemory("score_threshold")
REGISTER_METAL_KERNEL(SuppressOp<NonMaxSuppressionV2>, OF_TYPE(TF_FLOAT));
REGISTER_METAL_KERNEL(SuppressOp<NonMaxSuppressionV2>, OF_TYPE(TF_HALF));
REGISTER_METAL_KERNEL(SuppressOp<NonMaxSuppressionV3>, WITH_SCORE(TF_FLOAT));
REGISTER_METAL_KERNEL(SuppressOp<NonMaxSuppressionV3>, WITH_SCORE(TF_HALF));
REGISTER_METAL_KERNEL(SuppressOp<NonMaxSuppressionV4>, WITH_SCORE(TF_FLOAT));
REGISTER_METAL_KERNEL(SuppressOp<NonMaxSuppressionV4>, WITH_SCORE(TF_HALF));

}  // namespace
}  // namespace metal_ops
