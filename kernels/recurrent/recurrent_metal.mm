// RecurrentSequence and its gradient on the Metal device: for each step a product and the cell's
// formulas.

#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_plan.h"
#include "kernels/recurrent/recurrent_call.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

// Shared by forward and backward.
class Sequence {
 protected:
  explicit Sequence(MetalCall& call)
      : call_(call), s_(call), type_(call.out(0).dtype()), mask_(call.in(call.Index("mask"))) {}

  const Tensor& Named(const char* input) const { return call_.in(call_.Index(input)); }
  Status Floats(const Shape& shape, Tensor* tensor) const {
    return call_.AllocateTemp(DType::kFloat, shape, tensor);
  }

  Status Launch(const char* shader, int64_t columns, const std::vector<Argument>& arguments,
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    return call_.Launch({shader, type_}, Grid(columns, s_.batch), arguments, file, line);
  }
  // The same for shaders whose lanes have a row.
  Status LaunchRows(const char* shader, const std::vector<Argument>& arguments,
                    const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    int lanes = 1;
    RETURN_IF_ERROR(ChooseRowLanes(&lanes));
    return call_.Launch({shader, type_, lanes}, Grid(lanes, s_.batch), arguments, file, line);
  }
  Argument Mask() const { return {"mask", s_.use_mask ? Value(mask_) : Value(Nothing())}; }

  // Columns of a matrix of T in float.
  Status Take(const Tensor& from, int64_t rows, int64_t row, int64_t first, int64_t columns,
              Tensor* out) const {
    RETURN_IF_ERROR(Floats({rows, columns}, out));
    const RecurrentBlock p = {static_cast<uint32_t>(columns), static_cast<uint32_t>(row),
                              static_cast<uint32_t>(first)};
    return call_.Launch({"recurrent_take", type_}, Grid(columns, rows),
                        {{"in", from}, {"out", *out}, {"p", p}});
  }
  // And back: a, or a + b.
  Status Put(const Tensor& a, const Tensor* b, int64_t columns, const Tensor& out) const {
    const RecurrentBlock p = {static_cast<uint32_t>(columns), 0, b != nullptr ? 1u : 0u};
    return Launch("recurrent_put", columns,
                  {{"a", a}, {"b", b != nullptr ? *b : a}, {"out", out}, {"p", p}});
  }

  // [batch, depth] times b, one step after the other; or times b transposed.
  Status Prepare(const Tensor& b, bool transpose, int64_t depth, int64_t columns,
                 GemmFactor* factor) const {
    GemmParams params = EmptyGemm();
    params.rows = s_.batch;
    params.columns = static_cast<uint32_t>(columns);
    params.depth = static_cast<uint32_t>(depth);
    params.out_w = params.in_w = static_cast<uint32_t>(s_.batch);
    params.a_x = depth;
    params.a_c = 1;
    params.b_row = transpose ? 1 : columns;
    params.b_column = transpose ? depth : 1;
    params.out_point = columns;
    params.out_column = 1;
    params.out_batch = s_.batch * columns;
    const auto floats = [this](const Shape& shape, Tensor* tensor) {
      return Floats(shape, tensor);
    };
    return PrepareGemm(call_.stream(), floats, params, b, s_.steps, factor);
  }
  Status Multiply(const GemmFactor& factor, const Tensor& a, const Tensor& out) const {
    return RunGemm(call_.stream(), factor, a, nullptr, out);
  }

  MetalCall& call_;
  const RecurrentSizes s_;
  const DType type_;
  const Tensor& mask_;
};

class Forward : public Sequence {
 public:
  explicit Forward(MetalCall& call) : Sequence(call) {}

  Status Run() {
    const int64_t batch = s_.batch, units = s_.units, outputs = s_.outputs;
    if (batch * units == 0) return Status();
    const Tensor& kernel = Named("recurrent_kernel");
    Tensor first, second, projection;
    RETURN_IF_ERROR(Take(Named("initial_h"), batch, outputs, 0, outputs, &h_));
    if (s_.lstm()) RETURN_IF_ERROR(Take(Named("initial_c"), batch, units, 0, units, &c_));
    GemmFactor by_first, by_second, by_projection;
    if (s_.steps > 0) {
      RETURN_IF_ERROR(Take(kernel, outputs, s_.width, 0, s_.first, &first));
      RETURN_IF_ERROR(Floats({batch, s_.first}, &sums_));
      RETURN_IF_ERROR(Prepare(first, false, outputs, s_.first, &by_first));
    }
    if (s_.steps > 0 && HasTwoProducts(s_.cell)) {
      RETURN_IF_ERROR(Take(kernel, outputs, s_.width, s_.first, units, &second));
      RETURN_IF_ERROR(Floats({batch, units}, &shown_));
      RETURN_IF_ERROR(Floats({batch, units}, &seen_));
      RETURN_IF_ERROR(Prepare(second, false, units, units, &by_second));
    }
    if (s_.steps > 0 && s_.projects) {
      RETURN_IF_ERROR(Take(Named("projection"), units, outputs, 0, outputs, &projection));
      RETURN_IF_ERROR(Floats({batch, units}, &shown_));
      // Sequences that begin with steps left out project this.
      RETURN_IF_ERROR(call_.Encode([&](Encoder& encoder) { return encoder.Fill(shown_, 0); }));
      RETURN_IF_ERROR(Floats({batch, outputs}, &seen_));
      RETURN_IF_ERROR(Prepare(projection, false, units, outputs, &by_projection));
    }
    for (int64_t step = 0; step < s_.steps; ++step) {
      RecurrentParams p = s_.Params(call_, step);
      p.use_bias = Named("recurrent_bias").num_elements() > 0 ? 1 : 0;
      RETURN_IF_ERROR(Multiply(by_first, h_, sums_));
      RETURN_IF_ERROR(NormProducts(p, sums_, 0, s_.first));
      if (HasTwoProducts(s_.cell)) {
        RETURN_IF_ERROR(Launch("recurrent_gated", units,
                               {{"gates", call_.in(0)},
                                {"sums", sums_},
                                {"h_state", h_},
                                {"gated", shown_},
                                {"p", p}}));
        RETURN_IF_ERROR(Multiply(by_second, shown_, seen_));
        RETURN_IF_ERROR(NormProducts(p, seen_, s_.first, units));
      }
      RETURN_IF_ERROR(Step(p));
      if (s_.norms_cells) {
        RETURN_IF_ERROR(LaunchRows("recurrent_cell_norm", {{"gates", call_.in(0)},
                                                           {"sums", sums_},
                                                           {"gamma", Named("cell_gamma")},
                                                           {"beta", Named("cell_beta")},
                                                           Mask(),
                                                           {"c_state", c_},
                                                           {"shown", s_.projects ? shown_ : h_},
                                                           {"y", call_.out(kY)},
                                                           {"p", p}}));
      }
      if (!s_.projects) continue;
      RETURN_IF_ERROR(Multiply(by_projection, shown_, seen_));
      RETURN_IF_ERROR(
          Launch("recurrent_show", outputs,
                 {{"projected", seen_}, Mask(), {"h_state", h_}, {"y", call_.out(kY)}, {"p", p}}));
    }
    RETURN_IF_ERROR(Put(h_, nullptr, outputs, call_.out(kH)));
    return s_.lstm() ? Put(c_, nullptr, units, call_.out(kC)) : Status();
  }

 private:
  enum Out { kActivated, kY, kCells, kH, kC, kProducts };

  // The norm of the products for n gates from `first` on.
  Status NormProducts(const RecurrentParams& p, const Tensor& sums, int64_t first,
                      int64_t n) const {
    if (!s_.norms_products) return Status();
    const RecurrentBlock block = {static_cast<uint32_t>(n), 0, static_cast<uint32_t>(first)};
    return LaunchRows("recurrent_norm", {{"sums", sums},
                                         {"gamma", Named("recurrent_gamma")},
                                         Mask(),
                                         {"products", call_.out(kProducts)},
                                         {"p", p},
                                         {"block", block}});
  }

  Status Step(const RecurrentParams& p) const {
    const Argument gates = {"gates", call_.in(0)}, sums = {"sums", sums_}, params = {"p", p},
                   activated = {"activated", call_.out(kActivated)}, y = {"y", call_.out(kY)},
                   cells = {"cells", call_.out(kCells)}, state = {"h_state", h_};
    switch (s_.cell) {
      case RecurrentCell::kLstm:
        return Launch("recurrent_lstm", s_.units,
                      {gates,
                       sums,
                       Mask(),
                       {"c_state", c_},
                       {"shown", s_.projects ? shown_ : h_},
                       activated,
                       cells,
                       y,
                       params});
      case RecurrentCell::kGru:
        return Launch(
            "recurrent_gru", s_.units,
            {gates,
             sums,
             {"bias", p.use_bias != 0 ? Value(Named("recurrent_bias")) : Value(Nothing())},
             Mask(),
             state,
             activated,
             cells,
             y,
             params});
      case RecurrentCell::kForgetGate:
        return Launch("recurrent_forget", s_.units,
                      {gates, sums, Mask(), state, activated, y, params});
      default:
        return Launch("recurrent_candidate", s_.units,
                      {gates, sums, {"seen", seen_}, Mask(), state, activated, y, params});
    }
  }

  Tensor h_, c_, sums_, shown_, seen_;
};

Status RecurrentSequence(MetalCall& call) { return Forward(call).Run(); }
METAL_KERNEL("RecurrentSequence", RecurrentSequence);

class Backward : public Sequence {
 public:
  explicit Backward(MetalCall& call) : Sequence(call) {}

  Status Run() {
    const int64_t batch = s_.batch, units = s_.units, outputs = s_.outputs;
    if (batch * units == 0) return Status();
    const Tensor& kernel = Named("recurrent_kernel");
    Tensor first, second, projection, back;
    RETURN_IF_ERROR(Take(Named("d_h"), batch, outputs, 0, outputs, &d_h_));
    if (s_.lstm()) RETURN_IF_ERROR(Take(Named("d_c"), batch, units, 0, units, &d_c_));
    RETURN_IF_ERROR(Floats({batch, outputs}, &back));
    RETURN_IF_ERROR(call_.Encode([&](Encoder& encoder) { return encoder.Fill(back, 0); }));
    for (int output : {kDGamma, kDCellGamma, kDCellBeta}) {
      const Tensor& sum = call_.out(output);
      if (sum.num_elements() == 0) continue;
      RETURN_IF_ERROR(call_.Encode([&](Encoder& encoder) { return encoder.Fill(sum, 0); }));
    }
    GemmFactor by_first, by_second, by_projection;
    if (s_.steps > 0) {
      RETURN_IF_ERROR(Take(kernel, outputs, s_.width, 0, s_.first, &first));
      RETURN_IF_ERROR(Floats({batch, s_.first}, &d_sums_));
      RETURN_IF_ERROR(Prepare(first, true, s_.first, outputs, &by_first));
    }
    if (s_.steps > 0 && HasTwoProducts(s_.cell)) {
      RETURN_IF_ERROR(Take(kernel, outputs, s_.width, s_.first, units, &second));
      RETURN_IF_ERROR(Floats({batch, units}, &d_candidate_));
      RETURN_IF_ERROR(Floats({batch, units}, &d_shown_));
      RETURN_IF_ERROR(Prepare(second, true, units, outputs, &by_second));
    }
    if (s_.steps > 0 && s_.projects) {
      RETURN_IF_ERROR(Take(Named("projection"), units, outputs, 0, outputs, &projection));
      RETURN_IF_ERROR(Floats({batch, units}, &d_shown_));
      RETURN_IF_ERROR(Prepare(projection, true, outputs, units, &by_projection));
    }
    for (int64_t step = s_.steps - 1; step >= 0; --step) {
      const RecurrentParams p = s_.Params(call_, step);
      const Tensor& d_states = call_.out(kDStates);
      RETURN_IF_ERROR(Launch("recurrent_arrive", outputs,
                             {{"back", back},
                              {"d_y", Named("d_y")},
                              {"d_h", d_h_},
                              {"d_states", s_.projects ? Value(d_states) : Value(Nothing())},
                              {"p", p}}));
      if (s_.projects) RETURN_IF_ERROR(Multiply(by_projection, d_h_, d_shown_));
      if (HasTwoProducts(s_.cell)) {
        RETURN_IF_ERROR(Launch("recurrent_candidate_grad", units,
                               {{"activated", Named("activated")},
                                Mask(),
                                {"d_h", d_h_},
                                {"d_candidate", d_candidate_},
                                {"d_gates", call_.out(kDGates)},
                                {"p", p}}));
        RETURN_IF_ERROR(NormProducts(p, d_candidate_, s_.first, units));
        RETURN_IF_ERROR(Multiply(by_second, d_candidate_, d_shown_));
      }
      RETURN_IF_ERROR(Step(p));
      RETURN_IF_ERROR(NormProducts(p, d_sums_, 0, s_.first));
      RETURN_IF_ERROR(Multiply(by_first, d_sums_, back));
    }
    RETURN_IF_ERROR(Put(d_h_, &back, outputs, call_.out(kDInitialH)));
    return s_.lstm() ? Put(d_c_, nullptr, units, call_.out(kDInitialC)) : Status();
  }

 private:
  // The norm's gradient for the slopes of the products for n gates from `first` on.
  Status NormProducts(const RecurrentParams& p, const Tensor& d_sums, int64_t first,
                      int64_t n) const {
    if (!s_.norms_products) return Status();
    const RecurrentBlock block = {static_cast<uint32_t>(n), 0, static_cast<uint32_t>(first)};
    return LaunchRows("recurrent_norm_grad", {{"d_sums", d_sums},
                                              {"products", Named("products")},
                                              {"gamma", Named("recurrent_gamma")},
                                              Mask(),
                                              {"d_products", call_.out(kDProducts)},
                                              {"d_gamma", call_.out(kDGamma)},
                                              {"p", p},
                                              {"block", block}});
  }

  Status Step(const RecurrentParams& p) const {
    const Argument activated = {"activated", Named("activated")}, cells = {"cells", Named("cells")},
                   y = {"y", Named("y")}, initial = {"initial_h", Named("initial_h")},
                   d_h = {"d_h", d_h_}, d_sums = {"d_sums", d_sums_},
                   d_gates = {"d_gates", call_.out(kDGates)}, params = {"p", p};
    switch (s_.cell) {
      case RecurrentCell::kLstm:
        if (s_.norms_cells) {
          RETURN_IF_ERROR(
              LaunchRows("recurrent_cell_norm_grad", {activated,
                                                      cells,
                                                      {"initial_c", Named("initial_c")},
                                                      {"gamma", Named("cell_gamma")},
                                                      {"beta", Named("cell_beta")},
                                                      Mask(),
                                                      {"d_shown", s_.projects ? d_shown_ : d_h_},
                                                      {"d_c", d_c_},
                                                      d_sums,
                                                      d_gates,
                                                      {"d_gamma", call_.out(kDCellGamma)},
                                                      {"d_beta", call_.out(kDCellBeta)},
                                                      params}));
        } else {
          RETURN_IF_ERROR(Launch("recurrent_lstm_grad", s_.units,
                                 {activated,
                                  cells,
                                  {"initial_c", Named("initial_c")},
                                  Mask(),
                                  {"d_shown", s_.projects ? d_shown_ : d_h_},
                                  {"d_c", d_c_},
                                  d_sums,
                                  d_gates,
                                  params}));
        }
        return Launch("recurrent_keep", s_.outputs, {Mask(), d_h, params});
      case RecurrentCell::kGru:
        return Launch("recurrent_gru_grad", s_.units,
                      {activated,
                       cells,
                       y,
                       initial,
                       Mask(),
                       d_h,
                       d_sums,
                       d_gates,
                       {"d_products", call_.out(kDProducts)},
                       params});
      case RecurrentCell::kForgetGate:
        return Launch("recurrent_forget_grad", s_.units,
                      {activated, y, initial, Mask(), d_h, d_sums, d_gates, params});
      default:
        return Launch(
            "recurrent_gated_grad", s_.units,
            {activated, y, initial, Mask(), {"d_seen", d_shown_}, d_h, d_sums, d_gates, params});
    }
  }

  Tensor d_h_, d_c_, d_sums_, d_shown_, d_candidate_;
};

Status RecurrentSequenceGrad(MetalCall& call) { return Backward(call).Run(); }
METAL_KERNEL("RecurrentSequenceGrad", RecurrentSequenceGrad);

}  // namespace
}  // namespace metal_ops
