// PackedScan, PackedProdGrad and PackRayIndices on the Metal device.

#include <cstring>
#include <string>

#include "kernels/common/metal_rays.h"
#include "kernels/common/registrar.h"
#include "kernels/packed_scan/packed_scan_checks.h"
#include "kernels/packed_scan/packed_scan_params.h"

namespace metal_ops {
namespace {

class PackedScanOp {
 public:
  static constexpr char kOp[] = "PackedScan";

  explicit PackedScanOp(KernelConstruction* ctx) {
    std::string reduction;
    bool exclusive = false, reverse = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reduction", &reduction));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("exclusive", &exclusive));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reverse", &reverse));
    sum_ = reduction == "sum";
    params_ = {exclusive ? 1u : 0u, reverse ? 1u : 0u};
  }

  void Compute(KernelContext* ctx) {
    Tensor inputs, packed_info, outputs;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &inputs));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &packed_info));
    ArgShapes shapes(kOp);
    CheckPackedScan(&shapes, ShapesOf(inputs, packed_info));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    MetalRays rays;
    OP_REQUIRES_OK(ctx, rays.Init(kOp, packed_info, inputs));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, inputs.shape(), &outputs));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&outputs}));
                     return encoder.Launch({sum_ ? "packed_sum" : "packed_prod", inputs.dtype()},
                                           Grid(rays.n_rays()),
                                           {{"inputs", inputs},
                                            {"spans", rays.spans()},
                                            {"outputs", outputs},
                                            {"layout", rays.layout()},
                                            {"params", params_}});
                   }));
  }

 private:
  bool sum_ = true;
  PackedScanParams params_ = {};
};

class PackedProdGradOp {
 public:
  static constexpr char kOp[] = "PackedProdGrad";

  explicit PackedProdGradOp(KernelConstruction* ctx) {
    bool exclusive = false, reverse = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("exclusive", &exclusive));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reverse", &reverse));
    params_ = {exclusive ? 1u : 0u, reverse ? 1u : 0u};
  }

  void Compute(KernelContext* ctx) {
    Tensor gradients, inputs, packed_info, before, outputs;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &gradients));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &inputs));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &packed_info));
    ArgShapes shapes(kOp);
    CheckPackedScan(&shapes, ShapesOf(gradients, inputs, packed_info));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    MetalRays rays;
    OP_REQUIRES_OK(ctx, rays.Init(kOp, packed_info, inputs));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, inputs.shape(), &outputs));
    // A ScaledFloat of the shader is three words.
    OP_REQUIRES_OK(ctx, ctx->AllocateTemp(TF_INT32, {inputs.num_elements(), 3}, &before));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&outputs}));
                     return encoder.Launch({"packed_prod_grad", inputs.dtype()},
                                           Grid(rays.n_rays()),
                                           {{"gradients", gradients},
                                            {"inputs", inputs},
                                            {"spans", rays.spans()},
                                            {"before", before},
                                            {"outputs", outputs},
                                            {"layout", rays.layout()},
                                            {"params", params_}});
                   }));
  }

 private:
  PackedScanParams params_ = {};
};

// Indices in, packed_info out: all in host memory, where TensorFlow keeps int32 tensors and where
// the ops that take packed_info want it. Indices that do not ascend are an error at once.
class PackRayIndicesOp {
 public:
  static constexpr char kOp[] = "PackRayIndices";

  explicit PackRayIndicesOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor ray_indices, n_rays;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &ray_indices));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &n_rays));
    ArgShapes shapes(kOp);
    CheckPackRayIndices(&shapes, ShapesOf(ray_indices, n_rays));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, ray_indices.dtype() == TF_INT64 ? Pack<int64_t>(ctx, ray_indices, n_rays)
                                                        : Pack<int32_t>(ctx, ray_indices, n_rays));
  }

 private:
  template <typename I>
  static Status Pack(KernelContext* ctx, const Tensor& ray_indices, const Tensor& n_rays) {
    I count;
    std::memcpy(&count, n_rays.host<char>(), sizeof(count));
    ArgShapes checked(kOp);
    CheckRayCount(&checked, count);
    RETURN_IF_ERROR(ToStatus(checked));
    Tensor packed_info;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {count, 2}, &packed_info));
    const std::string error = PackRayIndices(kOp, ray_indices.host<I>(), ray_indices.num_elements(),
                                             count, packed_info.mutable_host<I>());
    return error.empty() ? Status() : InvalidArgument(error);
  }
};

REGISTER_METAL_KERNEL(PackedScanOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("packed_info"));
REGISTER_METAL_KERNEL(PackedProdGradOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("packed_info"));
REGISTER_METAL_KERNEL(PackRayIndicesOp, .Types("Tindices", {TF_INT32, TF_INT64})
                                            .HostMemory("ray_indices")
                                            .HostMemory("n_rays")
                                            .HostMemory("packed_info"));

}  // namespace
}  // namespace metal_ops
