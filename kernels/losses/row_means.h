// The host's side of losses that are averaged over their last dimension on the Metal device.

#ifndef METAL_OPS_KERNELS_LOSSES_ROW_MEANS_H_
#define METAL_OPS_KERNELS_LOSSES_ROW_MEANS_H_

#include <functional>

#include "kernels/losses/row_means_params.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {

// Encodes `elements` for every thread of `grid`, which stores into `means` or `parts` by
// store_row_part (kernels/losses/row_means.metal.h), and then the second pass, if there is one.
inline Status EncodeRowMeans(
    MetalCall& call, const Shape& shape, bool reduce_last, const Tensor& means,
    const std::function<Status(Encoder&, Grid, const RowMeansParams&, Value parts)>& elements) {
  RowMeansParams params = {};
  const int64_t n = NumElements(shape);
  params.n_columns = reduce_last ? static_cast<uint64_t>(shape.back()) : 1;
  params.n_rows = static_cast<uint64_t>(means.num_elements());
  params.n_parts = static_cast<uint32_t>((params.n_columns + ROW_MEANS_PART - 1) / ROW_MEANS_PART);
  params.weight = reduce_last ? 1.0f / static_cast<float>(params.n_columns) : 1.0f;
  Tensor parts;
  const int64_t n_rows = means.num_elements();
  const int64_t n_threads = n == 0 ? 0 : n_rows * params.n_parts;
  const bool two_passes = params.n_parts > 1 && n > 0;
  if (two_passes) RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {n_threads}, &parts));
  return call.Encode([&](Encoder& encoder) -> Status {
    // Without a second pass a thread has the whole row, and writes its mean.
    const Value sums = two_passes ? Value(parts) : Value(Nothing());
    RETURN_IF_ERROR(elements(encoder, Grid::Flat(n_threads), params, sums));
    if (!two_passes && n > 0) return Status();
    return encoder.Launch({"row_means", means.dtype()}, Grid::Flat(n_rows),
                          {{"parts", sums}, {"means", means}, {"params", params}});
  });
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_LOSSES_ROW_MEANS_H_
