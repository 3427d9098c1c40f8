// Diagonals of matrices: MatrixDiag, MatrixDiagPart, MatrixSetDiag, three versions of each; Diag, DiagPart.

#include <algorithm>
#include <string>
#include <vector>

#include "device/kernels/layout.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// One diagonal of matrices and its line among the diagonals of an op.
struct Diagonal {
  int64_t size;
  int64_t matrix;  // where it begins in a matrix of rows and columns
  int64_t line;    // and in the lines
};

// The diagonals k[1] down to k[0] of matrices, as lines of `longest` elements: short ones lie left or
// right in them.
struct Diagonals {
  int64_t rows, columns, longest;
  std::vector<Diagonal> all;

  Status Find(const char* op, const Shape& k_given, const std::string& align);
  // The shape of the lines of as many matrices as `batch` has.
  Shape LinesShape(Shape batch) const;
  // Copies diagonals of `count` matrices to their lines, or back.
  Status Copy(Encoder& encoder, const char* op, int64_t count, bool to_lines, const Tensor& in,
              const Tensor& out) const;
};

Status Diagonals::Find(const char* op, const Shape& k_given, const std::string& align) {
  const int64_t low = k_given.empty() ? 0 : k_given[0];
  const int64_t high = k_given.empty() ? 0 : k_given.back();
  if (k_given.empty() || k_given.size() > 2) {
    return InvalidArgument(op, ": diag_index must have only one or two elements, received ",
                           k_given.size(), " elements.");
  }
  if (low > high) {
    return InvalidArgument(op, ": lower_diag_index must not be larger than upper_diag_index: ", low,
                           " > ", high);
  }
  longest = 0;
  for (int64_t k = high; k >= low; --k) {
    const int64_t size = std::max<int64_t>(
        std::min(rows + std::min<int64_t>(k, 0), columns - std::max<int64_t>(k, 0)), 0);
    longest = std::max(longest, size);
    all.push_back({size, k >= 0 ? k : -k * columns, 0});
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const bool right = high - static_cast<int64_t>(i) >= 0
                           ? align.compare(0, 5, "RIGHT") == 0
                           : align.size() > 5 && align.compare(align.size() - 5, 5, "RIGHT") == 0;
    all[i].line = static_cast<int64_t>(i) * longest + (right ? longest - all[i].size : 0);
  }
  return Status();
}

Shape Diagonals::LinesShape(Shape batch) const {
  if (all.size() > 1) batch.push_back(static_cast<int64_t>(all.size()));
  batch.push_back(longest);
  return batch;
}

Status Diagonals::Copy(Encoder& encoder, const char* op, int64_t count, bool to_lines,
                       const Tensor& in, const Tensor& out) const {
  const int64_t line_size = longest * static_cast<int64_t>(all.size());
  for (const Diagonal& diagonal : all) {
    const Walk matrix = {{rows * columns, columns + 1}, diagonal.matrix};
    const Walk line = {{line_size, 1}, diagonal.line};
    RETURN_IF_ERROR(EncodeCopy(encoder, op, {count, diagonal.size}, in, to_lines ? matrix : line,
                               out, to_lines ? line : matrix));
  }
  return Status();
}

// Attributes and inputs of the versions: the first has only the main diagonal, the second no
// alignment but to the left.
template <typename Op>
class DiagonalAttrs {
 public:
  Status Get(KernelConstruction* ctx) {
    if (Op::kVersion < 3) return Status();
    return ctx->GetAttr("align", &align_);
  }
  Status K(KernelContext* ctx, int input, Shape* k) const {
    *k = {0};
    if (Op::kVersion == 1) return Status();
    Tensor tensor;
    RETURN_IF_ERROR(ctx->Input(input, &tensor));
    if (tensor.rank() > 1) {
      return InvalidArgument(Op::kOp, ": diag_index must be a scalar or vector, received shape: ",
                             ToString(tensor.shape()));
    }
    return Indices(Op::kOp, "k", tensor, k);
  }
  const std::string& align() const { return align_; }

 private:
  std::string align_ = "LEFT_LEFT";
};

// The value that fills the rest, input `i` in host memory; zero without.
Status Filling(KernelContext* ctx, const char* op, int i, bool given, uint64_t* bits) {
  bits[0] = bits[1] = 0;
  if (!given) return Status();
  Tensor value;
  RETURN_IF_ERROR(ctx->Input(i, &value));
  if (value.num_elements() != 1) {
    return InvalidArgument(op, ": padding_value must be a scalar, got ", ToString(value.shape()));
  }
  std::copy_n(value.host<uint8_t>(), value.element_bytes(), reinterpret_cast<uint8_t*>(bits));
  return Status();
}

// But the last `dims` dimensions.
Shape BatchOf(const Shape& shape, size_t dims) { return Dims(shape, 0, shape.size() - dims); }

// The diagonals of the matrices in `in`.
Status DiagonalsOf(const char* op, const Tensor& in, const Shape& k, const std::string& align,
                   Diagonals* diagonals) {
  if (in.rank() < 2) {
    return InvalidArgument(
        op, ": input must be at least 2-dim, received shape: ", ToString(in.shape()));
  }
  diagonals->rows = in.dim(in.rank() - 2);
  diagonals->columns = in.dim(in.rank() - 1);
  const int64_t rows = diagonals->rows, columns = diagonals->columns;
  for (size_t i = 0; i < k.size() && k.size() <= 2; ++i) {
    if (k[i] > -std::max<int64_t>(rows, 1) && k[i] < std::max<int64_t>(columns, 1)) continue;
    return InvalidArgument(op, i == 0 ? ": lower" : ": upper",
                           "_diag_index is out of bound: ", k[i], " It must be between ", -rows,
                           " and ", columns);
  }
  return diagonals->Find(op, k, align);
}

template <typename Op>
class DiagPartOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit DiagPartOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, attrs_.Get(ctx)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Go(ctx)); }

 private:
  Status Go(KernelContext* ctx) const {
    Tensor in, out;
    Shape k;
    Diagonals diagonals;
    uint64_t filling[2];
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(attrs_.K(ctx, 1, &k));
    RETURN_IF_ERROR(Filling(ctx, kOp, 2, Op::kVersion > 1, filling));
    RETURN_IF_ERROR(DiagonalsOf(kOp, in, k, attrs_.align(), &diagonals));
    const Shape batch = BatchOf(in.shape(), 2);
    RETURN_IF_ERROR(ctx->AllocateOutput(0, diagonals.LinesShape(batch), &out));
    if (out.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (diagonals.all.size() > 1) {
        RETURN_IF_ERROR(EncodeSpread(encoder, kOp, HostArray(filling, 2), {}, out));
      }
      return diagonals.Copy(encoder, kOp, NumElements(batch), /*to_lines=*/true, in, out);
    });
  }

  DiagonalAttrs<Op> attrs_;
};

template <typename Op>
class DiagOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit DiagOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, attrs_.Get(ctx)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Go(ctx)); }

 private:
  Status Go(KernelContext* ctx) const {
    Tensor in, out;
    Shape k;
    Diagonals diagonals;
    uint64_t filling[2];
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(attrs_.K(ctx, 1, &k));
    RETURN_IF_ERROR(Filling(ctx, kOp, 4, Op::kVersion > 1, filling));
    const bool band = k.size() == 2 && k[0] != k[1];
    const size_t line_dims = band ? 2 : 1;
    if (in.rank() == 0)
      return InvalidArgument(kOp, ": diagonal must be at least 1-dim, received shape: []");
    if (in.shape().size() < line_dims || k.empty() || k.size() > 2 ||
        (band && in.dim(in.rank() - 2) != k[1] - k[0] + 1)) {
      return InvalidArgument(kOp, ": diagonal ", ToString(in.shape()), " does not fit k ",
                             ToString(k));
    }
    const int64_t width = in.dim(in.rank() - 1);
    const int64_t least_rows = width - std::min<int64_t>(k.back(), 0);
    const int64_t least_columns = width + std::max<int64_t>(k[0], 0);
    int64_t &rows = diagonals.rows, &columns = diagonals.columns;
    rows = columns = -1;
    if (Op::kVersion > 1) {
      Tensor row_tensor, column_tensor;
      RETURN_IF_ERROR(ctx->Input(2, &row_tensor));
      RETURN_IF_ERROR(ctx->Input(3, &column_tensor));
      if (row_tensor.num_elements() != 1 || column_tensor.num_elements() != 1) {
        return InvalidArgument(kOp, ": num_rows and num_cols must be scalars, got ",
                               ToString(row_tensor.shape()), " and ",
                               ToString(column_tensor.shape()));
      }
      rows = *row_tensor.host<int32_t>();
      columns = *column_tensor.host<int32_t>();
    }
    if (rows == -1 && columns == -1) {
      rows = columns = std::max(least_rows, least_columns);
    } else if (rows == -1) {
      rows = least_rows;
    } else if (columns == -1) {
      columns = least_columns;
    }
    if (rows < 0 || columns < 0) {
      return InvalidArgument(kOp, ": num_rows and num_cols must not be negative, got ", rows,
                             " and ", columns);
    }
    RETURN_IF_ERROR(diagonals.Find(kOp, k, attrs_.align()));
    if (diagonals.longest != width) {
      return InvalidArgument(kOp, ": the longest diagonal of a matrix of ", rows, " x ", columns,
                             " has ", diagonals.longest, " elements, diagonal has ", width);
    }
    Shape shape = BatchOf(in.shape(), line_dims);
    const int64_t count = NumElements(shape);
    shape.push_back(rows);
    shape.push_back(columns);
    RETURN_IF_ERROR(CheckShape(kOp, "the output's shape", shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeSpread(encoder, kOp, HostArray(filling, 2), {}, out));
      return diagonals.Copy(encoder, kOp, count, /*to_lines=*/false, in, out);
    });
  }

  DiagonalAttrs<Op> attrs_;
};

template <typename Op>
class SetDiagOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SetDiagOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, attrs_.Get(ctx)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Go(ctx)); }

 private:
  Status Go(KernelContext* ctx) const {
    Tensor in, diagonal, out;
    Shape k;
    Diagonals diagonals;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &diagonal));
    RETURN_IF_ERROR(attrs_.K(ctx, 2, &k));
    RETURN_IF_ERROR(DiagonalsOf(kOp, in, k, attrs_.align(), &diagonals));
    if (diagonal.rank() == 0) {
      return InvalidArgument(kOp, ": diagonal must be at least 1-dim, received shape: []");
    }
    const Shape batch = BatchOf(in.shape(), 2), expected = diagonals.LinesShape(batch);
    const size_t last = expected.size() - 1;
    if (expected.size() > in.shape().size() - 1 &&
        (diagonal.shape().size() != expected.size() ||
         diagonal.shape()[last - 1] != expected[last - 1])) {
      return InvalidArgument(kOp, ": The number of diagonals provided in `diag` is not consistent ",
                             "with `lower_diag_index` and `upper_diag_index`: expected shape ",
                             ToString(expected), ", got ", ToString(diagonal.shape()));
    }
    if (diagonal.shape() != expected) {
      return InvalidArgument(
          kOp, ": Either first dimensions of diagonal don't match ",
          "input.shape[:-2], or diagonal.shape[:-1] is not equal to the longests ",
          "diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: ",
          ToString(in.shape()), "\nDiagonal shape: ", ToString(diagonal.shape()),
          "\nExpected diagonal shape: ", ToString(expected));
    }
    RETURN_IF_ERROR(ctx->ForwardInputOrAllocateOutput(0, 0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (out.opaque() != in.opaque()) RETURN_IF_ERROR(encoder.Copy(in, out));
      return diagonals.Copy(encoder, kOp, NumElements(batch), /*to_lines=*/false, diagonal, out);
    });
  }

  DiagonalAttrs<Op> attrs_;
};

#define DIAGONAL_OP(Kernel, op, version)     \
  struct op {                                \
    static constexpr char kOp[] = #op;       \
    static constexpr int kVersion = version; \
  };                                         \
  REGISTER_METAL_KERNEL(Kernel<op>, .Types("T", METAL_DEVICE_ALL_TYPES)
#define WITH_SIZES \
  .HostMemory("k").HostMemory("num_rows").HostMemory("num_cols").HostMemory("padding_value")
DIAGONAL_OP(DiagPartOp, MatrixDiagPart, 1));
DIAGONAL_OP(DiagPartOp, MatrixDiagPartV2, 2).HostMemory("k").HostMemory("padding_value"));
DIAGONAL_OP(DiagPartOp, MatrixDiagPartV3, 3).HostMemory("k").HostMemory("padding_value"));
DIAGONAL_OP(DiagOp, MatrixDiag, 1));
DIAGONAL_OP(DiagOp, MatrixDiagV2, 2) WITH_SIZES);
DIAGONAL_OP(DiagOp, MatrixDiagV3, 3) WITH_SIZES);
DIAGONAL_OP(SetDiagOp, MatrixSetDiag, 1));
DIAGONAL_OP(SetDiagOp, MatrixSetDiagV2, 2).HostMemory("k"));
DIAGONAL_OP(SetDiagOp, MatrixSetDiagV3, 3).HostMemory("k"));

// ---- Diag, DiagPart -----------------------------------------------------------------------------

// A tensor on the diagonal of one with twice its dimensions, and back.
class TensorDiagOp {
 public:
  static constexpr char kOp[] = "Diag";

  explicit TensorDiagOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES(ctx, in.rank() >= 1,
                InvalidArgument(kOp, ": Input must be at least rank 1, got 0"));
    Shape shape = in.shape();
    shape.insert(shape.end(), in.shape().begin(), in.shape().end());
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "the output's shape", shape));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    const int64_t n = in.num_elements();
    if (n == 0) return;
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     RETURN_IF_ERROR(EncodeZeros(encoder, kOp, out));
                     return EncodeCopy(encoder, kOp, {n}, in, {{1}}, out, {{n + 1}});
                   }));
  }
};

class TensorDiagPartOp {
 public:
  static constexpr char kOp[] = "DiagPart";

  explicit TensorDiagPartOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    const size_t rank = in.shape().size() / 2;
    const Shape shape = Dims(in.shape(), 0, rank);
    OP_REQUIRES(
        ctx, rank > 0 && in.shape().size() == 2 * rank && shape == Dims(in.shape(), rank, 2 * rank),
        InvalidArgument(kOp, ": The rank of the tensor should be even and positive, its ",
                        "first half of dimensions the second; got ", ToString(in.shape())));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    const int64_t n = out.num_elements();
    if (n == 0) return;
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return EncodeCopy(encoder, kOp, {n}, in, {{n + 1}}, out, {{1}});
                   }));
  }
};
#define DIAGONAL_TYPES \
  {TF_FLOAT, TF_HALF, TF_DOUBLE, TF_COMPLEX64, TF_COMPLEX128, TF_INT32, TF_INT64}
REGISTER_METAL_KERNEL(TensorDiagOp, .Types("T", DIAGONAL_TYPES));
REGISTER_METAL_KERNEL(TensorDiagPartOp, .Types("T", DIAGONAL_TYPES));

}  // namespace
}  // namespace metal_ops
