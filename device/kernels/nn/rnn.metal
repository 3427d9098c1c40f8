// The steps of LSTM and GRU layers without their products, forwards and back. Gates, states and saved
// values are float; the host encodes the products. A sequence that has ended keeps its state.

#include <metal_stdlib>

#include "device/kernels/nn/rnn_params.h"
#include "kernels/gemm/epilogue.metal.h"
#include "kernels/msl/instantiate.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// out[first + i] = in[i]
template <typename T>
kernel void convert_to(device const float* in [[buffer(0)]], device T* out [[buffer(1)]],
                       constant ulong& first [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  (out + first)[i] = T(in[i]);
}

// A gate's sums for neighbouring cells: of both products and both biases.
template <int kCells>
inline void rnn_sums(device const float* x, device const float* h, device const float* bias_x,
                     device const float* bias_h, uint n, thread float (&gate)[kCells]) {
  for (uint j = 0; j < n; ++j) gate[j] = x[j] + h[j] + (bias_x[j] + bias_h[j]);
}

template <int kCells, typename T>
inline void rnn_store(thread const float (&from)[kCells], uint n, device T* to) {
  for (uint j = 0; j < n; ++j) to[j] = T(from[j]);
}

// Cells [first, first + n) of sequence `y`, each operation a loop of its own.
struct Lstm {
  template <int kCells, typename T>
  static inline void cells(device const float* from_x, device const float* from_h,
                           device const float* bias, device float* h_state, device float* c_state,
                           device T* out, device float* saved, constant RnnParams& p, uint first,
                           uint y, uint n) {
    const uint size = p.cells;
    const ulong row = p.row + ulong(y) * p.stride, state = ulong(y) * size + first;
    device const float* const x = from_x + row * (4 * size) + first;
    device const float* const h = from_h + ulong(y) * (4 * size) + first;
    device const float* const b = bias + first;
    device const float* const b_h = b + 4 * size;
    float i[kCells], f[kCells], c[kCells], o[kCells], cell[kCells], end[kCells];
    rnn_sums(x, h, b, b_h, n, i);
    rnn_sums(x + size, h + size, b + size, b_h + size, n, f);
    rnn_sums(x + 2 * size, h + 2 * size, b + 2 * size, b_h + 2 * size, n, c);
    rnn_sums(x + 3 * size, h + 3 * size, b + 3 * size, b_h + 3 * size, n, o);
    for (uint j = 0; j < n; ++j) i[j] = epilogue_sigmoid(i[j]);
    for (uint j = 0; j < n; ++j) f[j] = epilogue_sigmoid(f[j]);
    for (uint j = 0; j < n; ++j) c[j] = epilogue_tanh(c[j]);
    for (uint j = 0; j < n; ++j) o[j] = epilogue_sigmoid(o[j]);
    for (uint j = 0; j < n; ++j) cell[j] = i[j] * c[j] + f[j] * c_state[state + j];
    for (uint j = 0; j < n; ++j) end[j] = epilogue_tanh(cell[j]);
    rnn_store(cell, n, c_state + state);
    if (p.saves != 0) {
      device float* const to = saved + row * (RNN_LSTM_SAVED * size) + first;
      rnn_store(i, n, to);
      rnn_store(f, n, to + size);
      rnn_store(c, n, to + 2 * size);
      rnn_store(o, n, to + 3 * size);
      rnn_store(cell, n, to + 4 * size);
      rnn_store(end, n, to + 5 * size);
    }
    for (uint j = 0; j < n; ++j) o[j] *= end[j];
    rnn_store(o, n, h_state + state);
    rnn_store(o, n, out + row * size + first);
  }
};

// Three gates: z, how much stays; r, how much of the state the third sees.
struct Gru {
  template <int kCells, typename T>
  static inline void cells(device const float* from_x, device const float* from_h,
                           device const float* bias, device float* h_state, device float*,
                           device T* out, device float* saved, constant RnnParams& p, uint first,
                           uint y, uint n) {
    const uint size = p.cells;
    const ulong row = p.row + ulong(y) * p.stride, state = ulong(y) * size + first;
    device const float* const x = from_x + row * (3 * size) + first;
    device const float* const h = from_h + ulong(y) * (3 * size) + first;
    device const float* const b = bias + first;
    device const float* const b_h = b + 3 * size;
    const uint last = 2 * size;
    float z[kCells], r[kCells], seen[kCells], next[kCells];
    rnn_sums(x, h, b, b_h, n, z);
    rnn_sums(x + size, h + size, b + size, b_h + size, n, r);
    for (uint j = 0; j < n; ++j) z[j] = epilogue_sigmoid(z[j]);
    for (uint j = 0; j < n; ++j) r[j] = epilogue_sigmoid(r[j]);
    for (uint j = 0; j < n; ++j) seen[j] = h[last + j] + b_h[last + j];
    for (uint j = 0; j < n; ++j) next[j] = x[last + j] + b[last + j] + r[j] * seen[j];
    for (uint j = 0; j < n; ++j) next[j] = epilogue_tanh(next[j]);
    if (p.saves != 0) {
      device float* const to = saved + row * (RNN_GRU_SAVED * size) + first;
      rnn_store(z, n, to);
      rnn_store(r, n, to + size);
      rnn_store(next, n, to + 2 * size);
      rnn_store(seen, n, to + 3 * size);
    }
    for (uint j = 0; j < n; ++j) next[j] = z[j] * h_state[state + j] + (1.0f - z[j]) * next[j];
    rnn_store(next, n, h_state + state);
    rnn_store(next, n, out + row * size + first);
  }
};

// Grid: cells, kCells a thread, and sequences.
template <typename T, typename Layer, int kCells>
kernel void rnn_step(device const float* from_x [[buffer(0)]],
                     device const float* from_h [[buffer(1)]],
                     device const float* bias [[buffer(2)]],
                     device const int* lengths [[buffer(3)]], device float* h_state [[buffer(4)]],
                     device float* c_state [[buffer(5)]], device T* out [[buffer(6)]],
                     device float* saved [[buffer(7)]], constant RnnParams& p [[buffer(8)]],
                     uint2 position [[thread_position_in_grid]]) {
  const uint first = position.x * kCells, y = position.y;
  const uint n = min(uint(kCells), p.cells - first);
  if (int(p.step) >= lengths[y]) {
    device T* const to = out + (p.row + ulong(y) * p.stride) * p.cells + first;
    for (uint j = 0; j < n; ++j) to[j] = T(0.0f);
  } else if (n == uint(kCells)) {
    Layer::template cells<kCells>(from_x, from_h, bias, h_state, c_state, out, saved, p, first, y,
                                  uint(kCells));
  } else {
    Layer::template cells<kCells>(from_x, from_h, bias, h_state, c_state, out, saved, p, first, y,
                                  n);
  }
}

// Back. A state's slope is the sum of `back`, a product with the next step's gates' slopes, and `kept`, the
// part that came around it. Grid of these: cells, sequences.
template <typename T>
kernel void lstm_layer_grad(device const float* saved [[buffer(0)]],
                            device const T* c_first [[buffer(1)]],
                            device const int* lengths [[buffer(2)]],
                            device const T* d_out [[buffer(3)]],
                            device const float* back [[buffer(4)]],
                            device float* kept [[buffer(5)]], device float* d_cell [[buffer(6)]],
                            device float* d_gates [[buffer(7)]], device float* d_now [[buffer(8)]],
                            constant RnnParams& p [[buffer(9)]],
                            uint2 position [[thread_position_in_grid]]) {
  const uint cells = p.cells, cell = position.x;
  const ulong y = position.y, row = p.row + y * p.stride, state = y * cells + cell;
  device float* const all = d_gates + row * (4 * cells) + cell;
  device float* const now = d_now + y * (4 * cells) + cell;
  const float d_h_after = back[state] + kept[state];
  float d_i = 0.0f, d_f = 0.0f, d_c = 0.0f, d_o = 0.0f;
  if (int(p.step) < lengths[y]) {
    device const float* const from = saved + row * (RNN_LSTM_SAVED * cells) + cell;
    const float i = from[0], f = from[cells], c = from[2 * cells], o = from[3 * cells],
                end = from[5 * cells];
    const ulong row_before = p.row_before + y * p.stride;
    const float before = p.step == 0
                             ? float(c_first[state])
                             : saved[row_before * (RNN_LSTM_SAVED * cells) + 4 * cells + cell];
    const float d_h = float(d_out[row * cells + cell]) + d_h_after;
    const float slope = d_cell[state] + d_h * o * (1.0f - end * end);
    d_i = slope * c * i * (1.0f - i);
    d_f = slope * before * f * (1.0f - f);
    d_c = slope * i * (1.0f - c * c);
    d_o = d_h * end * o * (1.0f - o);
    d_cell[state] = slope * f;
    kept[state] = 0.0f;
  } else {
    kept[state] = d_h_after;
  }
  all[0] = now[0] = d_i;
  all[cells] = now[cells] = d_f;
  all[2 * cells] = now[2 * cells] = d_c;
  all[3 * cells] = now[3 * cells] = d_o;
}

// The slopes of the parts from x and from h differ: r is between.
template <typename T>
kernel void gru_layer_grad(device const float* saved [[buffer(0)]],
                           device const T* h_first [[buffer(1)]], device const T* h [[buffer(2)]],
                           device const int* lengths [[buffer(3)]],
                           device const T* d_out [[buffer(4)]],
                           device const float* back [[buffer(5)]], device float* kept [[buffer(6)]],
                           device float* d_of_x [[buffer(7)]], device float* d_of_h [[buffer(8)]],
                           device float* d_now [[buffer(9)]], constant RnnParams& p [[buffer(10)]],
                           uint2 position [[thread_position_in_grid]]) {
  const uint cells = p.cells, cell = position.x;
  const ulong y = position.y, row = p.row + y * p.stride, state = y * cells + cell;
  float d_h = back[state] + kept[state];
  float d_z = 0.0f, d_r = 0.0f, d_next = 0.0f, d_seen = 0.0f;
  if (int(p.step) < lengths[y]) {
    device const float* const from = saved + row * (RNN_GRU_SAVED * cells) + cell;
    const float z = from[0], r = from[cells], next = from[2 * cells], seen = from[3 * cells];
    const ulong before_at = (p.row_before + y * p.stride) * cells + cell;
    const float before = p.step == 0 ? float(h_first[state]) : float(h[before_at]);
    d_h += float(d_out[row * cells + cell]);
    d_z = d_h * (before - next) * z * (1.0f - z);
    d_next = d_h * (1.0f - z) * (1.0f - next * next);
    d_seen = d_next * r;
    d_r = d_next * seen * r * (1.0f - r);
    d_h *= z;
  }
  kept[state] = d_h;
  device float* const of_x = d_of_x + row * (3 * cells) + cell;
  device float* const of_h = d_of_h + row * (3 * cells) + cell;
  device float* const now = d_now + y * (3 * cells) + cell;
  of_x[0] = of_h[0] = now[0] = d_z;
  of_x[cells] = of_h[cells] = now[cells] = d_r;
  of_x[2 * cells] = d_next;
  of_h[2 * cells] = now[2 * cells] = d_seen;
}

// The state that each step began with, in float. Grid: cells, sequences, steps.
template <typename T>
kernel void rnn_before(device const T* first [[buffer(0)]], device const T* h [[buffer(1)]],
                       device float* out [[buffer(2)]], constant RnnParams& p [[buffer(3)]],
                       constant ulong& step_rows [[buffer(4)]],
                       uint3 position [[thread_position_in_grid]]) {
  const ulong y = position.y, row = position.z * step_rows + y * p.stride;
  out[row * p.cells + position.x] = position.z == 0
                                        ? float(first[y * p.cells + position.x])
                                        : float(h[(row - step_rows) * p.cells + position.x]);
}

// a + b
template <typename T>
kernel void rnn_sum(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                    device T* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = T(a[i] + b[i]);
}

#define RNN(type)                                                              \
  INSTANTIATE_KERNEL("convert_to_" #type, convert_to, type)                    \
  INSTANTIATE_KERNEL("lstm_layer_" #type, rnn_step, type, Lstm, 1)             \
  INSTANTIATE_KERNEL("lstm_layer_line_" #type, rnn_step, type, Lstm, RNN_LINE) \
  INSTANTIATE_KERNEL("gru_layer_" #type, rnn_step, type, Gru, 1)               \
  INSTANTIATE_KERNEL("gru_layer_line_" #type, rnn_step, type, Gru, RNN_LINE)   \
  INSTANTIATE_KERNEL("lstm_layer_grad_" #type, lstm_layer_grad, type)          \
  INSTANTIATE_KERNEL("gru_layer_grad_" #type, gru_layer_grad, type)            \
  INSTANTIATE_KERNEL("rnn_before_" #type, rnn_before, type)                    \
  INSTANTIATE_KERNEL("rnn_sum_" #type, rnn_sum, type)
RNN(float)
RNN(half)
IF_BFLOAT(RNN(bfloat))
