// SigmoidFocalLoss and SoftmaxFocalLoss on the Metal device.

#include <vector>

#include "kernels/focal_loss/focal_loss_checks.h"
#include "kernels/losses/row_means.h"

namespace metal_ops {
namespace {

// Shaders that share a row count on it.
constexpr int64_t kSimdGroup = 32;

Status Sigmoid(MetalCall& call) {
  const FocalLossParams params = FocalParams(call, /*sigmoid=*/true);
  return EncodeRowMeans(call, call.in(0).shape(), params.reduce_last, call.out(0),
                        [&](Encoder& encoder, Grid grid, const RowMeansParams& rows, Value parts) {
                          return encoder.Launch({"sigmoid_focal_loss", call.in(0).dtype()}, grid,
                                                {{"logits", call.in(0)},
                                                 {"targets", call.in(1)},
                                                 {"losses", call.out(0)},
                                                 {"parts", parts},
                                                 {"slopes", call.out(1)},
                                                 {"params", params},
                                                 {"rows", rows}});
                        });
}
METAL_KERNEL("SigmoidFocalLoss", Sigmoid);

// As the shader reads them; errors go to `call.shapes`.
template <typename Label>
std::vector<uint32_t> Labels(MetalCall& call) {
  const int64_t n_rows = call.Size("rows");
  const Label* const labels = call.in(1).host<Label>();
  CheckFocalClasses(call, labels);
  const IgnoredClass ignored(call);
  std::vector<uint32_t> to(call.shapes.ok() ? n_rows : 0);
  for (size_t r = 0; r < to.size(); ++r) {
    to[r] = ignored.Is(labels[r]) ? FOCAL_LOSS_IGNORED : static_cast<uint32_t>(labels[r]);
  }
  return to;
}

Status Softmax(MetalCall& call) {
  const int64_t n_rows = call.Size("rows"), n_classes = call.Size("classes");
  const DType type = call.in(1).dtype();
  const bool sparse = type != DType::kFloat;
  std::vector<uint32_t> labels(sparse ? n_rows : 0);
  if (n_classes > 0 && type == DType::kInt32) labels = Labels<int32_t>(call);
  if (n_classes > 0 && type == DType::kInt64) labels = Labels<int64_t>(call);
  RETURN_IF_ERROR(call.Checked());
  RETURN_IF_ERROR(CheckGrid(call.op.name.c_str(), "rows", n_rows));
  RETURN_IF_ERROR(CheckGrid(call.op.name.c_str(), "classes", n_classes));
  SoftmaxFocalParams params = {};
  params.loss = FocalParams(call, /*sigmoid=*/false);
  params.n_classes = static_cast<uint32_t>(n_classes);
  params.n_rows = static_cast<uint64_t>(n_rows);
  const bool shared = n_classes >= FOCAL_LOSS_SHARED_ROW;
  const Value targets = sparse ? HostArray(labels.data(), n_rows) : Value(call.in(1));
  return call.Launch(
      {"softmax_focal_loss", sparse ? "sparse" : "", shared ? "shared" : "", call.in(0).dtype()},
      shared ? Grid(kSimdGroup, n_rows) : Grid(n_rows),
      {{"logits", call.in(0)},
       {sparse ? "labels" : "targets", targets},
       {"losses", call.out(0)},
       {"slopes", call.out(1)},
       {"params", params}});
}
METAL_KERNEL("SoftmaxFocalLoss", Softmax);

}  // namespace
}  // namespace metal_ops
