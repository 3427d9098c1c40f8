// Rays of samples in CPU kernels: packed_info, whose shape has been checked, with what it holds.

#ifndef METAL_OPS_KERNELS_COMMON_CALL_RAYS_H_
#define METAL_OPS_KERNELS_COMMON_CALL_RAYS_H_

#include <string>

#include "kernels/common/op.h"
#include "kernels/common/packed_rays.h"

namespace metal_ops {

// False: what is wrong is in `call.shapes`.
inline bool InitRays(CpuCall& call, int packed_info, int samples, PackedRays* rays) {
  const PackedInfo info = {call.inputs[packed_info].data, call.in_shapes[packed_info].dims[0],
                           call.inputs[packed_info].type == DType::kInt64};
  const std::string error = rays->Init(call.op.name, info, call.in_shapes[samples]);
  // Both put the op's name in front.
  if (!error.empty()) call.shapes.Require(false, error.substr(call.op.name.size() + 2));
  return error.empty();
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_CALL_RAYS_H_
