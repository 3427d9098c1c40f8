// SegmentSum, -Mean, -Prod, -Max, -Min; SparseSegmentSum, -Mean, -SqrtN, with a number of segments, too, and gradients.

#include <utility>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/scatter.h"
#include "device/kernels/segment_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/metal_buffer.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Waits for it: the largest of ids that are in order, and one more.
Status SegmentsOf(KernelContext* ctx, const char* op, const Tensor& ids, int64_t* segments) {
  *segments = 0;
  const int64_t n = ids.num_elements();
  if (n == 0) return Status();
  BufferRef memory;
  RETURN_IF_ERROR(ResolveBuffer(ids, &memory));
  RETURN_IF_ERROR(EncodeAndWait(ctx, [](Encoder&) { return Status(); }));
  int64_t last = 0;
  int32_t last_of_int32 = 0;
  const bool narrow = ids.dtype() == TF_INT32;
  void* const to = narrow ? static_cast<void*>(&last_of_int32) : &last;
  const size_t bytes = ids.element_bytes();
  if (!ReadTensorMemory(memory.buffer, memory.offset + static_cast<uint64_t>(n - 1) * bytes, to,
                        bytes)) {
    return Internal(op, ": the device refused to read the last of the segment ids");
  }
  *segments = (narrow ? last_of_int32 : last) + 1;
  if (*segments >= 1) return Status();
  return InvalidArgument(op, ": segment ids must be >= 0, got ", *segments - 1);
}

Status CheckIds(const char* op, const Tensor& data, const Tensor& ids, int64_t n) {
  if (data.rank() < 1) {
    return InvalidArgument(op, ": data: Shape must be at least rank 1 but is rank 0");
  }
  if (ids.rank() != 1) {
    return InvalidArgument(op, ": segment_ids should be a vector, got ", ToString(ids.shape()));
  }
  if (ids.dim(0) == n) return Status();
  return InvalidArgument(op, ": segment_ids should be the same size as ", n, " rows, got ",
                         ids.dim(0));
}

SegmentParams PlanSegments(const Tensor& data, const Tensor& ids, float power) {
  SegmentParams p = {};
  p.n = static_cast<uint64_t>(ids.num_elements());
  p.inner = static_cast<uint64_t>(NumElements(Dims(data.shape(), 1, data.shape().size())));
  p.rows = static_cast<uint64_t>(data.dim(0));
  p.power = power;
  return p;
}

// Where each of `segments` begins among the ids.
Status EncodeBegins(Encoder& encoder, const Tensor& ids, const Tensor& begins) {
  const auto n = static_cast<uint64_t>(ids.num_elements());
  return encoder.Launch({"segment_begins", ids.dtype()}, Grid(begins.num_elements()),
                        {{"ids", ids}, {"begins", begins}, {"n", n}});
}

Grid BlocksOf(const SegmentParams& p, int64_t segments) {
  return Grid(static_cast<int64_t>((p.inner + SEGMENT_BLOCK - 1) / SEGMENT_BLOCK), segments);
}

Shape WithRows(const Tensor& data, int64_t rows) {
  Shape shape = data.shape();
  shape[0] = rows;
  return shape;
}

#define SEGMENT_OP(op, shader, signless)        \
  struct op {                                   \
    static constexpr char kOp[] = #op;          \
    static constexpr char kShader[] = shader;   \
    static constexpr bool kSignless = signless; \
  }

template <typename Op>
class SegmentOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SegmentOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor data, ids, out;
    int64_t segments;
    RETURN_IF_ERROR(ctx->Input(0, &data));
    RETURN_IF_ERROR(ctx->Input(1, &ids));
    RETURN_IF_ERROR(CheckIds(kOp, data, ids, data.rank() < 1 ? 0 : data.dim(0)));
    RETURN_IF_ERROR(SegmentsOf(ctx, kOp, ids, &segments));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, WithRows(data, segments), &out));
    const SegmentParams p = PlanSegments(data, ids, 0);
    Tensor begins;
    RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint64, {segments + 1}, &begins));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeBegins(encoder, ids, begins));
      const DType dtype = Op::kSignless ? Unsigned(data.dtype()) : data.dtype();
      return encoder.Launch({Op::kShader, dtype}, BlocksOf(p, segments),
                            {{"data", Value(data).Untyped()},
                             {"begins", begins},
                             {"out", Value(out).Untyped()},
                             {"p", p}});
    });
  }
};
SEGMENT_OP(SegmentSum, "segment_sum", true);
SEGMENT_OP(SegmentMean, "segment_mean", false);
SEGMENT_OP(SegmentProd, "segment_prod", true);
SEGMENT_OP(SegmentMax, "segment_max", false);
SEGMENT_OP(SegmentMin, "segment_min", false);
// Complex numbers have no order.
#define SEGMENT_KERNELS(op, numbers)                                                        \
  REGISTER_METAL_KERNEL(SegmentOp<op>, .Types("T", numbers()).Where("Tindices", TF_INT32)); \
  REGISTER_METAL_KERNEL(SegmentOp<op>, .Types("T", numbers()).Where("Tindices", TF_INT64))
#define ALL_NUMBERS() METAL_DEVICE_ALL_NUMBERS
#define AND_COMPLEX()                                               \
  {TF_FLOAT, TF_HALF,  TF_BFLOAT16, TF_INT8,   TF_INT16,  TF_INT32, \
   TF_INT64, TF_UINT8, TF_UINT16,   TF_UINT32, TF_UINT64, TF_COMPLEX64}
SEGMENT_KERNELS(SegmentSum, AND_COMPLEX);
SEGMENT_KERNELS(SegmentMean, AND_COMPLEX);
SEGMENT_KERNELS(SegmentProd, AND_COMPLEX);
SEGMENT_KERNELS(SegmentMax, ALL_NUMBERS);
SEGMENT_KERNELS(SegmentMin, ALL_NUMBERS);

// ---- of rows that indices name ------------------------------------------------------------------

template <typename Op>
class SparseSegmentOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SparseSegmentOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor data, indices, ids, out;
    int64_t segments;
    RETURN_IF_ERROR(ctx->Input(0, &data));
    RETURN_IF_ERROR(ctx->Input(1, &indices));
    RETURN_IF_ERROR(ctx->Input(2, &ids));
    if (indices.rank() != 1) {
      return InvalidArgument(kOp, ": indices should be a vector, got ", ToString(indices.shape()));
    }
    RETURN_IF_ERROR(CheckIds(kOp, data, ids, indices.dim(0)));
    if (Op::kGiven) {
      RETURN_IF_ERROR(Given(ctx, &segments));
    } else {
      RETURN_IF_ERROR(SegmentsOf(ctx, kOp, ids, &segments));
    }
    const Shape shape = WithRows(data, segments);
    RETURN_IF_ERROR(CheckShape(kOp, "the output's shape", shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    const SegmentParams p = PlanSegments(data, ids, Op::kPower);
    Tensor begins;
    RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint64, {segments + 1}, &begins));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeBegins(encoder, ids, begins));
      return encoder.Launch({"sparse_segment", Unsigned(data.dtype()), indices.dtype()},
                            BlocksOf(p, segments),
                            {{"data", Value(data).Untyped()},
                             {"indices", indices},
                             {"begins", begins},
                             {"out", Value(out).Untyped()},
                             {"p", p}});
    });
  }

  static Status Given(KernelContext* ctx, int64_t* segments) {
    Tensor tensor;
    Shape counts;
    RETURN_IF_ERROR(ctx->Input(3, &tensor));
    RETURN_IF_ERROR(Indices(kOp, "num_segments", tensor, &counts));
    if (tensor.rank() != 0 || counts[0] < 0) {
      return InvalidArgument(kOp, ": num_segments must be one number >= 0, got ", ToString(counts));
    }
    *segments = counts[0];
    return Status();
  }
};

// Rows of a tensor of `output_dim0` rows get their segments' gradients.
template <typename Op>
class SparseSegmentGradOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SparseSegmentGradOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor grad, indices, ids, rows_tensor, out;
    Shape rows, slices;
    ScatterParams scatter;
    RETURN_IF_ERROR(ctx->Input(0, &grad));
    RETURN_IF_ERROR(ctx->Input(1, &indices));
    RETURN_IF_ERROR(ctx->Input(2, &ids));
    RETURN_IF_ERROR(ctx->Input(3, &rows_tensor));
    RETURN_IF_ERROR(Indices(kOp, "output_dim0", rows_tensor, &rows));
    if (rows_tensor.rank() != 0) {
      return InvalidArgument(kOp, ": output_dim0 should be a scalar, got ",
                             ToString(rows_tensor.shape()));
    }
    if (indices.rank() != 1) {
      return InvalidArgument(kOp, ": indices should be a vector, got ", ToString(indices.shape()));
    }
    RETURN_IF_ERROR(CheckIds(kOp, grad, ids, indices.dim(0)));
    const Shape shape = WithRows(grad, rows[0]);
    RETURN_IF_ERROR(CheckShape(kOp, "the output's shape", shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    RETURN_IF_ERROR(PlanRows(kOp, shape, indices, &scatter, &slices));
    if (grad.num_elements() == 0 || indices.num_elements() == 0) return ZeroOutput(ctx, kOp, out);
    Grid grid(0);
    RETURN_IF_ERROR(ScatterGrid(kOp, &scatter, &grid));
    const SegmentParams p = PlanSegments(grad, ids, Op::kPower);
    Tensor begins;
    RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint64, {grad.dim(0) + 1}, &begins));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeBegins(encoder, ids, begins));
      return encoder.Launch({"sparse_segment_grad", grad.dtype(), indices.dtype(), ids.dtype()},
                            grid,
                            {{"grad", grad},
                             {"indices", indices},
                             {"ids", ids},
                             {"begins", begins},
                             {"out", out},
                             {"rows", scatter},
                             {"p", p}});
    });
  }
};

#define SPARSE_(Kernel, op, types, power, given, ...)      \
  struct op {                                              \
    static constexpr char kOp[] = #op;                     \
    static constexpr float kPower = power;                 \
    [[maybe_unused]] static constexpr bool kGiven = given; \
  };                                                       \
  SPARSE_INDEX(Kernel<op>, types, TF_INT32, __VA_ARGS__);  \
  SPARSE_INDEX(Kernel<op>, types, TF_INT64, __VA_ARGS__)
#define SPARSE_INDEX(Kernel, types, index, ...)            \
  SPARSE_IDS(Kernel, types, index, TF_INT32, __VA_ARGS__); \
  SPARSE_IDS(Kernel, types, index, TF_INT64, __VA_ARGS__)
#define SPARSE_IDS(Kernel, types, index, ids, ...) \
  REGISTER_METAL_KERNEL(                           \
      Kernel, .Types("T", types()).Where("Tidx", index).Where("Tsegmentids", ids) __VA_ARGS__)
#define FLOATS() METAL_DEVICE_FLOATS
#define GIVEN .HostMemory("num_segments")
#define SPARSE_GRAD(op, power) \
  SPARSE_(SparseSegmentGradOp, op, FLOATS, power, false, .HostMemory("output_dim0"))
SPARSE_(SparseSegmentOp, SparseSegmentSum, ALL_NUMBERS, 0.0f, false, );
SPARSE_(SparseSegmentOp, SparseSegmentMean, FLOATS, 1.0f, false, );
SPARSE_(SparseSegmentOp, SparseSegmentSqrtN, FLOATS, 0.5f, false, );
SPARSE_(SparseSegmentOp, SparseSegmentSumWithNumSegments, ALL_NUMBERS, 0.0f, true, GIVEN);
SPARSE_(SparseSegmentOp, SparseSegmentMeanWithNumSegments, FLOATS, 1.0f, true, GIVEN);
SPARSE_(SparseSegmentOp, SparseSegmentSqrtNWithNumSegments, FLOATS, 0.5f, true, GIVEN);
SPARSE_GRAD(SparseSegmentSumGrad, 0.0f);
SPARSE_GRAD(SparseSegmentMeanGrad, 1.0f);
SPARSE_GRAD(SparseSegmentSqrtNGrad, 0.5f);

}  // namespace
}  // namespace metal_ops
