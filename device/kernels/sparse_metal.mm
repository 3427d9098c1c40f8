// SparseTensorDenseMatMul.

#include <algorithm>
#include <utility>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/sparse_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

class SparseProductOp {
 public:
  static constexpr char kOp[] = "SparseTensorDenseMatMul";

  explicit SparseProductOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adjoint_a", &adjoint_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adjoint_b", &adjoint_b_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static constexpr int64_t kBlock = 16, kFewBlocks = 8;  // columns per thread; threads

  Status Run(KernelContext* ctx) const {
    Tensor indices, values, a_shape, b, out, sums;
    Shape sizes;
    RETURN_IF_ERROR(ctx->Input(0, &indices));
    RETURN_IF_ERROR(Factor(ctx, 1, adjoint_a_, &values));
    RETURN_IF_ERROR(ctx->Input(2, &a_shape));
    RETURN_IF_ERROR(Factor(ctx, 3, adjoint_b_, &b));
    RETURN_IF_ERROR(Indices(kOp, "a_shape", a_shape, &sizes));
    if (sizes.size() != 2 || sizes[0] < 0 || sizes[1] < 0 || b.rank() != 2) {
      return InvalidArgument(kOp, ": a_shape must have 2 sizes and b 2 dimensions, got ",
                             ToString(sizes), " and ", ToString(b.shape()));
    }
    if (values.rank() != 1 || indices.shape() != Shape{values.dim(0), 2}) {
      return InvalidArgument(kOp, ": a_indices must have shape [n, 2] and a_values [n], got ",
                             ToString(indices.shape()), " and ", ToString(values.shape()));
    }
    const int64_t rows = sizes[adjoint_a_ ? 1 : 0], inner = sizes[adjoint_a_ ? 0 : 1];
    const int64_t columns = b.dim(adjoint_b_ ? 0 : 1), terms = b.dim(adjoint_b_ ? 1 : 0);
    if (inner != terms) {
      return InvalidArgument(kOp, ": Cannot multiply A and B because inner dimension does not ",
                             "match: ", inner, " vs. ", terms, "; did you forget a transpose?");
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {rows, columns}, &out));
    if (out.num_elements() == 0) return Status();
    SparseParams p = {};
    p.elements = static_cast<uint64_t>(values.dim(0));
    p.rows = static_cast<uint64_t>(rows);
    p.inner = static_cast<uint64_t>(inner);
    p.columns = static_cast<uint64_t>(columns);
    p.step = adjoint_b_ ? 1 : p.columns;
    p.column_step = adjoint_b_ ? p.inner : 1;
    p.adjoint = adjoint_a_ ? 1 : 0;
    // Each thread looks at all elements: few of them, where they run after each other.
    const int64_t few = (columns + kFewBlocks - 1) / kFewBlocks;
    const int64_t block = ThreadgroupsRunAtOnce() ? kBlock : std::max(kBlock, few);
    RETURN_IF_ERROR(CheckGrid(kOp, "columns of a thread", block));
    p.block = static_cast<uint32_t>(block);
    const bool rounds = out.dtype() != values.dtype();
    if (rounds) RETURN_IF_ERROR(ctx->AllocateTemp(values.dtype(), out.shape(), &sums));
    RETURN_IF_ERROR(CheckGrid(kOp, "elements of the product", out.num_elements()));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch({"sparse_product", Unsigned(values.dtype()), indices.dtype()},
                                     Grid((columns + block - 1) / block),
                                     {{"indices", indices},
                                      {"values", Value(values).Untyped()},
                                      {"b", Value(b).Untyped()},
                                      {"out", Value(rounds ? sums : out).Untyped()},
                                      {"p", p}}));
      if (!rounds) return Status();
      return encoder.Launch({"cast", sums.dtype(), out.dtype()}, Grid(out.num_elements()),
                            {{"x", sums}, {"out", out}});
    });
  }

  // An input as it is multiplied: half precision in float32, complex numbers conjugated where the op's adjoint is.
  static Status Factor(KernelContext* ctx, int input, bool adjoint, Tensor* factor) {
    Tensor in;
    RETURN_IF_ERROR(ctx->Input(input, &in));
    const bool conjugates = adjoint && in.dtype() == DType::kComplex64;
    const bool widens = in.dtype() == DType::kHalf || in.dtype() == DType::kBfloat16;
    if (!conjugates && !widens) {
      *factor = std::move(in);
      return Status();
    }
    RETURN_IF_ERROR(ctx->AllocateTemp(widens ? DType::kFloat : in.dtype(), in.shape(), factor));
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", in.num_elements()));
    return Encode(ctx, [&](Encoder& encoder) {
      if (conjugates) {
        return LaunchElementwise(encoder, {"conj", in.dtype()}, in.num_elements(),
                                 {{"a", in}, {"out", *factor}});
      }
      return encoder.Launch({"cast", in.dtype(), factor->dtype()}, Grid(in.num_elements()),
                            {{"x", in}, {"out", *factor}});
    });
  }

  bool adjoint_a_ = false, adjoint_b_ = false;
};
#define PRODUCT \
  .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT32, TF_COMPLEX64}).HostMemory("a_shape")
REGISTER_METAL_KERNEL(SparseProductOp, PRODUCT.Where("Tindices", TF_INT32));
REGISTER_METAL_KERNEL(SparseProductOp, PRODUCT.Where("Tindices", TF_INT64));

}  // namespace
}  // namespace metal_ops
