// CTCLoss and CTCLossV2, with the gradient as their second output.

#include <algorithm>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/nn/ctc_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// The labels of all sequences, one after the other, and how many times of each count.
struct CtcLabels {
  std::vector<int32_t> labels;
  std::vector<uint32_t> starts, lengths;
  uint32_t longest = 0;
};

// The first class is the blank in TensorFlow's second version, the last in its first.
template <typename Op>
class CtcLossOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit CtcLossOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("preprocess_collapse_repeated", &collapse_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ctc_merge_repeated", &merge_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ignore_longer_outputs_than_inputs", &ignore_longer_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor inputs, indices, values, lengths, loss, gradient;
    RETURN_IF_ERROR(ctx->Input(0, &inputs));
    RETURN_IF_ERROR(ctx->Input(1, &indices));
    RETURN_IF_ERROR(ctx->Input(2, &values));
    RETURN_IF_ERROR(ctx->Input(3, &lengths));
    if (inputs.rank() != 3 || inputs.dim(1) == 0 || inputs.dim(2) == 0) {
      return InvalidArgument(kOp, ": inputs must be [times, batch, classes] with at least one ",
                             "sequence and class, got ", ToString(inputs.shape()));
    }
    if (lengths.shape() != Shape{inputs.dim(1)}) {
      return InvalidArgument(kOp, ": sequence_length must have shape [", inputs.dim(1),
                             "] as inputs has sequences, got ", ToString(lengths.shape()));
    }
    if (values.rank() != 1 || indices.shape() != Shape{values.dim(0), 2}) {
      return InvalidArgument(kOp, ": labels_indices must have shape [n, 2] and labels_values [n], ",
                             "got ", ToString(indices.shape()), " and ", ToString(values.shape()));
    }
    for (int d = 0; d < 3; ++d) RETURN_IF_ERROR(CheckGrid(kOp, "logits", inputs.dim(d)));
    CtcParams p = {};
    p.times = static_cast<uint32_t>(inputs.dim(0));
    p.batch = static_cast<uint32_t>(inputs.dim(1));
    p.classes = static_cast<uint32_t>(inputs.dim(2));
    p.blank = Op::kBlankFirst ? 0 : p.classes - 1;
    p.merge = merge_ ? 1 : 0;
    CtcLabels found;
    RETURN_IF_ERROR(Collect(p, indices, values, lengths, &found));
    p.states = 2 * found.longest + 1;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, lengths.shape(), &loss));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, inputs.shape(), &gradient));
    Tensor logs, forwards, backwards;
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, inputs.shape(), &logs));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {p.batch, p.times, p.states}, &forwards));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {p.batch, 2, p.states}, &backwards));
    const Value used = HostArray(found.lengths.data(), p.batch);
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch("ctc_softmax", Grid(p.batch, p.times),
                                     {{"logits", inputs},
                                      {"logs", logs},
                                      {"gradient", gradient},
                                      {"lengths", used},
                                      {"p", p}}));
      return encoder.Launch(
          "ctc_paths", Grid(int64_t{p.batch} * CTC_THREADS).InGroupsOf(CTC_THREADS, 1, 1),
          {{"logs", logs},
           {"gradient", gradient},
           {"loss", loss},
           {"forwards", forwards},
           {"backwards", backwards},
           {"all_labels",
            HostArray(found.labels.data(), static_cast<int64_t>(found.labels.size()))},
           {"starts", HostArray(found.starts.data(), p.batch + 1)},
           {"lengths", used},
           {"p", p}});
    });
  }

  // Labels are in host memory and can be looked at, as TensorFlow's own kernel does.
  Status Collect(const CtcParams& p, const Tensor& indices, const Tensor& values,
                 const Tensor& lengths, CtcLabels* found) const {
    const int64_t n = values.dim(0);
    const auto* const at = indices.host<int64_t>();
    int64_t next = 0;
    for (uint32_t b = 0; b < p.batch; ++b) {
      const int32_t length = lengths.host<int32_t>()[b];
      if (length < 0 || length > static_cast<int64_t>(p.times)) {
        return InvalidArgument(kOp, ": sequence_length(", b, ") must be in [0, ", p.times,
                               "], got ", length);
      }
      found->starts.push_back(static_cast<uint32_t>(found->labels.size()));
      const int64_t first = next;
      bool ended = false;
      for (; next < n && at[2 * next] == b; ++next) {
        if (at[2 * next + 1] < 0 || (next > first && at[2 * next + 1] <= at[2 * next - 1])) {
          return InvalidArgument(kOp, ": labels_indices[", next, "] is out of order");
        }
        const int32_t label = values.host<int32_t>()[next];
        if (collapse_ && next > first && label == values.host<int32_t>()[next - 1]) continue;
        if (label < 0) {
          return InvalidArgument(kOp, ": labels must be nonnegative, got ", label, " in batch ", b);
        }
        if (Op::kBlankFirst && (label == 0 || label >= static_cast<int64_t>(p.classes))) {
          return InvalidArgument(kOp, ": labels must be in [1, ", p.classes, "), got ", label,
                                 " in batch ", b, "; class 0 is the blank");
        }
        // In the first version a label that is no class ends a sequence.
        if (!Op::kBlankFirst && label >= static_cast<int64_t>(p.classes) - 1) {
          ended = true;
          continue;
        }
        if (ended) {
          return InvalidArgument(kOp, ": Saw a non-null label following a null label (one of ",
                                 p.classes - 1, " or more) in batch ", b);
        }
        found->labels.push_back(label);
      }
      const int64_t given = next - first;
      if (given == 0 && !Op::kBlankFirst) {
        return InvalidArgument(kOp, ": Labels length is zero in batch ", b);
      }
      if (!ignore_longer_ && given > length) {
        return InvalidArgument(kOp, ": Not enough time for target transition sequence (required: ",
                               given, ", available: ", length, ") in batch ", b,
                               "; ignore_longer_outputs_than_inputs leaves such sequences out");
      }
      found->lengths.push_back(given > length ? 0 : static_cast<uint32_t>(length));
      found->longest = std::max(found->longest,
                                static_cast<uint32_t>(found->labels.size()) - found->starts.back());
    }
    found->starts.push_back(static_cast<uint32_t>(found->labels.size()));
    if (next == n) return Status();
    return InvalidArgument(kOp, ": labels_indices[", next, "] names sequence ", at[2 * next],
                           "; expected ascending ones below ", p.batch);
  }

  bool collapse_ = false, merge_ = true, ignore_longer_ = false;
};
struct CTCLoss {
  static constexpr char kOp[] = "CTCLoss";
  static constexpr bool kBlankFirst = false;
};
struct CTCLossV2 {
  static constexpr char kOp[] = "CTCLossV2";
  static constexpr bool kBlankFirst = true;
};
#define LABELS \
  .HostMemory("labels_indices").HostMemory("labels_values").HostMemory("sequence_length")
REGISTER_METAL_KERNEL(CtcLossOp<CTCLoss>, .Types("T", {TF_FLOAT}) LABELS);
REGISTER_METAL_KERNEL(CtcLossOp<CTCLossV2>, LABELS);

}  // namespace
}  // namespace metal_ops
