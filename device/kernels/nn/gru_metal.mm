// Cells of GRUs, and their gradients.

#include "device/kernels/layout.h"
#include "device/kernels/nn/recurrent.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

struct GruCall {
  explicit GruCall(KernelContext* ctx, const char* op) : ctx(ctx), op(op) {}

  Status GetInputs() {
    Tensor* const tensors[] = {&x, &h_prev, &w_ru, &w_c, &b_ru, &b_c};
    for (int i = 0; i < 6; ++i) RETURN_IF_ERROR(ctx->Input(i, tensors[i]));
    if (x.rank() != 2 || h_prev.rank() != 2) {
      return InvalidArgument(op, ": x and h_prev must have 2 dimensions, got ", ToString(x.shape()),
                             " and ", ToString(h_prev.shape()));
    }
    batch = x.dim(0);
    inputs = x.dim(1);
    cells = h_prev.dim(1);
    RETURN_IF_ERROR(RequireShape(op, "h_prev", h_prev, {batch, cells}));
    RETURN_IF_ERROR(RequireShape(op, "w_ru", w_ru, {inputs + cells, 2 * cells}));
    RETURN_IF_ERROR(RequireShape(op, "w_c", w_c, {inputs + cells, cells}));
    RETURN_IF_ERROR(RequireShape(op, "b_ru", b_ru, {2 * cells}));
    RETURN_IF_ERROR(RequireShape(op, "b_c", b_c, {cells}));
    for (const int64_t size : {batch, inputs + cells, 2 * cells}) {
      RETURN_IF_ERROR(CheckGrid(op, "sequences or cells", size));
    }
    p.inputs = static_cast<uint32_t>(inputs);
    p.cells = static_cast<uint32_t>(cells);
    return Status();
  }

  // [x, h_prev], or [x, r h_prev].
  Status Join(const Tensor* r, const Tensor& out) {
    const uint32_t gated = r != nullptr ? 1 : 0;
    const Value gate = r != nullptr ? Value(*r) : Value(Nothing());
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          "gru_inputs", Grid(inputs + cells, batch),
          {{"x", x}, {"h", h_prev}, {"r", gate}, {"out", out}, {"gated", gated}, {"p", p}});
    });
  }

  Grid Cells() const { return Grid(cells, batch); }

  KernelContext* ctx;
  const char* op;
  Tensor x, h_prev, w_ru, w_c, b_ru, b_c;
  int64_t batch = 0, inputs = 0, cells = 0;
  GruParams p = {};
};

class GruOp {
 public:
  static constexpr char kOp[] = "GRUBlockCell";

  explicit GruOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    GruCall call(ctx, kOp);
    Tensor r, u, c, h, joined, gates, candidate;
    RETURN_IF_ERROR(call.GetInputs());
    const Shape shape = call.h_prev.shape();
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &r));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, shape, &u));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, shape, &c));
    RETURN_IF_ERROR(ctx->AllocateOutput(3, shape, &h));
    if (h.num_elements() == 0) return Status();
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {call.batch, call.inputs + call.cells}, &joined));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {call.batch, 2 * call.cells}, &gates));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, shape, &candidate));
    RETURN_IF_ERROR(call.Join(nullptr, joined));
    RETURN_IF_ERROR(RunProduct(ctx, kOp, joined, false, call.w_ru, false, gates));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("gru_gates", call.Cells(),
                            {{"sums", gates}, {"b", call.b_ru}, {"r", r}, {"u", u}, {"p", call.p}});
    }));
    RETURN_IF_ERROR(call.Join(&r, joined));
    RETURN_IF_ERROR(RunProduct(ctx, kOp, joined, false, call.w_c, false, candidate));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("gru_step", call.Cells(),
                            {{"sums", candidate},
                             {"b", call.b_c},
                             {"u", u},
                             {"h_prev", call.h_prev},
                             {"c", c},
                             {"h", h},
                             {"p", call.p}});
    });
  }
};
REGISTER_METAL_KERNEL(GruOp, .Types("T", {TF_FLOAT}));

class GruGradOp {
 public:
  static constexpr char kOp[] = "GRUBlockCellGrad";

  explicit GruGradOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    static const char* const kNames[] = {"r", "u", "c", "d_h"};
    GruCall call(ctx, kOp);
    Tensor r, u, c, d_h, d_x, d_h_prev, d_c_sum, d_gates, d_candidate, d_from_gates;
    RETURN_IF_ERROR(call.GetInputs());
    Tensor* const saved[] = {&r, &u, &c, &d_h};
    for (int i = 0; i < 4; ++i) {
      RETURN_IF_ERROR(ctx->Input(6 + i, saved[i]));
      RETURN_IF_ERROR(RequireShape(kOp, kNames[i], *saved[i], call.h_prev.shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, call.x.shape(), &d_x));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, call.h_prev.shape(), &d_h_prev));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, call.h_prev.shape(), &d_c_sum));
    RETURN_IF_ERROR(ctx->AllocateOutput(3, {call.batch, 2 * call.cells}, &d_gates));
    if (d_h_prev.num_elements() == 0) return ZeroOutput(ctx, kOp, d_x);
    const Shape joined = {call.batch, call.inputs + call.cells};
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, joined, &d_candidate));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, joined, &d_from_gates));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("gru_grad_candidate", call.Cells(),
                            {{"h_prev", call.h_prev},
                             {"u", u},
                             {"c", c},
                             {"d_h", d_h},
                             {"d_c_sum", d_c_sum},
                             {"d_gates", d_gates},
                             {"p", call.p}});
    }));
    RETURN_IF_ERROR(RunProduct(ctx, kOp, d_c_sum, false, call.w_c, true, d_candidate));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("gru_grad_reset", call.Cells(),
                            {{"h_prev", call.h_prev},
                             {"r", r},
                             {"d_inputs", d_candidate},
                             {"d_gates", d_gates},
                             {"p", call.p}});
    }));
    RETURN_IF_ERROR(RunProduct(ctx, kOp, d_gates, false, call.w_ru, true, d_from_gates));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("gru_grad_inputs", Grid(call.inputs + call.cells, call.batch),
                            {{"d_candidate", d_candidate},
                             {"d_from_gates", d_from_gates},
                             {"r", r},
                             {"u", u},
                             {"d_h", d_h},
                             {"d_x", d_x},
                             {"d_h_prev", d_h_prev},
                             {"p", call.p}});
    });
  }
};
REGISTER_METAL_KERNEL(GruGradOp, .Types("T", {TF_FLOAT}));

}  // namespace
}  // namespace metal_ops
