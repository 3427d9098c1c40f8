// RecurrentSequence on the CPU. A thread takes a few sequences through all of their steps, so that
// no thread waits for another, and the matrix stays in the processor's cache.

#include <algorithm>
#include <vector>

#include "kernels/recurrent/recurrent_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent/recurrent_simd.cc"
#include "kernels/simd/all_targets-inl.h"
// It wants this order.
#include "kernels/recurrent/recurrent_norm-inl.h"
#include "kernels/recurrent/recurrent_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/recurrent/recurrent_formula.h"

class Forward : public RecurrentRows {
 public:
  explicit Forward(CpuCall& call) : RecurrentRows(call) {}

  void Run() {
    kernel_ = All(call_.Index("recurrent_kernel"));
    const int bias = call_.Index("recurrent_bias");
    bias_ = call_.inputs[bias].n_elements > 0 ? All(bias) : nullptr;
    if (!ReadNorms()) return;
    if (!Pack(kernel_, s_.width, 1, s_.outputs, s_.first, &first_)) return;
    if (HasTwoProducts(s_.cell) &&
        !Pack(kernel_ + s_.first, s_.width, 1, s_.outputs, s_.units, &second_)) {
      return;
    }
    if (s_.projects &&
        !Pack(All(call_.Index("projection")), s_.outputs, 1, s_.units, s_.outputs, &projection_)) {
      return;
    }
    ForRows([this](Room& room, int64_t begin, int64_t rows) { Sequences(room, begin, rows); });
  }

 private:
  static constexpr int kGates = 0, kInitialH = 2, kInitialC = 3;
  enum Out { kActivated, kY, kCells, kH, kC, kProducts };

  void Sequences(Room& room, int64_t begin, int64_t rows) {
    const int64_t units = s_.units, outputs = s_.outputs, width = s_.width;
    const int64_t wide = RoundToPanel(std::max(s_.first, outputs)), narrow = RoundToPanel(units);
    float* const h = room.Take(rows * outputs);
    float* const c = room.Take(s_.lstm() ? rows * units : 0);
    float* const sums = room.Take(rows * wide);
    float* const m = room.Take(rows * units);  // the input of a second product
    float* const seen = room.Take(HasTwoProducts(s_.cell) ? rows * narrow : 0);
    float* const buffers[] = {room.Take(width), room.Take(width), room.Take(outputs)};
    for (int64_t r = 0; r < rows; ++r) {
      Copy(call_.Read(kInitialH, (begin + r) * outputs, outputs, buffers[2]), outputs,
           h + r * outputs);
      if (!s_.lstm()) continue;
      Copy(call_.Read(kInitialC, (begin + r) * units, units, buffers[0]), units, c + r * units);
    }
    for (int64_t step = 0; step < s_.steps; ++step) {
      const bool any = AnySeen(begin, rows, step);
      if (any) Multiply(h, outputs, rows, first_, sums, wide);
      NormProducts(begin, rows, step, 0, s_.first, sums, wide);
      if (any && HasTwoProducts(s_.cell)) {
        for (int64_t r = 0; r < rows; ++r) {
          const float* const x = Gates(begin + r, step, buffers[0]);
          Gated(x, sums + r * wide, h + r * units, m + r * units);
        }
        Multiply(m, units, rows, second_, seen, narrow);
      }
      if (HasTwoProducts(s_.cell)) NormProducts(begin, rows, step, s_.first, units, seen, narrow);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = (begin + r) * s_.steps + step;
        float* const cell = SavesCells(s_.cell) ? call_.out<float>(kCells) + at * units : nullptr;
        float* const to = call_.float_out(kActivated).Piece(at * width, buffers[1]);
        if (!Seen(begin + r, step)) {
          std::fill_n(to, width, 0.0f);
          if (s_.lstm()) Copy(c + r * units, units, cell);
          if (cell != nullptr && !s_.lstm()) std::fill_n(cell, units, 0.0f);
        } else {
          const float* const x = Gates(begin + r, step, buffers[0]);
          const float* const product = sums + r * wide;
          float* const state = h + r * outputs;
          switch (s_.cell) {
            case RecurrentCell::kLstm:
              Lstm(x, product, c + r * units, to, s_.projects ? m + r * units : state);
              if (s_.norms_cells) Show(c + r * units, to, s_.projects ? m + r * units : state);
              Copy(c + r * units, units, cell);
              break;
            case RecurrentCell::kGru:
              Gru(x, product, to, cell, state);
              break;
            case RecurrentCell::kForgetGate:
              Forget(x, product, to, state);
              break;
            default:
              Candidate(x, product, seen + r * narrow, to, state);
          }
        }
        call_.float_out(kActivated).Store(at * width, width, to);
      }
      if (any && s_.projects) {
        Multiply(m, units, rows, projection_, sums, wide);
        for (int64_t r = 0; r < rows; ++r) {
          if (Seen(begin + r, step)) Copy(sums + r * wide, outputs, h + r * outputs);
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        Put(kY, ((begin + r) * s_.steps + step) * outputs, outputs, h + r * outputs);
      }
    }
    Put(kH, begin * outputs, rows * outputs, h);
    if (s_.lstm()) Put(kC, begin * units, rows * units, c);
  }

  const float* Gates(int64_t row, int64_t step, float* buffer) const {
    return call_.Read(kGates, (row * s_.steps + step) * s_.width, s_.width, buffer);
  }

  void Lstm(const float* x, const float* sums, float* c, float* to, float* out) const {
    const int64_t n = s_.units;
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto s = lstm_step(load(x) + load(sums), load(x + n) + load(sums + n),
                               load(x + 2 * n) + load(sums + 2 * n),
                               load(x + 3 * n) + load(sums + 3 * n), load(c));
      store(s.i, to);
      store(s.f, to + n);
      store(s.g, to + 2 * n);
      store(s.o, to + 3 * n);
      store(s.cell, c);
      store(s.out, out);
    });
  }

  // An output of an lstm whose state is normed: o tanh(norm(c)).
  void Show(const float* c, const float* gates, float* out) const {
    const int64_t n = s_.units;
    const RowMoments moments = MomentsOf(c, n, epsilon_);
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto normal = (load(c) - moments.mean) * moments.factor;
      const auto shown = recurrent_tanh(fma(normal, load(cell_gamma_), load(cell_beta_)));
      store(load(gates + 3 * n) * shown, out);
    });
  }

  // The norm of a step's rows of the product for n gates from `first` on, whose old values are
  // kept.
  void NormProducts(int64_t begin, int64_t rows, int64_t step, int64_t first, int64_t n,
                    float* products, int64_t row) const {
    if (!s_.norms_products) return;
    for (int64_t r = 0; r < rows; ++r, products += row) {
      const int64_t at = (begin + r) * s_.steps + step;
      float* const kept = call_.out<float>(kProducts) + at * s_.width + first;
      if (!Seen(begin + r, step)) {
        std::fill_n(kept, n, 0.0f);
        continue;
      }
      Copy(products, n, kept);
      Normalize(products, gamma_ + first, n, epsilon_);
    }
  }

  void Gru(const float* x, const float* sums, float* to, float* cell, float* h) const {
    const int64_t n = s_.units;
    const float* const b = bias_ != nullptr ? bias_ : zeros_.data();
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto z = recurrent_sigmoid(load(x) + load(sums) + load(b));
      const auto r = recurrent_sigmoid(load(x + n) + load(sums + n) + load(b + n));
      const auto seen = load(sums + 2 * n) + load(b + 2 * n);
      const auto next = recurrent_tanh(fma(r, seen, load(x + 2 * n)));
      store(z, to);
      store(r, to + n);
      store(next, to + 2 * n);
      store(seen, cell);
      store(recurrent_mix(z, load(h), next), h);
    });
  }

  void Forget(const float* x, const float* sums, float* to, float* h) const {
    const int64_t n = s_.units;
    const Floats beta(call_.Float("beta"));
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto s = forget_step(load(x) + load(sums), load(x + n) + load(sums + n), load(h), beta);
      store(s.f, to);
      store(s.n, to + n);
      store(s.out, h);
    });
  }

  // The input of the candidate's product: r h, or f h. The gate stands before the candidate's
  // block.
  void Gated(const float* x, const float* sums, const float* h, float* to) const {
    const int64_t at = s_.first - s_.units;
    ForVectors(s_.units, [&](auto load, auto store) HWY_ATTR {
      store(recurrent_sigmoid(load(x + at) + load(sums + at)) * load(h), to);
    });
  }

  void Candidate(const float* x, const float* sums, const float* seen, float* to, float* h) const {
    const int64_t n = s_.units, first = s_.first;
    const bool gru = s_.cell == RecurrentCell::kGruResetBefore;
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto gate = recurrent_sigmoid(load(x) + load(sums));
      const auto reset = gru ? recurrent_sigmoid(load(x + n) + load(sums + n)) : gate;
      const auto next = recurrent_tanh(load(x + first) + load(seen));
      const auto state = load(h);
      store(gru ? recurrent_mix(gate, state, next) : recurrent_mix(gate, next, state), h);
      store(gate, to);
      if (gru) store(reset, to + n);
      store(next, to + first);
    });
  }

  Panels first_, second_, projection_;
  const float *kernel_ = nullptr, *bias_ = nullptr;
};

class Backward : public RecurrentRows {
 public:
  explicit Backward(CpuCall& call) : RecurrentRows(call) {}

  void Run() {
    const float* const kernel = All(call_.Index("recurrent_kernel"));
    if (!ReadNorms()) return;
    if (!Pack(kernel, 1, s_.width, s_.first, s_.outputs, &first_)) return;
    if (HasTwoProducts(s_.cell) &&
        !Pack(kernel + s_.first, 1, s_.width, s_.units, s_.outputs, &second_)) {
      return;
    }
    if (s_.projects &&
        !Pack(All(call_.Index("projection")), 1, s_.outputs, s_.outputs, s_.units, &projection_)) {
      return;
    }
    ForRows([this](Room& room, int64_t begin, int64_t rows) { Sequences(room, begin, rows); });
  }

 private:
  static constexpr int kDY = 0, kDH = 1, kDC = 2, kActivated = 3, kY = 4, kCells = 5, kProducts = 6,
                       kInitialH = 8, kInitialC = 9;

  struct Buffers {
    float *gates, *d_gates, *state, *d_y, *d_shown, *d_o;
  };

  void Sequences(Room& room, int64_t begin, int64_t rows) {
    const int64_t units = s_.units, outputs = s_.outputs, width = s_.width;
    const int64_t wide = RoundToPanel(outputs), narrow = RoundToPanel(units);
    // Slopes of the state, of the cells' state, of the products, and of the cell's output.
    float* const d_h = room.Take(rows * wide);
    float* const d_c = room.Take(s_.lstm() ? rows * units : 0);
    float* const d_sums = room.Take(rows * width);
    float* const d_m = room.Take(s_.projects || HasTwoProducts(s_.cell) ? rows * narrow : 0);
    const Buffers buffers = {room.Take(width),
                             room.Take(width),
                             room.Take(std::max(units, outputs)),
                             room.Take(std::max(units, outputs)),
                             room.Take(s_.norms_cells ? units : 0),
                             room.Take(s_.norms_cells ? units : 0)};
    std::fill_n(d_h, rows * wide, 0.0f);
    for (int64_t r = 0; r < rows; ++r) {
      Copy(call_.Read(kDH, (begin + r) * outputs, outputs, buffers.d_y), outputs, d_h + r * wide);
      if (!s_.lstm()) continue;
      Copy(call_.Read(kDC, (begin + r) * units, units, buffers.d_y), units, d_c + r * units);
    }
    if (s_.norms_products) {
      std::fill_n(call_.out<float>(kDGamma) + begin * width, rows * width, 0.0f);
    }
    for (int output : {kDCellGamma, kDCellBeta}) {
      if (!s_.norms_cells) break;
      std::fill_n(call_.out<float>(output) + begin * units, rows * units, 0.0f);
    }
    for (int64_t step = s_.steps - 1; step >= 0; --step) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = ((begin + r) * s_.steps + step) * outputs;
        float* const d = d_h + r * wide;
        const float* const d_y = call_.Read(kDY, at, outputs, buffers.d_y);
        ForVectors(outputs, [&](auto load, auto store) HWY_ATTR { store(load(d) + load(d_y), d); });
        if (s_.projects) Put(kDStates, at, outputs, d);
      }
      const bool any = AnySeen(begin, rows, step);
      if (any && s_.projects) Multiply(d_h, wide, rows, projection_, d_m, narrow);
      for (int64_t r = 0; r < rows; ++r) {
        One(begin + r, step, buffers, d_h + r * wide, s_.lstm() ? d_c + r * units : nullptr,
            s_.projects ? d_m + r * narrow : d_h + r * wide, d_sums + r * width);
      }
      if (any && HasTwoProducts(s_.cell)) {
        NormProductsBack(begin, rows, step, s_.first, units, d_sums);
        Multiply(d_sums + s_.first, width, rows, second_, d_m, narrow);
        for (int64_t r = 0; r < rows; ++r) {
          if (!Seen(begin + r, step)) continue;
          Gated(begin + r, step, buffers, d_m + r * narrow, d_h + r * wide, d_sums + r * width);
        }
      }
      if (s_.norms_products) {
        NormProductsBack(begin, rows, step, 0, s_.first, d_sums);
        for (int64_t r = 0; r < rows; ++r) {
          Put(kDProducts, ((begin + r) * s_.steps + step) * width, width, d_sums + r * width);
        }
      }
      if (any) Multiply(d_sums, width, rows, first_, d_h, wide, /*add=*/true);
    }
    for (int64_t r = 0; r < rows; ++r) {
      Put(kDInitialH, (begin + r) * outputs, outputs, d_h + r * wide);
    }
    if (s_.lstm()) Put(kDInitialC, begin * units, rows * units, d_c);
  }

  // The slopes of a step's rows of n products from `first` on, before their norm.
  void NormProductsBack(int64_t begin, int64_t rows, int64_t step, int64_t first, int64_t n,
                        float* d_sums) const {
    if (!s_.norms_products) return;
    for (int64_t r = 0; r < rows; ++r) {
      if (!Seen(begin + r, step)) continue;
      const int64_t at = ((begin + r) * s_.steps + step) * s_.width + first;
      NormalizeBack(d_sums + r * s_.width + first, call_.in<float>(kProducts) + at, gamma_ + first,
                    n, epsilon_, call_.out<float>(kDGamma) + (begin + r) * s_.width + first);
    }
  }

  // Row `at` of a tensor [batch, time, n], or of the initial state where it is before the first.
  const float* Before(int tensor, int initial, int64_t row, int64_t step, int64_t n,
                      float* buffer) const {
    if (step == 0) return call_.Read(initial, row * n, n, buffer);
    return call_.Read(tensor, (row * s_.steps + step - 1) * n, n, buffer);
  }

  // A row's slopes up to its products; d_h keeps the part that does not come through them.
  void One(int64_t row, int64_t step, const Buffers& buffers, float* d_h, float* d_c,
           const float* d_m, float* d_sums) const {
    const int64_t n = s_.units, width = s_.width, at = row * s_.steps + step;
    float* const to = call_.float_out(kDGates).Piece(at * width, buffers.d_gates);
    if (!Seen(row, step)) {
      std::fill_n(to, width, 0.0f);
      std::fill_n(d_sums, width, 0.0f);
    } else {
      const float* const gates = call_.Read(kActivated, at * width, width, buffers.gates);
      const float* const cells = SavesCells(s_.cell) ? call_.in<float>(kCells) + at * n : nullptr;
      if (s_.lstm()) {
        const float* const before =
            step > 0 ? cells - n : call_.Read(kInitialC, row * n, n, buffers.state);
        if (s_.norms_cells) {
          Show(row, gates, cells, d_m, d_c, buffers);
          // The rest comes through the cells' state.
          Lstm(gates, before, cells, zeros_.data(), d_c, d_sums);
          Copy(buffers.d_o, n, d_sums + 3 * n);
        } else {
          Lstm(gates, before, cells, d_m, d_c, d_sums);
        }
        std::fill_n(d_h, s_.outputs, 0.0f);
        Copy(d_sums, width, to);
      } else {
        const float* const state = Before(kY, kInitialH, row, step, n, buffers.state);
        if (s_.cell == RecurrentCell::kGru) {
          Gru(gates, cells, state, d_h, d_sums, to);
        } else if (s_.cell == RecurrentCell::kForgetGate) {
          Forget(gates, state, d_h, d_sums);
          Copy(d_sums, width, to);
        } else {
          // The gates' come when the candidate's have been through their product.
          Candidate(gates, d_h, d_sums);
          Put(kDGates, at * width + s_.first, n, d_sums + s_.first);
          return;
        }
      }
    }
    call_.float_out(kDGates).Store(at * width, width, to);
    if (s_.cell == RecurrentCell::kGru && !s_.norms_products)
      Put(kDProducts, at * width, width, d_sums);
  }

  // From d_m, the slope of o tanh(norm(c)), that of o before its sigmoid and, added, that of c.
  void Show(int64_t row, const float* gates, const float* cell, const float* d_m, float* d_c,
            const Buffers& buffers) const {
    const int64_t n = s_.units;
    const RowMoments m = MomentsOf(cell, n, epsilon_);
    float* const d_beta = call_.out<float>(kDCellBeta) + row * n;
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto normal = (load(cell) - m.mean) * m.factor, o = load(gates + 3 * n);
      const auto t = recurrent_tanh(fma(normal, load(cell_gamma_), load(cell_beta_)));
      const auto d = load(d_m), d_shown = candidate_slope(t, d * o);
      const auto added = load(d_beta) + d_shown;
      store(gate_slope(o, d * t), buffers.d_o);
      store(d_shown, buffers.d_shown);
      store(added, d_beta);
    });
    NormalizeBack(buffers.d_shown, cell, cell_gamma_, n, epsilon_,
                  call_.out<float>(kDCellGamma) + row * n);
    ForVectors(
        n, [&](auto load, auto store) HWY_ATTR { store(load(d_c) + load(buffers.d_shown), d_c); });
  }

  void Lstm(const float* gates, const float* before, const float* cell, const float* d_m,
            float* d_c, float* to) const {
    const int64_t n = s_.units;
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto s =
          lstm_slopes(load(gates), load(gates + n), load(gates + 2 * n), load(gates + 3 * n),
                      load(before), load(cell), load(d_m), load(d_c));
      store(s.i, to);
      store(s.f, to + n);
      store(s.g, to + 2 * n);
      store(s.o, to + 3 * n);
      store(s.cell, d_c);
    });
  }

  void Gru(const float* gates, const float* seen, const float* state, float* d_h, float* d_sums,
           float* to) const {
    const int64_t n = s_.units;
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto s = gru_slopes(load(gates), load(gates + n), load(gates + 2 * n), load(seen),
                                load(state), load(d_h));
      store(s.z, to);
      store(s.r, to + n);
      store(s.n, to + 2 * n);
      store(s.z, d_sums);
      store(s.r, d_sums + n);
      store(s.seen, d_sums + 2 * n);
      store(s.state, d_h);
    });
  }

  void Forget(const float* gates, const float* state, float* d_h, float* d_sums) const {
    const int64_t n = s_.units;
    const Floats factor = precise_exp(Floats(-call_.Float("beta")));
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto s = forget_slopes(load(gates), load(gates + n), load(state), factor, load(d_h));
      store(s.f, d_sums);
      store(s.n, d_sums + n);
      store(s.state, d_h);
    });
  }

  void Candidate(const float* gates, const float* d_h, float* d_sums) const {
    const bool gru = s_.cell == RecurrentCell::kGruResetBefore;
    const float* const next = gates + s_.first;
    float* const to = d_sums + s_.first;
    ForVectors(s_.units, [&](auto load, auto store) HWY_ATTR {
      const auto gate = load(gates);
      const auto share = gru ? Floats(1.0f) - gate : gate;
      store(candidate_slope(load(next), load(d_h) * share), to);
    });
  }

  // The rest, with the slope of gate * state.
  void Gated(int64_t row, int64_t step, const Buffers& buffers, const float* d_seen, float* d_h,
             float* d_sums) const {
    const int64_t n = s_.units, width = s_.width, at = row * s_.steps + step;
    const bool gru = s_.cell == RecurrentCell::kGruResetBefore;
    const float* const gates = call_.Read(kActivated, at * width, width, buffers.gates);
    const float* const next = gates + s_.first;
    const float* const state = Before(kY, kInitialH, row, step, n, buffers.state);
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto h = load(state), gate = load(gates), d = load(d_h), through = load(d_seen);
      const auto mixed = d * (h - load(next));  // the slope of how much of h stays
      if (gru) {
        const auto reset = load(gates + n);
        store(gate_slope(gate, mixed), d_sums);
        store(gate_slope(reset, through * h), d_sums + n);
        store(fma(through, reset, d * gate), d_h);
      } else {
        store(gate_slope(gate, fms(through, h, mixed)), d_sums);
        store(fma(through, gate, d * (Floats(1.0f) - gate)), d_h);
      }
    });
    Put(kDGates, at * width, s_.first, d_sums);
  }

  Panels first_, second_, projection_;
};

void RecurrentSequence(CpuCall& call) { Forward(call).Run(); }
void RecurrentSequenceGrad(CpuCall& call) { Backward(call).Run(); }

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("RecurrentSequence", RecurrentSequence);
SIMD_KERNEL("RecurrentSequenceGrad", RecurrentSequenceGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
