// PackedScan, PackedProdGrad and PackRayIndices on the Metal device.

#include "kernels/packed_scan/pack_ray_indices.h"
#include "kernels/packed_scan/packed_scan_params.h"
#include "kernels/rays/metal_rays.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

PackedScanParams Params(const MetalCall& call) {
  return {call.Bool("exclusive") ? 1u : 0u, call.Bool("reverse") ? 1u : 0u};
}

Status PackedScan(MetalCall& call) {
  MetalRays rays;
  RETURN_IF_ERROR(rays.Init(call.op.name.c_str(), call.in(1), call.in(0)));
  const char* const stem = call.Text("reduction") == "sum" ? "packed_sum" : "packed_prod";
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&call.out(0)}));
    return encoder.Launch({stem, call.in(0).dtype()}, Grid(rays.n_rays()),
                          {{"inputs", call.in(0)},
                           {"spans", rays.spans()},
                           {"outputs", call.out(0)},
                           {"layout", rays.layout()},
                           {"params", Params(call)}});
  });
}
METAL_KERNEL("PackedScan", PackedScan);

Status PackedProdGrad(MetalCall& call) {
  const Tensor& inputs = call.in(1);
  MetalRays rays;
  RETURN_IF_ERROR(rays.Init(call.op.name.c_str(), call.in(2), inputs));
  Tensor before;  // a ScaledFloat of the shader is three words
  RETURN_IF_ERROR(call.AllocateTemp(DType::kInt32, {inputs.num_elements(), 3}, &before));
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&call.out(0)}));
    return encoder.Launch({"packed_prod_grad", inputs.dtype()}, Grid(rays.n_rays()),
                          {{"d_outputs", call.in(0)},
                           {"inputs", inputs},
                           {"spans", rays.spans()},
                           {"before", before},
                           {"outputs", call.out(0)},
                           {"layout", rays.layout()},
                           {"params", Params(call)}});
  });
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
