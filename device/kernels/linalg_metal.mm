// MatrixTriangularSolve, Cholesky, Lu, Qr, SelfAdjointEigV2. Values are not checked: division by zero gives
// infinity or NaN, and so does the root of a matrix that is not positive definite.

#include <algorithm>
#include <array>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/linalg_params.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// [..., rows, columns]; the number of matrices, and the dimensions before the two.
struct Matrices {
  Shape batch;
  int64_t count, rows, columns;
};

Status MatricesOf(const char* op, const char* argument, const Tensor& in, bool square,
                  Matrices* found) {
  if (in.rank() < 2) {
    return InvalidArgument(op, ": ", argument, " must have at least 2 dimensions, got ",
                           ToString(in.shape()));
  }
  const auto rank = static_cast<size_t>(in.rank());
  found->batch = Dims(in.shape(), 0, rank - 2);
  found->count = NumElements(found->batch);
  found->rows = in.dim(in.rank() - 2);
  found->columns = in.dim(in.rank() - 1);
  if (square && found->rows != found->columns) {
    return InvalidArgument(op, ": ", argument, " must be square matrices, got ",
                           ToString(in.shape()));
  }
  RETURN_IF_ERROR(CheckGrid(op, "rows", found->rows));
  RETURN_IF_ERROR(CheckGrid(op, "columns", found->columns));
  return CheckGrid(op, "threads", LINALG_THREADS * found->count);
}

LinalgParams ParamsOf(const Matrices& matrices) {
  LinalgParams p = {};
  p.rows = static_cast<uint32_t>(matrices.rows);
  p.columns = static_cast<uint32_t>(matrices.columns);
  return p;
}

// Columns of a panel of reflections; rows that these are applied to together.
constexpr uint32_t kPanel = 16, kTogether = 8;
// Columns of reflections begin where a cache's lines do, of 16 floats. One line more: columns that are a power of two apart
// would push each other out of a cache.
constexpr int64_t kLine = 16;

Shape With(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// LINALG_THREADS a matrix.
Grid GroupsOf(const Matrices& matrices) {
  return Grid(LINALG_THREADS * matrices.count).InGroupsOf(LINALG_THREADS, 1, 1);
}

class TriangularSolveOp {
 public:
  static constexpr char kOp[] = "MatrixTriangularSolve";

  explicit TriangularSolveOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("lower", &lower_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adjoint", &adjoint_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor a, b, out, works;
    Matrices matrices, sides;
    Shape batch;
    RETURN_IF_ERROR(ctx->Input(0, &a));
    RETURN_IF_ERROR(ctx->Input(1, &b));
    RETURN_IF_ERROR(MatricesOf(kOp, "matrix", a, /*square=*/true, &matrices));
    RETURN_IF_ERROR(MatricesOf(kOp, "rhs", b, /*square=*/false, &sides));
    if (matrices.rows != sides.rows) {
      return InvalidArgument(kOp, ": matrix and rhs must have as many rows, got ",
                             ToString(a.shape()), " and ", ToString(b.shape()));
    }
    RETURN_IF_ERROR(BroadcastShape(kOp, matrices.batch, sides.batch, &batch));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, With(batch, sides.rows, sides.columns), &out));
    if (out.num_elements() == 0) return Status();
    // The matrix and the sides of each result.
    std::vector<std::array<uint64_t, 2>> pairs(static_cast<size_t>(NumElements(batch)));
    const Walk walks[2] = {Broadcast(matrices.batch, batch), Broadcast(sides.batch, batch)};
    for (size_t i = 0; i < pairs.size(); ++i) {
      auto rest = static_cast<int64_t>(i);
      for (size_t d = batch.size(); d-- > 0; rest /= batch[d]) {
        for (int k = 0; k < 2; ++k) {
          pairs[i][k] += static_cast<uint64_t>(rest % batch[d] * walks[k].strides[d]);
        }
      }
    }
    LinalgParams p = ParamsOf(sides);
    p.lower = lower_ ? 1 : 0;
    p.adjoint = adjoint_ ? 1 : 0;
    const auto n = static_cast<int64_t>(pairs.size());
    RETURN_IF_ERROR(CheckGrid(kOp, "matrices", n));
    const int64_t blocks = (sides.columns + LINALG_BLOCK - 1) / LINALG_BLOCK;
    // A block's elements are counted in 32 bits.
    RETURN_IF_ERROR(CheckGrid(kOp, "elements of a block", LINALG_BLOCK * sides.rows));
    RETURN_IF_ERROR(ctx->AllocateTemp(a.dtype(), {n, blocks, sides.rows, LINALG_BLOCK}, &works));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"triangular_solve", a.dtype()}, Grid(blocks, n),
                            {{"matrices", a},
                             {"sides", b},
                             {"out", out},
                             {"works", works},
                             {"batches", HostArray(pairs.data(), n)},
                             {"p", p}});
    });
  }

  bool lower_ = true, adjoint_ = false;
};
REGISTER_METAL_KERNEL(TriangularSolveOp, .Types("T", {TF_FLOAT, TF_COMPLEX64}));

class CholeskyOp {
 public:
  static constexpr char kOp[] = "Cholesky";

  explicit CholeskyOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor in, out;
    Matrices matrices;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(MatricesOf(kOp, "input", in, /*square=*/true, &matrices));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    const LinalgParams p = ParamsOf(matrices);
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"cholesky", in.dtype()}, GroupsOf(matrices),
                            {{"in", in}, {"out", out}, {"p", p}});
    });
  }
};
REGISTER_METAL_KERNEL(CholeskyOp, .Types("T", {TF_FLOAT, TF_COMPLEX64}));

class LuOp {
 public:
  static constexpr char kOp[] = "Lu";

  explicit LuOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor in, out, order;
    Matrices matrices;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(MatricesOf(kOp, "input", in, /*square=*/true, &matrices));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    Shape rows = matrices.batch;
    rows.push_back(matrices.rows);
    RETURN_IF_ERROR(ctx->AllocateOutput(1, rows, &order));
    if (out.num_elements() == 0) return Status();
    const LinalgParams p = ParamsOf(matrices);
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"lu", in.dtype(), order.dtype()}, GroupsOf(matrices),
                            {{"in", in}, {"out", out}, {"order", order}, {"p", p}});
    });
  }
};
#define LU .Types("T", {TF_FLOAT, TF_COMPLEX64})
REGISTER_METAL_KERNEL(LuOp, LU.Where("output_idx_type", TF_INT32));
REGISTER_METAL_KERNEL(LuOp, LU.Where("output_idx_type", TF_INT64));

class QrOp {
 public:
  static constexpr char kOp[] = "Qr";

  explicit QrOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("full_matrices", &full_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, q, r, works, bases, scales;
    Matrices matrices;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(MatricesOf(kOp, "input", in, /*square=*/false, &matrices));
    const int64_t rows = matrices.rows, columns = matrices.columns, count = matrices.count;
    const int64_t least = std::min(rows, columns), kept = full_ ? rows : least;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, With(matrices.batch, rows, kept), &q));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, With(matrices.batch, kept, columns), &r));
    if (q.num_elements() == 0) return Status();
    const TF_DataType type = in.dtype() == TF_COMPLEX64 ? TF_COMPLEX64 : TF_FLOAT;
    const int64_t apart = (rows + kLine - 1) / kLine * kLine + kLine;
    RETURN_IF_ERROR(CheckGrid(kOp, "rows in whole lines", apart));
    RETURN_IF_ERROR(ctx->AllocateTemp(type, {count, columns, apart}, &works));
    RETURN_IF_ERROR(ctx->AllocateTemp(type, {count, kept, apart}, &bases));
    RETURN_IF_ERROR(ctx->AllocateTemp(type, {count, least}, &scales));
    LinalgParams p = ParamsOf(matrices);
    p.kept = static_cast<uint32_t>(kept);
    p.apart = static_cast<uint32_t>(apart);
    // Threads that run at once want columns each; those that do not, data that stays in a cache.
    p.block = ThreadgroupsRunAtOnce() ? 1 : kPanel;
    p.columns_together = ThreadgroupsRunAtOnce() ? 1 : kTogether;
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"qr", in.dtype()}, GroupsOf(matrices),
                            {{"in", in},
                             {"q", q},
                             {"r", r},
                             {"works", works},
                             {"bases", bases},
                             {"scales", scales},
                             {"p", p}});
    });
  }

  bool full_ = false;
};
REGISTER_METAL_KERNEL(QrOp, .Types("T", {TF_FLOAT, TF_HALF, TF_COMPLEX64}));

class EigenOp {
 public:
  static constexpr char kOp[] = "SelfAdjointEigV2";

  explicit EigenOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("compute_v", &vectors_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, values, vectors, works, bases, turns;
    Matrices matrices;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(MatricesOf(kOp, "input", in, /*square=*/true, &matrices));
    const int64_t n = matrices.rows, count = matrices.count;
    Shape rows = matrices.batch;
    rows.push_back(n);
    RETURN_IF_ERROR(ctx->AllocateOutput(0, rows, &values));
    // TensorFlow's own has no elements where none are asked for.
    RETURN_IF_ERROR(ctx->AllocateOutput(1, vectors_ ? in.shape() : Shape{0}, &vectors));
    if (in.num_elements() == 0) return Status();
    RETURN_IF_ERROR(ctx->AllocateTemp(in.dtype(), {count, n, n}, &works));
    RETURN_IF_ERROR(ctx->AllocateTemp(in.dtype(), {count, n, n}, &bases));
    bool jacobi = ThreadgroupsRunAtOnce();
    RETURN_IF_ERROR(AskedFor("METAL_OPS_EIGEN", "jacobi", "ql", &jacobi));
    if (jacobi) {
      RETURN_IF_ERROR(ctx->AllocateTemp(in.dtype(), {count, (n + 1) / 2, 2}, &turns));
    } else {
      RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {count, EIGEN_SCRATCH * n, 2}, &turns));
    }
    LinalgParams p = ParamsOf(matrices);
    p.kept = vectors_ ? 1 : 0;
    p.block = kTogether;
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({jacobi ? "symmetric_eigen" : "symmetric_eigen_ql", in.dtype()},
                            jacobi ? GroupsOf(matrices) : Grid(count),
                            {{"in", in},
                             {"values", values},
                             {"out", vectors},
                             {"works", works},
                             {"bases", bases},
                             {jacobi ? "turns" : "scratch", Value(turns).Untyped()},
                             {"p", p}});
    });
  }

  bool vectors_ = true;
};
REGISTER_METAL_KERNEL(EigenOp, .Types("T", {TF_FLOAT, TF_COMPLEX64}));

}  // namespace
}  // namespace metal_ops
