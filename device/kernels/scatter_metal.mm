// GatherNd, ScatterNd, TensorScatter..., updates of variables by indices, and UnsortedSegment...

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/gather.h"
#include "device/kernels/gather_params.h"
#include "device/kernels/layout.h"
#include "device/kernels/scatter.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {
namespace {

// Threads that look at all indices. More would do more of that in all than they save: a processor gets two for each of
// its cores.
int64_t MostRanges() {
  constexpr int64_t kMost = 16;
  static const int64_t of_cores =
      std::clamp<int64_t>(2 * int64_t{std::thread::hardware_concurrency()}, int64_t{2}, kMost);
  return ThreadgroupsRunAtOnce() ? kMost : of_cores;
}

// indices [..., depth] of slices of a tensor of `shape`; the result's or the updates' shape is
// `slices`.
Status PlanNd(const char* op, const Shape& shape, const Tensor& indices, ScatterParams* p,
              Shape* slices) {
  if (shape.empty()) return InvalidArgument(op, ": Output must be at least 1-D, got a scalar");
  if (indices.rank() < 1) {
    return InvalidArgument(op, ": indices must be at least a vector, got a scalar");
  }
  const size_t indices_rank = indices.shape().size();
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > static_cast<int64_t>(shape.size()) || depth > SCATTER_DIMS) {
    return InvalidArgument(op, ": index innermost dimension length must be <= the rank of the ",
                           "tensor, ", shape.size(), ", and at most ", SCATTER_DIMS, "; got ",
                           depth);
  }
  const auto split = static_cast<size_t>(depth);
  *p = {};
  p->depth = static_cast<uint32_t>(depth);
  for (size_t d = 0; d < split; ++d) p->dims[d] = static_cast<uint64_t>(shape[d]);
  p->rows = static_cast<uint64_t>(NumElements(Dims(shape, 0, split)));
  p->inner = static_cast<uint64_t>(NumElements(Dims(shape, split, shape.size())));
  *slices = Dims(indices.shape(), 0, indices_rank - 1);
  p->updates = static_cast<uint64_t>(NumElements(*slices));
  slices->insert(slices->end(), shape.begin() + depth, shape.end());
  return Status();
}

}  // namespace

Status PlanRows(const char* op, const Shape& shape, const Tensor& indices, ScatterParams* p,
                Shape* slices) {
  if (shape.empty()) {
    return InvalidArgument(op, ": the tensor must have at least 1 dimension, got a scalar");
  }
  *p = {};
  p->depth = 1;
  p->dims[0] = p->rows = static_cast<uint64_t>(shape[0]);
  p->inner = static_cast<uint64_t>(NumElements(Dims(shape, 1, shape.size())));
  p->updates = static_cast<uint64_t>(indices.num_elements());
  *slices = indices.shape();
  slices->insert(slices->end(), shape.begin() + 1, shape.end());
  return Status();
}

Status ScatterGrid(const char* op, ScatterParams* p, Grid* grid) {
  const int64_t most = MostRanges();
  p->range = (p->rows + most - 1) / most;
  const auto ranges = static_cast<int64_t>((p->rows + p->range - 1) / p->range);
  // The ranges are enough for the cores of a processor; a GPU has more threads than they are.
  p->part = ThreadgroupsRunAtOnce() || ranges < most ? SCATTER_BLOCK : p->inner;
  const auto parts = static_cast<int64_t>((p->inner + p->part - 1) / p->part);
  *grid = Grid(parts, ranges);
  return CheckGrid(op, "elements", parts);
}

Status EncodeScatter(Encoder& encoder, const char* op, const char* change, bool signless,
                     ScatterParams p, const Tensor& indices, const Tensor& updates,
                     const Tensor& out) {
  if (p.updates == 0 || p.rows == 0 || p.inner == 0) return Status();
  Grid grid(0);
  RETURN_IF_ERROR(ScatterGrid(op, &p, &grid));
  const bool moves = change == std::string("update");
  const bool plain = !signless || out.dtype() == DType::kBool;
  const DType dtype = plain ? out.dtype() : Unsigned(out.dtype());
  const Shader shader =
      moves ? Shader("scatter_update", std::to_string(out.element_bytes()), indices.dtype())
            : Shader("scatter", change, dtype, indices.dtype());
  return encoder.Launch(shader, grid,
                        {{"indices", indices},
                         {"updates", Value(updates).Untyped()},
                         {"out", Value(out).Untyped()},
                         {"p", p}});
}

namespace {

// Checks for as many slices as indices [..., depth] name of a tensor of `shape`.
Status CheckNd(const char* op, const Shape& shape, const Tensor& indices, const Tensor& updates,
               const ScatterParams& p, const Shape& slices) {
  if (updates.shape() != slices) {
    const auto outer = static_cast<size_t>(indices.rank() - 1);
    const Shape &given = updates.shape(), named = indices.shape();
    if (given.size() < outer || Dims(given, 0, outer) != Dims(named, 0, outer)) {
      return InvalidArgument(op, ": Dimensions [0,", outer, ") of indices[shape=", ToString(named),
                             "] must match dimensions [0,", outer,
                             ") of updates[shape=", ToString(given), "]");
    }
    return InvalidArgument(op, ": Dimensions [", p.depth, ",", shape.size(),
                           ") of input[shape=", ToString(shape), "] must match dimensions [", outer,
                           ",", given.size(), ") of updates[shape=", ToString(given), "]");
  }
  if (p.rows * p.inner == 0 && p.updates > 0 && NumElements(slices) > 0) {
    return InvalidArgument(op, ": Indices and updates specified for empty output of shape ",
                           ToString(shape), ", indices ", ToString(indices.shape()));
  }
  return Status();
}

Status CheckUpdates(const char* op, const Tensor& updates, const Shape& slices) {
  if (updates.shape() == slices) return Status();
  return InvalidArgument(op, ": updates must have shape ", ToString(slices),
                         ", that of the indices and of what they name; got ",
                         ToString(updates.shape()));
}

// ---- GatherNd -----------------------------------------------------------------------------------

Status Gather(KernelContext* ctx, const char* op, const Tensor& in, const Tensor& indices) {
  Tensor out;
  ScatterParams p;
  Shape shape;
  RETURN_IF_ERROR(PlanNd(op, in.shape(), indices, &p, &shape));
  if (in.num_elements() == 0 && p.updates > 0) {
    return InvalidArgument(op, ": Requested more than 0 entries, but params is empty. Params ",
                           "shape: ", ToString(in.shape()));
  }
  RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
  const int64_t total = out.num_elements();
  if (total == 0) return Status();
  return Encode(ctx, [&](Encoder& encoder) {
    const auto inner = static_cast<int64_t>(p.inner), slices = total / inner;
    const RowShader shader = RowShaderOf("gather_nd", inner, out.element_bytes());
    const bool rows = shader.blocks > 0 && slices <= UINT32_MAX;
    return encoder.Launch(
        {rows ? shader.stem : "gather_nd", std::to_string(out.element_bytes()), indices.dtype()},
        rows ? Grid(shader.blocks, slices) : Grid::Flat(total),
        {{"in", Value(in).Untyped()},
         {"indices", indices},
         {"out", Value(out).Untyped()},
         {"p", p}});
  });
}

class GatherNdOp {
 public:
  static constexpr char kOp[] = "GatherNd";

  explicit GatherNdOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, indices;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, IndexInput(ctx, kOp, 1, &indices));
    OP_REQUIRES_OK(ctx, Gather(ctx, kOp, in, indices));
  }
};

class ResourceGatherNdOp {
 public:
  static constexpr char kOp[] = "ResourceGatherNd";

  explicit ResourceGatherNdOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, /*exclusive=*/false, {0});
    Tensor params, indices;
    OP_REQUIRES_OK(ctx, lock.Read(0, &params));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &indices));
    OP_REQUIRES_OK(ctx, Gather(ctx, kOp, params, indices));
  }
};
// For both types of indices; `host` names the inputs in host memory.
#define INDEXED(Kernel, attr, host, ...)                                                     \
  REGISTER_METAL_KERNEL(Kernel, .Types(attr, __VA_ARGS__).Where("Tindices", TF_INT32) host); \
  REGISTER_METAL_KERNEL(Kernel, .Types(attr, __VA_ARGS__).Where("Tindices", TF_INT64) host)
#define ALL_TYPES METAL_DEVICE_ALL_TYPES
INDEXED(GatherNdOp, "Tparams", , ALL_TYPES);
REGISTER_METAL_KERNEL(GatherNdOp, .Types("Tparams", ALL_TYPES).Where("Tindices", TF_INT16));
INDEXED(ResourceGatherNdOp, "dtype", .HostMemory("resource"), ALL_TYPES);

// ---- ScatterNd ----------------------------------------------------------------------------------

class ScatterNdOp {
 public:
  static constexpr char kOp[] = "ScatterNd";

  explicit ScatterNdOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor indices, updates, shape_tensor, out;
    Shape shape, slices;
    ScatterParams p;
    RETURN_IF_ERROR(ctx->Input(0, &indices));
    RETURN_IF_ERROR(ctx->Input(1, &updates));
    RETURN_IF_ERROR(ctx->Input(2, &shape_tensor));
    RETURN_IF_ERROR(Indices(kOp, "shape", shape_tensor, &shape));
    RETURN_IF_ERROR(CheckShape(kOp, "shape", shape));
    RETURN_IF_ERROR(PlanNd(kOp, shape, indices, &p, &slices));
    RETURN_IF_ERROR(CheckNd(kOp, shape, indices, updates, p, slices));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeZeros(encoder, kOp, out));
      return EncodeScatter(encoder, kOp, "add", /*signless=*/true, p, indices, updates, out);
    });
  }
};
#define SUMMED_TYPES METAL_DEVICE_ALL_NUMBERS
#define WITH_COMPLEX                                                \
  {TF_FLOAT, TF_HALF,  TF_BFLOAT16, TF_INT8,   TF_INT16,  TF_INT32, \
   TF_INT64, TF_UINT8, TF_UINT16,   TF_UINT32, TF_UINT64, TF_COMPLEX64}
#define WITH_BOOL                                                                 \
  {TF_FLOAT, TF_HALF,   TF_BFLOAT16, TF_INT8,   TF_INT16,     TF_INT32, TF_INT64, \
   TF_UINT8, TF_UINT16, TF_UINT32,   TF_UINT64, TF_COMPLEX64, TF_BOOL}
#define SCATTER_ND .Types("T", WITH_BOOL).HostMemory("shape")
REGISTER_METAL_KERNEL(ScatterNdOp, SCATTER_ND.Where("Tindices", TF_INT32));
REGISTER_METAL_KERNEL(ScatterNdOp, SCATTER_ND.Where("Tindices", TF_INT64));

// ---- TensorScatter...: a copy of a tensor, changed ----------------------------------------------

template <typename Op>
class TensorScatterOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit TensorScatterOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor tensor, indices, updates, out;
    Shape slices;
    ScatterParams p;
    RETURN_IF_ERROR(ctx->Input(0, &tensor));
    RETURN_IF_ERROR(ctx->Input(1, &indices));
    RETURN_IF_ERROR(ctx->Input(2, &updates));
    RETURN_IF_ERROR(PlanNd(kOp, tensor.shape(), indices, &p, &slices));
    RETURN_IF_ERROR(CheckNd(kOp, tensor.shape(), indices, updates, p, slices));
    RETURN_IF_ERROR(ctx->ForwardInputOrAllocateOutput(0, 0, tensor.shape(), &out));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (out.opaque() != tensor.opaque()) RETURN_IF_ERROR(encoder.Copy(tensor, out));
      return EncodeScatter(encoder, kOp, Op::kChange, Op::kSignless, p, indices, updates, out);
    });
  }
};

#define CHANGE(op, change, signless)            \
  struct op {                                   \
    static constexpr char kOp[] = #op;          \
    static constexpr char kChange[] = change;   \
    static constexpr bool kSignless = signless; \
  }
CHANGE(TensorScatterUpdate, "update", true);
CHANGE(TensorScatterAdd, "add", true);
CHANGE(TensorScatterSub, "sub", true);
CHANGE(TensorScatterMax, "max", false);
CHANGE(TensorScatterMin, "min", false);
CHANGE(ScatterNdNonAliasingAdd, "add", true);
INDEXED(TensorScatterOp<TensorScatterUpdate>, "T", , ALL_TYPES);
INDEXED(TensorScatterOp<TensorScatterAdd>, "T", , WITH_COMPLEX);
INDEXED(TensorScatterOp<TensorScatterSub>, "T", , WITH_COMPLEX);
INDEXED(TensorScatterOp<TensorScatterMax>, "T", , SUMMED_TYPES);
INDEXED(TensorScatterOp<TensorScatterMin>, "T", , SUMMED_TYPES);
INDEXED(TensorScatterOp<ScatterNdNonAliasingAdd>, "T", , WITH_BOOL);

// ---- variables ----------------------------------------------------------------------------------

template <typename Op>
class ResourceScatterOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ResourceScatterOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, /*exclusive=*/true, {0});
    Tensor var;
    OP_REQUIRES_OK(ctx, lock.Get(0, &var));
    OP_REQUIRES_OK(ctx, Run(ctx, var));
    if (Op::kRef) ForwardRef(ctx, 0, 0);
  }

 private:
  static Status Run(KernelContext* ctx, const Tensor& var) {
    Tensor indices, updates;
    Shape slices;
    ScatterParams p;
    RETURN_IF_ERROR(ctx->Input(1, &indices));
    RETURN_IF_ERROR(ctx->Input(2, &updates));
    RETURN_IF_ERROR(Op::kNd ? PlanNd(kOp, var.shape(), indices, &p, &slices)
                            : PlanRows(kOp, var.shape(), indices, &p, &slices));
    p.one_value = !Op::kNd && updates.rank() == 0 && !slices.empty() ? 1 : 0;
    if (Op::kNd) {
      RETURN_IF_ERROR(CheckNd(kOp, var.shape(), indices, updates, p, slices));
    } else if (p.one_value == 0) {
      RETURN_IF_ERROR(CheckUpdates(kOp, updates, slices));
    }
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodeScatter(encoder, kOp, Op::kChange, Op::kSignless, p, indices, updates, var);
    });
  }
};

#define VARIABLE_CHANGE(op, change, signless, nd, ref) \
  struct op {                                          \
    static constexpr char kOp[] = #op;                 \
    static constexpr char kChange[] = change;          \
    static constexpr bool kSignless = signless;        \
    static constexpr bool kNd = nd;                    \
    static constexpr bool kRef = ref;                  \
  }
#define RESOURCE(op, change, signless, nd, attr, ...) \
  VARIABLE_CHANGE(op, change, signless, nd, false);   \
  INDEXED(ResourceScatterOp<op>, attr, .HostMemory(nd ? "ref" : "resource"), __VA_ARGS__)
RESOURCE(ResourceScatterUpdate, "update", true, false, "dtype", ALL_TYPES);
RESOURCE(ResourceScatterAdd, "add", true, false, "dtype", WITH_COMPLEX);
RESOURCE(ResourceScatterSub, "sub", true, false, "dtype", WITH_COMPLEX);
RESOURCE(ResourceScatterMul, "mul", true, false, "dtype", WITH_COMPLEX);
RESOURCE(ResourceScatterDiv, "div", false, false, "dtype", WITH_COMPLEX);
RESOURCE(ResourceScatterMax, "max", false, false, "dtype", SUMMED_TYPES);
RESOURCE(ResourceScatterMin, "min", false, false, "dtype", SUMMED_TYPES);
RESOURCE(ResourceScatterNdUpdate, "update", true, true, "T", ALL_TYPES);
RESOURCE(ResourceScatterNdAdd, "add", true, true, "T", WITH_BOOL);
RESOURCE(ResourceScatterNdSub, "sub", true, true, "T", WITH_BOOL);
RESOURCE(ResourceScatterNdMax, "max", false, true, "T", SUMMED_TYPES);
RESOURCE(ResourceScatterNdMin, "min", false, true, "T", SUMMED_TYPES);
// For TensorFlow 1's graphs.
#define REF(op, change, signless, nd, ...)         \
  VARIABLE_CHANGE(op, change, signless, nd, true); \
  INDEXED(ResourceScatterOp<op>, "T", , __VA_ARGS__)
REF(ScatterUpdate, "update", true, false, ALL_TYPES);
REF(ScatterAdd, "add", true, false, WITH_COMPLEX);
REF(ScatterSub, "sub", true, false, WITH_COMPLEX);
REF(ScatterMul, "mul", true, false, WITH_COMPLEX);
REF(ScatterDiv, "div", false, false, WITH_COMPLEX);
REF(ScatterMax, "max", false, false, SUMMED_TYPES);
REF(ScatterMin, "min", false, false, SUMMED_TYPES);
REF(ScatterNdUpdate, "update", true, true, ALL_TYPES);
REF(ScatterNdAdd, "add", true, true, WITH_COMPLEX);
REF(ScatterNdSub, "sub", true, true, WITH_COMPLEX);
REF(ScatterNdMax, "max", false, true, SUMMED_TYPES);
REF(ScatterNdMin, "min", false, true, SUMMED_TYPES);

// ---- segments -----------------------------------------------------------------------------------

// One element that changes nothing: bits by dtype, little endian.
uint64_t Neutral(const std::string& change, DType dtype) {
  const bool largest = change == "max";
  if (change == "add") return 0;
  switch (dtype) {
    case DType::kComplex64:
      return 0x3f800000;  // its real part
    case DType::kFloat:
      return change == "mul" ? 0x3f800000 : largest ? 0xff7fffff : 0x7f7fffff;
    case DType::kHalf:
      return change == "mul" ? 0x3c00 : largest ? 0xfbff : 0x7bff;
    case DType::kBfloat16:
      return change == "mul" ? 0x3f80 : largest ? 0xff7f : 0x7f7f;
    default:
      break;
  }
  if (change == "mul") return 1;
  const bool has_sign = Unsigned(dtype) != dtype;
  const size_t bits = 8 * SizeOf(dtype);
  const uint64_t all = ~uint64_t{0} >> (64 - bits), sign = uint64_t{1} << (bits - 1);
  if (largest) return has_sign ? sign : 0;
  return has_sign ? all ^ sign : all;
}

template <typename Op>
class UnsortedSegmentOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit UnsortedSegmentOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor data, ids, count_tensor, out;
    Shape counts, slices;
    ScatterParams p;
    RETURN_IF_ERROR(ctx->Input(0, &data));
    RETURN_IF_ERROR(IndexInput(ctx, kOp, 1, &ids));
    RETURN_IF_ERROR(ctx->Input(2, &count_tensor));
    RETURN_IF_ERROR(Indices(kOp, "num_segments", count_tensor, &counts));
    if (count_tensor.rank() != 0 || counts[0] < 0) {
      return InvalidArgument(kOp, ": num_segments must be one number >= 0, got ", ToString(counts));
    }
    const size_t ids_rank = ids.shape().size();
    if (data.shape().size() < ids_rank || Dims(data.shape(), 0, ids_rank) != ids.shape()) {
      return InvalidArgument(kOp, ": data.shape = ", ToString(data.shape()),
                             " does not start with segment_ids.shape = ", ToString(ids.shape()));
    }
    Shape shape = Dims(data.shape(), ids_rank, data.shape().size());
    shape.insert(shape.begin(), counts[0]);
    RETURN_IF_ERROR(CheckShape(kOp, "the output's shape", shape));
    RETURN_IF_ERROR(PlanRows(kOp, shape, ids, &p, &slices));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    const uint64_t neutral[2] = {Neutral(Op::kChange, data.dtype()), 0};
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeSpread(encoder, kOp, HostArray(neutral, 2), {}, out));
      return EncodeScatter(encoder, kOp, Op::kChange, Op::kSignless, p, ids, data, out);
    });
  }
};
CHANGE(UnsortedSegmentSum, "add", true);
CHANGE(UnsortedSegmentProd, "mul", true);
CHANGE(UnsortedSegmentMax, "max", false);
CHANGE(UnsortedSegmentMin, "min", false);
INDEXED(UnsortedSegmentOp<UnsortedSegmentSum>, "T", .HostMemory("num_segments"), WITH_COMPLEX);
REGISTER_METAL_KERNEL(
    UnsortedSegmentOp<UnsortedSegmentSum>,
    .Types("T", WITH_COMPLEX).Where("Tindices", TF_INT16).HostMemory("num_segments"));
INDEXED(UnsortedSegmentOp<UnsortedSegmentProd>, "T", .HostMemory("num_segments"), WITH_COMPLEX);
INDEXED(UnsortedSegmentOp<UnsortedSegmentMax>, "T", .HostMemory("num_segments"), SUMMED_TYPES);
INDEXED(UnsortedSegmentOp<UnsortedSegmentMin>, "T", .HostMemory("num_segments"), SUMMED_TYPES);

}  // namespace
}  // namespace metal_ops
