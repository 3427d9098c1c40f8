// VolumeRender, RenderWeights and their gradients on the Metal device: check, allocate, encode.
//
// packed_info stays in host memory, where it is checked; RayMarch leaves it there.

#include <algorithm>

#include "kernels/rays/metal_rays.h"
#include "kernels/volume_render/volume_render_call.h"
#include "kernels/volume_render/volume_render_params.h"

namespace metal_ops {
namespace {

// `flag` if there is something in it.
uint32_t Present(const Tensor& optional, uint32_t flag) {
  return optional.num_elements() > 0 ? flag : 0;
}

Status Init(MetalCall& call, MetalRays* rays, VolumeRenderParams* params) {
  const char* const op = call.op.name.c_str();
  const int64_t n_channels = std::max<int64_t>(call.Size("channels"), 0);
  RETURN_IF_ERROR(
      rays->Init(op, call.in(call.Index("packed_info")), call.in(call.Index("sigmas"))));
  RETURN_IF_ERROR(CheckGrid(op, "channels", n_channels));
  *params = {};
  params->max_thickness = MaxThickness(call);
  params->n_channels = static_cast<uint32_t>(n_channels);
  return Status();
}

Status VolumeRender(MetalCall& call) {
  MetalRays rays;
  VolumeRenderParams params;
  RETURN_IF_ERROR(Init(call, &rays, &params));
  const Tensor &sigmas = call.in(0), &background = call.in(5), &weights = call.out(4);
  Tensor ends;
  RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {rays.n_rays(), 2}, &ends));
  params.background_stride = background.rank() == 2 ? params.n_channels : 0;
  params.present = Present(background, VOLUME_RENDER_BACKGROUND);
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(rays.ClearUncovered(encoder, {&weights}));
    RETURN_IF_ERROR(encoder.Launch({"volume_render_rays", sigmas.dtype()}, Grid(rays.n_rays()),
                                   {{"sigmas", sigmas},
                                    {"t_starts", call.in(2)},
                                    {"t_ends", call.in(3)},
                                    {"spans", rays.spans()},
                                    {"weights", weights},
                                    {"opacity", call.out(1)},
                                    {"depth", call.out(2)},
                                    {"depth_median", call.out(3)},
                                    {"ends", ends},
                                    {"layout", rays.layout()},
                                    {"params", params}}));
    return encoder.Launch({"volume_render_colours", sigmas.dtype()},
                          Grid(params.n_channels, rays.n_rays()),
                          {{"rgbs", call.in(1)},
                           {"weights", weights},
                           {"background", background},
                           {"ends", ends},
                           {"spans", rays.spans()},
                           {"rgb", call.out(0)},
                           {"layout", rays.layout()},
                           {"params", params}});
  });
}
METAL_KERNEL("VolumeRender", VolumeRender);

// The gradient of one background for all rays, or of one per ray.
Status BackgroundGradient(Encoder& encoder, const MetalRays& rays, uint32_t n_channels,
                          const Tensor& behind, const Tensor& from_rgb, const Tensor& parts,
                          const Tensor& to_background) {
  if (from_rgb.num_elements() == 0) return encoder.Fill(to_background, 0);
  if (!parts.valid()) {
    return encoder.Launch("volume_render_background_grad", Grid(n_channels, rays.n_rays()),
                          {{"behind", behind},
                           {"from_rgb", from_rgb},
                           {"to_background", to_background},
                           {"n_channels", n_channels}});
  }
  const uint32_t n_rays = static_cast<uint32_t>(rays.n_rays());
  const uint32_t n_parts = static_cast<uint32_t>(parts.dim(0));
  RETURN_IF_ERROR(encoder.Launch("volume_render_background_parts", Grid(n_channels, n_parts),
                                 {{"behind", behind},
                                  {"from_rgb", from_rgb},
                                  {"parts", parts},
                                  {"n_channels", n_channels},
                                  {"n_rays", n_rays}}));
  return encoder.Launch("volume_render_background_total", Grid(n_channels),
                        {{"parts", parts},
                         {"to_background", to_background},
                         {"n_channels", n_channels},
                         {"n_parts", n_parts}});
}

Status VolumeRenderGrad(MetalCall& call) {
  MetalRays rays;
  VolumeRenderParams params;
  RETURN_IF_ERROR(Init(call, &rays, &params));
  const Tensor &from_rgb = call.in(0), &sigmas = call.in(5), &background = call.in(10);
  const int64_t n_rays = rays.n_rays();
  Tensor passed, behind, parts;
  RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, sigmas.shape(), &passed));
  RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {n_rays}, &behind));
  params.background_stride = background.rank() == 2 ? params.n_channels : 0;
  params.present = Present(background, VOLUME_RENDER_BACKGROUND) |
                   Present(from_rgb, VOLUME_RENDER_FROM_RGB) |
                   Present(call.in(1), VOLUME_RENDER_FROM_OPACITY) |
                   Present(call.in(2), VOLUME_RENDER_FROM_DEPTH) |
                   Present(call.in(3), VOLUME_RENDER_FROM_MEDIAN) |
                   Present(call.in(4), VOLUME_RENDER_FROM_WEIGHTS) | VOLUME_RENDER_COLOURS |
                   (call.Bool("t_gradients") ? VOLUME_RENDER_T_GRADIENTS : 0);
  if (background.rank() == 1 && background.num_elements() > 0) {
    const int64_t n_parts =
        (n_rays + VOLUME_RENDER_RAYS_PER_SUM - 1) / int64_t{VOLUME_RENDER_RAYS_PER_SUM};
    RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {n_parts, params.n_channels, 2}, &parts));
  }
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(
        rays.ClearUncovered(encoder, {&call.out(0), &call.out(1), &call.out(3), &call.out(4)}));
    RETURN_IF_ERROR(encoder.Launch({"volume_render_grad", sigmas.dtype()}, Grid(n_rays),
                                   {{"sigmas", sigmas},           {"rgbs", call.in(6)},
                                    {"t_starts", call.in(7)},     {"t_ends", call.in(8)},
                                    {"spans", rays.spans()},      {"background", background},
                                    {"from_rgb", from_rgb},       {"from_opacity", call.in(1)},
                                    {"from_depth", call.in(2)},   {"from_median", call.in(3)},
                                    {"from_weights", call.in(4)}, {"from_transmittance", Nothing()},
                                    {"to_sigmas", call.out(0)},   {"to_rgbs", call.out(1)},
                                    {"to_starts", call.out(3)},   {"to_ends", call.out(4)},
                                    {"passed", passed},           {"behind", behind},
                                    {"layout", rays.layout()},    {"params", params}}));
    if (background.num_elements() == 0) return Status();
    return BackgroundGradient(encoder, rays, params.n_channels, behind, from_rgb, parts,
                              call.out(2));
  });
}
METAL_KERNEL("VolumeRenderGrad", VolumeRenderGrad);

Status RenderWeights(MetalCall& call) {
  VolumeRenderParams params = {};
  params.max_thickness = MaxThickness(call);
  return MetalRays::Launch(call, call.Index("packed_info"), 0, {0, 1},
                           {"render_weights", call.in(0).dtype()},
                           {{"sigmas", call.in(0)},
                            {"t_starts", call.in(1)},
                            {"t_ends", call.in(2)},
                            {"weights", call.out(0)},
                            {"transmittance", call.out(1)},
                            {"params", params}});
}
METAL_KERNEL("RenderWeights", RenderWeights);

Status RenderWeightsGrad(MetalCall& call) {
  const Tensor& sigmas = call.in(2);
  Tensor passed;
  RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, sigmas.shape(), &passed));
  VolumeRenderParams params = {};
  params.max_thickness = MaxThickness(call);
  params.present = Present(call.in(0), VOLUME_RENDER_FROM_WEIGHTS) |
                   Present(call.in(1), VOLUME_RENDER_FROM_TRANSMITTANCE) |
                   (call.Bool("t_gradients") ? VOLUME_RENDER_T_GRADIENTS : 0);
  // The shader is told that there are no colours, and touches none of their stand-ins.
  const Nothing none;
  return MetalRays::Launch(call, call.Index("packed_info"), 2, {0, 1, 2},
                           {"volume_render_grad", sigmas.dtype()},
                           {{"sigmas", sigmas},
                            {"rgbs", none},
                            {"t_starts", call.in(3)},
                            {"t_ends", call.in(4)},
                            {"background", none},
                            {"from_rgb", none},
                            {"from_opacity", none},
                            {"from_depth", none},
                            {"from_median", none},
                            {"from_weights", call.in(0)},
                            {"from_transmittance", call.in(1)},
                            {"to_sigmas", call.out(0)},
                            {"to_rgbs", none},
                            {"to_starts", call.out(1)},
                            {"to_ends", call.out(2)},
                            {"passed", passed},
                            {"behind", none},
                            {"params", params}});
}
METAL_KERNEL("RenderWeightsGrad", RenderWeightsGrad);

}  // namespace
}  // namespace metal_ops
