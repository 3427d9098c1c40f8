// Select, SelectV2 and ClipByValue.

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"

namespace metal_ops {
namespace {

const char* Step(const Tensor& tensor, const Shape& shape) {
  return tensor.shape() == shape ? "1" : tensor.rank() == 0 ? "0" : nullptr;
}

// out = condition ? a : b, all of them broadcast to out by `walks`.
Status LaunchSelect(KernelContext* ctx, const char* op, const Tensor& condition,
                    const Walk& condition_walk, const Tensor& a, const Tensor& b,
                    const Tensor& out) {
  if (out.num_elements() == 0) return Status();
  const Shape& shape = out.shape();
  const Value a_value = Value(a).Untyped(), b_value = Value(b).Untyped(),
              out_value = Value(out).Untyped();
  const char* const a_step = Step(a, shape);
  const char* const b_step = Step(b, shape);
  const bool flat = condition.shape() == shape && a_step != nullptr && b_step != nullptr &&
                    (*a_step == '1' || *b_step == '1');
  if (flat) {
    const std::string steps = std::string(a_step) + b_step;
    return Encode(ctx, [&](Encoder& encoder) {
      return LaunchElementwise(
          encoder, {"select", out.element_bytes(), steps}, out.num_elements(),
          {{"a", condition}, {"b", a_value}, {"c", b_value}, {"out", out_value}});
    });
  }
  Loop loop;
  RETURN_IF_ERROR(PlanLoop(op, shape,
                           {condition_walk,
                            Broadcast(a.shape(), shape),
                            Broadcast(b.shape(), shape),
                            {DenseStrides(shape)}},
                           &loop));
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch({"select", out.element_bytes(), "strided"}, loop.grid,
                          {{"a", condition},
                           {"b", a_value},
                           {"c", b_value},
                           {"out", out_value},
                           {"params", loop.params},
                           {"fourth", loop.fourth}});
  });
}

class SelectV2Op {
 public:
  static constexpr char kOp[] = "SelectV2";

  explicit SelectV2Op(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor condition, a, b, out;
    RETURN_IF_ERROR(ctx->Input(0, &condition));
    RETURN_IF_ERROR(ctx->Input(1, &a));
    RETURN_IF_ERROR(ctx->Input(2, &b));
    Shape values, shape;
    RETURN_IF_ERROR(BroadcastShape(kOp, a.shape(), b.shape(), &values));
    RETURN_IF_ERROR(BroadcastShape(kOp, condition.shape(), values, &shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    return LaunchSelect(ctx, kOp, condition, Broadcast(condition.shape(), shape), a, b, out);
  }
};
REGISTER_METAL_KERNEL(SelectV2Op, .Types("T", METAL_DEVICE_ALL_TYPES));

// The condition has one for each element, or for each row, or for all.
class SelectOp {
 public:
  static constexpr char kOp[] = "Select";

  explicit SelectOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor condition, a, b, out;
    RETURN_IF_ERROR(ctx->Input(0, &condition));
    RETURN_IF_ERROR(ctx->Input(1, &a));
    RETURN_IF_ERROR(ctx->Input(2, &b));
    const Shape& shape = a.shape();
    if (b.shape() != shape) {
      return InvalidArgument("Select: 't' and 'e' must have the same size, but received ",
                             ToString(shape), " and ", ToString(b.shape()));
    }
    Walk walk;
    if (condition.shape() == shape) {
      walk.strides = DenseStrides(shape);
    } else {
      const bool rows = condition.rank() == 1 && !shape.empty() && condition.dim(0) == shape[0];
      if (condition.rank() != 0 && !rows) {
        return InvalidArgument(
            "Select: 'cond' must be a scalar, a vector of as many elements as 't' "
            "has rows, or of the shape of 't', ",
            ToString(shape), "; got ", ToString(condition.shape()));
      }
      walk.strides.assign(shape.size(), 0);
      if (rows) walk.strides[0] = 1;
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    return LaunchSelect(ctx, kOp, condition, walk, a, b, out);
  }
};
REGISTER_METAL_KERNEL(SelectOp, .Types("T", METAL_DEVICE_ALL_TYPES));

class ClipByValueOp {
 public:
  static constexpr char kOp[] = "ClipByValue";

  explicit ClipByValueOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor x, low, high, out;
    RETURN_IF_ERROR(ctx->Input(0, &x));
    RETURN_IF_ERROR(ctx->Input(1, &low));
    RETURN_IF_ERROR(ctx->Input(2, &high));
    const char* const low_step = Step(low, x.shape());
    const char* const high_step = Step(high, x.shape());
    if (low_step == nullptr || high_step == nullptr) {
      return InvalidArgument("ClipByValue: clip_value_min and clip_value_max should be either of "
                             "the same shape as input, or a scalar. input shape: ",
                             ToString(x.shape()), ", clip_value_min shape: ", ToString(low.shape()),
                             ", clip_value_max shape: ", ToString(high.shape()));
    }
    RETURN_IF_ERROR(ctx->ForwardInputOrAllocateOutput(0, 0, x.shape(), &out));
    const std::string steps = std::string(low_step) + high_step;
    return Encode(ctx, [&](Encoder& encoder) {
      return LaunchElementwise(encoder, {"clip", x.dtype(), steps}, x.num_elements(),
                               {{"a", x}, {"b", low}, {"c", high}, {"out", out}});
    });
  }
};
REGISTER_METAL_KERNEL(ClipByValueOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8, TF_INT16,
                                                  TF_INT32, TF_INT64, TF_UINT8, TF_UINT16}));

}  // namespace
}  // namespace metal_ops
