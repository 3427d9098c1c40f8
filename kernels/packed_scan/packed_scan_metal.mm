// PackedScan, PackedProdGrad and PackRayIndices on the Metal device.

#include "kernels/packed_scan/pack_ray_indices.h"
#include "kernels/packed_scan/packed_scan_params.h"
#include "kernels/rays/metal_rays.h"

namespace metal_ops {
namespace {

PackedScanParams Params(const MetalCall& call) {
  return {call.Bool("exclusive") ? 1u : 0u, call.Bool("reverse") ? 1u : 0u};
}

Status PackedScan(MetalCall& call) {
  const char* const stem = call.Text("reduction") == "sum" ? "packed_sum" : "packed_prod";
  return MetalRays::Launch(
      call, 1, 0, {0}, {stem, call.in(0).dtype()},
      {{"inputs", call.in(0)}, {"outputs", call.out(0)}, {"params", Params(call)}});
}
METAL_KERNEL("PackedScan", PackedScan);

Status PackedProdGrad(MetalCall& call) {
  const Tensor& inputs = call.in(1);
  Tensor before;  // a ScaledFloat of the shader is three words
  RETURN_IF_ERROR(call.AllocateTemp(DType::kInt32, {inputs.num_elements(), 3}, &before));
  return MetalRays::Launch(call, 2, 1, {0}, {"packed_prod_grad", inputs.dtype()},
                           {{"d_outputs", call.in(0)},
                            {"inputs", inputs},
                            {"before", before},
                            {"outputs", call.out(0)},
                            {"params", Params(call)}});
}
METAL_KERNEL("PackedProdGrad", PackedProdGrad);

// All in host memory, where TensorFlow keeps int32 tensors and where the ops that take packed_info
// want it. Indices that do not ascend are an error at once.
Status PackRayIndices(MetalCall& call) {
  const int64_t n_rays = call.out(0).dim(0);
  if (call.in(0).dtype() == DType::kInt64) {
    PackRayIndices(call, call.in(0).host<int64_t>(), n_rays,
                   call.outputs[0].mutable_host<int64_t>());
  } else {
    PackRayIndices(call, call.in(0).host<int32_t>(), n_rays,
                   call.outputs[0].mutable_host<int32_t>());
  }
  return Status();
}
METAL_KERNEL("PackRayIndices", PackRayIndices);

}  // namespace
}  // namespace metal_ops
