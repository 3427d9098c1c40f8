// MatMul, BatchMatMul in three versions, SparseMatMul, and Conv2D.

#include <algorithm>
#include <utility>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/nn/conv_attrs.h"
#include "device/kernels/nn/conv_groups.h"
#include "device/kernels/nn/product.h"
#include "device/kernels/nn/product_params.h"
#include "kernels/gemm/gemm_groups.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// Threadgroups that keep a large GPU busy, and the shortest part of a sum that is worth one.
constexpr int64_t kBusy = 256, kLeastPart = 256;

// Rows up to which simdgroups share the terms of a sum as it is.
constexpr int64_t kSharedRows = 64;

// The best number of parts of the sums: a weight's gradient is a small product of long sums, and a
// threadgroup per tile would leave most of a GPU idle.
int64_t PartsOf(const GemmParams& params) {
  const int64_t tiles =
      Pieces(params.rows, GEMM_TILE_ROWS) * Pieces(params.columns, GEMM_TILE_COLUMNS);
  return std::max<int64_t>(1, std::min(kBusy / tiles, GemmDepth(params) / kLeastPart));
}

int64_t SplitSums(const GemmParams& params) {
  const bool plain = GemmProducts(params) == 1 && params.filter_h * params.filter_w == 1 &&
                     params.out_column == 1 && params.out_point == params.columns &&
                     params.out_h == 1 && params.in_h == 1;
  return plain ? PartsOf(params) : 1;
}

Status RunSplit(KernelContext* ctx, GemmWay way, GemmParams params, int64_t parts, const Tensor& a,
                const Tensor& b, const Tensor& out) {
  const int64_t terms = GemmDepth(params);
  const int64_t part = Pieces(Pieces(terms, parts), GEMM_TILE_DEPTH) * GEMM_TILE_DEPTH;
  parts = Pieces(terms, part);
  params.split_terms = static_cast<uint32_t>(terms);
  params.batch[0] = static_cast<uint32_t>(parts);
  if (way == GemmWay::kConv) {
    params.part_terms = static_cast<uint32_t>(part);
  } else {
    params.depth = static_cast<uint32_t>(part);
    params.a_batch[0] = part * params.a_c;
  }
  params.b_batch[0] = part * params.b_row;
  params.out_batch = params.rows * params.columns;
  Tensor sums;
  RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {parts, params.out_batch}, &sums));
  if (way == GemmWay::kBlocks || way == GemmWay::kConv) {
    RETURN_IF_ERROR(WithFloats(ctx, [&](id<TF_MetalStream> stream, const auto&) {
      return RunGemmParts(stream, params, a, b, sums);
    }));
  }
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    if (way == GemmWay::kTiles) {
      const Grid grid(Pieces(params.rows, GEMM_TILE_ROWS) * GEMM_TILE_THREADS,
                      Pieces(params.columns, GEMM_TILE_COLUMNS), parts);
      RETURN_IF_ERROR(encoder.Launch({"gemm_tiles_parts", out.dtype()}, grid,
                                     {{"a", a}, {"b", b}, {"out", sums}, {"params", params}}));
    }
    return encoder.Launch({"gemm_sum_parts", out.dtype()}, Grid(params.out_batch),
                          {{"parts", sums}, {"out", out}, {"params", params}});
  });
}

Status RunMatMul(KernelContext* ctx, const char* op, bool transpose_a, bool transpose_b,
                 uint32_t conjugated = 0) {
  Tensor a, b, out;
  const DType dtype = ctx->output_dtype(0);
  RETURN_IF_ERROR(InputAs(ctx, op, 0, dtype, &a));
  RETURN_IF_ERROR(InputAs(ctx, op, 1, dtype, &b));
  ArgShapes shapes(op);
  const ArgShape a_shape(a.shape()), b_shape(b.shape());
  ArgShape product;
  CheckMatMul(&shapes, a_shape, b_shape, transpose_a, transpose_b, &product);
  RETURN_IF_ERROR(ToStatus(shapes));
  RETURN_IF_ERROR(ctx->AllocateOutput(0, product.dims, &out));
  return EncodeProduct(ctx, op, ToMatMulSizes(a_shape, b_shape, transpose_a, product), transpose_a,
                       transpose_b, a, b, out, conjugated);
}

class MatMulOp {
 public:
  static constexpr char kOp[] = "MatMul";

  explicit MatMulOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_b_));
  }

  void Compute(KernelContext* ctx) {
    OP_REQUIRES_OK(ctx, RunMatMul(ctx, kOp, transpose_a_, transpose_b_));
  }

 private:
  bool transpose_a_ = false, transpose_b_ = false;
};
// The types that TensorFlow has CPU kernels for.
#define FACTORS .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT32, TF_INT64, TF_COMPLEX64})
REGISTER_METAL_KERNEL(MatMulOp, FACTORS);

template <typename Op>
class BatchMatMulOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit BatchMatMulOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_x", &adj_x_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_y", &adj_y_));
  }

  void Compute(KernelContext* ctx) {
    const uint32_t conjugated = (adj_x_ ? 1 : 0) | (adj_y_ ? 2 : 0);
    OP_REQUIRES_OK(ctx, RunMatMul(ctx, kOp, adj_x_, adj_y_, conjugated));
  }

 private:
  bool adj_x_ = false, adj_y_ = false;
};
struct BatchMatMul {
  static constexpr char kOp[] = "BatchMatMul";
};
struct BatchMatMulV2 {
  static constexpr char kOp[] = "BatchMatMulV2";
};
struct BatchMatMulV3 {
  static constexpr char kOp[] = "BatchMatMulV3";
};
REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMul>, FACTORS);
REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMulV2>, FACTORS);
REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMulV2>, .Types("T", {TF_INT16}));
// Bytes are converted first.
#define PRODUCT_OF(a, b, out)                         \
  REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMulV3>, \
                        .Types("Ta", {a}).Where("Tb", b).Where("Tout", out))
PRODUCT_OF(TF_FLOAT, TF_FLOAT, TF_FLOAT);
PRODUCT_OF(TF_BFLOAT16, TF_BFLOAT16, TF_BFLOAT16);
PRODUCT_OF(TF_INT16, TF_INT16, TF_INT16);
PRODUCT_OF(TF_INT32, TF_INT32, TF_INT32);
PRODUCT_OF(TF_INT64, TF_INT64, TF_INT64);
PRODUCT_OF(TF_COMPLEX64, TF_COMPLEX64, TF_COMPLEX64);
PRODUCT_OF(TF_INT8, TF_INT8, TF_INT32);
PRODUCT_OF(TF_INT8, TF_UINT8, TF_INT32);
PRODUCT_OF(TF_UINT8, TF_INT8, TF_INT32);
PRODUCT_OF(TF_UINT8, TF_UINT8, TF_INT32);
PRODUCT_OF(TF_INT8, TF_BFLOAT16, TF_BFLOAT16);
PRODUCT_OF(TF_UINT8, TF_BFLOAT16, TF_BFLOAT16);
PRODUCT_OF(TF_BFLOAT16, TF_INT8, TF_BFLOAT16);
PRODUCT_OF(TF_BFLOAT16, TF_UINT8, TF_BFLOAT16);
#undef PRODUCT_OF

// For matrices with many zeros, which are multiplied as all others are. One of bfloat16 is made
// float32.
class SparseMatMulOp {
 public:
  static constexpr char kOp[] = "SparseMatMul";

  explicit SparseMatMulOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_b_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor a, b, out;
    RETURN_IF_ERROR(InputAs(ctx, kOp, 0, DType::kFloat, &a));
    RETURN_IF_ERROR(InputAs(ctx, kOp, 1, DType::kFloat, &b));
    ArgShapes shapes(kOp);
    const ArgShape a_shape(a.shape()), b_shape(b.shape());
    ArgShape product;
    CheckMatMul(&shapes, a_shape, b_shape, transpose_a_, transpose_b_, &product);
    RETURN_IF_ERROR(ToStatus(shapes));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, product.dims, &out));
    return EncodeProduct(ctx, kOp, ToMatMulSizes(a_shape, b_shape, transpose_a_, product),
                         transpose_a_, transpose_b_, a, b, out);
  }

  bool transpose_a_ = false, transpose_b_ = false;
};
REGISTER_METAL_KERNEL(SparseMatMulOp, .Types("Ta", {TF_FLOAT, TF_BFLOAT16}).Where("Tb", TF_FLOAT));
REGISTER_METAL_KERNEL(SparseMatMulOp,
                      .Types("Ta", {TF_FLOAT, TF_BFLOAT16}).Where("Tb", TF_BFLOAT16));

class Conv2DOp {
 public:
  static constexpr char kOp[] = "Conv2D";

  explicit Conv2DOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
    attrs_.groups = nullptr;
  }

  void Compute(KernelContext* ctx) {
    Tensor input, filter, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &filter));
    ArgShapes shapes(kOp);
    ConvSizes sizes;
    CheckConv(&shapes, attrs_, ArgShape(input.shape()), ArgShape(filter.shape()), &sizes);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, sizes.OutputShape(attrs_.nchw), &out));
    if (out.num_elements() == 0) return;
    int64_t groups;
    OP_REQUIRES_OK(ctx, SplitGroups(kOp, filter.shape()[2], &sizes, &groups));
    const GemmParams params = PlanConv(&shapes, sizes, attrs_.nchw);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const size_t c = attrs_.dim_c();
    OP_REQUIRES_OK(ctx, RunGroups(ctx, kOp, groups, {input, c}, {filter, 3}, {out, c},
                                  [&](const Tensor& a, const Tensor& b, const Tensor& part) {
                                    return RunProduct(ctx, params, a, b, part);
                                  }));
  }

 private:
  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(Conv2DOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT32}));

}  // namespace

Status RunOtherProduct(KernelContext* ctx, GemmParams params, const Tensor& a, const Tensor& b,
                       const Tensor& out, uint32_t conjugated) {
  // The sums of many columns are more than a GPU's thread has registers.
  const bool few = ThreadgroupsRunAtOnce() || params.columns <= 2 * PRODUCT_FEW_COLUMNS;
  const int64_t tile = few ? PRODUCT_FEW_COLUMNS : PRODUCT_COLUMNS;
  // Columns that are no neighbours, or less than a tile, are made so.
  const bool packs = !few && (params.b_column != 1 || params.columns < PRODUCT_COLUMNS);
  const int64_t terms = GemmDepth(params), columns = params.columns;
  Tensor panel;
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    if (packs && terms > 0) {
      const int64_t row = std::max<int64_t>(columns, PRODUCT_COLUMNS);
      const int64_t matrices = b.num_elements() / (terms * columns);
      RETURN_IF_ERROR(ctx->AllocateTemp(out.dtype(), {matrices, terms, row}, &panel));
      RETURN_IF_ERROR(EncodeCopy(encoder, "MatMul", {matrices, terms, columns}, b,
                                 {{terms * columns, params.b_row, params.b_column}}, panel,
                                 {{terms * row, row, 1}}));
      for (int64_t& stride : params.b_batch) stride = stride / columns * row;
      params.b_row = row;
      params.b_column = 1;
    }
    return encoder.Launch(
        {few ? "product_few" : "product", Unsigned(out.dtype())},
        Grid(Pieces(params.rows, PRODUCT_ROWS), Pieces(columns, tile), GemmProducts(params)),
        {{"a", Value(a).Untyped()},
         {"b", Value(packs && terms > 0 ? panel : b).Untyped()},
         {"out", Value(out).Untyped()},
         {"params", params},
         {"conjugated", conjugated}});
  });
}

namespace {

bool IsDots(const GemmParams& params, DType dtype) {
  const int64_t most = IsFloat(dtype) ? PRODUCT_DOT_FLOATS : PRODUCT_DOT_COLUMNS;
  return !ThreadgroupsRunAtOnce() && params.columns <= most && params.a_c == 1 &&
         params.depth >= PRODUCT_DOT_LANES;
}

// Few columns by many rows, which are neighbours in memory: better the other way round.
bool IsTurned(const GemmParams& params, DType dtype) {
  return !IsFloat(dtype) && !ThreadgroupsRunAtOnce() && params.columns <= PRODUCT_DOT_COLUMNS &&
         params.a_x == 1 && params.rows >= PRODUCT_COLUMNS;
}
GemmParams Turned(const GemmParams& params) {
  GemmParams turned = params;
  turned.rows = turned.in_w = turned.out_w = params.columns;
  turned.columns = static_cast<uint32_t>(params.rows);
  turned.a_x = params.b_column;
  turned.a_c = params.b_row;
  turned.b_row = params.a_c;
  turned.b_column = params.a_x;
  std::swap(turned.out_point, turned.out_column);
  std::swap(turned.a_batch, turned.b_batch);
  return turned;
}

// A plain product of few columns, which are made lines where they are none.
Status RunDots(KernelContext* ctx, GemmParams params, const Tensor& a, const Tensor& b,
               const Tensor& out, uint32_t conjugated) {
  const int64_t terms = params.depth, columns = params.columns;
  const int64_t matrices = b.num_elements() / (terms * columns);
  const bool packs = params.b_row != 1;
  Tensor lines;
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    if (packs) {
      RETURN_IF_ERROR(ctx->AllocateTemp(b.dtype(), {matrices, columns, terms}, &lines));
      RETURN_IF_ERROR(EncodeCopy(encoder, "MatMul", {matrices, columns, terms}, b,
                                 {{terms * columns, params.b_column, params.b_row}}, lines,
                                 {{terms * columns, terms, 1}}));
      params.b_row = 1;
      params.b_column = terms;
    }
    return encoder.Launch({"product_dots", Unsigned(out.dtype())},
                          Grid(params.rows, GemmProducts(params)),
                          {{"a", Value(a).Untyped()},
                           {"b", Value(packs ? lines : b).Untyped()},
                           {"out", Value(out).Untyped()},
                           {"params", params},
                           {"conjugated", conjugated}});
  });
}

}  // namespace

Status RunLongConv(KernelContext* ctx, const GemmParams& params, const Tensor& a, const Tensor& b,
                   const Tensor& out) {
  GemmWay way;
  RETURN_IF_ERROR(ChooseGemm(params, out.dtype(), /*fits=*/true, &way));
  const int64_t parts = PartsOf(params);
  if (way != GemmWay::kConv || parts <= 1) return RunProduct(ctx, params, a, b, out);
  return RunSplit(ctx, way, params, parts, a, b, out);
}

// Zeros, which sums without terms leave, come out of the shaders like any other result.
Status EncodeProduct(KernelContext* ctx, const char* op, const MatMulSizes& sizes, bool transpose_a,
                     bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& out,
                     uint32_t conjugated) {
  if (out.num_elements() == 0) return Status();
  ArgShapes shapes(op);
  const GemmParams params = PlanMatMul(&shapes, sizes, transpose_a, transpose_b);
  RETURN_IF_ERROR(ToStatus(shapes));
  if (IsDots(params, out.dtype())) return RunDots(ctx, params, a, b, out, conjugated);
  if (IsTurned(params, out.dtype())) {
    return RunOtherProduct(ctx, Turned(params), b, a, out, (conjugated & 1) << 1 | conjugated >> 1);
  }
  if (!IsFloat(out.dtype())) return RunOtherProduct(ctx, params, a, b, out, conjugated);
  const int64_t parts = SplitSums(params);
  GemmWay way;
  RETURN_IF_ERROR(ChooseGemm(params, out.dtype(), /*fits=*/true, &way));
  // For so few rows, simdgroups share the sums as they are; threads, which multiply float32, do
  // not.
  const bool shared = params.rows <= kSharedRows && out.dtype() != DType::kFloat;
  const bool splits = way == GemmWay::kTiles || (way == GemmWay::kBlocks && !shared);
  if (splits && parts > 1) return RunSplit(ctx, way, params, parts, a, b, out);
  return RunProduct(ctx, params, a, b, out);
}

}  // namespace metal_ops
