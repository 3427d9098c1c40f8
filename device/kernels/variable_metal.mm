// AssignVariableOp, AssignAddVariableOp, AssignSubVariableOp for every type that variables have, and Assign,
// AssignAdd, AssignSub of TensorFlow 1's variables; variables that count.
//
// TensorFlow registers these for DEVICE_DEFAULT too, with code that treats device memory as host
// memory: an assign_add would write over the buffer object. So every type needs a kernel here, also
// those that shaders cannot calculate in.

#include <complex>
#include <cstring>
#include <functional>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/half.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {

namespace {

#define METAL_DEVICE_NUMBER_TYPES                                                    \
  {TF_FLOAT, TF_HALF,  TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64, TF_COMPLEX128, TF_INT8, \
   TF_INT16, TF_INT32, TF_INT64,    TF_UINT8,  TF_UINT16,    TF_UINT32,     TF_UINT64}

class AssignOp {
 public:
  static constexpr char kOp[] = "AssignVariableOp";

  explicit AssignOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("validate_shape", &validate_shape_));
  }

  void Compute(KernelContext* ctx) {
    OP_REQUIRES_OK(ctx, AssignVariable(ctx, 0, 1, validate_shape_));
  }

 private:
  bool validate_shape_ = false;
};

// The op of TensorFlow 1's graphs: a variable whose tensor the graph's edges share.
class AssignRefOp {
 public:
  static constexpr char kOp[] = "Assign";

  explicit AssignRefOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("validate_shape", &validate_shape_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_locking", &use_locking_));
  }

  void Compute(KernelContext* ctx) {
    OP_REQUIRES_OK(ctx, AssignRef(ctx, 0, 1, use_locking_, validate_shape_));
  }

 private:
  bool validate_shape_ = false, use_locking_ = false;
};

// bfloat16 on the host.
struct HostBfloat {
  uint16_t bits;

  HostBfloat operator+(HostBfloat other) const { return Rounded(value() + other.value()); }
  HostBfloat operator-(HostBfloat other) const { return Rounded(value() - other.value()); }

 private:
  float value() const { return FromBfloat(bits); }
  static HostBfloat Rounded(float x) {
    const float rounded = RoundTo(DType::kBfloat16, x);
    uint32_t wide;
    std::memcpy(&wide, &rounded, sizeof(wide));
    return {static_cast<uint16_t>(wide >> 16)};
  }
};

// float64 and complex128 have no shader type, nor has bfloat16 before macOS 14: the host calculates.
template <typename T>
Status UpdateOnHost(KernelContext* ctx, const Tensor& var, const Tensor& value, bool subtract) {
  void* handle = nullptr;
  BufferRef x, y;
  RETURN_IF_ERROR(ctx->Stream(&handle));
  RETURN_IF_ERROR(ResolveBuffer(var, &x));
  RETURN_IF_ERROR(ResolveBuffer(value, &y));
  if (x.buffer == nil) return Status();
  id<TF_MetalStream> stream = static_cast<id<TF_MetalStream>>(handle);
  dispatch_sync([stream queue], ^{
    [stream commitAndWait];
  });
  std::vector<T> to(static_cast<size_t>(var.num_elements())), from(to.size());
  const NSUInteger bytes = to.size() * sizeof(T);
  if (!ReadTensorMemory(x.buffer, x.offset, to.data(), bytes) ||
      !ReadTensorMemory(y.buffer, y.offset, from.data(), bytes)) {
    return Internal("the device refused a copy to the host");
  }
  for (size_t i = 0; i < to.size(); ++i) to[i] = subtract ? to[i] - from[i] : to[i] + from[i];
  if (!WriteTensorMemory(x.buffer, x.offset, to.data(), bytes)) {
    return Internal("the device refused a copy from the host");
  }
  return Status();
}

template <typename Op>
class UpdateOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit UpdateOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, /*exclusive=*/true, {0});
    Tensor var, value;
    OP_REQUIRES_OK(ctx, lock.Get(0, &var));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &value));
    OP_REQUIRES(ctx, var.dtype() == value.dtype() && var.shape() == value.shape(),
                InvalidArgument(kOp, ": Cannot update variable with shape ", ToString(var.shape()),
                                " and dtype ", ToString(var.dtype()), " using a Tensor with shape ",
                                ToString(value.shape()), " and dtype ", ToString(value.dtype()),
                                ", shapes must be equal."));
    switch (static_cast<TF_DataType>(var.dtype())) {
      case TF_BFLOAT16:
        OP_REQUIRES_OK(ctx, kShadersHaveBfloat
                                ? UpdateOnDevice(ctx, var, value)
                                : UpdateOnHost<HostBfloat>(ctx, var, value, Op::kSubtract));
        break;
      case TF_DOUBLE:
        OP_REQUIRES_OK(ctx, UpdateOnHost<double>(ctx, var, value, Op::kSubtract));
        break;
      case TF_COMPLEX128:
        OP_REQUIRES_OK(ctx, UpdateOnHost<std::complex<double>>(ctx, var, value, Op::kSubtract));
        break;
      default:
        OP_REQUIRES_OK(ctx, UpdateOnDevice(ctx, var, value));
    }
    if (Op::kRef) ForwardRef(ctx, 0, 0);
  }

 private:
  static Status UpdateOnDevice(KernelContext* ctx, const Tensor& var, const Tensor& value) {
    const bool complex = var.dtype() == TF_COMPLEX64;  // two floats, added one by one
    const DType type = complex ? DType::kFloat : Unsigned(var.dtype());
    const int64_t n = var.num_elements() * (complex ? 2 : 1);
    return Encode(ctx, [&](Encoder& encoder) {
      return LaunchElementwise(encoder, {Op::kSubtract ? "update_sub" : "update_add", type}, n,
                               {{"var", Value(var).Untyped()}, {"value", Value(value).Untyped()}});
    });
  }
};

#define UPDATE(Name, op, subtract, ref)         \
  struct Name {                                 \
    static constexpr char kOp[] = op;           \
    static constexpr bool kSubtract = subtract; \
    static constexpr bool kRef = ref;           \
  }
UPDATE(AssignAdd, "AssignAddVariableOp", false, false);
UPDATE(AssignSub, "AssignSubVariableOp", true, false);
UPDATE(AssignAddRef, "AssignAdd", false, true);
UPDATE(AssignSubRef, "AssignSub", true, true);

// A variable that counts, whose error says that an epoch is over: so the host waits for the number.
template <typename Op>
class CountUpToOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit CountUpToOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("limit", &limit_));
  }

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, /*exclusive=*/true, {0});
    Tensor var;
    OP_REQUIRES_OK(ctx, lock.Get(0, &var));
    OP_REQUIRES(ctx, var.rank() == 0,
                InvalidArgument(kOp, ": the variable has shape ", ToString(var.shape()),
                                ", expected a scalar"));
    OP_REQUIRES_OK(ctx, Count(ctx, var));
  }

 private:
  Status Count(KernelContext* ctx, const Tensor& var) const {
    // Nothing is launched: the number is there once the device is done with earlier work.
    RETURN_IF_ERROR(EncodeAndWait(ctx, [](Encoder&) { return Status(); }));
    BufferRef ref;
    Tensor out;
    int64_t count = 0;
    RETURN_IF_ERROR(ResolveBuffer(var, &ref));
    if (!ReadTensorMemory(ref.buffer, ref.offset, &count, sizeof(count))) {
      return Internal("the device refused a copy to the host");
    }
    if (count >= limit_) {
      return Status(static_cast<Code>(TF_OUT_OF_RANGE), StrCat(kOp, ": Reached limit of ", limit_));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {}, &out));
    // The device's memory, where TensorFlow would copy it outside of functions.
    BufferRef result;
    RETURN_IF_ERROR(ResolveBuffer(out, &result));
    const int64_t next = count + 1;
    if (!WriteTensorMemory(result.buffer, result.offset, &count, sizeof(count)) ||
        !WriteTensorMemory(ref.buffer, ref.offset, &next, sizeof(next))) {
      return Internal("the device refused a copy from the host");
    }
    return Status();
  }

  int64_t limit_ = 0;
};
struct ResourceCountUpTo {
  static constexpr char kOp[] = "ResourceCountUpTo";
};
struct CountUpTo {
  static constexpr char kOp[] = "CountUpTo";
};

// The resource handle is a host tensor. Strings, variants and resources keep TensorFlow's kernel:
// their memory is the host's on every device.
REGISTER_METAL_KERNEL(AssignOp,
                      .Types("dtype",
                             {TF_FLOAT,      TF_HALF,   TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64,
                              TF_COMPLEX128, TF_BOOL,   TF_INT4,     TF_INT8,   TF_INT16,
                              TF_INT32,      TF_INT64,  TF_UINT4,    TF_UINT8,  TF_UINT16,
                              TF_UINT32,     TF_UINT64, TF_QINT8,    TF_QUINT8, TF_QINT32})
                          .HostMemory("resource")
                          .CalculatesInNoBfloat());
// Those types that TensorFlow has variables of on any device.
#define REF_TYPES \
  {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64, TF_COMPLEX128, TF_INT64, TF_UINT32}
REGISTER_METAL_KERNEL(AssignRefOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64,
                                   TF_COMPLEX128, TF_BOOL, TF_INT64, TF_UINT32}));
REGISTER_METAL_KERNEL(UpdateOp<AssignAddRef>, .Types("T", REF_TYPES));
REGISTER_METAL_KERNEL(UpdateOp<AssignSubRef>, .Types("T", REF_TYPES));
REGISTER_METAL_KERNEL(
    UpdateOp<AssignAdd>,
    .Types("dtype", METAL_DEVICE_NUMBER_TYPES).HostMemory("resource").CalculatesInNoBfloat());
REGISTER_METAL_KERNEL(
    UpdateOp<AssignSub>,
    .Types("dtype", METAL_DEVICE_NUMBER_TYPES).HostMemory("resource").CalculatesInNoBfloat());
// TensorFlow's variables of int32 lie on the host.
REGISTER_METAL_KERNEL(CountUpToOp<ResourceCountUpTo>,
                      .Types("T", {TF_INT64}).HostMemory("resource"));
REGISTER_METAL_KERNEL(CountUpToOp<CountUpTo>, .Types("T", {TF_INT64}));

}  // namespace
}  // namespace metal_ops
