// The cells of LSTMs and GRUs without their products, forwards and back. Gates and state are float;
// products are the host's to encode.

#include <metal_stdlib>

#include "device/kernels/nn/recurrent_params.h"
#include "kernels/gemm/epilogue.metal.h"
#include "kernels/msl/instantiate.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// out[i] = in[first + i]
template <typename T, typename Out>
kernel void convert_from(device const T* in [[buffer(0)]], device Out* out [[buffer(1)]],
                         constant ulong& first [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = Out(float((in + first)[i]));
}
INSTANTIATE_KERNEL("convert_from_float_float", convert_from, float, float)
INSTANTIATE_KERNEL("convert_from_half_float", convert_from, half, float)
IF_BFLOAT(INSTANTIATE_KERNEL("convert_from_bfloat_float", convert_from, bfloat, float))
INSTANTIATE_KERNEL("convert_from_float_half", convert_from, float, half)

// The sums of a gate for neighbouring cells; those of a single step are all in `x`.
template <int kCells, typename T>
inline void lstm_sums(device const float* x, device const float* h, bool both, device const T* b,
                      uint n, thread float (&gate)[kCells]) {
  for (uint j = 0; j < n; ++j) gate[j] = x[j];
  if (both) {
    for (uint j = 0; j < n; ++j) gate[j] += h[j];
  }
  for (uint j = 0; j < n; ++j) gate[j] += float(b[j]);
}

template <int kCells, typename T>
inline void lstm_peephole(device const T* w, thread const float (&state)[kCells], uint n,
                          thread float (&gate)[kCells]) {
  for (uint j = 0; j < n; ++j) gate[j] += state[j] * float(w[j]);
}

template <int kCells, typename T>
inline void lstm_store(thread const float (&from)[kCells], uint n, device T* to) {
  for (uint j = 0; j < n; ++j) to[j] = T(from[j]);
}

// Where results go: the next step's input, and the op's outputs.
template <typename T>
struct LstmOut {
  device float* cs_state;
  device float* h_state;
  device T* i;
  device T* cs;
  device T* f;
  device T* o;
  device T* ci;
  device T* co;
  device T* h;
};

// kCells cells of row `y`, or as many as there are, each step a loop of its own.
template <bool kWhole, int kCells, typename T>
inline void lstm_cells(device const float* from_x, device const float* from_h, device const T* b,
                       device const T* wci, device const T* wcf, device const T* wco, LstmOut<T> to,
                       constant LstmParams& p, uint first, uint y) {
  const uint n = kWhole ? uint(kCells) : p.cells - first;
  const ulong row = p.row + y;
  device const float* const x = from_x + row * (4 * p.cells);
  device const float* const h = from_h + ulong(y) * (4 * p.cells);
  const ulong state = ulong(y) * p.cells + first;
  const uint at_ci = p.ci_gate * p.cells + first, at_f = p.f_gate * p.cells + first,
             at_o = 3 * p.cells + first;
  const bool both = p.single == 0;
  float i[kCells], ci[kCells], f[kCells], o[kCells], cs[kCells], co[kCells];
  lstm_sums(x + first, h + first, both, b + first, n, i);
  lstm_sums(x + at_ci, h + at_ci, both, b + at_ci, n, ci);
  lstm_sums(x + at_f, h + at_f, both, b + at_f, n, f);
  lstm_sums(x + at_o, h + at_o, both, b + at_o, n, o);
  for (uint j = 0; j < n; ++j) cs[j] = to.cs_state[state + j];
  for (uint j = 0; j < n; ++j) f[j] += p.forget_bias;
  if (p.peephole != 0) {
    lstm_peephole(wci + first, cs, n, i);
    lstm_peephole(wcf + first, cs, n, f);
  }
  for (uint j = 0; j < n; ++j) i[j] = epilogue_sigmoid(i[j]);
  for (uint j = 0; j < n; ++j) ci[j] = epilogue_tanh(ci[j]);
  for (uint j = 0; j < n; ++j) f[j] = epilogue_sigmoid(f[j]);
  for (uint j = 0; j < n; ++j) cs[j] = i[j] * ci[j] + f[j] * cs[j];
  if (p.cell_clip > 0.0f) {
    for (uint j = 0; j < n; ++j) cs[j] = clamp(cs[j], -p.cell_clip, p.cell_clip);
  }
  if (p.peephole != 0) lstm_peephole(wco + first, cs, n, o);
  for (uint j = 0; j < n; ++j) o[j] = epilogue_sigmoid(o[j]);
  for (uint j = 0; j < n; ++j) co[j] = epilogue_tanh(cs[j]);
  const ulong out = row * p.cells + first;
  lstm_store(cs, n, to.cs_state + state);
  lstm_store(i, n, to.i + out);
  lstm_store(cs, n, to.cs + out);
  lstm_store(f, n, to.f + out);
  lstm_store(o, n, to.o + out);
  lstm_store(ci, n, to.ci + out);
  lstm_store(co, n, to.co + out);
  for (uint j = 0; j < n; ++j) o[j] *= co[j];
  lstm_store(o, n, to.h_state + state);
  lstm_store(o, n, to.h + out);
}

// Grid: cells, kCells a thread, and batch. `from_x` and `from_h` are the two parts of the gates' sums; of
// a single step the former is all of them.
template <typename T, int kCells>
kernel void lstm_step(device const float* from_x [[buffer(0)]],
                      device const float* from_h [[buffer(1)]], device const T* b [[buffer(2)]],
                      device const T* wci [[buffer(3)]], device const T* wcf [[buffer(4)]],
                      device const T* wco [[buffer(5)]], device float* cs_state [[buffer(6)]],
                      device float* h_state [[buffer(7)]], device T* i_out [[buffer(8)]],
                      device T* cs_out [[buffer(9)]], device T* f_out [[buffer(10)]],
                      device T* o_out [[buffer(11)]], device T* ci_out [[buffer(12)]],
                      device T* co_out [[buffer(13)]], device T* h_out [[buffer(14)]],
                      constant LstmParams& p [[buffer(15)]],
                      uint2 position [[thread_position_in_grid]]) {
  const uint first = position.x * kCells;
  const LstmOut<T> to = {cs_state, h_state, i_out, cs_out, f_out, o_out, ci_out, co_out, h_out};
  if (first + kCells <= p.cells) {
    lstm_cells<true, kCells>(from_x, from_h, b, wci, wcf, wco, to, p, first, position.y);
  } else {
    lstm_cells<false, kCells>(from_x, from_h, b, wci, wcf, wco, to, p, first, position.y);
  }
}

// The tensors that a step's gradient reads and writes, from its first cell on.
template <typename T>
struct LstmBack {
  device const T* before;
  device const T* i;
  device const T* f;
  device const T* o;
  device const T* ci;
  device const T* co;
  device const T* wci;
  device const T* wcf;
  device const T* wco;
  device const T* d_cs;
  device const T* d_h;
  device const float* d_h_state;
  device float* d_cs_state;
  device float* gates;
  device float* now;
};

template <int kCells, typename T>
inline void lstm_load(device const T* from, uint n, thread float (&to)[kCells]) {
  for (uint j = 0; j < n; ++j) to[j] = float(from[j]);
}

// As lstm_cells: all is read before anything is written.
template <bool kWhole, int kCells, typename T>
inline void lstm_cells_grad(LstmBack<T> at, constant LstmParams& p, uint first) {
  const uint n = kWhole ? uint(kCells) : p.cells - first;
  float i[kCells], f[kCells], o[kCells], ci[kCells], co[kCells], before[kCells];
  float slope_h[kCells], slope_cs[kCells], slope_o[kCells], back[kCells];
  lstm_load(at.i, n, i);
  lstm_load(at.f, n, f);
  lstm_load(at.o, n, o);
  lstm_load(at.ci, n, ci);
  lstm_load(at.co, n, co);
  lstm_load(at.before, n, before);
  lstm_load(at.d_h, n, slope_h);
  lstm_load(at.d_cs, n, slope_cs);
  if (p.single == 0) {
    for (uint j = 0; j < n; ++j) slope_h[j] += at.d_h_state[j];
  }
  for (uint j = 0; j < n; ++j) slope_o[j] = o[j] * (1.0f - o[j]) * slope_h[j] * co[j];
  for (uint j = 0; j < n; ++j) slope_cs[j] += (1.0f - co[j] * co[j]) * slope_h[j] * o[j];
  if (p.single == 0) {
    for (uint j = 0; j < n; ++j) slope_cs[j] += at.d_cs_state[j];
  }
  if (p.peephole != 0) lstm_peephole(at.wco, slope_o, n, slope_cs);
  for (uint j = 0; j < n; ++j) back[j] = slope_cs[j] * f[j];
  for (uint j = 0; j < n; ++j) f[j] = f[j] * (1.0f - f[j]) * slope_cs[j] * before[j];
  for (uint j = 0; j < n; ++j) {
    const float slope_ci = (1.0f - ci[j] * ci[j]) * slope_cs[j] * i[j];
    i[j] = i[j] * (1.0f - i[j]) * slope_cs[j] * ci[j];
    ci[j] = slope_ci;
  }
  if (p.peephole != 0) {
    lstm_peephole(at.wci, i, n, back);
    lstm_peephole(at.wcf, f, n, back);
  }
  lstm_store(back, n, at.d_cs_state);
  const uint at_ci = p.ci_gate * p.cells, at_f = p.f_gate * p.cells, at_o = 3 * p.cells;
  lstm_store(i, n, at.gates);
  lstm_store(ci, n, at.gates + at_ci);
  lstm_store(f, n, at.gates + at_f);
  lstm_store(slope_o, n, at.gates + at_o);
  if (p.single != 0) return;
  lstm_store(i, n, at.now);
  lstm_store(ci, n, at.now + at_ci);
  lstm_store(f, n, at.now + at_f);
  lstm_store(slope_o, n, at.now + at_o);
}

// Grid: cells, kCells a thread, and batch. `d_cs_state` and `d_h_state` are handed back by a next step; the
// former becomes the argument of the one before. The gates' gradients go to two places: all steps', and this
// step's.
template <typename T, int kCells>
kernel void lstm_step_grad(
    device const T* cs_before [[buffer(0)]], device const T* i_in [[buffer(1)]],
    device const T* cs_in [[buffer(2)]], device const T* f_in [[buffer(3)]],
    device const T* o_in [[buffer(4)]], device const T* ci_in [[buffer(5)]],
    device const T* co_in [[buffer(6)]], device const T* wci [[buffer(7)]],
    device const T* wcf [[buffer(8)]], device const T* wco [[buffer(9)]],
    device const T* d_cs [[buffer(10)]], device const T* d_h [[buffer(11)]],
    device float* d_cs_state [[buffer(12)]], device const float* d_h_state [[buffer(13)]],
    device float* d_gates [[buffer(14)]], device float* d_gates_now [[buffer(15)]],
    constant LstmParams& p [[buffer(16)]], uint2 position [[thread_position_in_grid]]) {
  const uint first = position.x * kCells;
  const ulong row = p.row + position.y, at = row * p.cells + first;
  const ulong state = ulong(position.y) * p.cells + first;
  const LstmBack<T> back = {cs_before + (p.row_before + position.y) * p.cells + first,
                            i_in + at,
                            f_in + at,
                            o_in + at,
                            ci_in + at,
                            co_in + at,
                            wci + first,
                            wcf + first,
                            wco + first,
                            d_cs + at,
                            d_h + at,
                            d_h_state + state,
                            d_cs_state + state,
                            d_gates + row * (4 * p.cells) + first,
                            d_gates_now + ulong(position.y) * (4 * p.cells) + first};
  if (first + kCells <= p.cells) {
    lstm_cells_grad<true, kCells>(back, p, first);
  } else {
    lstm_cells_grad<false, kCells>(back, p, first);
  }
}

// [x, h of the step before] for all steps: a column a thread of a row.
template <typename T>
kernel void lstm_inputs(device const T* x [[buffer(0)]], device const T* h_prev [[buffer(1)]],
                        device const T* h [[buffer(2)]], device float* out [[buffer(3)]],
                        constant uint& inputs [[buffer(4)]], constant LstmParams& p [[buffer(5)]],
                        uint2 position [[thread_position_in_grid]]) {
  const uint column = position.x, row = position.y, cell = column - inputs;
  const ulong at = ulong(row) * (inputs + p.cells) + column;
  if (column < inputs) {
    out[at] = float(x[ulong(row) * inputs + column]);
  } else if (row < p.batch) {
    out[at] = float(h_prev[ulong(row) * p.cells + cell]);
  } else {
    out[at] = float(h[ulong(row - p.batch) * p.cells + cell]);
  }
}

// Sums of columns. One thread per column.
template <typename T>
kernel void lstm_bias_grad(device const float* d_gates [[buffer(0)]], device T* out [[buffer(1)]],
                           constant uint& rows [[buffer(2)]], constant uint& columns [[buffer(3)]],
                           uint column [[thread_position_in_grid]]) {
  float sum = 0.0f;
  for (uint row = 0; row < rows; ++row) sum += d_gates[ulong(row) * columns + column];
  out[column] = T(sum);
}

// Without peepholes.
template <typename T>
kernel void lstm_no_peephole_grad(device T* d_wci [[buffer(0)]], device T* d_wcf [[buffer(1)]],
                                  device T* d_wco [[buffer(2)]],
                                  uint i [[thread_position_in_grid]]) {
  d_wci[i] = d_wcf[i] = d_wco[i] = T(0.0f);
}

// One thread per cell.
template <typename T>
kernel void lstm_peephole_grad(device const float* d_gates [[buffer(0)]],
                               device const T* cs_prev [[buffer(1)]],
                               device const T* cs [[buffer(2)]], device T* d_wci [[buffer(3)]],
                               device T* d_wcf [[buffer(4)]], device T* d_wco [[buffer(5)]],
                               constant uint& rows [[buffer(6)]],
                               constant LstmParams& p [[buffer(7)]],
                               uint cell [[thread_position_in_grid]]) {
  float i = 0.0f, f = 0.0f, o = 0.0f;
  for (uint row = 0; row < rows; ++row) {
    device const float* const gates = d_gates + ulong(row) * (4 * p.cells);
    const float before = row < p.batch ? float(cs_prev[ulong(row) * p.cells + cell])
                                       : float(cs[ulong(row - p.batch) * p.cells + cell]);
    i += gates[cell] * before;
    f += gates[p.f_gate * p.cells + cell] * before;
    o += gates[3 * p.cells + cell] * float(cs[ulong(row) * p.cells + cell]);
  }
  d_wci[cell] = T(i);
  d_wcf[cell] = T(f);
  d_wco[cell] = T(o);
}

#define LSTM(type)                                                                  \
  INSTANTIATE_KERNEL("lstm_step_" #type, lstm_step, type, 1)                        \
  INSTANTIATE_KERNEL("lstm_step_line_" #type, lstm_step, type, LSTM_LINE)           \
  INSTANTIATE_KERNEL("lstm_step_grad_" #type, lstm_step_grad, type, 1)              \
  INSTANTIATE_KERNEL("lstm_step_grad_line_" #type, lstm_step_grad, type, LSTM_LINE) \
  INSTANTIATE_KERNEL("lstm_inputs_" #type, lstm_inputs, type)                       \
  INSTANTIATE_KERNEL("lstm_bias_grad_" #type, lstm_bias_grad, type)                 \
  INSTANTIATE_KERNEL("lstm_peephole_grad_" #type, lstm_peephole_grad, type)         \
  INSTANTIATE_KERNEL("lstm_no_peephole_grad_" #type, lstm_no_peephole_grad, type)
LSTM(float)
LSTM(half)

// ---- GRU: float alone ---------------------------------------------------------------------------

// [x, h], or [x, r h] where r is the first half of gates. Grid: columns, batch.
kernel void gru_inputs(device const float* x [[buffer(0)]], device const float* h [[buffer(1)]],
                       device const float* r [[buffer(2)]], device float* out [[buffer(3)]],
                       constant uint& gated [[buffer(4)]], constant GruParams& p [[buffer(5)]],
                       uint2 position [[thread_position_in_grid]]) {
  const uint column = position.x;
  const ulong row = position.y;
  const ulong at = row * (p.inputs + p.cells) + column;
  if (column < p.inputs) {
    out[at] = x[row * p.inputs + column];
  } else {
    const ulong cell = row * p.cells + (column - p.inputs);
    out[at] = gated != 0 ? h[cell] * r[cell] : h[cell];
  }
}

// Grid of these: cells, batch.
kernel void gru_gates(device const float* sums [[buffer(0)]], device const float* b [[buffer(1)]],
                      device float* r [[buffer(2)]], device float* u [[buffer(3)]],
                      constant GruParams& p [[buffer(4)]],
                      uint2 position [[thread_position_in_grid]]) {
  const ulong row = position.y;
  const uint cell = position.x;
  device const float* const sum = sums + row * (2 * p.cells);
  r[row * p.cells + cell] = epilogue_sigmoid(sum[cell] + b[cell]);
  u[row * p.cells + cell] = epilogue_sigmoid(sum[p.cells + cell] + b[p.cells + cell]);
}

kernel void gru_step(device const float* sums [[buffer(0)]], device const float* b [[buffer(1)]],
                     device const float* u [[buffer(2)]], device const float* h_prev [[buffer(3)]],
                     device float* c [[buffer(4)]], device float* h [[buffer(5)]],
                     constant GruParams& p [[buffer(6)]],
                     uint2 position [[thread_position_in_grid]]) {
  const ulong at = ulong(position.y) * p.cells + position.x;
  const float candidate = epilogue_tanh(sums[at] + b[position.x]);
  c[at] = candidate;
  h[at] = u[at] * h_prev[at] + (1.0f - u[at]) * candidate;
}

kernel void gru_grad_candidate(
    device const float* h_prev [[buffer(0)]], device const float* u [[buffer(1)]],
    device const float* c [[buffer(2)]], device const float* d_h [[buffer(3)]],
    device float* d_c_sum [[buffer(4)]], device float* d_gates [[buffer(5)]],
    constant GruParams& p [[buffer(6)]], uint2 position [[thread_position_in_grid]]) {
  const ulong row = position.y;
  const ulong at = row * p.cells + position.x;
  d_c_sum[at] = d_h[at] * (1.0f - u[at]) * (1.0f - c[at] * c[at]);
  d_gates[row * (2 * p.cells) + p.cells + position.x] =
      d_h[at] * (h_prev[at] - c[at]) * u[at] * (1.0f - u[at]);
}

// d_inputs: of [x, r h].
kernel void gru_grad_reset(device const float* h_prev [[buffer(0)]],
                           device const float* r [[buffer(1)]],
                           device const float* d_inputs [[buffer(2)]],
                           device float* d_gates [[buffer(3)]], constant GruParams& p [[buffer(4)]],
                           uint2 position [[thread_position_in_grid]]) {
  const ulong row = position.y;
  const ulong at = row * p.cells + position.x;
  const float d_rh = d_inputs[row * (p.inputs + p.cells) + p.inputs + position.x];
  d_gates[row * (2 * p.cells) + position.x] = d_rh * h_prev[at] * r[at] * (1.0f - r[at]);
}

// Grid: columns, batch.
kernel void gru_grad_inputs(device const float* d_candidate [[buffer(0)]],
                            device const float* d_from_gates [[buffer(1)]],
                            device const float* r [[buffer(2)]],
                            device const float* u [[buffer(3)]],
                            device const float* d_h [[buffer(4)]], device float* d_x [[buffer(5)]],
                            device float* d_h_prev [[buffer(6)]],
                            constant GruParams& p [[buffer(7)]],
                            uint2 position [[thread_position_in_grid]]) {
  const uint column = position.x;
  const ulong row = position.y;
  const ulong at = row * (p.inputs + p.cells) + column;
  if (column < p.inputs) {
    d_x[row * p.inputs + column] = d_candidate[at] + d_from_gates[at];
  } else {
    const ulong cell = row * p.cells + (column - p.inputs);
    d_h_prev[cell] = d_from_gates[at] + d_candidate[at] * r[cell] + d_h[cell] * u[cell];
  }
}
