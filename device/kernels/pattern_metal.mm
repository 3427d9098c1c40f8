// Cumsum, Cumprod, CumulativeLogsumexp, MatrixBandPart, OneHot, Range, Empty.

#include <cmath>
#include <type_traits>

#include "device/kernels/elementwise.h"
#include "device/kernels/half.h"
#include "device/kernels/layout.h"
#include "device/kernels/pattern_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

template <typename Op>
class ScanOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ScanOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("exclusive", &exclusive_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reverse", &reverse_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor in, axis_tensor, out;
    Shape axes;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &axis_tensor));
    RETURN_IF_ERROR(Indices(kOp, "axis", axis_tensor, &axes));
    const int64_t rank = in.rank();
    if (axes.size() != 1 || axes[0] < -rank || axes[0] >= rank) {
      return InvalidArgument(kOp, ": Expected scan axis in the range [", -rank, ", ", rank,
                             "), but got ", ToString(axes));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    const auto axis = static_cast<size_t>((axes[0] + rank) % rank);
    ScanParams p = {};
    p.count = static_cast<uint64_t>(in.shape()[axis]);
    p.inner = static_cast<uint64_t>(NumElements(Dims(in.shape(), axis + 1, in.shape().size())));
    p.exclusive = exclusive_ ? 1 : 0;
    p.reverse = reverse_ ? 1 : 0;
    const auto inner = static_cast<int64_t>(p.inner);
    const int64_t outer = out.num_elements() / inner / in.shape()[axis];
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({Op::kShader, Unsigned(in.dtype())}, Grid(inner, outer),
                            {{"in", in}, {"out", out}, {"p", p}});
    });
  }

  bool exclusive_ = false, reverse_ = false;
};
struct Cumsum {
  static constexpr char kOp[] = "Cumsum";
  static constexpr char kShader[] = "scan_sum";
};
struct Cumprod {
  static constexpr char kOp[] = "Cumprod";
  static constexpr char kShader[] = "scan_prod";
};
struct CumulativeLogsumexp {
  static constexpr char kOp[] = "CumulativeLogsumexp";
  static constexpr char kShader[] = "scan_log_sum_exp";
};
REGISTER_METAL_KERNEL(ScanOp<Cumsum>, .Types("T", METAL_DEVICE_ALL_NUMBERS).HostMemory("axis"));
REGISTER_METAL_KERNEL(ScanOp<Cumprod>, .Types("T", METAL_DEVICE_ALL_NUMBERS).HostMemory("axis"));
REGISTER_METAL_KERNEL(ScanOp<Cumsum>, .Types("T", {TF_COMPLEX64}).HostMemory("axis"));
REGISTER_METAL_KERNEL(ScanOp<Cumprod>, .Types("T", {TF_COMPLEX64}).HostMemory("axis"));
REGISTER_METAL_KERNEL(ScanOp<CumulativeLogsumexp>,
                      .Types("T", METAL_DEVICE_FLOATS).HostMemory("axis"));

class BandPartOp {
 public:
  static constexpr char kOp[] = "MatrixBandPart";

  explicit BandPartOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    constexpr const char* kNames[] = {"num_lower", "num_upper"};
    Tensor in, out, sides[2];
    int64_t kept[2];
    RETURN_IF_ERROR(ctx->Input(0, &in));
    if (in.rank() < 2) {
      return InvalidArgument(
          kOp, ": input must be at least 2-dim, received shape: ", ToString(in.shape()));
    }
    BandParams p = {};
    const int64_t rows = in.dim(in.rank() - 2), columns = in.dim(in.rank() - 1);
    for (int i = 0; i < 2; ++i) {
      Shape values;
      RETURN_IF_ERROR(ctx->Input(i + 1, &sides[i]));
      RETURN_IF_ERROR(Indices(kOp, kNames[i], sides[i], &values));
      const int64_t most = i == 0 ? rows : columns;
      if (sides[i].rank() != 0 || values[0] > most) {
        return InvalidArgument(kOp, ": ", kNames[i],
                               " must be one number, negative or less or equal to ", most, ", got ",
                               ToString(values));
      }
      kept[i] = values[0];
    }
    p.lower = kept[0];
    p.upper = kept[1];
    RETURN_IF_ERROR(ctx->ForwardInputOrAllocateOutput(0, 0, in.shape(), &out));
    if (out.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"band_part", std::to_string(in.element_bytes())},
                            Grid(columns, rows, in.num_elements() / rows / columns),
                            {{"in", Value(in).Untyped()}, {"out", Value(out).Untyped()}, {"p", p}});
    });
  }
};
#define BAND .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("num_lower").HostMemory("num_upper")
REGISTER_METAL_KERNEL(BandPartOp, BAND.Where("Tindex", TF_INT32));
REGISTER_METAL_KERNEL(BandPartOp, BAND.Where("Tindex", TF_INT64));

class OneHotOp {
 public:
  static constexpr char kOp[] = "OneHot";

  explicit OneHotOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("axis", &axis_)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor indices, depth, on, off, out;
    RETURN_IF_ERROR(ctx->Input(0, &indices));
    RETURN_IF_ERROR(ctx->Input(1, &depth));
    RETURN_IF_ERROR(ctx->Input(2, &on));
    RETURN_IF_ERROR(ctx->Input(3, &off));
    const int64_t rank = indices.rank();
    if (axis_ < -1 || axis_ > rank) {
      return InvalidArgument("OneHot: Expected axis to be -1 or between [0, ", rank + 1,
                             "). But received: ", axis_);
    }
    if (depth.rank() != 0 || on.rank() != 0 || off.rank() != 0 || *depth.host<int32_t>() < 0) {
      return InvalidArgument("OneHot: depth, on_value and off_value must be scalars, and depth "
                             "must be non-negative");
    }
    Shape shape = indices.shape();
    const int64_t axis = axis_ == -1 ? rank : axis_;
    const int64_t classes = *depth.host<int32_t>();
    int64_t inner = 1;
    for (int64_t d = axis; d < rank; ++d) inner *= indices.dim(d);
    shape.insert(shape.begin() + axis, classes);
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    const int64_t outer = out.num_elements() / classes / inner;
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeSpread(encoder, kOp, Value(off).Untyped(), {}, out));
      return encoder.Launch({"one_hot", std::to_string(out.element_bytes()), indices.dtype()},
                            inner == 1 ? Grid(outer) : Grid(inner, outer),
                            {{"indices", indices},
                             {"on", Value(on).Untyped()},
                             {"out", Value(out).Untyped()},
                             {"depth", static_cast<uint32_t>(classes)},
                             {"inner", static_cast<uint64_t>(inner)}});
    });
  }

  int64_t axis_ = -1;
};
#define ONE_HOT .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("depth")
REGISTER_METAL_KERNEL(OneHotOp, ONE_HOT.Where("TI", TF_UINT8));
REGISTER_METAL_KERNEL(OneHotOp, ONE_HOT.Where("TI", TF_INT8));
REGISTER_METAL_KERNEL(OneHotOp, ONE_HOT.Where("TI", TF_INT32));
REGISTER_METAL_KERNEL(OneHotOp, ONE_HOT.Where("TI", TF_INT64));

// A float of any type.
float HostFloat(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kHalf:
      return FromHalf(*tensor.host<uint16_t>());
    case DType::kBfloat16:
      return FromBfloat(*tensor.host<uint16_t>());
    default:
      return *tensor.host<float>();
  }
}

template <typename T>
Status RunRange(KernelContext* ctx, const char* op) {
  constexpr const char* kNames[] = {"start", "limit", "delta"};
  Tensor out;
  T values[3];
  for (int i = 0; i < 3; ++i) {
    Tensor tensor;
    RETURN_IF_ERROR(ctx->Input(i, &tensor));
    if (tensor.rank() != 0) {
      return InvalidArgument(op, ": ", kNames[i], " must be a scalar, not shape ",
                             ToString(tensor.shape()));
    }
    if constexpr (std::is_integral_v<T>) {
      values[i] = *tensor.host<T>();
    } else {
      values[i] = HostFloat(tensor);
    }
  }
  const T first = values[0], limit = values[1], step = values[2];
  if (step == 0) return InvalidArgument(op, ": Requires delta != 0: ", step);
  if (step > 0 ? first > limit : first < limit) {
    return InvalidArgument(
        op, ": Requires start ",
        step > 0 ? "<= limit when delta > 0: " : ">= limit when delta < 0: ", first, "/", limit);
  }
  long double count;
  if constexpr (std::is_integral_v<T>) {
    count = std::ceil((static_cast<long double>(limit) - first) / step);  // may be more than int64
  } else {
    // Each step is rounded, as by the CPU: a graph knows the size before the op runs.
    const DType type = ctx->output_dtype(0);
    count = std::ceil(RoundTo(type, RoundTo(type, limit - first) / step));
  }
  if (!(count >= 0 && count < 4294967296.0L)) {
    return InvalidArgument(op, ": ", static_cast<double>(count),
                           " elements are more than the METAL device provides, 2^32 - 1");
  }
  const auto size = static_cast<int64_t>(count);
  RETURN_IF_ERROR(ctx->AllocateOutput(0, {size}, &out));
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch({"range", out.dtype()}, Grid(size),
                          {{"out", out}, {"first", first}, {"step", step}});
  });
}

class RangeOp {
 public:
  static constexpr char kOp[] = "Range";

  explicit RangeOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    const bool whole = ctx->output_dtype(0) == TF_INT64;
    OP_REQUIRES_OK(ctx, whole ? RunRange<int64_t>(ctx, kOp) : RunRange<float>(ctx, kOp));
  }
};
REGISTER_METAL_KERNEL(RangeOp, .Types("Tidx", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64})
                                   .HostMemory("start")
                                   .HostMemory("limit")
                                   .HostMemory("delta"));

class EmptyOp {
 public:
  static constexpr char kOp[] = "Empty";

  explicit EmptyOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("init", &init_)); }

  void Compute(KernelContext* ctx) {
    Tensor shape_tensor, out;
    Shape shape;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &shape_tensor));
    OP_REQUIRES_OK(ctx, Indices(kOp, "shape", shape_tensor, &shape));
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "shape", shape));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    if (!init_) return;
    OP_REQUIRES_OK(ctx, ZeroOutput(ctx, kOp, out));
  }

 private:
  bool init_ = false;
};
REGISTER_METAL_KERNEL(EmptyOp, .Types("dtype", METAL_DEVICE_ALL_TYPES).HostMemory("shape"));

}  // namespace
}  // namespace metal_ops
