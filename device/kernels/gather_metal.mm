// Gather, GatherV2, ResourceGather, Where and Unpack.

#include <limits>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/gather.h"
#include "device/kernels/gather_params.h"
#include "device/kernels/layout.h"
#include "device/kernels/pieces.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {
namespace {

// Output 0 = slices of `params` along `axis`, by `indices`.
Status RunGather(KernelContext* ctx, const char* op, const Tensor& params, const Tensor& indices,
                 int64_t axis_given, int64_t batch_dims_given) {
  Tensor out;
  const int64_t rank = params.rank(), indices_rank = indices.rank();
  const int64_t axis = axis_given < 0 ? axis_given + rank : axis_given;
  if (axis < 0 || axis >= rank) {
    return InvalidArgument(op, ": axis = ", axis_given, " is not in [", -rank, ", ", rank,
                           ") of params of shape ", ToString(params.shape()));
  }
  const int64_t batch_dims =
      batch_dims_given < 0 ? batch_dims_given + indices_rank : batch_dims_given;
  if (batch_dims < 0 || batch_dims > indices_rank || batch_dims > axis) {
    return InvalidArgument(op, ": batch_dims = ", batch_dims_given, " must be at most the axis, ",
                           axis, ", and the rank of indices, ", indices_rank);
  }
  if (Dims(params.shape(), 0, batch_dims) != Dims(indices.shape(), 0, batch_dims)) {
    return InvalidArgument(op, ": params ", ToString(params.shape()), " and indices ",
                           ToString(indices.shape()), " must agree in their first ", batch_dims,
                           " dimensions");
  }
  Shape shape = Dims(params.shape(), 0, axis);
  for (int64_t d = batch_dims; d < indices_rank; ++d) shape.push_back(indices.dim(d));
  for (int64_t d = axis + 1; d < rank; ++d) shape.push_back(params.dim(d));
  RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
  const int64_t total = out.num_elements();
  if (total == 0) return Status();
  GatherParams p = {};
  p.outer = NumElements(Dims(params.shape(), batch_dims, axis));
  p.rows = params.dim(axis);
  p.inner = NumElements(Dims(params.shape(), axis + 1, rank));
  p.indices = NumElements(Dims(indices.shape(), batch_dims, indices_rank));
  p.total = total;
  return Encode(ctx, [&](Encoder& encoder) {
    const std::string bytes = std::to_string(params.element_bytes());
    const int64_t slices = total / p.inner / p.indices;
    const RowShader shader =
        RowShaderOf("gather", static_cast<int64_t>(p.inner), params.element_bytes());
    const bool rows = shader.blocks > 0 && p.indices <= UINT32_MAX && slices <= UINT32_MAX;
    return encoder.Launch({rows ? shader.stem : "gather", bytes, indices.dtype()},
                          rows ? Grid(shader.blocks, p.indices, slices) : Grid::Flat(total),
                          {{"params_", Value(params).Untyped()},
                           {"indices", indices},
                           {"out", Value(out).Untyped()},
                           {"p", p}});
  });
}

class GatherV2Op {
 public:
  static constexpr char kOp[] = "GatherV2";

  explicit GatherV2Op(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
  }

  void Compute(KernelContext* ctx) {
    Tensor params, indices, axis;
    Shape axes;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &params));
    OP_REQUIRES_OK(ctx, IndexInput(ctx, kOp, 1, &indices));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &axis));
    OP_REQUIRES_OK(ctx, Indices(kOp, "axis", axis, &axes));
    OP_REQUIRES(ctx, axis.rank() == 0,
                InvalidArgument("GatherV2: axis must be scalar, got ", ToString(axis.shape())));
    OP_REQUIRES_OK(ctx, RunGather(ctx, kOp, params, indices, axes[0], batch_dims_));
  }

 private:
  int32_t batch_dims_ = 0;
};

class GatherOp {
 public:
  static constexpr char kOp[] = "Gather";

  explicit GatherOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor params, indices;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &params));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &indices));
    OP_REQUIRES_OK(ctx, RunGather(ctx, kOp, params, indices, 0, 0));
  }
};

class ResourceGatherOp {
 public:
  static constexpr char kOp[] = "ResourceGather";

  explicit ResourceGatherOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
  }

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, /*exclusive=*/false, {0});
    Tensor params, indices;
    OP_REQUIRES_OK(ctx, lock.Read(0, &params));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &indices));
    OP_REQUIRES_OK(ctx, RunGather(ctx, kOp, params, indices, batch_dims_, batch_dims_));
  }

 private:
  int32_t batch_dims_ = 0;
};

#define GATHER(Kernel, attr, ...)                                                            \
  REGISTER_METAL_KERNEL(                                                                     \
      Kernel, .Types(attr, METAL_DEVICE_ALL_TYPES).Where("Tindices", TF_INT32) __VA_ARGS__); \
  REGISTER_METAL_KERNEL(                                                                     \
      Kernel, .Types(attr, METAL_DEVICE_ALL_TYPES).Where("Tindices", TF_INT64) __VA_ARGS__)
GATHER(GatherOp, "Tparams");
GATHER(GatherV2Op, "Tparams", .HostMemory("axis"));
REGISTER_METAL_KERNEL(
    GatherV2Op,
    .Types("Tparams", METAL_DEVICE_ALL_TYPES).Where("Tindices", TF_INT16).HostMemory("axis"));
GATHER(ResourceGatherOp, "dtype", .HostMemory("resource"));

// Waits, as how much is true has to be known for the result's shape.
class WhereOp {
 public:
  static constexpr char kOp[] = "Where";

  explicit WhereOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  // The numbers that are not 0.
  static Status Differs(KernelContext* ctx, const Tensor& x, Tensor* differs) {
    const uint64_t zero = 0;
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_BOOL, x.shape(), differs));
    return Encode(ctx, [&](Encoder& encoder) {
      const DType dtype = Unsigned(x.dtype());
      return LaunchElementwise(
          encoder, {"not_equal", dtype, "10"}, x.num_elements(),
          {{"a", Value(x).Untyped()}, {"b", HostArray(&zero, 1).Untyped()}, {"out", *differs}});
    });
  }

  Status Run(KernelContext* ctx) {
    Tensor given, differs, out;
    RETURN_IF_ERROR(ctx->Input(0, &given));
    const bool whether = given.dtype() == TF_BOOL;
    if (!whether) RETURN_IF_ERROR(Differs(ctx, given, &differs));
    const Tensor& x = whether ? given : differs;
    if (x.rank() < 1 || x.rank() > WHERE_DIMS) {
      return InvalidArgument("Where: expected 1 to ", WHERE_DIMS, " dimensions, got ",
                             ToString(x.shape()));
    }
    WhereParams p = {};
    p.total = x.num_elements();
    p.rank = static_cast<uint32_t>(x.rank());
    for (int d = 0; d < x.rank(); ++d) p.dims[d] = x.dim(d);
    const int64_t pieces = (x.num_elements() + WHERE_PIECE - 1) / WHERE_PIECE;
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", pieces));
    ReadBack counts;
    if (pieces > 0) {
      RETURN_IF_ERROR(EncodeAndWait(ctx, [&](Encoder& encoder) -> Status {
        RETURN_IF_ERROR(encoder.Allocate(pieces * sizeof(uint32_t), &counts));
        return encoder.Launch("where_count", Grid(pieces),
                              {{"x", x}, {"counts", counts}, {"p", p}});
      }));
    }
    std::vector<uint64_t> firsts(pieces + 1, 0);
    for (int64_t i = 0; i < pieces; ++i) firsts[i + 1] = firsts[i] + counts.data<uint32_t>()[i];
    const auto found = static_cast<int64_t>(firsts[pieces]);
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {found, x.rank()}, &out));
    if (found == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          "where_write", Grid(pieces),
          {{"x", x}, {"firsts", HostArray(firsts.data(), pieces + 1)}, {"out", out}, {"p", p}});
    });
  }
};
REGISTER_METAL_KERNEL(WhereOp, .Types("T", {TF_BOOL, TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8,
                                            TF_INT16, TF_INT64, TF_UINT8, TF_UINT16, TF_UINT32,
                                            TF_UINT64, TF_COMPLEX64}));

class UnpackOp {
 public:
  static constexpr char kOp[] = "Unpack";

  explicit UnpackOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("axis", &axis_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num", &num_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor value;
    RETURN_IF_ERROR(ctx->Input(0, &value));
    const int64_t rank = value.rank();
    if (axis_ < -rank || axis_ >= rank) {
      return InvalidArgument("Unpack: axis = ", axis_, " not in [", -rank, ", ", rank, ")");
    }
    const int64_t axis = (axis_ + rank) % rank;
    if (value.dim(axis) != num_) {
      return InvalidArgument("Unpack: input shape axis ", axis, " must equal ", num_,
                             ", got shape ", ToString(value.shape()));
    }
    Shape shape = value.shape();
    shape.erase(shape.begin() + axis);
    Walk from{DenseStrides(value.shape())};
    const int64_t step = from.strides[axis];
    from.strides.erase(from.strides.begin() + axis);
    std::vector<Piece> pieces;
    for (int32_t i = 0; i < num_; ++i) {
      pieces.push_back({shape, from, shape});
      from.offset += step;
    }
    return OutputPieces(ctx, kOp, 0, value, pieces);
  }

  int32_t axis_ = 0, num_ = 0;
};
REGISTER_METAL_KERNEL(UnpackOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES));

}  // namespace
}  // namespace metal_ops
