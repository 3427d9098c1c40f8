// Ops that rearrange elements: StridedSlice, its gradient and assignments to it, Transpose, Tile, Pack.

#include <algorithm>
#include <utility>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/host_int32.h"
#include "device/kernels/layout.h"
#include "device/kernels/pieces.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {
namespace {

// ---- StridedSlice -------------------------------------------------------------------------------

// x[begin:end:strides] in NumPy's sense, with TensorFlow's masks: a set bit i changes entry i.
struct Masks {
  int64_t begin, end, ellipsis, new_axis, shrink_axis;

  Status Get(KernelConstruction* ctx) {
    RETURN_IF_ERROR(ctx->GetAttr("begin_mask", &begin));
    RETURN_IF_ERROR(ctx->GetAttr("end_mask", &end));
    RETURN_IF_ERROR(ctx->GetAttr("ellipsis_mask", &ellipsis));
    RETURN_IF_ERROR(ctx->GetAttr("new_axis_mask", &new_axis));
    return ctx->GetAttr("shrink_axis_mask", &shrink_axis);
  }
};

// The part of a tensor that a StridedSlice names.
struct Part {
  Shape shape;   // of the result
  Shape region;  // the same before axes are dropped and added: one entry a dimension of the tensor
  std::vector<int> axes;  // of each of region's dimensions the one of shape, or -1
  Walk walk;              // over the tensor, along `region`
};

Status FindPart(const char* op, const Masks& masks, const Shape& shape, const Shape& begin,
                const Shape& end, const Shape& strides, Part* part) {
  const size_t entries = begin.size();
  if (end.size() != entries || strides.size() != entries) {
    return InvalidArgument(op, ": begin, end and strides have ", entries, ", ", end.size(), " and ",
                           strides.size(), " elements, expected equally many");
  }
  const std::vector<int64_t> dense = DenseStrides(shape);
  auto has = [](int64_t mask, size_t i) { return (mask >> i & 1) != 0; };
  size_t named = 0;  // dimensions of the tensor that entries stand for
  for (size_t i = 0; i < entries; ++i) {
    named += !has(masks.ellipsis, i) && !has(masks.new_axis, i);
  }
  if (named > shape.size()) {
    return InvalidArgument(op, ": Index out of range using input dim ", shape.size(),
                           "; input has only ", shape.size(), " dims, ", named, " are indexed");
  }

  *part = Part();
  size_t dim = 0;
  auto take_whole = [&](size_t count) {
    for (; count > 0; --count, ++dim) {
      part->axes.push_back(static_cast<int>(part->shape.size()));
      part->shape.push_back(shape[dim]);
      part->region.push_back(shape[dim]);
      part->walk.strides.push_back(dense[dim]);
    }
  };
  bool ellipsis_seen = false;
  for (size_t i = 0; i < entries; ++i) {
    if (has(masks.ellipsis, i)) {
      if (ellipsis_seen)
        return InvalidArgument(op, ": Multiple ellipses in slice spec not allowed");
      ellipsis_seen = true;
      take_whole(shape.size() - named);
      continue;
    }
    if (has(masks.new_axis, i)) {
      part->shape.push_back(1);
      continue;
    }
    const int64_t size = shape[dim], step = strides[i];
    if (step == 0) return InvalidArgument(op, ": strides[", i, "] must be non-zero");
    auto from_the_end = [&](int64_t index) { return index < 0 ? index + size : index; };
    int64_t first, count;
    if (has(masks.shrink_axis, i)) {
      first = from_the_end(begin[i]);
      if (first < 0 || first >= size) {
        return InvalidArgument(op, ": slice index ", begin[i], " of dimension ", dim,
                               " out of bounds, it has ", size, " elements");
      }
      if (step < 0) return InvalidArgument(op, ": only stride 1 allowed on non-range indexing.");
      count = 1;
      part->axes.push_back(-1);
    } else {
      const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
      first = has(masks.begin, i) ? (step > 0 ? low : high)
                                  : std::clamp(from_the_end(begin[i]), low, high);
      const int64_t last =
          has(masks.end, i) ? (step > 0 ? high : low) : std::clamp(from_the_end(end[i]), low, high);
      const int64_t span = last - first;
      count = span == 0 || (span < 0) != (step < 0) ? 0 : span / step + (span % step != 0);
      part->axes.push_back(static_cast<int>(part->shape.size()));
      part->shape.push_back(count);
    }
    part->region.push_back(count);
    part->walk.strides.push_back(dense[dim] * step);
    part->walk.offset += count == 0 ? 0 : first * dense[dim];
    ++dim;
  }
  take_whole(shape.size() - dim);
  return Status();
}

// begin, end, strides: inputs 1, 2, 3.
Status FindPart(KernelContext* ctx, const char* op, const Masks& masks, const Shape& shape,
                Part* part) {
  constexpr const char* kNames[] = {"begin", "end", "strides"};
  Shape values[3];
  for (int i = 0; i < 3; ++i) {
    Tensor tensor;
    RETURN_IF_ERROR(ctx->Input(1 + i, &tensor));
    RETURN_IF_ERROR(Indices(op, kNames[i], tensor, &values[i]));
  }
  return FindPart(op, masks, shape, values[0], values[1], values[2], part);
}

class StridedSliceOp {
 public:
  static constexpr char kOp[] = "StridedSlice";

  explicit StridedSliceOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, masks_.Get(ctx)); }

  void Compute(KernelContext* ctx) {
    Tensor input;
    Part part;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, FindPart(ctx, kOp, masks_, input.shape(), &part));
    OP_REQUIRES_OK(ctx, OutputPieces(ctx, kOp, 0, input, {{part.shape, part.walk, part.region}},
                                     IsInHostMemory(input)));
  }

 private:
  Masks masks_ = {};
};
#define SLICE_IN_HOST_MEMORY .HostMemory("begin").HostMemory("end").HostMemory("strides")
REGISTER_METAL_KERNEL(StridedSliceOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES) SLICE_IN_HOST_MEMORY);
REGISTER_METAL_KERNEL(
    StridedSliceOp,
    .Types("T", {TF_INT32}) SLICE_IN_HOST_MEMORY.HostMemory("input").HostMemory("output"));

class StridedSliceGradOp {
 public:
  static constexpr char kOp[] = "StridedSliceGrad";

  explicit StridedSliceGradOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, masks_.Get(ctx)); }

  void Compute(KernelContext* ctx) {
    Tensor shape_tensor, gradient, out;
    Shape shape;
    Part part;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &shape_tensor));
    OP_REQUIRES_OK(ctx, ctx->Input(4, &gradient));
    OP_REQUIRES_OK(ctx, Indices(kOp, "shape", shape_tensor, &shape));
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "shape", shape));
    OP_REQUIRES_OK(ctx, FindPart(ctx, kOp, masks_, shape, &part));
    OP_REQUIRES(ctx, gradient.shape() == part.shape,
                InvalidArgument(kOp, ": shape of dy was ", ToString(gradient.shape()),
                                " instead of ", ToString(part.shape)));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    OP_REQUIRES_OK(ctx, MoveElements(ctx, kOp, IsInHostMemory(out), [&](auto& copies) -> Status {
                     RETURN_IF_ERROR(copies.Zero(out));
                     return copies.Copy(part.region, gradient, {DenseStrides(part.region)}, out,
                                        part.walk);
                   }));
  }

 private:
  Masks masks_ = {};
};
REGISTER_METAL_KERNEL(StridedSliceGradOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES)
                                              .HostMemory("shape") SLICE_IN_HOST_MEMORY);
REGISTER_METAL_KERNEL(StridedSliceGradOp, .Types("T", {TF_INT32})
                                              .HostMemory("shape")
                                                  SLICE_IN_HOST_MEMORY.HostMemory("dy")
                                              .HostMemory("output"));

// x[begin:end:strides] = value, which is broadcast to it: x is a variable, or a tensor that becomes the output.
class SliceUpdate {
 public:
  Status Get(KernelConstruction* ctx) { return masks_.Get(ctx); }

  // `to` may be `from` itself: where it lies elsewhere it gets the other elements, too.
  Status Run(KernelContext* ctx, const char* op, const Tensor& from, const Tensor& to) const {
    Tensor value;
    Part part;
    RETURN_IF_ERROR(ctx->Input(4, &value));
    RETURN_IF_ERROR(FindPart(ctx, op, masks_, to.shape(), &part));
    Shape whole;
    const Shape& given = value.shape();
    size_t ones = 0;  // in front, which an assignment may have too many of
    while (given.size() - ones > part.shape.size() && given[ones] == 1) ++ones;
    const Shape shape = Dims(given, ones, given.size());
    if (!BroadcastShape(op, shape, part.shape, &whole).ok() || whole != part.shape) {
      return InvalidArgument(op, ": value must be broadcastable to the slice, of shape ",
                             ToString(part.shape), ", got shape ", ToString(given));
    }
    const Walk along = Broadcast(shape, part.shape);
    Walk walk;
    for (const int axis : part.axes) walk.strides.push_back(axis < 0 ? 0 : along.strides[axis]);
    return MoveElements(ctx, op, IsInHostMemory(to), [&](auto& copies) -> Status {
      if (to.opaque() != from.opaque()) RETURN_IF_ERROR(copies.CopyWhole(from, to));
      return copies.Copy(part.region, value, walk, to, part.walk);
    });
  }

 private:
  Masks masks_ = {};
};

template <typename Op>
class StridedSliceAssignOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit StridedSliceAssignOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, update_.Get(ctx)); }

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, /*exclusive=*/true, {0});
    Tensor var;
    OP_REQUIRES_OK(ctx, lock.Get(0, &var));
    OP_REQUIRES_OK(ctx, update_.Run(ctx, kOp, var, var));
    if (Op::kRef) ForwardRef(ctx, 0, 0);
  }

 private:
  SliceUpdate update_;
};
struct ResourceStridedSliceAssign {
  static constexpr char kOp[] = "ResourceStridedSliceAssign";
  static constexpr bool kRef = false;
};
struct StridedSliceAssign {
  static constexpr char kOp[] = "StridedSliceAssign";
  static constexpr bool kRef = true;
};
REGISTER_METAL_KERNEL(
    StridedSliceAssignOp<ResourceStridedSliceAssign>,
    .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("ref") SLICE_IN_HOST_MEMORY);
REGISTER_METAL_KERNEL(StridedSliceAssignOp<StridedSliceAssign>,
                      .Types("T", METAL_DEVICE_MOVABLE_TYPES) SLICE_IN_HOST_MEMORY);

class TensorStridedSliceUpdateOp {
 public:
  static constexpr char kOp[] = "TensorStridedSliceUpdate";

  explicit TensorStridedSliceUpdateOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, update_.Get(ctx));
  }

  void Compute(KernelContext* ctx) {
    Tensor tensor, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &tensor));
    OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(0, 0, tensor.shape(), &out));
    OP_REQUIRES_OK(ctx, update_.Run(ctx, kOp, tensor, out));
  }

 private:
  SliceUpdate update_;
};
REGISTER_METAL_KERNEL(TensorStridedSliceUpdateOp,
                      .Types("T", METAL_DEVICE_MOVABLE_TYPES) SLICE_IN_HOST_MEMORY);
REGISTER_METAL_KERNEL(TensorStridedSliceUpdateOp, .Types("T", {TF_INT32})
                                                      SLICE_IN_HOST_MEMORY.HostMemory("input")
                                                          .HostMemory("value")
                                                          .HostMemory("output"));

// ---- Transpose, Tile, Pack ----------------------------------------------------------------------

template <typename Op>
class TransposeOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit TransposeOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor x, perm_tensor, out;
    Shape perm;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &perm_tensor));
    OP_REQUIRES_OK(ctx, Indices(kOp, "perm", perm_tensor, &perm));
    const size_t rank = x.shape().size();
    std::vector<bool> used(rank, false);
    bool valid = perm.size() == rank;
    for (const int64_t axis : perm) {
      valid = valid && axis >= 0 && axis < static_cast<int64_t>(rank) && !used[axis];
      if (valid) used[axis] = true;
    }
    OP_REQUIRES(ctx, valid,
                InvalidArgument(kOp, ": perm is ", ToString(perm), ", expected each of 0 to ",
                                static_cast<int64_t>(rank) - 1, " once, for x of shape ",
                                ToString(x.shape())));
    const std::vector<int64_t> dense = DenseStrides(x.shape());
    Shape shape;
    Walk from;
    for (const int64_t axis : perm) {
      shape.push_back(x.shape()[axis]);
      from.strides.push_back(dense[axis]);
    }
    if (!Op::kConjugates || x.dtype() != TF_COMPLEX64) {
      OP_REQUIRES_OK(ctx, OutputPieces(ctx, kOp, 0, x, {{shape, from, shape}},
                                       !Op::kConjugates && IsInHostMemory(x)));
      return;
    }
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    OP_REQUIRES_OK(
        ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
          RETURN_IF_ERROR(EncodeCopy(encoder, kOp, shape, x, from, out, {DenseStrides(shape)}));
          return LaunchElementwise(encoder, {"conj", x.dtype()}, out.num_elements(),
                                   {{"a", out}, {"out", out}});
        }));
  }
};
struct Transpose {
  static constexpr char kOp[] = "Transpose";
  static constexpr bool kConjugates = false;
};
// Other numbers are their own conjugates.
struct ConjugateTranspose {
  static constexpr char kOp[] = "ConjugateTranspose";
  static constexpr bool kConjugates = true;
};
REGISTER_METAL_KERNEL(TransposeOp<Transpose>,
                      .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("perm"));
REGISTER_METAL_KERNEL(TransposeOp<Transpose>,
                      .Types("T", {TF_INT32}).HostMemory("x").HostMemory("perm").HostMemory("y"));
REGISTER_METAL_KERNEL(TransposeOp<ConjugateTranspose>,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_DOUBLE, TF_BOOL, TF_INT8,
                                   TF_INT16, TF_INT32, TF_INT64, TF_UINT8, TF_UINT16, TF_UINT32,
                                   TF_UINT64, TF_COMPLEX64})
                          .HostMemory("perm"));

class TileOp {
 public:
  static constexpr char kOp[] = "Tile";

  explicit TileOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor input, multiples_tensor;
    Shape multiples;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &multiples_tensor));
    OP_REQUIRES_OK(ctx, Indices(kOp, "multiples", multiples_tensor, &multiples));
    Shape shape = input.shape();
    OP_REQUIRES(ctx, multiples.size() == shape.size() && NumElements(multiples) >= 0,
                InvalidArgument("Tile: Expected multiples argument to be a vector of ",
                                shape.size(), " numbers >= 0 but got ", ToString(multiples)));
    // Every dimension becomes two: which copy, and where in it.
    const std::vector<int64_t> in_strides = DenseStrides(input.shape());
    Shape loop;
    Walk from;
    for (size_t d = 0; d < shape.size(); ++d) {
      shape[d] *= multiples[d];
      loop.insert(loop.end(), {multiples[d], input.shape()[d]});
      from.strides.insert(from.strides.end(), {0, in_strides[d]});
    }
    OP_REQUIRES_OK(ctx,
                   OutputPieces(ctx, kOp, 0, input, {{shape, from, loop}}, IsInHostMemory(input)));
  }
};
REGISTER_METAL_KERNEL(TileOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("multiples"));
REGISTER_METAL_KERNEL(
    TileOp,
    .Types("T", {TF_INT32}).HostMemory("input").HostMemory("multiples").HostMemory("output"));

class PackOp {
 public:
  static constexpr char kOp[] = "Pack";

  explicit PackOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("axis", &axis_)); }

  void Compute(KernelContext* ctx) {
    std::vector<Tensor> values(ctx->num_inputs());
    for (size_t i = 0; i < values.size(); ++i) {
      OP_REQUIRES_OK(ctx, ctx->Input(static_cast<int>(i), &values[i]));
      OP_REQUIRES(ctx, values[i].shape() == values[0].shape(),
                  InvalidArgument("Pack: Shapes of all inputs must match: values[0].shape = ",
                                  ToString(values[0].shape()), " != values[", i,
                                  "].shape = ", ToString(values[i].shape())));
    }
    const int64_t rank = values[0].rank() + 1;
    OP_REQUIRES(ctx, axis_ >= -rank && axis_ < rank,
                InvalidArgument("Pack: axis = ", axis_, " not in [", -rank, ", ", rank, ")"));
    const int64_t axis = (axis_ + rank) % rank;
    Shape shape = values[0].shape();
    shape.insert(shape.begin() + axis, static_cast<int64_t>(values.size()));
    Walk to{DenseStrides(shape)};
    const int64_t step = to.strides[axis];
    to.strides.erase(to.strides.begin() + axis);
    if (values.size() == 1) {
      OP_REQUIRES_OK(ctx, OutputPieces(ctx, kOp, 0, values[0], {{shape, to, values[0].shape()}},
                                       IsInHostMemory(values[0])));
      return;
    }
    Tensor out;
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    OP_REQUIRES_OK(ctx, MoveElements(ctx, kOp, IsInHostMemory(out), [&](auto& copies) -> Status {
                     for (const Tensor& value : values) {
                       RETURN_IF_ERROR(copies.Copy(value.shape(), value,
                                                   {DenseStrides(value.shape())}, out, to));
                       to.offset += step;
                     }
                     return Status();
                   }));
  }

 private:
  int64_t axis_ = 0;
};
REGISTER_METAL_KERNEL(PackOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES));
REGISTER_METAL_KERNEL(PackOp, .Types("T", {TF_INT32}).HostMemory("values").HostMemory("output"));

}  // namespace

Status InputAs(KernelContext* ctx, const char* op, int input, DType dtype, Tensor* tensor) {
  Tensor in;
  RETURN_IF_ERROR(ctx->Input(input, &in));
  if (in.dtype() == dtype) {
    *tensor = std::move(in);
    return Status();
  }
  RETURN_IF_ERROR(ctx->AllocateTemp(dtype, in.shape(), tensor));
  RETURN_IF_ERROR(CheckGrid(op, "elements", in.num_elements()));
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch({"cast", in.dtype(), dtype}, Grid(in.num_elements()),
                          {{"x", in}, {"out", *tensor}});
  });
}

Status IndexInput(KernelContext* ctx, const char* op, int input, Tensor* indices) {
  RETURN_IF_ERROR(ctx->Input(input, indices));
  if (indices->dtype() != DType::kInt16) return Status();
  return InputAs(ctx, op, input, DType::kInt32, indices);
}

}  // namespace metal_ops
