// MatMul, BatchMatMul in three versions, SparseMatMul, and Conv2D.

#include <algorithm>
#include <utility>

#include "device/kernels/nn/conv_attrs.h"
#include "device/kernels/nn/conv_groups.h"
#include "device/kernels/nn/product.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// Threadgroups that keep a large GPU busy, and the shortest part of a sum that is worth one.
constexpr int64_t kBusy = 256, kLeastPart = 256;

// In how many parts the sums are best taken: a weight's gradient is a small product of long sums,
// and a threadgroup a tile would leave most of a GPU idle.
int64_t SplitSums(const GemmParams& params) {
  const bool plain = GemmProducts(params) == 1 && params.filter_h * params.filter_w == 1 &&
                     params.out_column == 1 && params.out_point == params.columns &&
                     params.out_h == 1 && params.in_h == 1;
  const int64_t tiles =
      Pieces(params.rows, GEMM_TILE_ROWS) * Pieces(params.columns, GEMM_TILE_COLUMNS);
  if (!plain || tiles >= kBusy) return 1;
  return std::max<int64_t>(1, std::min(kBusy / tiles, GemmDepth(params) / kLeastPart));
}

Status RunSplit(KernelContext* ctx, GemmParams params, int64_t parts, const Tensor& a,
                const Tensor& b, const Tensor& out) {
  const int64_t terms = GemmDepth(params);
  const int64_t part = Pieces(Pieces(terms, parts), GEMM_TILE_DEPTH) * GEMM_TILE_DEPTH;
  parts = Pieces(terms, part);
  params.split_terms = static_cast<uint32_t>(terms);
  params.depth = static_cast<uint32_t>(part);
  params.batch[0] = static_cast<uint32_t>(parts);
  params.a_batch[0] = part * params.a_c;
  params.b_batch[0] = part * params.b_row;
  params.out_batch = params.rows * params.columns;
  Tensor sums;
  RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {parts, params.out_batch}, &sums));
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    const Grid grid(Pieces(params.rows, GEMM_TILE_ROWS) * GEMM_TILE_THREADS,
                    Pieces(params.columns, GEMM_TILE_COLUMNS), parts);
    RETURN_IF_ERROR(encoder.Launch({"gemm_tiles_parts", out.dtype()}, grid,
                                   {{"a", a}, {"b", b}, {"out", sums}, {"params", params}}));
    return encoder.Launch({"gemm_sum_parts", out.dtype()}, Grid(params.out_batch),
                          {{"parts", sums}, {"out", out}, {"params", params}});
  });
}

Status RunMatMul(KernelContext* ctx, const char* op, bool transpose_a, bool transpose_b) {
  Tensor a, b, out;
  RETURN_IF_ERROR(ctx->Input(0, &a));
  RETURN_IF_ERROR(ctx->Input(1, &b));
  ArgShapes shapes(op);
  const ArgShape a_shape(a.shape()), b_shape(b.shape());
  ArgShape product;
  CheckMatMul(&shapes, a_shape, b_shape, transpose_a, transpose_b, &product);
  RETURN_IF_ERROR(ToStatus(shapes));
  RETURN_IF_ERROR(ctx->AllocateOutput(0, product.dims, &out));
  return EncodeProduct(ctx, op, ToMatMulSizes(a_shape, b_shape, transpose_a, product), transpose_a,
                       transpose_b, a, b, out);
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
REGISTER_METAL_KERNEL(MatMulOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

template <typename Op>
class BatchMatMulOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit BatchMatMulOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_x", &adj_x_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_y", &adj_y_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, RunMatMul(ctx, kOp, adj_x_, adj_y_)); }

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
REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMul>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMulV2>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
#define OF_ONE_TYPE(type) .Types("Ta", {type}).Where("Tb", type).Where("Tout", type)
REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMulV3>, OF_ONE_TYPE(TF_FLOAT));
REGISTER_METAL_KERNEL(BatchMatMulOp<BatchMatMulV3>, OF_ONE_TYPE(TF_BFLOAT16));

// Of matrices with many zeros, which are multiplied as all others are. One of bfloat16 is made float32.
class SparseMatMulOp {
 public:
  static constexpr char kOp[] = "SparseMatMul";

  explicit SparseMatMulOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_b_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Floats(KernelContext* ctx, int input, Tensor* floats) {
    Tensor in;
    RETURN_IF_ERROR(ctx->Input(input, &in));
    if (in.dtype() == TF_FLOAT) {
      *floats = std::move(in);
      return Status();
    }
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, in.shape(), floats));
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", in.num_elements()));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"cast", in.dtype(), floats->dtype()}, Grid(in.num_elements()),
                            {{"x", in}, {"out", *floats}});
    });
  }

  Status Run(KernelContext* ctx) const {
    Tensor a, b, out;
    RETURN_IF_ERROR(Floats(ctx, 0, &a));
    RETURN_IF_ERROR(Floats(ctx, 1, &b));
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
REGISTER_METAL_KERNEL(Conv2DOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace

// Zeros, which sums without terms leave, come out of the shaders like any other result.
Status EncodeProduct(KernelContext* ctx, const char* op, const MatMulSizes& sizes, bool transpose_a,
                     bool transpose_b, const Tensor& a, const Tensor& b, const Tensor& out) {
  if (out.num_elements() == 0) return Status();
  ArgShapes shapes(op);
  const GemmParams params = PlanMatMul(&shapes, sizes, transpose_a, transpose_b);
  RETURN_IF_ERROR(ToStatus(shapes));
  const int64_t parts = SplitSums(params);
  bool tiles;
  RETURN_IF_ERROR(ChooseTiles(/*fits=*/true, &tiles));
  if (tiles && parts > 1) return RunSplit(ctx, params, parts, a, b, out);
  return RunProduct(ctx, params, a, b, out);
}

}  // namespace metal_ops
