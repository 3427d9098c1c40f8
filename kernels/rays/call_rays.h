// Rays of samples in CPU kernels: packed_info, whose shape has been checked, and its numbers.

#ifndef METAL_OPS_KERNELS_RAYS_CALL_RAYS_H_
#define METAL_OPS_KERNELS_RAYS_CALL_RAYS_H_

#include <cstring>
#include <string>

#include "kernels/rays/packed_rays.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// False: the error is in `call.shapes`.
inline bool InitRays(CpuCall& call, int packed_info, int samples, PackedRays* rays) {
  const PackedInfo info = {call.inputs[packed_info].data, call.in_shapes[packed_info].dims[0],
                           call.inputs[packed_info].type == DType::kInt64};
  const std::string error = rays->Init(call.op.name, info, call.in_shapes[samples]);
  // Both put the op's name in front.
  if (!error.empty()) call.shapes.Require(false, error.substr(call.op.name.size() + 2));
  return error.empty();
}

// Zeros for samples of no ray, in an output of samples. Samples that belong to a ray are left
// alone, so that the output may be an input's memory.
inline void ClearUncovered(const CpuCall& call, const PackedRays& rays, int output) {
  // An empty output has no address.
  if (rays.covers_all() || call.outputs[output].n_bytes == 0) return;
  const int64_t sample = call.outputs[output].n_bytes / rays.n_samples();
  int64_t end = 0;
  const auto clear_until = [&](int64_t begin) {
    std::memset(call.out<char>(output) + end * sample, 0, (begin - end) * sample);
  };
  for (int64_t r = 0; r < rays.n_rays(); ++r) {
    const RayRange ray = rays[r];
    if (ray.count == 0) continue;
    clear_until(ray.start);
    end = ray.start + ray.count;
  }
  clear_until(rays.n_samples());
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RAYS_CALL_RAYS_H_
