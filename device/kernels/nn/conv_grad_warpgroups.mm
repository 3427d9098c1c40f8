// Gradients of convolutions by warpgroup products: shaders and grids.

#include "device/kernels/nn/conv_grad_warpgroups.h"

#include <algorithm>
#include <utility>

#include "device/kernels/elementwise.h"
#include "kernels/gemm/conv_warpgroups.h"

namespace metal_ops {
namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// A filter's gradient has as many parts as keep a GPU busy, each of so many points at least.
constexpr int64_t kBusy = 2 * kMultiprocessors, kLeastPoints = 256;
// Each phase of a stride has a layer of the grid.
constexpr int64_t kMostPhases = 64;

}  // namespace

// Phases of the stride are products of their own: no zeros stand between the points of d_out. Dilated windows would have
// other points of the filter in each phase.
Status RunConvInputGradByWarpgroups(KernelContext* ctx, const ConvSizes& s, const Tensor& filter,
                                    const Tensor& d_out, const Tensor& d_in, bool* ran) {
  const int64_t phases = s.stride_h * s.stride_w;
  *ran = SizeOf(filter.dtype()) == 2 && s.dilation_h == 1 && s.dilation_w == 1 &&
         phases <= kMostPhases;
  if (!*ran) return Status();
  ConvGroupsParams p = ConvGroupsOf(s);
  p.out_h = uint32_t(Pieces(s.in_h, s.stride_h));
  p.out_w = uint32_t(Pieces(s.in_w, s.stride_w));
  p.points = uint32_t(s.n) * p.out_h * p.out_w;
  p.in_h = uint32_t(s.out_h);
  p.in_w = uint32_t(s.out_w);
  p.to_h = uint32_t(s.in_h);
  p.to_w = uint32_t(s.in_w);
  std::swap(p.channels, p.columns);
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    size_t memory = 0;
    RETURN_IF_ERROR(encoder.MostThreadgroupMemory(&memory));
    RETURN_IF_ERROR(ConvGoesByWarpgroups(s, {&filter, &d_out}, memory, ran));
    if (!*ran) return Status();
    const ConvBlock& block = ChooseConvBlock(p.points, p.columns, phases, memory);
    return encoder.Launch({"conv_warpgroups_input", block.name, d_in.dtype()},
                          block.grid(p.points, p.columns, phases),
                          {{"d_out", d_out},
                           {"filter", filter},
                           {"d_in", d_in},
                           {"params", p},
                           {"memory", Value::Threadgroup(block.bytes())}});
  });
}

// In parts of the points, which are summed in order.
Status RunConvFilterGradByWarpgroups(KernelContext* ctx, const ConvSizes& s, const Tensor& input,
                                     const Tensor& d_out, const Tensor& d_filter, bool* ran) {
  *ran = SizeOf(input.dtype()) == 2;
  if (!*ran) return Status();
  Tensor parts;
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    size_t memory = 0;
    RETURN_IF_ERROR(encoder.MostThreadgroupMemory(&memory));
    RETURN_IF_ERROR(ConvGoesByWarpgroups(s, {&input, &d_out}, memory, ran));
    if (!*ran) return Status();
    ConvGroupsParams p = ConvGroupsOf(s);
    const int64_t rows = s.filter_h * s.filter_w * s.in_c, points = p.points;
    // Few blocks of the result: by the parts they are as many as wanted. Tall blocks of windows of one point took
    // 0.7 to 1.0 of the even ones' time on an H200.
    const ConvBlock& block = s.filter_h * s.filter_w == 1
                                 ? TallConvBlock(memory)
                                 : ChooseConvBlock(rows, s.out_c, kBusy, memory);
    int64_t count = kBusy / block.groups(rows, s.out_c);
    count = std::max<int64_t>(1, std::min(count, points / kLeastPoints));
    const int64_t part = Pieces(Pieces(points, count), GEMM_WARPGROUP_DEPTH) * GEMM_WARPGROUP_DEPTH;
    count = Pieces(points, part);
    p.part = uint32_t(part);
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {count, rows, s.out_c}, &parts));
    RETURN_IF_ERROR(encoder.Launch({"conv_warpgroups_filter", block.name, input.dtype()},
                                   block.grid(rows, s.out_c, count),
                                   {{"in", input},
                                    {"d_out", d_out},
                                    {"parts", parts},
                                    {"params", p},
                                    {"memory", Value::Threadgroup(block.bytes())}}));
    const auto elements = uint32_t(rows * s.out_c), n_parts = uint32_t(count);
    return encoder.Launch(
        {"conv_warpgroups_join", d_filter.dtype()}, Grid(elements / 4),
        {{"parts", parts}, {"out", d_filter}, {"elements", elements}, {"n_parts", n_parts}});
  });
}

}  // namespace metal_ops
