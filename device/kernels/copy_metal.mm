// Ops that only move elements: Slice, ConcatV2, Fill, ZerosLike, OnesLike, BroadcastTo.

#include <vector>

#include "device/kernels/host_int32.h"
#include "device/kernels/layout.h"
#include "device/kernels/pieces.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {

Status Indices(const char* op, const char* argument, const Tensor& tensor, Shape* values) {
  if (tensor.rank() > 1) {
    return InvalidArgument(op, ": ", argument,
                           " must be a scalar or a 1-D vector. Found: ", ToString(tensor.shape()));
  }
  values->clear();
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    values->push_back(tensor.dtype() == TF_INT64   ? tensor.host<int64_t>()[i]
                      : tensor.dtype() == TF_INT16 ? tensor.host<int16_t>()[i]
                      : tensor.dtype() == TF_INT8  ? tensor.host<int8_t>()[i]
                                                   : tensor.host<int32_t>()[i]);
  }
  return Status();
}

Status CheckShape(const char* op, const char* argument, const Shape& shape) {
  if (NumElements(shape) >= 0) return Status();
  for (const int64_t size : shape) {
    if (size >= 0) continue;
    return InvalidArgument(op, ": ", argument, " is ", ToString(shape), ": Dimension ", size,
                           " must be >= 0");
  }
  return InvalidArgument(op, ": ", argument, " is ", ToString(shape),
                         ", expected no negative size and at most 2^63 - 1 elements");
}

Status EncodeSpread(Encoder& encoder, const char* op, const Value& value, const Shape& from,
                    const Tensor& out) {
  return EncodeCopy(encoder, op, out.shape(), value, Broadcast(from, out.shape()), out,
                    {DenseStrides(out.shape())});
}

Status EncodeZeros(Encoder& encoder, const char* op, const Tensor& out) {
  constexpr uint64_t kZero[2] = {};  // as wide as the widest dtype
  return EncodeSpread(encoder, op, HostArray(kZero, 2), {}, out);
}

Status ZeroOutput(KernelContext* ctx, const char* op, const Tensor& out) {
  return Encode(ctx, [&](Encoder& encoder) { return EncodeZeros(encoder, op, out); });
}

namespace {

class SliceOp {
 public:
  static constexpr char kOp[] = "Slice";

  explicit SliceOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor input, begin_tensor, size_tensor;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &begin_tensor));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &size_tensor));
    Shape begin, size;
    OP_REQUIRES_OK(ctx, Indices(kOp, "begin", begin_tensor, &begin));
    OP_REQUIRES_OK(ctx, Indices(kOp, "size", size_tensor, &size));
    const size_t rank = input.shape().size();
    OP_REQUIRES(
        ctx, begin.size() == rank && size.size() == rank,
        InvalidArgument("Slice: begin has ", begin.size(), " elements and size has ", size.size(),
                        ", expected ", rank, ", the rank of input ", ToString(input.shape())));
    Walk from{DenseStrides(input.shape())};
    for (size_t d = 0; d < rank; ++d) {
      const int64_t dim = input.shape()[d];
      if (size[d] == -1) size[d] = dim - begin[d];
      OP_REQUIRES(
          ctx, begin[d] >= 0 && size[d] >= 0 && begin[d] <= dim - size[d],
          InvalidArgument("Slice: begin[", d, "]=", begin[d], " and size[", d, "]=", size[d],
                          " do not lie in input ", ToString(input.shape()), "; Expected begin[", d,
                          "] in [0, ", dim, "] and size[", d, "] in [0, ", dim - begin[d], "]"));
      from.offset += begin[d] * from.strides[d];
    }
    OP_REQUIRES_OK(ctx, OutputPieces(ctx, kOp, 0, input, {{size, from, size}}));
  }
};
REGISTER_METAL_KERNEL(
    SliceOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("begin").HostMemory("size"));

template <typename Op>
class ConcatOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ConcatOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    std::vector<Tensor> values(ctx->num_inputs() - 1);
    for (size_t i = 0; i < values.size(); ++i) {
      OP_REQUIRES_OK(ctx, ctx->Input(static_cast<int>(i) + Op::kFirst, &values[i]));
    }
    Tensor axis_tensor, out;
    OP_REQUIRES_OK(ctx,
                   ctx->Input(Op::kFirst == 1 ? 0 : static_cast<int>(values.size()), &axis_tensor));
    Shape axis_values;
    OP_REQUIRES_OK(ctx, Indices(kOp, "axis", axis_tensor, &axis_values));
    const int64_t rank = values[0].rank();
    OP_REQUIRES(
        ctx, axis_values.size() == 1 && axis_values[0] >= -rank && axis_values[0] < rank,
        InvalidArgument(kOp, ": axis is ", ToString(axis_values), ", expected one in [", -rank,
                        ", ", rank, ") for values of shape ", ToString(values[0].shape())));
    const int64_t axis = (axis_values[0] + rank) % rank;
    Shape shape = values[0].shape();
    for (size_t i = 1; i < values.size(); ++i) {
      Shape expected = values[0].shape();
      if (values[i].rank() == rank) expected[axis] = values[i].dim(static_cast<int>(axis));
      OP_REQUIRES(ctx, values[i].shape() == expected,
                  InvalidArgument(kOp, ": Dimensions of inputs should match: values[", i,
                                  "] has shape ", ToString(values[i].shape()), ", values[0] has ",
                                  ToString(values[0].shape()), ", they may differ in axis ", axis,
                                  " only"));
      shape[axis] += expected[axis];
    }
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     Walk to{DenseStrides(shape)};
                     for (const Tensor& value : values) {
                       RETURN_IF_ERROR(EncodeCopy(encoder, kOp, value.shape(), value,
                                                  {DenseStrides(value.shape())}, out, to));
                       to.offset += value.dim(static_cast<int>(axis)) * to.strides[axis];
                     }
                     return Status();
                   }));
  }
};
// Where the values begin: the axis is after or before them.
struct ConcatV2 {
  static constexpr char kOp[] = "ConcatV2";
  static constexpr int kFirst = 0;
};
struct Concat {
  static constexpr char kOp[] = "Concat";
  static constexpr int kFirst = 1;
};
REGISTER_METAL_KERNEL(ConcatOp<ConcatV2>,
                      .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("axis"));
REGISTER_METAL_KERNEL(ConcatOp<Concat>,
                      .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("concat_dim"));

// `value` repeated over `shape`.
Status Spread(KernelContext* ctx, const char* op, const Value& value, const Shape& from,
              const Shape& shape) {
  Tensor out;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
  return Encode(ctx, [&](Encoder& encoder) { return EncodeSpread(encoder, op, value, from, out); });
}

class FillOp {
 public:
  static constexpr char kOp[] = "Fill";

  explicit FillOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor dims, value;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &dims));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &value));
    Shape shape;
    OP_REQUIRES_OK(ctx, Indices(kOp, "dims", dims, &shape));
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "dims", shape));
    OP_REQUIRES(
        ctx, value.num_elements() == 1,
        InvalidArgument("Fill: value has shape ", ToString(value.shape()), ", expected a scalar"));
    OP_REQUIRES_OK(ctx, Spread(ctx, kOp, value, {}, shape));
  }
};
REGISTER_METAL_KERNEL(FillOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("dims"));

class BroadcastToOp {
 public:
  static constexpr char kOp[] = "BroadcastTo";

  explicit BroadcastToOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor input, shape_tensor;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &shape_tensor));
    Shape shape, joint;
    OP_REQUIRES_OK(ctx, Indices(kOp, "shape", shape_tensor, &shape));
    OP_REQUIRES_OK(ctx, BroadcastShape(kOp, input.shape(), shape, &joint));
    OP_REQUIRES(ctx, NumElements(shape) >= 0 && joint == shape,
                InvalidArgument("BroadcastTo: Incompatible shapes: input ", ToString(input.shape()),
                                " cannot be broadcast to ", ToString(shape)));
    OP_REQUIRES_OK(
        ctx, OutputPieces(ctx, kOp, 0, input, {{shape, Broadcast(input.shape(), shape), shape}},
                          IsInHostMemory(input)));
  }
};
REGISTER_METAL_KERNEL(BroadcastToOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("shape"));
REGISTER_METAL_KERNEL(
    BroadcastToOp,
    .Types("T", {TF_INT32}).HostMemory("input").HostMemory("shape").HostMemory("output"));

// The bits of 1 in every dtype, little endian.
struct Element {
  uint64_t low, high;
};
Element One(DType dtype) {
  switch (static_cast<TF_DataType>(dtype)) {
    case TF_FLOAT:
    case TF_COMPLEX64:
      return {0x3f800000, 0};
    case TF_HALF:
      return {0x3c00, 0};
    case TF_BFLOAT16:
      return {0x3f80, 0};
    case TF_DOUBLE:
    case TF_COMPLEX128:
      return {0x3ff0000000000000, 0};
    default:
      return {1, 0};
  }
}

template <typename Op>
class LikeOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit LikeOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor x;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    const Element element = Op::kOne ? One(x.dtype()) : Element{0, 0};
    OP_REQUIRES_OK(ctx, Spread(ctx, kOp, element, {}, x.shape()));
  }
};

struct ZerosLike {
  static constexpr char kOp[] = "ZerosLike";
  static constexpr bool kOne = false;
};
struct OnesLike {
  static constexpr char kOp[] = "OnesLike";
  static constexpr bool kOne = true;
};
REGISTER_METAL_KERNEL(LikeOp<ZerosLike>, .Types("T", METAL_DEVICE_MOVABLE_TYPES));
REGISTER_METAL_KERNEL(LikeOp<OnesLike>, .Types("T", METAL_DEVICE_MOVABLE_TYPES));

}  // namespace
}  // namespace metal_ops
