// Arguments of a call of HammingDistance, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_HAMMING_DISTANCE_HAMMING_DISTANCE_CALL_H_
#define METAL_OPS_KERNELS_HAMMING_DISTANCE_HAMMING_DISTANCE_CALL_H_

#include <algorithm>

#include "kernels/hamming_distance/hamming_distance_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// `n_dims` counts all that there would be, also beyond HAMMING_MOST_DIMS.
inline HammingParams ToHammingParams(const OpCall& call) {
  const std::vector<int64_t>&a = call.in_shapes[0].dims, &b = call.in_shapes[1].dims;
  HammingParams p = {};
  std::fill(p.sizes, p.sizes + HAMMING_MOST_DIMS, 1);
  p.bytes = a.back() * static_cast<int64_t>(SizeOf(call.Type("T")));
  p.elements = call.Bool("elements") ? 1 : 0;
  int64_t a_rows = 1, b_rows = 1;
  bool a_varied = false, b_varied = false;
  for (size_t i = 2; i <= std::max(a.size(), b.size()); ++i) {
    const int64_t a_size = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t b_size = i <= b.size() ? b[b.size() - i] : 1;
    if (a_size == 1 && b_size == 1) continue;
    const bool a_varies = a_size != 1, b_varies = b_size != 1;
    if (p.n_dims == 0 || a_varies != a_varied || b_varies != b_varied) {
      if (p.n_dims < HAMMING_MOST_DIMS) {
        p.a_strides[p.n_dims] = a_varies ? a_rows : 0;
        p.b_strides[p.n_dims] = b_varies ? b_rows : 0;
      }
      ++p.n_dims;
    }
    if (p.n_dims <= HAMMING_MOST_DIMS) p.sizes[p.n_dims - 1] *= a_varies ? a_size : b_size;
    a_rows *= a_size;
    b_rows *= b_size;
    a_varied = a_varies;
    b_varied = b_varies;
  }
  p.n_dims = std::max(p.n_dims, 2u);
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_HAMMING_DISTANCE_HAMMING_DISTANCE_CALL_H_
