// More ops that rearrange elements, by copies along strides: Split, Reverse, Roll, MirrorPad.

#include <algorithm>
#include <string>
#include <vector>

#include "device/kernels/host_int32.h"
#include "device/kernels/layout.h"
#include "device/kernels/pieces.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {

Status Pairs(const char* op, const char* name, const Tensor& tensor, int64_t rows, Shape* first,
             Shape* second) {
  if (tensor.shape() != Shape{rows, 2}) {
    return InvalidArgument(op, ": ", name, " must have shape [", rows, ", 2], got ",
                           ToString(tensor.shape()));
  }
  for (int64_t i = 0; i < 2 * rows; ++i) {
    const int64_t value =
        tensor.dtype() == TF_INT64 ? tensor.host<int64_t>()[i] : tensor.host<int32_t>()[i];
    if (value < 0 || value > INT32_MAX) {
      return InvalidArgument(op, ": ", name, " must be non-negative and at most 2^31 - 1: ", value,
                             " for dimension ", i / 2);
    }
    (i % 2 == 0 ? first : second)->push_back(value);
  }
  return Status();
}

namespace {

Status Axis(const char* op, const char* name, const Tensor& tensor, int64_t rank, size_t* axis) {
  Shape values;
  RETURN_IF_ERROR(Indices(op, name, tensor, &values));
  if (values.size() != 1 || values[0] < -rank || values[0] >= rank) {
    return InvalidArgument(op, ": ", name, " must be one number in [", -rank, ", ", rank, "), got ",
                           ToString(values));
  }
  *axis = static_cast<size_t>((values[0] + rank) % rank);
  return Status();
}

// ---- Split, SplitV ------------------------------------------------------------------------------

Status RunSplit(KernelContext* ctx, const char* op, int input, const Tensor& value, size_t axis,
                const Shape& sizes) {
  Walk from{DenseStrides(value.shape())};
  Shape shape = value.shape();
  std::vector<Piece> pieces;
  for (const int64_t size : sizes) {
    shape[axis] = size;
    pieces.push_back({shape, from, shape});
    from.offset += size * from.strides[axis];
  }
  return OutputPieces(ctx, op, input, value, pieces);
}

class SplitOp {
 public:
  static constexpr char kOp[] = "Split";

  explicit SplitOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_split", &parts_));
  }

  void Compute(KernelContext* ctx) {
    Tensor axis_tensor, value;
    size_t axis = 0;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &axis_tensor));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &value));
    OP_REQUIRES_OK(ctx, Axis(kOp, "split_dim", axis_tensor, value.rank(), &axis));
    OP_REQUIRES(
        ctx, value.shape()[axis] % parts_ == 0,
        InvalidArgument("Split: Number of ways to split should evenly divide the split "
                        "dimension, but got split_dim ",
                        axis, " (size = ", value.shape()[axis], ") and num_split ", parts_));
    OP_REQUIRES_OK(ctx, RunSplit(ctx, kOp, 1, value, axis,
                                 Shape(static_cast<size_t>(parts_), value.shape()[axis] / parts_)));
  }

 private:
  int32_t parts_ = 1;
};
REGISTER_METAL_KERNEL(SplitOp, .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("split_dim"));

class SplitVOp {
 public:
  static constexpr char kOp[] = "SplitV";

  explicit SplitVOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_split", &parts_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor value, sizes_tensor, axis_tensor;
    Shape sizes;
    size_t axis = 0;
    RETURN_IF_ERROR(ctx->Input(0, &value));
    RETURN_IF_ERROR(ctx->Input(1, &sizes_tensor));
    RETURN_IF_ERROR(ctx->Input(2, &axis_tensor));
    RETURN_IF_ERROR(Indices(kOp, "size_splits", sizes_tensor, &sizes));
    RETURN_IF_ERROR(Axis(kOp, "split_dim", axis_tensor, value.rank(), &axis));
    const int64_t size = value.shape()[axis];
    int64_t sum = 0, open = 0;
    bool valid = sizes.size() == static_cast<size_t>(parts_);
    for (const int64_t part : sizes) {
      open += part == -1 ? 1 : 0;
      valid = valid && part >= -1 && part <= size;
      sum += part == -1 || !valid ? 0 : part;
      valid = valid && sum <= size;
    }
    if (!valid || open > 1 || (open == 0 && sum != size)) {
      return InvalidArgument("SplitV: size_splits must be ", parts_,
                             " sizes with at most one -1 that sum to ", size,
                             ", the size of dimension ", axis, ", got ", ToString(sizes));
    }
    for (int64_t& part : sizes) part = part == -1 ? size - sum : part;
    return RunSplit(ctx, kOp, 0, value, axis, sizes);
  }

  int32_t parts_ = 1;
};
#define SPLIT_V \
  .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("size_splits").HostMemory("split_dim")
REGISTER_METAL_KERNEL(SplitVOp, SPLIT_V.Where("Tlen", TF_INT8));
REGISTER_METAL_KERNEL(SplitVOp, SPLIT_V.Where("Tlen", TF_INT32));
REGISTER_METAL_KERNEL(SplitVOp, SPLIT_V.Where("Tlen", TF_INT64));

// ---- Reverse, ReverseV2 -------------------------------------------------------------------------

Status RunReverse(KernelContext* ctx, const char* op, const Tensor& in,
                  const std::vector<bool>& turned) {
  Tensor out;
  const Shape& shape = in.shape();
  Walk from{DenseStrides(shape)};
  RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!turned[d]) continue;
    from.offset += (shape[d] - 1) * from.strides[d];
    from.strides[d] = -from.strides[d];
  }
  return Encode(ctx, [&](Encoder& encoder) {
    return EncodeCopy(encoder, op, shape, in, from, out, {DenseStrides(shape)});
  });
}

class ReverseV2Op {
 public:
  static constexpr char kOp[] = "ReverseV2";

  explicit ReverseV2Op(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, axis_tensor;
    Shape axes;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &axis_tensor));
    OP_REQUIRES_OK(ctx, Indices(kOp, "axis", axis_tensor, &axes));
    const int64_t rank = in.rank();
    std::vector<bool> turned(in.shape().size(), false);
    for (const int64_t axis : axes) {
      OP_REQUIRES(ctx, axis >= -rank && axis < rank,
                  InvalidArgument("ReverseV2: axis ", axis, " is out of valid range [", -rank, ", ",
                                  rank, ")"));
      OP_REQUIRES(ctx, !turned[(axis + rank) % rank],
                  InvalidArgument("ReverseV2: axis ", (axis + rank) % rank,
                                  " specified more than once in ", ToString(axes)));
      turned[(axis + rank) % rank] = true;
    }
    OP_REQUIRES_OK(ctx, RunReverse(ctx, kOp, in, turned));
  }
};
REGISTER_METAL_KERNEL(ReverseV2Op, .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("axis"));

class ReverseOp {
 public:
  static constexpr char kOp[] = "Reverse";

  explicit ReverseOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, dims;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &dims));
    OP_REQUIRES(ctx, dims.shape() == Shape{in.rank()},
                InvalidArgument("Reverse: 'dims' must have one value for each dimension of "
                                "'tensor' ",
                                ToString(in.shape()), ", got ", ToString(dims.shape())));
    const bool* const turned = dims.host<bool>();
    OP_REQUIRES_OK(ctx, RunReverse(ctx, kOp, in, std::vector<bool>(turned, turned + in.rank())));
  }
};
REGISTER_METAL_KERNEL(ReverseOp, .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("dims"));

// ---- copies in pieces ---------------------------------------------------------------------------

// A run along one dimension: how many elements, where it begins and goes on in the source and the
// result.
struct Run {
  int64_t size, from, from_step, to, to_step;
};

// Every combination of one run a dimension is a copy. Strides are those of both tensors along the
// dimensions.
template <typename Copies>
Status CopyRuns(Copies& copies, const Tensor& in, const std::vector<int64_t>& in_strides,
                const Tensor& out, const std::vector<int64_t>& out_strides,
                const std::vector<std::vector<Run>>& runs) {
  std::vector<size_t> chosen(runs.size(), 0);
  for (const std::vector<Run>& dim : runs) {
    if (dim.empty()) return Status();
  }
  while (true) {
    Shape shape;
    Walk from, to;
    for (size_t d = 0; d < runs.size(); ++d) {
      const Run& run = runs[d][chosen[d]];
      shape.push_back(run.size);
      from.strides.push_back(run.from_step * in_strides[d]);
      from.offset += run.from * in_strides[d];
      to.strides.push_back(run.to_step * out_strides[d]);
      to.offset += run.to * out_strides[d];
    }
    RETURN_IF_ERROR(copies.Copy(shape, in, from, out, to));
    size_t d = 0;
    while (d < runs.size() && ++chosen[d] == runs[d].size()) chosen[d++] = 0;
    if (d == runs.size()) return Status();
  }
}

class RollOp {
 public:
  static constexpr char kOp[] = "Roll";

  explicit RollOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Go(ctx)); }

 private:
  static Status Go(KernelContext* ctx) {
    Tensor in, shift_tensor, axis_tensor, out;
    Shape shifts, axes;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &shift_tensor));
    RETURN_IF_ERROR(ctx->Input(2, &axis_tensor));
    RETURN_IF_ERROR(Indices(kOp, "shift", shift_tensor, &shifts));
    RETURN_IF_ERROR(Indices(kOp, "axis", axis_tensor, &axes));
    const int64_t rank = in.rank();
    if (rank < 1) return InvalidArgument("Roll: input must be 1-D or higher, got a scalar");
    if (shifts.size() != axes.size()) {
      return InvalidArgument("Roll: shift and axis must have the same size, got ", ToString(shifts),
                             " and ", ToString(axes));
    }
    const Shape& shape = in.shape();
    Shape total(shape.size(), 0);
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] < -rank || axes[i] >= rank) {
        return InvalidArgument("Roll: axis ", axes[i], " is out of range [", -rank, ", ", rank,
                               ")");
      }
      const auto axis = static_cast<size_t>((axes[i] + rank) % rank);
      const int64_t size = std::max<int64_t>(shape[axis], 1);
      total[axis] = (total[axis] + shifts[i] % size + size) % size;
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    std::vector<std::vector<Run>> runs(shape.size());
    for (size_t d = 0; d < shape.size(); ++d) {
      runs[d].push_back({shape[d] - total[d], 0, 1, total[d], 1});
      if (total[d] > 0) runs[d].push_back({total[d], shape[d] - total[d], 1, 0, 1});
    }
    const std::vector<int64_t> strides = DenseStrides(shape);
    return Encode(ctx, [&](Encoder& encoder) {
      ShaderCopies copies(&encoder, kOp);
      return CopyRuns(copies, in, strides, out, strides, runs);
    });
  }
};
REGISTER_METAL_KERNEL(RollOp,
                      .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("shift").HostMemory("axis"));

class MirrorPadOp {
 public:
  static constexpr char kOp[] = "MirrorPad";

  explicit MirrorPadOp(KernelConstruction* ctx) {
    std::string mode;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode));
    edge_ = mode == "SYMMETRIC" ? 0 : 1;
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Go(ctx)); }

 private:
  Status Go(KernelContext* ctx) const {
    Tensor in, paddings, out;
    Shape before, after, shape;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &paddings));
    RETURN_IF_ERROR(Pairs(kOp, "paddings", paddings, in.rank(), &before, &after));
    std::vector<std::vector<Run>> runs(in.shape().size());
    for (size_t d = 0; d < runs.size(); ++d) {
      const int64_t size = in.shape()[d], b = before[d], a = after[d];
      if (b > size - edge_ || a > size - edge_) {
        return InvalidArgument("MirrorPad: paddings must be no greater than the dimension size",
                               edge_ == 1 ? " less 1" : "", ": ", b, ", ", a, " for size ", size);
      }
      shape.push_back(size + b + a);
      if (size > 0) runs[d].push_back({size, 0, 1, b, 1});
      if (b > 0) runs[d].push_back({b, edge_, 1, b - 1, -1});
      if (a > 0) runs[d].push_back({a, size - 1 - edge_, -1, b + size, 1});
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    return MoveElements(ctx, kOp, IsInHostMemory(out), [&](auto& copies) {
      return CopyRuns(copies, in, DenseStrides(in.shape()), out, DenseStrides(shape), runs);
    });
  }

  int64_t edge_ = 0;  // elements at the edge that are not repeated
};
REGISTER_METAL_KERNEL(MirrorPadOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("paddings"));
REGISTER_METAL_KERNEL(
    MirrorPadOp,
    .Types("T", {TF_INT32}).HostMemory("input").HostMemory("paddings").HostMemory("output"));

}  // namespace
}  // namespace metal_ops
