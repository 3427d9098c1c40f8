// Convolutions by warpgroup products: the choice of shader and grid.

#include "kernels/gemm/conv_warpgroups.h"

#include <algorithm>

#include "kernels/gemm/conv_warpgroups_params.h"
#include "kernels/gemm/gemm_plan.h"
#include "kernels/runtime/metal_buffer.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

Status AreAsked(size_t memory, bool* asked) {
  int way = ThreadgroupsRunAtOnce() ? kAskGroups : kAskThreads;
  RETURN_IF_ERROR(AskedForGemm(&way));
  *asked = way == kAskWarpgroups || (way == kAskGroups && HasWarpgroupUnit(memory));
  return Status();
}

// Windows are of 16 bits each way.
bool FitWindows(int64_t in, int64_t out, int64_t filter, int64_t stride, int64_t dilation) {
  constexpr int64_t kPoints = 1 << 14;
  return in < kPoints && out * stride < kPoints && filter * dilation < kPoints;
}

constexpr ConvBlock kEven = {"even", CONV_EVEN_WARPGROUPS}, kTall = {"tall", CONV_TALL_WARPGROUPS},
                    kSmall = {"small", CONV_SMALL_WARPGROUPS};

}  // namespace

int64_t ConvBlock::groups(int64_t product_rows, int64_t product_columns) const {
  return Pieces(product_rows, rows) * Pieces(product_columns, columns);
}

size_t ConvBlock::bytes() const { return size_t(CONV_WARPGROUP_BYTES(rows, columns, stages)); }

Grid ConvBlock::grid(int64_t product_rows, int64_t product_columns, int64_t products) const {
  const int64_t threads = 2 * rows;
  return Grid(threads * groups(product_rows, product_columns), 1, products)
      .InGroupsOf(threads, 1, 1);
}

// By the bytes that the busiest multiprocessor brings into its memory, which are in each step as 4 to 3.
const ConvBlock& ChooseConvBlock(int64_t rows, int64_t columns, int64_t products, size_t memory) {
  if (std::max(kEven.bytes(), kTall.bytes()) > memory) return kSmall;
  const int64_t even = 4 * Pieces(kEven.groups(rows, columns) * products, kMultiprocessors);
  const int64_t tall = 3 * Pieces(kTall.groups(rows, columns) * products, kMultiprocessors);
  return even <= tall ? kEven : kTall;
}

const ConvBlock& TallConvBlock(size_t memory) { return kTall.bytes() > memory ? kSmall : kTall; }

ConvGroupsParams ConvGroupsOf(const ConvSizes& s) {
  ConvGroupsParams p = {};
  p.points = uint32_t(s.n * s.out_h * s.out_w);
  p.out_h = uint32_t(s.out_h);
  p.out_w = uint32_t(s.out_w);
  p.in_h = uint32_t(s.in_h);
  p.in_w = uint32_t(s.in_w);
  p.channels = uint32_t(s.in_c);
  p.columns = uint32_t(s.out_c);
  p.filter_h = uint32_t(s.filter_h);
  p.filter_w = uint32_t(s.filter_w);
  p.stride_h = uint32_t(s.stride_h);
  p.stride_w = uint32_t(s.stride_w);
  p.dilation_h = uint32_t(s.dilation_h);
  p.dilation_w = uint32_t(s.dilation_w);
  p.pad_top = int32_t(s.pad_top);
  p.pad_left = int32_t(s.pad_left);
  return p;
}

// Shaders count elements in 32 bits.
Status ConvGoesByWarpgroups(const ConvSizes& s, std::initializer_list<const Tensor*> read,
                            size_t memory, bool* goes) {
  RETURN_IF_ERROR(AreAsked(memory, goes));
  if (!*goes) return Status();
  for (const Tensor* tensor : read) {
    BufferRef ref;
    RETURN_IF_ERROR(ResolveBuffer(*tensor, &ref));
    *goes = *goes && SizeOf(tensor->dtype()) == 2 && ref.offset % 16 == 0;
  }
  for (const int64_t elements : {s.n * s.in_h * s.in_w * s.in_c, s.n * s.out_h * s.out_w * s.out_c,
                                 s.filter_h * s.filter_w * s.in_c * s.out_c}) {
    *goes = *goes && elements <= INT32_MAX;
  }
  *goes = *goes && s.in_c % 8 == 0 && s.out_c % 8 == 0 &&
          FitWindows(s.in_h, s.out_h, s.filter_h, s.stride_h, s.dilation_h) &&
          FitWindows(s.in_w, s.out_w, s.filter_w, s.stride_w, s.dilation_w);
  return Status();
}

Status RunConvByWarpgroups(Encoder& encoder, const GemmParams& p, const Tensor& a, const Tensor& b,
                           const GemmEpilogue* epilogue, const Tensor& out, bool* ran) {
  *ran = p.a_c == 1 && p.a_x == p.depth && p.a_y == p.in_w * p.a_x && p.a_image == p.in_h * p.a_y &&
         p.b_column == 1 && p.b_row == p.columns && p.out_column == 1 && p.out_point == p.columns &&
         p.out_image == int64_t{p.out_h} * p.out_w * p.columns && GemmProducts(p) == 1;
  if (!*ran) return Status();
  ConvSizes s;
  s.n = p.rows / (int64_t{p.out_h} * p.out_w);
  s.in_h = p.in_h, s.in_w = p.in_w, s.in_c = p.depth;
  s.filter_h = p.filter_h, s.filter_w = p.filter_w, s.out_c = p.columns;
  s.out_h = p.out_h, s.out_w = p.out_w;
  s.stride_h = p.stride_h, s.stride_w = p.stride_w;
  s.dilation_h = p.dilation_h, s.dilation_w = p.dilation_w;
  s.pad_top = p.pad_top, s.pad_left = p.pad_left;
  size_t memory = 0;
  RETURN_IF_ERROR(encoder.MostThreadgroupMemory(&memory));
  RETURN_IF_ERROR(ConvGoesByWarpgroups(s, {&a, &b}, memory, ran));
  if (!*ran) return Status();
  const ConvBlock& block = ChooseConvBlock(p.rows, p.columns, /*products=*/1, memory);
  const ConvGroupsParams params = ConvGroupsOf(s);
  std::vector<Argument> arguments = {{"a", a},
                                     {"b", b},
                                     {"out", out},
                                     {"params", params},
                                     {"memory", Value::Threadgroup(block.bytes())}};
  Shader shader("conv_warpgroups", block.name, out.dtype());
  AddEpilogue(epilogue, out.dtype(), &arguments, &shader);
  return encoder.Launch(shader, block.grid(p.rows, p.columns, /*products=*/1), arguments);
}

}  // namespace metal_ops
