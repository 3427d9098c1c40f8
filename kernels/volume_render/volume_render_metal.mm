// VolumeRender, RenderWeights and their gradients on the Metal device: check, allocate, encode.
//
// packed_info stays in host memory, where it is checked; RayMarch leaves it there.

#include <vector>

#include "kernels/common/metal_rays.h"
#include "kernels/common/registrar.h"
#include "kernels/volume_render/volume_render_checks.h"
#include "kernels/volume_render/volume_render_params.h"

namespace metal_ops {
namespace {

// All inputs of a call, and their shapes.
Status AllInputs(KernelContext* ctx, std::vector<Tensor>* inputs, std::vector<ArgShape>* shapes) {
  inputs->resize(ctx->num_inputs());
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    RETURN_IF_ERROR(ctx->Input(i, &(*inputs)[i]));
    shapes->emplace_back((*inputs)[i].shape());
  }
  return Status();
}

// `flag` if there is something in it.
uint32_t Present(const Tensor& optional, uint32_t flag) {
  return optional.num_elements() > 0 ? flag : 0;
}

// What the four ops share: attributes.
template <typename Op>
class RenderBase {
 public:
  explicit RenderBase(KernelConstruction* ctx) {
    float early_stop_eps = 0.0f;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("early_stop_eps", &early_stop_eps));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("t_gradients", &t_gradients_));
    ArgShapes attrs(Op::kOp);
    CheckEarlyStop(&attrs, early_stop_eps);
    OP_REQUIRES_OK(ctx, ToStatus(attrs));
    max_thickness_ = MaxThickness(early_stop_eps);
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, static_cast<Op*>(this)->Run(ctx)); }

 protected:
  VolumeRenderParams Params(int64_t n_channels) const {
    VolumeRenderParams params = {};
    params.max_thickness = max_thickness_;
    params.n_channels = static_cast<uint32_t>(n_channels);
    return params;
  }

  // The gradients of t_starts and t_ends, or two empty tensors.
  Status AllocateTimes(KernelContext* ctx, int first, const Tensor& sigmas, Tensor* to_starts,
                       Tensor* to_ends) const {
    const Shape shape = t_gradients_ ? sigmas.shape() : Shape{0};
    RETURN_IF_ERROR(ctx->AllocateOutput(first, shape, to_starts));
    return ctx->AllocateOutput(first + 1, shape, to_ends);
  }

  float max_thickness_ = 0.0f;
  bool t_gradients_ = false;
};

class VolumeRenderOp : public RenderBase<VolumeRenderOp> {
 public:
  static constexpr char kOp[] = "VolumeRender";
  using RenderBase::RenderBase;

  Status Run(KernelContext* ctx) {
    std::vector<Tensor> in;
    std::vector<ArgShape> shapes;
    RETURN_IF_ERROR(AllInputs(ctx, &in, &shapes));
    ArgShapes checked(kOp);
    CheckVolumeRender(&checked, shapes, 0);
    RETURN_IF_ERROR(ToStatus(checked));
    const Tensor &sigmas = in[0], &rgbs = in[1], &t_starts = in[2], &t_ends = in[3];
    const Tensor& background = in[5];
    MetalRays rays;
    RETURN_IF_ERROR(rays.Init(kOp, in[4], sigmas));
    const int64_t n_rays = rays.n_rays(), n_channels = checked.Size("channels");
    RETURN_IF_ERROR(CheckGrid(kOp, "channels", n_channels));

    Tensor rgb, opacity, depth, median, weights, ends;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {n_rays, n_channels}, &rgb));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, {n_rays}, &opacity));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, {n_rays}, &depth));
    RETURN_IF_ERROR(ctx->AllocateOutput(3, {n_rays}, &median));
    RETURN_IF_ERROR(ctx->AllocateOutput(4, sigmas.shape(), &weights));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {n_rays, 2}, &ends));

    VolumeRenderParams params = Params(n_channels);
    params.background_stride = background.rank() == 2 ? params.n_channels : 0;
    params.present = Present(background, VOLUME_RENDER_BACKGROUND);
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&weights}));
      RETURN_IF_ERROR(encoder.Launch({"volume_render_rays", sigmas.dtype()}, Grid(n_rays),
                                     {{"sigmas", sigmas},
                                      {"t_starts", t_starts},
                                      {"t_ends", t_ends},
                                      {"spans", rays.spans()},
                                      {"weights", weights},
                                      {"opacity", opacity},
                                      {"depth", depth},
                                      {"depth_median", median},
                                      {"ends", ends},
                                      {"layout", rays.layout()},
                                      {"params", params}}));
      return encoder.Launch({"volume_render_colours", sigmas.dtype()}, Grid(n_channels, n_rays),
                            {{"rgbs", rgbs},
                             {"weights", weights},
                             {"background", background},
                             {"ends", ends},
                             {"spans", rays.spans()},
                             {"rgb", rgb},
                             {"layout", rays.layout()},
                             {"params", params}});
    });
  }
};

class VolumeRenderGradOp : public RenderBase<VolumeRenderGradOp> {
 public:
  static constexpr char kOp[] = "VolumeRenderGrad";
  using RenderBase::RenderBase;

  Status Run(KernelContext* ctx) {
    std::vector<Tensor> in;
    std::vector<ArgShape> shapes;
    RETURN_IF_ERROR(AllInputs(ctx, &in, &shapes));
    ArgShapes checked(kOp);
    CheckVolumeRender(&checked, shapes, 5);
    CheckVolumeRenderGradients(&checked, shapes);
    RETURN_IF_ERROR(ToStatus(checked));
    const Tensor &from_rgb = in[0], &from_opacity = in[1], &from_depth = in[2];
    const Tensor &from_median = in[3], &from_weights = in[4];
    const Tensor &sigmas = in[5], &rgbs = in[6], &t_starts = in[7], &t_ends = in[8];
    const Tensor& background = in[10];
    MetalRays rays;
    RETURN_IF_ERROR(rays.Init(kOp, in[9], sigmas));
    const int64_t n_rays = rays.n_rays(), n_channels = checked.Size("channels");
    RETURN_IF_ERROR(CheckGrid(kOp, "channels", n_channels));

    Tensor to_sigmas, to_rgbs, to_background, to_starts, to_ends, passed, behind;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, sigmas.shape(), &to_sigmas));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, rgbs.shape(), &to_rgbs));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, background.shape(), &to_background));
    RETURN_IF_ERROR(AllocateTimes(ctx, 3, sigmas, &to_starts, &to_ends));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, sigmas.shape(), &passed));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {n_rays}, &behind));

    VolumeRenderParams params = Params(n_channels);
    params.background_stride = background.rank() == 2 ? params.n_channels : 0;
    params.present = Present(background, VOLUME_RENDER_BACKGROUND) |
                     Present(from_rgb, VOLUME_RENDER_FROM_RGB) |
                     Present(from_opacity, VOLUME_RENDER_FROM_OPACITY) |
                     Present(from_depth, VOLUME_RENDER_FROM_DEPTH) |
                     Present(from_median, VOLUME_RENDER_FROM_MEDIAN) |
                     Present(from_weights, VOLUME_RENDER_FROM_WEIGHTS) | VOLUME_RENDER_COLOURS |
                     (t_gradients_ ? VOLUME_RENDER_T_GRADIENTS : 0);
    Tensor parts;
    const bool shared = background.rank() == 1 && background.num_elements() > 0;
    const int64_t n_parts =
        (n_rays + VOLUME_RENDER_RAYS_PER_SUM - 1) / int64_t{VOLUME_RENDER_RAYS_PER_SUM};
    if (shared) RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {n_parts, n_channels, 2}, &parts));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&to_sigmas, &to_rgbs, &to_starts, &to_ends}));
      RETURN_IF_ERROR(encoder.Launch({"volume_render_grad", sigmas.dtype()}, Grid(n_rays),
                                     {{"sigmas", sigmas},
                                      {"rgbs", rgbs},
                                      {"t_starts", t_starts},
                                      {"t_ends", t_ends},
                                      {"spans", rays.spans()},
                                      {"background", background},
                                      {"from_rgb", from_rgb},
                                      {"from_opacity", from_opacity},
                                      {"from_depth", from_depth},
                                      {"from_median", from_median},
                                      {"from_weights", from_weights},
                                      {"from_transmittance", Nothing()},
                                      {"to_sigmas", to_sigmas},
                                      {"to_rgbs", to_rgbs},
                                      {"to_starts", to_starts},
                                      {"to_ends", to_ends},
                                      {"passed", passed},
                                      {"behind", behind},
                                      {"layout", rays.layout()},
                                      {"params", params}}));
      if (background.num_elements() == 0) return Status();
      if (from_rgb.num_elements() == 0) return encoder.Fill(to_background, 0);
      const uint32_t n = params.n_channels;
      if (!shared) {
        return encoder.Launch("volume_render_background_grad", Grid(n_channels, n_rays),
                              {{"behind", behind},
                               {"from_rgb", from_rgb},
                               {"to_background", to_background},
                               {"n_channels", n}});
      }
      const uint32_t n_rays32 = static_cast<uint32_t>(n_rays);
      const uint32_t n_parts32 = static_cast<uint32_t>(n_parts);
      RETURN_IF_ERROR(encoder.Launch("volume_render_background_parts", Grid(n_channels, n_parts),
                                     {{"behind", behind},
                                      {"from_rgb", from_rgb},
                                      {"parts", parts},
                                      {"n_channels", n},
                                      {"n_rays", n_rays32}}));
      return encoder.Launch("volume_render_background_total", Grid(n_channels),
                            {{"parts", parts},
                             {"to_background", to_background},
                             {"n_channels", n},
                             {"n_parts", n_parts32}});
    });
  }
};

class RenderWeightsOp : public RenderBase<RenderWeightsOp> {
 public:
  static constexpr char kOp[] = "RenderWeights";
  using RenderBase::RenderBase;

  Status Run(KernelContext* ctx) {
    std::vector<Tensor> in;
    std::vector<ArgShape> shapes;
    RETURN_IF_ERROR(AllInputs(ctx, &in, &shapes));
    ArgShapes checked(kOp);
    CheckRenderWeights(&checked, shapes, 0);
    RETURN_IF_ERROR(ToStatus(checked));
    const Tensor &sigmas = in[0], &t_starts = in[1], &t_ends = in[2];
    MetalRays rays;
    RETURN_IF_ERROR(rays.Init(kOp, in[3], sigmas));
    Tensor weights, transmittance;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, sigmas.shape(), &weights));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, sigmas.shape(), &transmittance));
    const VolumeRenderParams params = Params(0);
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&weights, &transmittance}));
      return encoder.Launch({"render_weights", sigmas.dtype()}, Grid(rays.n_rays()),
                            {{"sigmas", sigmas},
                             {"t_starts", t_starts},
                             {"t_ends", t_ends},
                             {"spans", rays.spans()},
                             {"weights", weights},
                             {"transmittance", transmittance},
                             {"layout", rays.layout()},
                             {"params", params}});
    });
  }
};

class RenderWeightsGradOp : public RenderBase<RenderWeightsGradOp> {
 public:
  static constexpr char kOp[] = "RenderWeightsGrad";
  using RenderBase::RenderBase;

  Status Run(KernelContext* ctx) {
    std::vector<Tensor> in;
    std::vector<ArgShape> shapes;
    RETURN_IF_ERROR(AllInputs(ctx, &in, &shapes));
    ArgShapes checked(kOp);
    CheckRenderWeights(&checked, shapes, 2);
    RETURN_IF_ERROR(ToStatus(checked));
    const Tensor &from_weights = in[0], &from_transmittance = in[1];
    const Tensor &sigmas = in[2], &t_starts = in[3], &t_ends = in[4];
    MetalRays rays;
    RETURN_IF_ERROR(rays.Init(kOp, in[5], sigmas));
    Tensor to_sigmas, to_starts, to_ends, passed;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, sigmas.shape(), &to_sigmas));
    RETURN_IF_ERROR(AllocateTimes(ctx, 1, sigmas, &to_starts, &to_ends));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, sigmas.shape(), &passed));
    VolumeRenderParams params = Params(0);
    params.present = Present(from_weights, VOLUME_RENDER_FROM_WEIGHTS) |
                     Present(from_transmittance, VOLUME_RENDER_FROM_TRANSMITTANCE) |
                     (t_gradients_ ? VOLUME_RENDER_T_GRADIENTS : 0);
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&to_sigmas, &to_starts, &to_ends}));
      // The shader is told that there are no colours, and touches none of what stands for them.
      const Nothing none;
      return encoder.Launch({"volume_render_grad", sigmas.dtype()}, Grid(rays.n_rays()),
                            {{"sigmas", sigmas},
                             {"rgbs", none},
                             {"t_starts", t_starts},
                             {"t_ends", t_ends},
                             {"spans", rays.spans()},
                             {"background", none},
                             {"from_rgb", none},
                             {"from_opacity", none},
                             {"from_depth", none},
                             {"from_median", none},
                             {"from_weights", from_weights},
                             {"from_transmittance", from_transmittance},
                             {"to_sigmas", to_sigmas},
                             {"to_rgbs", none},
                             {"to_starts", to_starts},
                             {"to_ends", to_ends},
                             {"passed", passed},
                             {"behind", none},
                             {"layout", rays.layout()},
                             {"params", params}});
    });
  }
};

#define REGISTER_RENDER(Kernel) \
  REGISTER_METAL_KERNEL(Kernel, \
                        .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("packed_info"))
REGISTER_RENDER(VolumeRenderOp);
REGISTER_RENDER(VolumeRenderGradOp);
REGISTER_RENDER(RenderWeightsOp);
REGISTER_RENDER(RenderWeightsGradOp);
#undef REGISTER_RENDER

}  // namespace
}  // namespace metal_ops
