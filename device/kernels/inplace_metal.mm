// Ops that write into their input's memory, and those that keep others from doing so: _ParallelConcatStart and
// _ParallelConcatUpdate, of which TensorFlow makes tf.parallel_stack; InplaceUpdate, InplaceAdd, InplaceSub; Snapshot,
// DeepCopy.
//
// None may be left to the CPU: a copy of the input would be written, and who else reads it sees nothing of that.

#include <cstring>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/scatter.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// ---- parallel_stack -----------------------------------------------------------------------------

class ParallelConcatStartOp {
 public:
  static constexpr char kOp[] = "_ParallelConcatStart";

  explicit ParallelConcatStartOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetShapeAttr("shape", &shape_));
  }

  void Compute(KernelContext* ctx) {
    Tensor out;
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape_, &out));
  }

 private:
  Shape shape_;
};

// A row of the tensor that Start allocated, which all updates of a stack have as their output.
class ParallelConcatUpdateOp {
 public:
  static constexpr char kOp[] = "_ParallelConcatUpdate";

  explicit ParallelConcatUpdateOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("loc", &row_));
  }

  void Compute(KernelContext* ctx) {
    Tensor value, update;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &value));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &update));
    Shape row = value.shape();
    OP_REQUIRES(ctx, !row.empty(), InvalidArgument(kOp, ": value cannot be a scalar"));
    row[0] = 1;
    OP_REQUIRES(ctx, update.shape() == row,
                InvalidArgument(kOp, ": update must have shape ", ToString(row),
                                ", one row of value; got ", ToString(update.shape())));
    OP_REQUIRES(
        ctx, row_ < value.dim(0),
        InvalidArgument(kOp, ": loc ", row_, " is outside of value ", ToString(value.shape())));
    OP_REQUIRES_OK(ctx, Write(ctx, update, value));
    OP_REQUIRES_OK(ctx, ctx->ShareInput(0, 0, value.shape()));
  }

 private:
  Status Write(KernelContext* ctx, const Tensor& update, const Tensor& value) const {
    const int64_t n = update.num_elements(), at = (row_ < 0 ? row_ + value.dim(0) : row_) * n;
    if (n == 0) return Status();
    if (value.dtype() == TF_INT32) {  // in host memory
      std::memcpy(value.mutable_host<int32_t>() + at, update.host<int32_t>(), n * sizeof(int32_t));
      return Status();
    }
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodeCopy(encoder, kOp, {n}, update, {{1}}, value, {{1}, at});
    });
  }

  int64_t row_ = 0;
};
REGISTER_METAL_KERNEL(ParallelConcatStartOp, .Types("dtype", METAL_DEVICE_MOVABLE_TYPES));
REGISTER_METAL_KERNEL(ParallelConcatStartOp, .Types("dtype", {TF_INT32}).HostMemory("output"));
REGISTER_METAL_KERNEL(ParallelConcatUpdateOp, .Types("T", METAL_DEVICE_MOVABLE_TYPES));
REGISTER_METAL_KERNEL(
    ParallelConcatUpdateOp,
    .Types("T", {TF_INT32}).HostMemory("value").HostMemory("update").HostMemory("output"));

// ---- Inplace... ---------------------------------------------------------------------------------

// Rows i, counted around the tensor, of x become v, or more or less by it; x is the output.
template <typename Op>
class InplaceOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit InplaceOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor x, i, v;
    RETURN_IF_ERROR(ctx->Input(0, &x));
    RETURN_IF_ERROR(ctx->Input(1, &i));
    RETURN_IF_ERROR(ctx->Input(2, &v));
    if (i.rank() != 1) {
      return InvalidArgument(kOp, ": i must be a vector. Its shape is ", ToString(i.shape()));
    }
    const bool rows = x.rank() >= 1 && x.rank() == v.rank();
    if (!rows || Dims(x.shape(), 1, x.shape().size()) != Dims(v.shape(), 1, v.shape().size())) {
      return InvalidArgument(kOp, ": x and v shape doesn't match: ", ToString(x.shape()), " and ",
                             ToString(v.shape()), ", which may differ in their rows' number alone");
    }
    if (i.dim(0) != v.dim(0)) {
      return InvalidArgument(kOp, ": i and x shape doesn't match: v has ", v.dim(0),
                             " rows, and i names ", i.dim(0));
    }
    if (x.num_elements() > 0 && v.num_elements() > 0) RETURN_IF_ERROR(Change(ctx, x, i, v));
    return ctx->ShareInput(0, 0, x.shape());
  }

  static Status Change(KernelContext* ctx, const Tensor& x, const Tensor& i, const Tensor& v) {
    const int64_t n = i.num_elements(), rows = x.dim(0);
    std::vector<int64_t> wanted(n);
    for (int64_t k = 0; k < n; ++k) wanted[k] = (i.host<int32_t>()[k] % rows + rows) % rows;
    Tensor indices;
    Shape slices;
    ScatterParams p;
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_INT64, {n}, &indices));
    RETURN_IF_ERROR(PlanRows(kOp, x.shape(), indices, &p, &slices));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(
          EncodeCopy(encoder, kOp, {n}, HostArray(wanted.data(), n), {{1}}, indices, {{1}}));
      return EncodeScatter(encoder, kOp, Op::kChange, /*signless=*/true, p, indices, v, x);
    });
  }
};
#define INPLACE(op, change)                   \
  struct op {                                 \
    static constexpr char kOp[] = #op;        \
    static constexpr char kChange[] = change; \
  }
INPLACE(InplaceUpdate, "update");
INPLACE(InplaceAdd, "add");
INPLACE(InplaceSub, "sub");
// TensorFlow has int32 in host memory on any device.
#define NUMBERS                                                        \
  {TF_FLOAT, TF_HALF,   TF_BFLOAT16, TF_INT8,   TF_INT16,    TF_INT64, \
   TF_UINT8, TF_UINT16, TF_UINT32,   TF_UINT64, TF_COMPLEX64}
REGISTER_METAL_KERNEL(InplaceOp<InplaceUpdate>,
                      .Types("T", METAL_DEVICE_MOVABLE_TYPES).HostMemory("i"));
REGISTER_METAL_KERNEL(InplaceOp<InplaceAdd>, .Types("T", NUMBERS).HostMemory("i"));
REGISTER_METAL_KERNEL(InplaceOp<InplaceSub>, .Types("T", NUMBERS).HostMemory("i"));

// ---- copies -------------------------------------------------------------------------------------

// A copy against such ops; Snapshot's input is not copied where nothing else has it.
template <typename Op>
class CopyOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit CopyOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, Op::kForwards ? ctx->ForwardInputOrAllocateOutput(0, 0, in.shape(), &out)
                                      : ctx->AllocateOutput(0, in.shape(), &out));
    if (out.opaque() == in.opaque() || out.num_elements() == 0) return;
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) { return encoder.Copy(in, out); }));
  }
};
struct Snapshot {
  static constexpr char kOp[] = "Snapshot";
  static constexpr bool kForwards = true;
};
struct DeepCopy {
  static constexpr char kOp[] = "DeepCopy";
  static constexpr bool kForwards = false;
};
REGISTER_METAL_KERNEL(CopyOp<Snapshot>, .Types("T", METAL_DEVICE_ALL_TYPES));
REGISTER_METAL_KERNEL(CopyOp<DeepCopy>, .Types("T", METAL_DEVICE_MOVABLE_TYPES));

}  // namespace
}  // namespace metal_ops
