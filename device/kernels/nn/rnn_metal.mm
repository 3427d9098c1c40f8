// CudnnRNNV3 and its gradient, of which Keras makes a layer of LSTM or GRU cells over whole sequences.

#include <algorithm>
#include <string>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/nn/product.h"
#include "device/kernels/nn/recurrent.h"
#include "device/kernels/nn/rnn_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

struct RnnAttrs {
  bool lstm = false, time_major = false, training = true;
};

Status GetRnnAttrs(KernelConstruction* ctx, const char* op, bool gradient, RnnAttrs* attrs) {
  std::string mode, input_mode, direction;
  float dropout = 0.0f;
  int64_t projection = 0;
  RETURN_IF_ERROR(ctx->GetAttr("rnn_mode", &mode));
  RETURN_IF_ERROR(ctx->GetAttr("input_mode", &input_mode));
  RETURN_IF_ERROR(ctx->GetAttr("direction", &direction));
  RETURN_IF_ERROR(ctx->GetAttr("dropout", &dropout));
  RETURN_IF_ERROR(ctx->GetAttr("num_proj", &projection));
  RETURN_IF_ERROR(ctx->GetAttr("time_major", &attrs->time_major));
  if (!gradient) RETURN_IF_ERROR(ctx->GetAttr("is_training", &attrs->training));
  attrs->lstm = mode == "lstm";
  if ((attrs->lstm || mode == "gru") && input_mode != "skip_input" &&
      direction == "unidirectional" && dropout == 0.0f && projection == 0) {
    return Status();
  }
  return Unimplemented(op, ": the METAL device has layers of rnn_mode lstm or gru, with ",
                       "linear_input, unidirectional, without dropout and projection; got ", mode,
                       ", ", input_mode, ", ", direction, ", dropout ", dropout, ", num_proj ",
                       projection);
}

// One call: the inputs that both ops have, and their sizes. The parameters lie one after the other, gate by
// gate: the factor of x, [cells, inputs]; that of h, [cells, cells]; a bias of each. The gates of an LSTM
// are i, f, c, o. Those of a GRU are z, r, h, as Keras has them where TensorFlow is not built for cuDNN.
struct RnnCall {
  RnnCall(KernelContext* ctx, const char* op, const RnnAttrs& attrs)
      : ctx(ctx), op(op), attrs(attrs) {}

  Status GetInputs() {
    Tensor given;
    Tensor* const tensors[] = {&x, &h_first, &c_first, &parameters, &given};
    for (int i = 0; i < 5; ++i) RETURN_IF_ERROR(ctx->Input(i, tensors[i]));
    if (x.rank() != 3 || h_first.rank() != 3) {
      return InvalidArgument(op, ": input and input_h must have 3 dimensions, got ",
                             ToString(x.shape()), " and ", ToString(h_first.shape()));
    }
    steps = x.dim(attrs.time_major ? 0 : 1);
    batch = x.dim(attrs.time_major ? 1 : 0);
    inputs = x.dim(2);
    cells = h_first.dim(2);
    gates = (attrs.lstm ? 4 : 3) * cells;
    saved = (attrs.lstm ? RNN_LSTM_SAVED : RNN_GRU_SAVED) * cells;
    rows = steps * batch;
    of_states = attrs.time_major ? Shape{1, batch, cells} : Shape{batch, 1, cells};
    of_cells = {x.dim(0), x.dim(1), cells};
    RETURN_IF_ERROR(RequireShape(op, "input_h (of one layer)", h_first, of_states));
    if (attrs.lstm) RETURN_IF_ERROR(RequireShape(op, "input_c", c_first, of_states));
    RETURN_IF_ERROR(RequireShape(op, "params", parameters, {gates * (inputs + cells + 2)}));
    RETURN_IF_ERROR(RequireShape(op, "sequence_lengths", given, {batch}));
    for (const int64_t size : {rows, inputs + cells, saved, gates * (inputs + cells)}) {
      RETURN_IF_ERROR(CheckGrid(op, "steps, sequences, cells or weights", size));
    }
    const int32_t* const numbers = given.host<int32_t>();
    for (int64_t i = 0; i < batch; ++i) {
      if (numbers[i] >= 0 && numbers[i] <= steps) continue;
      return InvalidArgument(op, ": sequence_lengths must be from 0 to ", steps,
                             ", the steps of input, got ", numbers[i], " for sequence ", i);
    }
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_INT32, {batch}, &lengths));
    if (batch == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("cast_int_int", Grid(batch),
                            {{"x", HostArray(numbers, batch)}, {"out", lengths}});
    });
  }

  bool nothing() const { return rows * cells == 0; }

  RnnParams At(int64_t step) const {
    const auto of_step = static_cast<uint64_t>(attrs.time_major ? batch : 1);
    RnnParams p = {};
    p.row = static_cast<uint64_t>(step) * of_step;
    p.row_before = step == 0 ? 0 : p.row - of_step;
    p.stride = static_cast<uint32_t>(attrs.time_major ? 1 : steps);
    p.step = static_cast<uint32_t>(step);
    p.cells = static_cast<uint32_t>(cells);
    p.saves = attrs.training ? 1 : 0;
    return p;
  }

  Status Floats(const Shape& shape, Tensor* tensor) const {
    return ctx->AllocateTemp(TF_FLOAT, shape, tensor);
  }

  // Elements of a tensor from `first` on, in float.
  Status Take(const Tensor& from, int64_t first, const Shape& shape, Tensor* out) const {
    RETURN_IF_ERROR(Floats(shape, out));
    const auto at = static_cast<uint64_t>(first);
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"convert_from", from.dtype(), DType::kFloat},
                            Grid(out->num_elements()),
                            {{"in", from}, {"out", *out}, {"first", at}});
    });
  }
  // And back.
  Status Put(const Tensor& floats, const Tensor& out, int64_t first) const {
    const auto at = static_cast<uint64_t>(first);
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"convert_to", out.dtype()}, Grid(floats.num_elements()),
                            {{"in", floats}, {"out", out}, {"first", at}});
    });
  }

  Status TakeWeights(Tensor* of_x, Tensor* of_h) const {
    RETURN_IF_ERROR(Take(parameters, 0, {gates, inputs}, of_x));
    return Take(parameters, gates * inputs, {gates, cells}, of_h);
  }

  // Saved values are float, whatever the dtype.
  Shape ReserveShape() const {
    return {rows * saved * static_cast<int64_t>(sizeof(float) / x.element_bytes())};
  }

  KernelContext* ctx;
  const char* op;
  RnnAttrs attrs;
  Tensor x, h_first, c_first, parameters, lengths;
  int64_t steps = 0, batch = 0, inputs = 0, cells = 0, gates = 0, saved = 0, rows = 0;
  Shape of_states, of_cells;
};

Status EncodeCopies(const RnnCall& call, const Tensor& from, const Tensor& to) {
  if (to.num_elements() == 0) return Status();
  return Encode(call.ctx, [&](Encoder& encoder) {
    const int64_t n = to.num_elements();
    return EncodeCopy(encoder, call.op, {n}, from, {{1}}, to, {{1}});
  });
}

class RnnOp {
 public:
  static constexpr char kOp[] = "CudnnRNNV3";

  explicit RnnOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetRnnAttrs(ctx, kOp, /*gradient=*/false, &attrs_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    RnnCall call(ctx, kOp, attrs_);
    Tensor out, h, c, reserve, host_reserve;
    RETURN_IF_ERROR(call.GetInputs());
    RETURN_IF_ERROR(ctx->AllocateOutput(0, call.of_cells, &out));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, call.of_states, &h));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, attrs_.lstm ? call.of_states : Shape{}, &c));
    RETURN_IF_ERROR(
        ctx->AllocateOutput(3, attrs_.training ? call.ReserveShape() : Shape{0}, &reserve));
    RETURN_IF_ERROR(ctx->AllocateOutput(4, {0}, &host_reserve));
    if (!attrs_.lstm) RETURN_IF_ERROR(ZeroOutput(ctx, kOp, c));
    if (call.nothing()) {
      RETURN_IF_ERROR(EncodeCopies(call, call.h_first, h));
      return attrs_.lstm ? EncodeCopies(call, call.c_first, c) : Status();
    }
    Tensor x, w_x, w_h, bias, from_x, from_h, h_state, c_state;
    const Shape states = {call.batch, call.cells};
    RETURN_IF_ERROR(call.TakeWeights(&w_x, &w_h));
    RETURN_IF_ERROR(call.Take(call.parameters, call.gates * (call.inputs + call.cells),
                              {2 * call.gates}, &bias));
    RETURN_IF_ERROR(call.Take(call.h_first, 0, states, &h_state));
    if (attrs_.lstm) RETURN_IF_ERROR(call.Take(call.c_first, 0, states, &c_state));
    RETURN_IF_ERROR(call.Floats({call.rows, call.gates}, &from_x));
    RETURN_IF_ERROR(call.Floats({call.batch, call.gates}, &from_h));
    RETURN_IF_ERROR(call.Take(call.x, 0, {call.rows, call.inputs}, &x));
    RETURN_IF_ERROR(RunProduct(ctx, kOp, x, false, w_x, true, from_x));
    GemmFactor factor;
    RETURN_IF_ERROR(
        PrepareProduct(ctx, kOp, states, w_h, true, from_h.shape(), call.steps, &factor));
    const bool lines = !ThreadgroupsRunAtOnce();
    const Shader shader(attrs_.lstm ? "lstm_layer" : "gru_layer", lines ? "line" : "", out.dtype());
    const int64_t line = lines ? RNN_LINE : 1;
    const Grid grid((call.cells + line - 1) / line, call.batch);
    for (int64_t step = 0; step < call.steps; ++step) {
      RETURN_IF_ERROR(RunProduct(ctx, factor, h_state, from_h));
      const RnnParams p = call.At(step);
      RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
        return encoder.Launch(shader, grid,
                              {{"from_x", from_x},
                               {"from_h", from_h},
                               {"bias", bias},
                               {"lengths", call.lengths},
                               {"h_state", h_state},
                               {"c_state", attrs_.lstm ? Value(c_state) : Value(Nothing())},
                               {"out", out},
                               {"saved", Value(reserve).Untyped()},
                               {"p", p}});
      }));
    }
    RETURN_IF_ERROR(call.Put(h_state, h, 0));
    return attrs_.lstm ? call.Put(c_state, c, 0) : Status();
  }

  RnnAttrs attrs_;
};
#define RNN_HOST .HostMemory("sequence_lengths").HostMemory("host_reserved")
REGISTER_METAL_KERNEL(RnnOp, .Types("T", METAL_DEVICE_FLOATS) RNN_HOST);

class RnnGradOp {
 public:
  static constexpr char kOp[] = "CudnnRNNBackpropV3";

  explicit RnnGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetRnnAttrs(ctx, kOp, /*gradient=*/true, &attrs_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    RnnCall call(ctx, kOp, attrs_);
    Tensor out, d_out, d_h_last, d_c_last, reserve, d_x, d_h_first, d_c_first, d_parameters;
    RETURN_IF_ERROR(call.GetInputs());
    Tensor* const tensors[] = {&out, nullptr, nullptr, &d_out, &d_h_last, &d_c_last, &reserve};
    for (int i = 0; i < 7; ++i) {
      if (tensors[i] != nullptr) RETURN_IF_ERROR(ctx->Input(5 + i, tensors[i]));
    }
    RETURN_IF_ERROR(RequireShape(kOp, "output", out, call.of_cells));
    RETURN_IF_ERROR(RequireShape(kOp, "output_backprop", d_out, call.of_cells));
    RETURN_IF_ERROR(RequireShape(kOp, "output_h_backprop", d_h_last, call.of_states));
    if (attrs_.lstm) {
      RETURN_IF_ERROR(RequireShape(kOp, "output_c_backprop", d_c_last, call.of_states));
    }
    RETURN_IF_ERROR(RequireShape(kOp, "reserve_space", reserve, call.ReserveShape()));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, call.x.shape(), &d_x));
    RETURN_IF_ERROR(ctx->AllocateOutput(1, call.of_states, &d_h_first));
    RETURN_IF_ERROR(ctx->AllocateOutput(2, attrs_.lstm ? call.of_states : Shape{}, &d_c_first));
    RETURN_IF_ERROR(ctx->AllocateOutput(3, call.parameters.shape(), &d_parameters));
    if (!attrs_.lstm) RETURN_IF_ERROR(ZeroOutput(ctx, kOp, d_c_first));
    if (call.nothing()) {
      RETURN_IF_ERROR(EncodeCopies(call, d_h_last, d_h_first));
      if (attrs_.lstm) RETURN_IF_ERROR(EncodeCopies(call, d_c_last, d_c_first));
      if (d_x.num_elements() != 0) RETURN_IF_ERROR(ZeroOutput(ctx, kOp, d_x));
      if (d_parameters.num_elements() == 0) return Status();
      return ZeroOutput(ctx, kOp, d_parameters);
    }
    Tensor w_x, w_h, back, kept, d_cell, d_of_x, d_of_h, d_now;
    const Shape states = {call.batch, call.cells};
    RETURN_IF_ERROR(call.TakeWeights(&w_x, &w_h));
    RETURN_IF_ERROR(call.Take(d_h_last, 0, states, &kept));
    if (attrs_.lstm) RETURN_IF_ERROR(call.Take(d_c_last, 0, states, &d_cell));
    RETURN_IF_ERROR(call.Floats(states, &back));
    RETURN_IF_ERROR(call.Floats({call.rows, call.gates}, &d_of_x));
    if (!attrs_.lstm) RETURN_IF_ERROR(call.Floats(d_of_x.shape(), &d_of_h));
    RETURN_IF_ERROR(call.Floats({call.batch, call.gates}, &d_now));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) { return encoder.Fill(back, 0); }));
    GemmFactor factor;
    RETURN_IF_ERROR(
        PrepareProduct(ctx, kOp, d_now.shape(), w_h, false, states, call.steps, &factor));
    for (int64_t step = call.steps - 1; step >= 0; --step) {
      const RnnParams p = call.At(step);
      std::vector<Argument> arguments = {{"saved", Value(reserve).Untyped()},
                                         {"lengths", call.lengths},
                                         {"d_out", d_out},
                                         {"back", back},
                                         {"kept", kept},
                                         {"d_now", d_now},
                                         {"p", p}};
      if (attrs_.lstm) {
        arguments.insert(arguments.end(),
                         {{"c_first", call.c_first}, {"d_cell", d_cell}, {"d_gates", d_of_x}});
      } else {
        arguments.insert(
            arguments.end(),
            {{"h_first", call.h_first}, {"h", out}, {"d_of_x", d_of_x}, {"d_of_h", d_of_h}});
      }
      RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
        return encoder.Launch({attrs_.lstm ? "lstm_layer_grad" : "gru_layer_grad", out.dtype()},
                              Grid(call.cells, call.batch), arguments);
      }));
      RETURN_IF_ERROR(RunProduct(ctx, factor, d_now, back));
    }
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"rnn_sum", out.dtype()}, Grid(back.num_elements()),
                            {{"a", back}, {"b", kept}, {"out", d_h_first}});
    }));
    if (attrs_.lstm) RETURN_IF_ERROR(call.Put(d_cell, d_c_first, 0));
    if (call.inputs > 0) {
      Tensor d_inputs;
      RETURN_IF_ERROR(call.Floats({call.rows, call.inputs}, &d_inputs));
      RETURN_IF_ERROR(RunProduct(ctx, kOp, d_of_x, false, w_x, false, d_inputs));
      RETURN_IF_ERROR(call.Put(d_inputs, d_x, 0));
    }
    return Parameters(call, out, d_of_x, attrs_.lstm ? d_of_x : d_of_h, d_parameters);
  }

  static Status Parameters(const RnnCall& call, const Tensor& out, const Tensor& d_of_x,
                           const Tensor& d_of_h, const Tensor& d_parameters) {
    KernelContext* const ctx = call.ctx;
    Tensor x, before, ones, d_w_x, d_w_h, d_bias;
    const int64_t gates = call.gates, weights = gates * (call.inputs + call.cells);
    if (call.inputs > 0) {
      RETURN_IF_ERROR(call.Take(call.x, 0, {call.rows, call.inputs}, &x));
      RETURN_IF_ERROR(call.Floats({gates, call.inputs}, &d_w_x));
      RETURN_IF_ERROR(RunProduct(ctx, kOp, d_of_x, true, x, false, d_w_x));
      RETURN_IF_ERROR(call.Put(d_w_x, d_parameters, 0));
    }
    RETURN_IF_ERROR(call.Floats({call.rows, call.cells}, &before));
    RETURN_IF_ERROR(call.Floats({1, call.rows}, &ones));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
      const float one = 1.0f;
      const RnnParams p = call.At(0);
      const auto step_rows =
          call.attrs.time_major ? static_cast<uint64_t>(call.batch) : uint64_t{1};
      RETURN_IF_ERROR(EncodeSpread(encoder, kOp, HostArray(&one, 1), {}, ones));
      return encoder.Launch({"rnn_before", out.dtype()}, Grid(call.cells, call.batch, call.steps),
                            {{"first", call.h_first},
                             {"h", out},
                             {"out", before},
                             {"p", p},
                             {"step_rows", step_rows}});
    }));
    RETURN_IF_ERROR(call.Floats({gates, call.cells}, &d_w_h));
    RETURN_IF_ERROR(RunProduct(ctx, kOp, d_of_h, true, before, false, d_w_h));
    RETURN_IF_ERROR(call.Put(d_w_h, d_parameters, gates * call.inputs));
    RETURN_IF_ERROR(call.Floats({1, gates}, &d_bias));
    RETURN_IF_ERROR(RunProduct(ctx, kOp, ones, false, d_of_x, false, d_bias));
    RETURN_IF_ERROR(call.Put(d_bias, d_parameters, weights));
    if (!call.attrs.lstm) RETURN_IF_ERROR(RunProduct(ctx, kOp, ones, false, d_of_h, false, d_bias));
    return call.Put(d_bias, d_parameters, weights + gates);
  }

  RnnAttrs attrs_;
};
REGISTER_METAL_KERNEL(RnnGradOp, .Types("T", METAL_DEVICE_FLOATS) RNN_HOST);

}  // namespace
}  // namespace metal_ops
