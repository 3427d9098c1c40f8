// Cells and whole sequences of LSTMs, and their gradients.

#include <string>
#include <vector>

#include "device/kernels/layout.h"
#include "device/kernels/nn/recurrent.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// out = `in` from element `first` on, in out's dtype.
Status Convert(Encoder& encoder, const Tensor& in, int64_t first, const Tensor& out) {
  const auto from = static_cast<uint64_t>(first);
  return encoder.Launch({"convert_from", in.dtype(), out.dtype()}, Grid(out.num_elements()),
                        {{"in", in}, {"out", out}, {"first", from}});
}

// The differences between the ops.
struct LstmKind {
  const char* op;
  bool sequence;          // seq_len_max first, and a dimension of steps
  bool candidate_second;  // the gates are i, ci, f, o, and not i, f, ci, o
  bool gradient;
  bool forget_bias;
};

Status GetLstmAttrs(KernelConstruction* ctx, const LstmKind& kind, LstmParams* p) {
  bool peephole = false;
  RETURN_IF_ERROR(ctx->GetAttr("use_peephole", &peephole));
  *p = {};
  p->peephole = peephole ? 1 : 0;
  p->ci_gate = kind.candidate_second ? 1 : 2;
  p->f_gate = kind.candidate_second ? 2 : 1;
  if (kind.gradient) return Status();
  if (kind.forget_bias) RETURN_IF_ERROR(ctx->GetAttr("forget_bias", &p->forget_bias));
  return ctx->GetAttr("cell_clip", &p->cell_clip);
}

// One call: the inputs that all ops have, and their sizes.
struct LstmCall {
  LstmCall(KernelContext* ctx, const LstmKind& kind, const LstmParams& p)
      : ctx(ctx), kind(kind), p(p) {}

  Status GetInputs() {
    static const char* const kNames[] = {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"};
    Tensor* const tensors[] = {&x, &cs_prev, &h_prev, &w, &wci, &wcf, &wco, &b};
    const int first = kind.sequence ? 1 : 0, rank = kind.sequence ? 3 : 2;
    for (int i = 0; i < 8; ++i) RETURN_IF_ERROR(ctx->Input(first + i, tensors[i]));
    if (x.rank() != rank || cs_prev.rank() != 2) {
      return InvalidArgument(kind.op, ": x must have ", rank, " dimensions and cs_prev 2, got ",
                             ToString(x.shape()), " and ", ToString(cs_prev.shape()));
    }
    steps = used = kind.sequence ? x.dim(0) : 1;
    batch = x.dim(rank - 2);
    inputs = x.dim(rank - 1);
    cells = cs_prev.dim(1);
    const Shape shapes[] = {x.shape(), {batch, cells}, {batch, cells}, {inputs + cells, 4 * cells},
                            {cells},   {cells},        {cells},        {4 * cells}};
    for (int i = 1; i < 8; ++i) {
      if (i >= 4 && i < 7 && p.peephole == 0) continue;  // never read
      RETURN_IF_ERROR(RequireShape(kind.op, kNames[i], *tensors[i], shapes[i]));
    }
    for (const int64_t size : {steps * batch, inputs + cells, 4 * cells}) {
      RETURN_IF_ERROR(CheckGrid(kind.op, "steps, sequences or cells", size));
    }
    p.batch = static_cast<uint32_t>(batch);
    p.cells = static_cast<uint32_t>(cells);
    p.single = kind.sequence ? 0 : 1;
    of_cells = kind.sequence ? Shape{steps, batch, cells} : Shape{batch, cells};
    return kind.sequence ? GetLength() : Status();
  }

  // At the step that begins at row `row` of all steps'.
  LstmParams At(int64_t step) const {
    LstmParams at = p;
    at.row = static_cast<uint64_t>(step * batch);
    at.row_before = step == 0 ? 0 : static_cast<uint64_t>((step - 1) * batch);
    return at;
  }

  Value Peephole(const Tensor& weights) const {
    return p.peephole != 0 ? Value(weights) : Value(Nothing());
  }

  Status Floats(const Shape& shape, Tensor* tensor) {
    return ctx->AllocateTemp(TF_FLOAT, shape, tensor);
  }

  // w's rows of x and of h, in float.
  Status SplitWeights(Tensor* of_x, Tensor* of_h) {
    RETURN_IF_ERROR(Floats({inputs, 4 * cells}, of_x));
    RETURN_IF_ERROR(Floats({cells, 4 * cells}, of_h));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(Convert(encoder, w, 0, *of_x));
      return Convert(encoder, w, inputs * 4 * cells, *of_h);
    });
  }

  KernelContext* ctx;
  LstmKind kind;
  LstmParams p;
  Tensor x, cs_prev, h_prev, w, wci, wcf, wco, b;
  int64_t steps = 1, used = 1, batch = 0, inputs = 0, cells = 0;
  Shape of_cells;

 private:
  Status GetLength() {
    Tensor length;
    RETURN_IF_ERROR(ctx->Input(0, &length));
    if (length.rank() != 0) {
      return InvalidArgument(kind.op, ": seq_len_max must be a scalar, got shape ",
                             ToString(length.shape()));
    }
    used = *length.host<int64_t>();
    if (used >= 0 && used <= steps) return Status();
    return InvalidArgument(kind.op, ": seq_len_max must be from 0 to ", steps,
                           ", the steps of x, got ", used);
  }
};

// Rows [x, h of the step before]; `h` is of all steps.
Status EncodeInputs(Encoder& encoder, const LstmCall& call, int64_t rows, const Value& h,
                    const Tensor& out) {
  const auto inputs = static_cast<uint32_t>(call.inputs);
  return encoder.Launch({"lstm_inputs", call.w.dtype()}, Grid(call.inputs + call.cells, rows),
                        {{"x", call.x},
                         {"h_prev", call.h_prev},
                         {"h", h},
                         {"out", out},
                         {"inputs", inputs},
                         {"p", call.p}});
}

// `from_h` is Nothing() where `from_x` is all of the sums.
Status Step(LstmCall& call, const LstmParams& p, const Tensor& from_x, const Value& from_h,
            const Tensor& cs, const Tensor& h, const Tensor (&outputs)[7]) {
  static const char* const kNames[] = {"i_out",  "cs_out", "f_out", "o_out",
                                       "ci_out", "co_out", "h_out"};
  std::vector<Argument> arguments = {{"from_x", from_x},
                                     {"from_h", from_h},
                                     {"b", call.b},
                                     {"wci", call.Peephole(call.wci)},
                                     {"wcf", call.Peephole(call.wcf)},
                                     {"wco", call.Peephole(call.wco)},
                                     {"cs_state", cs},
                                     {"h_state", h},
                                     {"p", p}};
  for (int i = 0; i < 7; ++i) arguments.push_back({kNames[i], outputs[i]});
  return Encode(call.ctx, [&](Encoder& encoder) {
    if (ThreadgroupsRunAtOnce()) {
      return encoder.Launch({"lstm_step", call.w.dtype()}, Grid(call.cells, call.batch), arguments);
    }
    return encoder.Launch({"lstm_step_line", call.w.dtype()},
                          Grid((call.cells + LSTM_LINE - 1) / LSTM_LINE, call.batch), arguments);
  });
}

// A single step's product is one, of x and h side by side: weights are larger than these.
Status RunCell(LstmCall& call, const Tensor (&outputs)[7]) {
  Tensor xh, weights, sums, cs, h;
  const bool floats = call.w.dtype() == TF_FLOAT;
  if (!floats) RETURN_IF_ERROR(call.Floats(call.w.shape(), &weights));
  RETURN_IF_ERROR(call.Floats({call.batch, call.inputs + call.cells}, &xh));
  RETURN_IF_ERROR(call.Floats({call.batch, 4 * call.cells}, &sums));
  RETURN_IF_ERROR(call.Floats(call.of_cells, &cs));
  RETURN_IF_ERROR(call.Floats(call.of_cells, &h));
  RETURN_IF_ERROR(Encode(call.ctx, [&](Encoder& encoder) -> Status {
    if (!floats) RETURN_IF_ERROR(Convert(encoder, call.w, 0, weights));
    RETURN_IF_ERROR(Convert(encoder, call.cs_prev, 0, cs));
    return EncodeInputs(encoder, call, call.batch, Nothing(), xh);
  }));
  RETURN_IF_ERROR(
      RunProduct(call.ctx, call.kind.op, xh, false, floats ? call.w : weights, false, sums));
  return Step(call, call.At(0), sums, Nothing(), cs, h, outputs);
}

// The products with x of all steps are one.
Status RunLstm(LstmCall& call) {
  RETURN_IF_ERROR(call.GetInputs());
  Tensor outputs[7];
  for (int i = 0; i < 7; ++i) {
    RETURN_IF_ERROR(call.ctx->AllocateOutput(i, call.of_cells, &outputs[i]));
  }
  if (outputs[0].num_elements() == 0) return Status();
  const int64_t rows = call.used * call.batch;
  if (call.used < call.steps) {
    RETURN_IF_ERROR(Encode(call.ctx, [&](Encoder& encoder) -> Status {
      for (const Tensor& out : outputs) RETURN_IF_ERROR(EncodeZeros(encoder, call.kind.op, out));
      return Status();
    }));
    if (call.used == 0) return Status();
  }
  if (!call.kind.sequence) return RunCell(call, outputs);
  Tensor x, w_x, w_h, from_x, from_h, cs, h;
  RETURN_IF_ERROR(call.SplitWeights(&w_x, &w_h));
  RETURN_IF_ERROR(call.Floats({rows, call.inputs}, &x));
  RETURN_IF_ERROR(call.Floats({rows, 4 * call.cells}, &from_x));
  RETURN_IF_ERROR(call.Floats({call.batch, 4 * call.cells}, &from_h));
  RETURN_IF_ERROR(call.Floats({call.batch, call.cells}, &cs));
  RETURN_IF_ERROR(call.Floats({call.batch, call.cells}, &h));
  RETURN_IF_ERROR(Encode(call.ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(Convert(encoder, call.x, 0, x));
    RETURN_IF_ERROR(Convert(encoder, call.cs_prev, 0, cs));
    return Convert(encoder, call.h_prev, 0, h);
  }));
  RETURN_IF_ERROR(RunProduct(call.ctx, call.kind.op, x, false, w_x, false, from_x));
  GemmFactor factor;
  RETURN_IF_ERROR(PrepareProduct(call.ctx, call.kind.op, h.shape(), w_h, false, from_h.shape(),
                                 call.used, &factor));
  for (int64_t step = 0; step < call.used; ++step) {
    RETURN_IF_ERROR(RunProduct(call.ctx, factor, h, from_h));
    RETURN_IF_ERROR(Step(call, call.At(step), from_x, from_h, cs, h, outputs));
  }
  return Status();
}

// The tensors that the gradients read beside the inputs, from input `first` on.
struct LstmSaved {
  Tensor i, cs, f, o, ci, co, h, d_cs, d_h;

  Status Get(LstmCall& call) {
    static const char* const kNames[] = {"i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"};
    Tensor* const tensors[] = {&i, &cs, &f, &o, &ci, &co, &h, &d_cs, &d_h};
    int at = call.kind.sequence ? 9 : 8;
    for (int k = 0; k < 9; ++k) {
      if (k == 6 && !call.kind.sequence) continue;  // a single step has no need of h
      RETURN_IF_ERROR(call.ctx->Input(at++, tensors[k]));
      RETURN_IF_ERROR(RequireShape(call.kind.op, kNames[k], *tensors[k], call.of_cells));
    }
    return Status();
  }
};

Status StepBack(Encoder& encoder, LstmCall& call, const LstmSaved& saved, int64_t step,
                const Tensor& d_cs_state, const Value& d_h_state, const Tensor& d_gates,
                const Value& d_gates_now) {
  const LstmParams p = call.At(step);
  const bool lines = !ThreadgroupsRunAtOnce();
  const int64_t cells = lines ? (call.cells + LSTM_LINE - 1) / LSTM_LINE : call.cells;
  return encoder.Launch({lines ? "lstm_step_grad_line" : "lstm_step_grad", call.w.dtype()},
                        Grid(cells, call.batch),
                        {{"cs_before", step == 0 ? call.cs_prev : saved.cs},
                         {"i_in", saved.i},
                         {"cs_in", saved.cs},
                         {"f_in", saved.f},
                         {"o_in", saved.o},
                         {"ci_in", saved.ci},
                         {"co_in", saved.co},
                         {"wci", call.Peephole(call.wci)},
                         {"wcf", call.Peephole(call.wcf)},
                         {"wco", call.Peephole(call.wco)},
                         {"d_cs", saved.d_cs},
                         {"d_h", saved.d_h},
                         {"d_cs_state", d_cs_state},
                         {"d_h_state", d_h_state},
                         {"d_gates", d_gates},
                         {"d_gates_now", d_gates_now},
                         {"p", p}});
}

// Sums over the first `rows` rows of the gates' gradients: zeros where there are no peepholes.
Status PeepholeGradients(Encoder& encoder, LstmCall& call, const LstmSaved& saved,
                         const Tensor& d_gates, int64_t rows, const Tensor (&out)[3]) {
  if (call.p.peephole == 0 || rows == 0) {
    const int64_t n = out[0].num_elements();
    if (out[1].num_elements() == n && out[2].num_elements() == n) {
      return encoder.Launch({"lstm_no_peephole_grad", call.w.dtype()}, Grid(n),
                            {{"d_wci", out[0]}, {"d_wcf", out[1]}, {"d_wco", out[2]}});
    }
    for (const Tensor& tensor : out) {
      RETURN_IF_ERROR(EncodeZeros(encoder, call.kind.op, tensor));
    }
    return Status();
  }
  const auto count = static_cast<uint32_t>(rows);
  return encoder.Launch({"lstm_peephole_grad", call.w.dtype()}, Grid(call.cells),
                        {{"d_gates", d_gates},
                         {"cs_prev", call.cs_prev},
                         {"cs", saved.cs},
                         {"d_wci", out[0]},
                         {"d_wcf", out[1]},
                         {"d_wco", out[2]},
                         {"rows", count},
                         {"p", call.p}});
}

// Peepholes' gradients have the shapes of the weights, of which nothing is known without peepholes.
Status AllocatePeepholes(LstmCall& call, int first, Tensor (&out)[3]) {
  const Tensor* const weights[] = {&call.wci, &call.wcf, &call.wco};
  for (int i = 0; i < 3; ++i) {
    RETURN_IF_ERROR(call.ctx->AllocateOutput(first + i, weights[i]->shape(), &out[i]));
  }
  return Status();
}

Status RunCellGrad(LstmCall& call) {
  LstmSaved saved;
  Tensor d_cs_prev, d_gates_out, d_peepholes[3], d_cs, d_gates;
  RETURN_IF_ERROR(call.GetInputs());
  RETURN_IF_ERROR(saved.Get(call));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(0, call.of_cells, &d_cs_prev));
  RETURN_IF_ERROR(call.ctx->AllocateOutput(1, {call.batch, 4 * call.cells}, &d_gates_out));
  RETURN_IF_ERROR(AllocatePeepholes(call, 2, d_peepholes));
  const bool floats = call.w.dtype() == TF_FLOAT;
  if (!floats) {
    RETURN_IF_ERROR(call.Floats(call.of_cells, &d_cs));
    RETURN_IF_ERROR(call.Floats(d_gates_out.shape(), &d_gates));
  }
  const Tensor& to_cs = floats ? d_cs_prev : d_cs;
  const Tensor& to_gates = floats ? d_gates_out : d_gates;
  const bool empty = d_cs_prev.num_elements() == 0;
  return Encode(call.ctx, [&](Encoder& encoder) -> Status {
    if (!empty) {
      RETURN_IF_ERROR(StepBack(encoder, call, saved, 0, to_cs, Nothing(), to_gates, Nothing()));
    }
    RETURN_IF_ERROR(
        PeepholeGradients(encoder, call, saved, to_gates, empty ? 0 : call.batch, d_peepholes));
    if (floats || empty) return Status();
    RETURN_IF_ERROR(Convert(encoder, d_cs, 0, d_cs_prev));
    return Convert(encoder, d_gates, 0, d_gates_out);
  });
}

Status RunLstmGrad(LstmCall& call) {
  KernelContext* const ctx = call.ctx;
  const char* const op = call.kind.op;
  LstmSaved saved;
  Tensor d_x, d_cs_prev, d_h_prev, d_w, d_peepholes[3], d_b;
  RETURN_IF_ERROR(call.GetInputs());
  RETURN_IF_ERROR(saved.Get(call));
  RETURN_IF_ERROR(ctx->AllocateOutput(0, call.x.shape(), &d_x));
  RETURN_IF_ERROR(ctx->AllocateOutput(1, call.cs_prev.shape(), &d_cs_prev));
  RETURN_IF_ERROR(ctx->AllocateOutput(2, call.h_prev.shape(), &d_h_prev));
  RETURN_IF_ERROR(ctx->AllocateOutput(3, call.w.shape(), &d_w));
  RETURN_IF_ERROR(AllocatePeepholes(call, 4, d_peepholes));
  RETURN_IF_ERROR(ctx->AllocateOutput(7, call.b.shape(), &d_b));
  const int64_t rows = call.used * call.batch, gates = 4 * call.cells;
  if (rows * call.cells == 0) {
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      for (const Tensor* out : {&d_x, &d_cs_prev, &d_h_prev, &d_w, &d_b, &d_peepholes[0],
                                &d_peepholes[1], &d_peepholes[2]}) {
        RETURN_IF_ERROR(EncodeZeros(encoder, op, *out));
      }
      return Status();
    });
  }
  Tensor w_x, w_h, d_cs, d_h, d_gates, d_gates_now, xh, d_inputs, d_weights;
  RETURN_IF_ERROR(call.SplitWeights(&w_x, &w_h));
  RETURN_IF_ERROR(call.Floats({call.batch, call.cells}, &d_cs));
  RETURN_IF_ERROR(call.Floats({call.batch, call.cells}, &d_h));
  RETURN_IF_ERROR(call.Floats({rows, gates}, &d_gates));
  RETURN_IF_ERROR(call.Floats({call.batch, gates}, &d_gates_now));
  RETURN_IF_ERROR(call.Floats({rows, call.inputs + call.cells}, &xh));
  RETURN_IF_ERROR(call.Floats({rows, call.inputs}, &d_inputs));
  RETURN_IF_ERROR(call.Floats(call.w.shape(), &d_weights));
  RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Fill(d_cs, 0));
    return encoder.Fill(d_h, 0);
  }));
  GemmFactor factor;
  RETURN_IF_ERROR(
      PrepareProduct(ctx, op, d_gates_now.shape(), w_h, true, d_h.shape(), call.used, &factor));
  for (int64_t step = call.used - 1; step >= 0; --step) {
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return StepBack(encoder, call, saved, step, d_cs, d_h, d_gates, d_gates_now);
    }));
    RETURN_IF_ERROR(RunProduct(ctx, factor, d_gates_now, d_h));
  }
  const auto count = static_cast<uint32_t>(rows), columns = static_cast<uint32_t>(gates);
  RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(EncodeInputs(encoder, call, rows, saved.h, xh));
    return encoder.Launch(
        {"lstm_bias_grad", call.w.dtype()}, Grid(gates),
        {{"d_gates", d_gates}, {"out", d_b}, {"rows", count}, {"columns", columns}});
  }));
  RETURN_IF_ERROR(RunProduct(ctx, op, xh, true, d_gates, false, d_weights));
  RETURN_IF_ERROR(RunProduct(ctx, op, d_gates, false, w_x, true, d_inputs));
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(PeepholeGradients(encoder, call, saved, d_gates, rows, d_peepholes));
    RETURN_IF_ERROR(Convert(encoder, d_cs, 0, d_cs_prev));
    RETURN_IF_ERROR(Convert(encoder, d_h, 0, d_h_prev));
    RETURN_IF_ERROR(Convert(encoder, d_weights, 0, d_w));
    // Steps that were not used have no gradient.
    if (call.used < call.steps) RETURN_IF_ERROR(EncodeZeros(encoder, op, d_x));
    const auto first = uint64_t{0};
    return encoder.Launch({"convert_from", TF_FLOAT, d_x.dtype()}, Grid(d_inputs.num_elements()),
                          {{"in", d_inputs}, {"out", d_x}, {"first", first}});
  });
}

template <typename Op>
class LstmOp {
 public:
  static constexpr const char* kOp = Op::kKind.op;

  explicit LstmOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetLstmAttrs(ctx, Op::kKind, &p_));
  }

  void Compute(KernelContext* ctx) {
    LstmCall call(ctx, Op::kKind, p_);
    OP_REQUIRES_OK(ctx, Op::kKind.gradient
                            ? Op::kKind.sequence ? RunLstmGrad(call) : RunCellGrad(call)
                            : RunLstm(call));
  }

 private:
  LstmParams p_;
};

// Whether it is a sequence, has the candidate second, is a gradient, has a forget bias.
#define LSTM_OP(name, sequence, second, gradient, bias, ...)                     \
  struct name {                                                                  \
    static constexpr LstmKind kKind = {#name, sequence, second, gradient, bias}; \
  };                                                                             \
  REGISTER_METAL_KERNEL(LstmOp<name>, .Types("T", {TF_FLOAT, TF_HALF}) __VA_ARGS__)
LSTM_OP(LSTMBlockCell, false, true, false, true);
LSTM_OP(LSTMBlockCellGrad, false, true, true, false);
LSTM_OP(BlockLSTM, true, true, false, true, .HostMemory("seq_len_max"));
LSTM_OP(BlockLSTMGrad, true, true, true, false, .HostMemory("seq_len_max"));
LSTM_OP(BlockLSTMV2, true, false, false, false, .HostMemory("seq_len_max"));
LSTM_OP(BlockLSTMGradV2, true, false, true, false, .HostMemory("seq_len_max"));

}  // namespace
}  // namespace metal_ops
