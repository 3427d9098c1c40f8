// Plain products by threadgroups: see gemm_groups.h.

#include "kernels/gemm/gemm_groups.h"

#include <algorithm>

#include "kernels/gemm/conv_warpgroups.h"
#include "kernels/gemm/gemm_blocks_params.h"
#include "kernels/gemm/gemm_few_params.h"
#include "kernels/gemm/gemm_plan.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// Simdgroups that keep a large GPU busy with reading.
constexpr int64_t kBusySimdgroups = 8192;

bool IsPlain(const GemmParams& p) {
  return p.filter_h == 1 && p.filter_w == 1 && p.in_h == 1 && p.out_h == 1 && p.in_w == p.out_w &&
         p.pad_top == 0 && p.pad_left == 0 && p.stride_w == 1 && p.rows <= int64_t{p.out_w} &&
         p.out_column == 1 && (p.a_x == 1 || p.a_c == 1) && (p.b_row == 1 || p.b_column == 1);
}

// A convolution whose images the shaders read 16 bytes at a time, and whose windows are 16 bits each way.
bool IsConv(const GemmParams& p, DType type) {
  constexpr uint32_t kPoints = 1 << 14;
  const int64_t piece = 16 / int64_t(SizeOf(type));
  const auto fits = [](uint32_t points, uint32_t filter, uint32_t dilation) {
    return points < kPoints && uint64_t{filter} * dilation < kPoints;
  };
  return p.a_c == 1 && p.b_column == 1 && p.out_column == 1 && p.depth % piece == 0 &&
         (p.a_image | p.a_y | p.a_x) % piece == 0 && GemmProducts(p) == 1 &&
         GemmDepth(p) <= UINT32_MAX / 2 && fits(p.in_h, p.filter_h, p.dilation_h) &&
         fits(p.in_w, p.filter_w, p.dilation_w) && uint64_t{p.out_h} * p.stride_h < kPoints &&
         uint64_t{p.out_w} * p.stride_w < kPoints;
}

bool IsFew(const GemmParams& p) { return p.rows <= GEMM_FEW_ROWS && p.a_c == 1; }

// The terms of a are lines, or the rows of them.
bool IsTurnedA(const GemmParams& p) { return p.a_c != 1; }
bool IsTurnedB(const GemmParams& p) { return p.b_column != 1; }

struct Block {
  const char* name;
  int64_t rows, columns, depth, row_tiles, column_tiles, stages, shares;

  int64_t threads() const { return rows * columns * shares / (row_tiles * column_tiles * 4); }
  int64_t groups(const GemmParams& p) const {
    return Pieces(p.rows, rows) * Pieces(p.columns, columns) * GemmProducts(p);
  }
  size_t bytes(DType type) const {
    return size_t(GEMM_BLOCK_BYTES(rows, columns, depth, stages, int64_t(SizeOf(type))));
  }
};
constexpr Block kLarge = {"large", GEMM_LARGE_BLOCK}, kMiddle = {"middle", GEMM_MIDDLE_BLOCK},
                kLow = {"low", GEMM_LOW_BLOCK}, kThin = {"thin", GEMM_THIN_BLOCK},
                kSmall = {"small", GEMM_SMALL_BLOCK}, kShort = {"short", GEMM_SHORT_BLOCK},
                kLargeFloats = {"large", GEMM_LARGE_FLOATS},
                kSmallFloats = {"small", GEMM_SMALL_FLOATS};

// Threadgroups with which a large GPU is busy: of large and of middle blocks.
constexpr int64_t kBusyLarge = 200, kBusyMiddle = 100, kBusyFloats = 132;

// The large one if it fits and there are enough to keep the device busy.
Block LargeOr(const Block& small, const Block& large, int64_t busy, const GemmParams& params,
              DType type, size_t memory) {
  return large.bytes(type) <= memory && large.groups(params) >= busy ? large : small;
}

// By the rows, and so that no part of the device is idle. Small and short ones need little memory.
Block ChooseBlock(GemmWay way, const GemmParams& params, DType type, size_t memory) {
  if (SizeOf(type) == 4) {
    return LargeOr(kSmallFloats, kLargeFloats, kBusyFloats, params, type, memory);
  }
  if (way == GemmWay::kConv) return LargeOr(kSmall, kMiddle, kBusyMiddle, params, type, memory);
  const auto fits = [&](const Block& block) { return block.bytes(type) <= memory; };
  if (params.rows <= kThin.rows) return fits(kThin) ? kThin : kShort;
  if (params.rows > kLow.rows) {
    if (fits(kLarge) && kLarge.groups(params) >= kBusyLarge) return kLarge;
    if (fits(kMiddle) && kMiddle.groups(params) >= kBusyMiddle) return kMiddle;
  }
  return fits(kLow) ? kLow : kSmall;
}

// Where four simdgroups multiply together. Small ones are asked for only.
struct Warpgroups {
  const char* name;
  int64_t rows, columns, stages, behind;

  int64_t groups(const GemmParams& p) const {
    return Pieces(p.rows, rows) * Pieces(p.columns, columns);
  }
  size_t bytes() const { return size_t(GEMM_WARPGROUP_BYTES(rows, columns, stages, 2)); }
};
constexpr Warpgroups kWide = {"wide", GEMM_WIDE_WARPGROUPS}, kEven = {"even", GEMM_EVEN_WARPGROUPS},
                     kSmallFour = {"small", GEMM_SMALL_WARPGROUPS};

// Threadgroups at once: the memory of a multiprocessor is one's, and there are 132 of them.
constexpr int64_t kBusyEven = 60;

// Wide blocks take twice as long as even ones, and are a quarter faster for their work.
const Warpgroups& ChooseWarpgroups(const GemmParams& params, size_t memory) {
  if (kWide.bytes() > memory) return kSmallFour;
  const int64_t products = GemmProducts(params);
  const int64_t wide = 8 * Pieces(kWide.groups(params) * products, kMultiprocessors);
  const int64_t even = 5 * Pieces(kEven.groups(params) * products, kMultiprocessors);
  return wide <= even ? kWide : kEven;
}

Status LaunchFew(Encoder& encoder, const GemmParams& params, const Tensor& a, const Tensor& b,
                 const GemmEpilogue* epilogue, const Tensor& out) {
  const int64_t rows = params.rows <= 2 ? params.rows : params.rows <= 4 ? 4 : GEMM_FEW_ROWS;
  const bool lines = params.b_row == 1;
  uint32_t splits = 1;
  int64_t columns = GEMM_FEW_LANES * 16 / int64_t(SizeOf(out.dtype()));
  if (lines) {
    const int64_t simdgroups =
        Pieces(params.columns, GEMM_FEW_LINES) * GemmProducts(params) * Pieces(params.rows, rows);
    while (splits < GEMM_FEW_SIMDGROUPS && simdgroups * splits < kBusySimdgroups) splits *= 2;
    columns = GEMM_FEW_SIMDGROUPS / splits * GEMM_FEW_LINES;
  }
  std::vector<Argument> arguments = {
      {"a", a}, {"b", b}, {"out", out}, {"params", params}, {"splits", splits}};
  Shader shader(lines ? "gemm_few_lines" : "gemm_few_columns", out.dtype(), rows);
  AddEpilogue(epilogue, out.dtype(), &arguments, &shader);
  constexpr int64_t kThreads = 32 * GEMM_FEW_SIMDGROUPS;
  return encoder.Launch(shader,
                        Grid(kThreads * Pieces(params.columns, columns), Pieces(params.rows, rows),
                             GemmProducts(params))
                            .InGroupsOf(kThreads, 1, 1),
                        arguments);
}

Grid BlockGrid(const Block& block, const GemmParams& params) {
  const int64_t products = GemmProducts(params);
  return Grid(block.threads() * block.groups(params) / products, 1, products)
      .InGroupsOf(block.threads(), 1, 1);
}

Status LaunchWarpgroups(Encoder& encoder, const GemmParams& params, const Tensor& a,
                        const Tensor& b, const GemmEpilogue* epilogue, const Tensor& out) {
  size_t memory = 0;
  RETURN_IF_ERROR(encoder.MostThreadgroupMemory(&memory));
  const Warpgroups& four = ChooseWarpgroups(params, memory);
  std::vector<Argument> arguments = {{"a", a},
                                     {"b", b},
                                     {"out", out},
                                     {"params", params},
                                     {"memory", Value::Threadgroup(four.bytes())}};
  Shader shader("gemm_warpgroups", four.name, out.dtype());
  AddEpilogue(epilogue, out.dtype(), &arguments, &shader);
  shader.Constant(4, IsTurnedA(params)).Constant(5, IsTurnedB(params));
  const int64_t threads = 2 * four.rows;
  return encoder.Launch(
      shader,
      Grid(threads * four.groups(params), 1, GemmProducts(params)).InGroupsOf(threads, 1, 1),
      arguments);
}

// Plain products or convolutions, whose factors are never turned.
Status LaunchBlocks(Encoder& encoder, GemmWay way, const GemmParams& params, const Tensor& a,
                    const Tensor& b, const GemmEpilogue* epilogue, const Tensor& out) {
  if (way == GemmWay::kConv) {
    bool ran = false;
    RETURN_IF_ERROR(RunConvByWarpgroups(encoder, params, a, b, epilogue, out, &ran));
    if (ran) return Status();
  }
  size_t memory = 0;
  RETURN_IF_ERROR(encoder.MostThreadgroupMemory(&memory));
  const DType type = out.dtype();
  // Small blocks keep more of a GPU busy where there are few large ones.
  if (way == GemmWay::kBlocks && SizeOf(type) == 2 && params.rows > kLow.rows &&
      HasWarpgroupUnit(memory) && kEven.groups(params) * GemmProducts(params) >= kBusyEven) {
    return LaunchWarpgroups(encoder, params, a, b, epilogue, out);
  }
  const Block block = ChooseBlock(way, params, type, memory);
  std::vector<Argument> arguments = {{"a", a},
                                     {"b", b},
                                     {"out", out},
                                     {"params", params},
                                     {"memory", Value::Threadgroup(block.bytes(type))}};
  Shader shader(way == GemmWay::kConv ? "gemm_conv" : "gemm_blocks", block.name, type);
  AddEpilogue(epilogue, type, &arguments, &shader);
  shader.Constant(4, IsTurnedA(params)).Constant(5, IsTurnedB(params));
  return encoder.Launch(shader, BlockGrid(block, params), arguments);
}

}  // namespace

bool HasWarpgroupUnit(size_t memory) { return memory >= kWide.bytes(); }

Status ChooseGemm(const GemmParams& params, DType type, bool fits, GemmWay* way) {
  const bool at_once = ThreadgroupsRunAtOnce();
  int asked = at_once ? kAskGroups : kAskThreads;
  RETURN_IF_ERROR(AskedForGemm(&asked));
  const bool groups = asked == kAskGroups || asked == kAskWarpgroups;
  *way = (groups || asked == kAskTiles) && fits ? GemmWay::kTiles : GemmWay::kThreads;
  if (!groups) return Status();
  // Where matrices of float32 are multiplied as such (an Apple GPU's simdgroups do), tiles are the better way.
  const bool by_threads = IsDiscrete() || !at_once;
  if (!IsPlain(params)) {
    if (by_threads && IsConv(params, type)) *way = GemmWay::kConv;
    return Status();
  }
  if (asked == kAskWarpgroups && SizeOf(type) == 2) {
    *way = GemmWay::kWarpgroups;
    return Status();
  }
  // The matrix unit's products go by blocks except those of single rows, which it would multiply as 16. It
  // has to be a unit that reads ahead (a discrete GPU's) for few rows.
  const bool few = IsFew(params) && (params.rows == 1 || SizeOf(type) != 2 || !IsDiscrete());
  if (few) *way = GemmWay::kFew;
  if (!few && (SizeOf(type) == 2 || by_threads)) *way = GemmWay::kBlocks;
  return Status();
}

Status RunGemmGroups(id<TF_MetalStream> stream, GemmWay way, const GemmParams& params,
                     const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue,
                     const Tensor& out) {
  return EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) {
    if (way == GemmWay::kFew) return LaunchFew(encoder, params, a, b, epilogue, out);
    if (way == GemmWay::kWarpgroups) return LaunchWarpgroups(encoder, params, a, b, epilogue, out);
    return LaunchBlocks(encoder, way, params, a, b, epilogue, out);
  });
}

Status RunGemmParts(id<TF_MetalStream> stream, const GemmParams& params, const Tensor& a,
                    const Tensor& b, const Tensor& parts) {
  return EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) {
    Shader shader(params.part_terms != 0 ? "gemm_conv_parts" : "gemm_blocks_parts", a.dtype());
    shader.Constant(4, IsTurnedA(params)).Constant(5, IsTurnedB(params));
    const Block& block = SizeOf(a.dtype()) == 4 ? kSmallFloats : kSmall;
    return encoder.Launch(shader, BlockGrid(block, params),
                          {{"a", a},
                           {"b", b},
                           {"out", parts},
                           {"params", params},
                           {"memory", Value::Threadgroup(block.bytes(a.dtype()))}});
  });
}

}  // namespace metal_ops
