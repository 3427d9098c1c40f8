// The steps of RecurrentSequence and its gradient without their products, which the host encodes.
// States, sums and their slopes are float; a thread has one unit of one sequence.

#include <metal_stdlib>

#include "kernels/msl/formula.h"
#include "kernels/msl/instantiate.h"
#include "kernels/recurrent/recurrent_params.h"

using namespace metal;

#include "kernels/recurrent/recurrent_formula.h"

// A block of a matrix in float. Grid of this: columns, rows.
template <typename T>
[[kernel]] void recurrent_take(device const T* in [[buffer(0)]], device float* out [[buffer(1)]],
                               constant RecurrentBlock& p [[buffer(2)]],
                               uint2 position [[thread_position_in_grid]]) {
  out[ulong(position.y) * p.columns + position.x] =
      float(in[ulong(position.y) * p.row + p.first + position.x]);
}

// a + b. Grid of this: columns, rows.
template <typename T>
[[kernel]] void recurrent_put(device const float* a [[buffer(0)]],
                              device const float* b [[buffer(1)]], device T* out [[buffer(2)]],
                              constant RecurrentBlock& p [[buffer(3)]],
                              uint2 position [[thread_position_in_grid]]) {
  const ulong i = ulong(position.y) * p.columns + position.x;
  out[i] = T(p.first != 0 ? a[i] + b[i] : a[i]);
}

inline ulong recurrent_row(constant RecurrentParams& p, uint y) {
  return ulong(y) * p.steps + p.step;
}
inline bool recurrent_seen(constant RecurrentParams& p, device const bool* mask, uint y) {
  return p.use_mask == 0 || mask[recurrent_row(p, y)];
}

// Grid from here on: units (or outputs), sequences. `shown` is the state, or its projection.
template <typename T>
[[kernel]] void recurrent_lstm(device const T* gates [[buffer(0)]],
                               device const float* sums [[buffer(1)]],
                               device const bool* mask [[buffer(2)]],
                               device float* c_state [[buffer(3)]],
                               device float* shown [[buffer(4)]], device T* activated [[buffer(5)]],
                               device float* cells [[buffer(6)]], device T* y [[buffer(7)]],
                               constant RecurrentParams& p [[buffer(8)]],
                               uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong row = recurrent_row(p, position.y), at = row * p.width + position.x,
              state = ulong(position.y) * n + position.x;
  device T* const to = activated + at;
  if (!recurrent_seen(p, mask, position.y)) {
    for (uint gate = 0; gate < 4; ++gate) to[gate * n] = T(0.0f);
  } else {
    device const T* const x = gates + at;
    device const float* const h = sums + ulong(position.y) * p.width + position.x;
    const LstmStep<float> s =
        lstm_step(float(x[0]) + h[0], float(x[n]) + h[n], float(x[2 * n]) + h[2 * n],
                  float(x[3 * n]) + h[3 * n], c_state[state]);
    to[0] = T(s.i);
    to[n] = T(s.f);
    to[2 * n] = T(s.g);
    to[3 * n] = T(s.o);
    c_state[state] = s.cell;
    shown[state] = s.out;
  }
  cells[row * n + position.x] = c_state[state];
  if (p.projects == 0) y[row * n + position.x] = T(shown[state]);
}

// The state after a projection.
template <typename T>
[[kernel]] void recurrent_show(device const float* projected [[buffer(0)]],
                               device const bool* mask [[buffer(1)]],
                               device float* h_state [[buffer(2)]], device T* y [[buffer(3)]],
                               constant RecurrentParams& p [[buffer(4)]],
                               uint2 position [[thread_position_in_grid]]) {
  const ulong state = ulong(position.y) * p.outputs + position.x;
  if (recurrent_seen(p, mask, position.y)) h_state[state] = projected[state];
  y[recurrent_row(p, position.y) * p.outputs + position.x] = T(h_state[state]);
}

template <typename T>
[[kernel]] void recurrent_gru(device const T* gates [[buffer(0)]],
                              device const float* sums [[buffer(1)]],
                              device const T* bias [[buffer(2)]],
                              device const bool* mask [[buffer(3)]],
                              device float* h_state [[buffer(4)]],
                              device T* activated [[buffer(5)]], device float* cells [[buffer(6)]],
                              device T* y [[buffer(7)]], constant RecurrentParams& p [[buffer(8)]],
                              uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong row = recurrent_row(p, position.y), at = row * p.width + position.x,
              state = ulong(position.y) * n + position.x;
  device T* const to = activated + at;
  float seen = 0.0f;
  if (!recurrent_seen(p, mask, position.y)) {
    for (uint gate = 0; gate < 3; ++gate) to[gate * n] = T(0.0f);
  } else {
    device const T* const x = gates + at;
    device const float* const h = sums + ulong(position.y) * p.width + position.x;
    device const T* const b = bias + position.x;
    const bool has = p.use_bias != 0;
    const float z = recurrent_sigmoid(float(x[0]) + h[0] + (has ? float(b[0]) : 0.0f));
    const float r = recurrent_sigmoid(float(x[n]) + h[n] + (has ? float(b[n]) : 0.0f));
    seen = h[2 * n] + (has ? float(b[2 * n]) : 0.0f);
    const float next = recurrent_tanh(fma(r, seen, float(x[2 * n])));
    to[0] = T(z);
    to[n] = T(r);
    to[2 * n] = T(next);
    h_state[state] = recurrent_mix(z, h_state[state], next);
  }
  cells[row * n + position.x] = seen;
  y[row * n + position.x] = T(h_state[state]);
}

template <typename T>
[[kernel]] void recurrent_forget(device const T* gates [[buffer(0)]],
                                 device const float* sums [[buffer(1)]],
                                 device const bool* mask [[buffer(2)]],
                                 device float* h_state [[buffer(3)]],
                                 device T* activated [[buffer(4)]], device T* y [[buffer(5)]],
                                 constant RecurrentParams& p [[buffer(6)]],
                                 uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong row = recurrent_row(p, position.y), at = row * p.width + position.x,
              state = ulong(position.y) * n + position.x;
  device T* const to = activated + at;
  if (!recurrent_seen(p, mask, position.y)) {
    to[0] = to[n] = T(0.0f);
  } else {
    device const T* const x = gates + at;
    device const float* const h = sums + ulong(position.y) * p.width + position.x;
    const ForgetStep<float> s =
        forget_step(float(x[0]) + h[0], float(x[n]) + h[n], h_state[state], p.beta);
    to[0] = T(s.f);
    to[n] = T(s.n);
    h_state[state] = s.out;
  }
  y[row * n + position.x] = T(h_state[state]);
}

// The input of the candidate's product. The gate stands before the candidate's block.
template <typename T>
[[kernel]] void recurrent_gated(device const T* gates [[buffer(0)]],
                                device const float* sums [[buffer(1)]],
                                device const float* h_state [[buffer(2)]],
                                device float* gated [[buffer(3)]],
                                constant RecurrentParams& p [[buffer(4)]],
                                uint2 position [[thread_position_in_grid]]) {
  const uint gate = p.first - p.units + position.x;
  const ulong row = recurrent_row(p, position.y), state = ulong(position.y) * p.units + position.x;
  const float sum = float(gates[row * p.width + gate]) + sums[ulong(position.y) * p.first + gate];
  gated[state] = recurrent_sigmoid(sum) * h_state[state];
}

template <typename T>
[[kernel]] void recurrent_candidate(device const T* gates [[buffer(0)]],
                                    device const float* sums [[buffer(1)]],
                                    device const float* seen [[buffer(2)]],
                                    device const bool* mask [[buffer(3)]],
                                    device float* h_state [[buffer(4)]],
                                    device T* activated [[buffer(5)]], device T* y [[buffer(6)]],
                                    constant RecurrentParams& p [[buffer(7)]],
                                    uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong row = recurrent_row(p, position.y), at = row * p.width + position.x,
              state = ulong(position.y) * n + position.x;
  device T* const to = activated + at;
  const bool gru = p.first != n;
  if (!recurrent_seen(p, mask, position.y)) {
    for (uint gate = 0; gate <= p.first; gate += n) to[gate] = T(0.0f);
  } else {
    device const T* const x = gates + at;
    device const float* const h = sums + ulong(position.y) * p.first + position.x;
    const float gate = recurrent_sigmoid(float(x[0]) + h[0]);
    const float reset = gru ? recurrent_sigmoid(float(x[n]) + h[n]) : gate;
    const float next = recurrent_tanh(float(x[p.first]) + seen[state]), before = h_state[state];
    h_state[state] = gru ? recurrent_mix(gate, before, next) : recurrent_mix(gate, next, before);
    to[0] = T(gate);
    if (gru) to[n] = T(reset);
    to[p.first] = T(next);
  }
  y[row * n + position.x] = T(h_state[state]);
}

// The slope of a state: the part that came around the step behind, the one through its products, and
// the one from its output.
template <typename T>
[[kernel]] void recurrent_arrive(device const float* back [[buffer(0)]],
                                 device const T* d_y [[buffer(1)]], device float* d_h [[buffer(2)]],
                                 device T* d_states [[buffer(3)]],
                                 constant RecurrentParams& p [[buffer(4)]],
                                 uint2 position [[thread_position_in_grid]]) {
  const ulong state = ulong(position.y) * p.outputs + position.x,
              at = recurrent_row(p, position.y) * p.outputs + position.x;
  const float d = d_h[state] + back[state] + float(d_y[at]);
  d_h[state] = d;
  if (p.projects != 0) d_states[at] = T(d);
}

template <typename T>
[[kernel]] void recurrent_lstm_grad(
    device const T* activated [[buffer(0)]], device const float* cells [[buffer(1)]],
    device const T* initial_c [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const float* d_shown [[buffer(4)]], device float* d_c [[buffer(5)]],
    device float* d_sums [[buffer(6)]], device T* d_gates [[buffer(7)]],
    constant RecurrentParams& p [[buffer(8)]], uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong row = recurrent_row(p, position.y), at = row * p.width + position.x,
              state = ulong(position.y) * n + position.x, cell = row * n + position.x;
  device float* const sums = d_sums + ulong(position.y) * p.width + position.x;
  LstmSlopes<float> s = {0.0f, 0.0f, 0.0f, 0.0f, d_c[state]};
  if (recurrent_seen(p, mask, position.y)) {
    device const T* const gate = activated + at;
    const float before = p.step == 0 ? float(initial_c[state]) : cells[cell - n];
    s = lstm_slopes(float(gate[0]), float(gate[n]), float(gate[2 * n]), float(gate[3 * n]), before,
                    cells[cell], d_shown[state], d_c[state]);
  }
  const float slopes[4] = {s.i, s.f, s.g, s.o};
  for (uint gate = 0; gate < 4; ++gate) {
    sums[gate * n] = slopes[gate];
    d_gates[at + gate * n] = T(slopes[gate]);
  }
  d_c[state] = s.cell;
}

// All of an lstm's state goes through the products, unless the step is left out.
template <typename T>
[[kernel]] void recurrent_keep(device const bool* mask [[buffer(0)]],
                               device float* d_h [[buffer(1)]],
                               constant RecurrentParams& p [[buffer(2)]],
                               uint2 position [[thread_position_in_grid]]) {
  if (recurrent_seen(p, mask, position.y)) {
    d_h[ulong(position.y) * p.outputs + position.x] = 0.0f;
  }
}

template <typename T>
inline float recurrent_before(device const T* y, device const T* initial_h,
                              constant RecurrentParams& p, uint2 position) {
  return p.step == 0 ? float(initial_h[ulong(position.y) * p.units + position.x])
                     : float(y[(recurrent_row(p, position.y) - 1) * p.units + position.x]);
}

template <typename T>
[[kernel]] void recurrent_gru_grad(
    device const T* activated [[buffer(0)]], device const float* cells [[buffer(1)]],
    device const T* y [[buffer(2)]], device const T* initial_h [[buffer(3)]],
    device const bool* mask [[buffer(4)]], device float* d_h [[buffer(5)]],
    device float* d_sums [[buffer(6)]], device T* d_gates [[buffer(7)]],
    device T* d_products [[buffer(8)]], constant RecurrentParams& p [[buffer(9)]],
    uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong row = recurrent_row(p, position.y), at = row * p.width + position.x,
              state = ulong(position.y) * n + position.x;
  device float* const sums = d_sums + ulong(position.y) * p.width + position.x;
  GruSlopes<float> s = {0.0f, 0.0f, 0.0f, 0.0f, d_h[state]};
  if (recurrent_seen(p, mask, position.y)) {
    device const T* const gate = activated + at;
    s = gru_slopes(float(gate[0]), float(gate[n]), float(gate[2 * n]), cells[row * n + position.x],
                   recurrent_before(y, initial_h, p, position), d_h[state]);
  }
  sums[0] = s.z;
  sums[n] = s.r;
  sums[2 * n] = s.seen;
  d_gates[at] = d_products[at] = T(s.z);
  d_gates[at + n] = d_products[at + n] = T(s.r);
  d_gates[at + 2 * n] = T(s.n);
  d_products[at + 2 * n] = T(s.seen);
  d_h[state] = s.state;
}

template <typename T>
[[kernel]] void recurrent_forget_grad(
    device const T* activated [[buffer(0)]], device const T* y [[buffer(1)]],
    device const T* initial_h [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device float* d_h [[buffer(4)]], device float* d_sums [[buffer(5)]],
    device T* d_gates [[buffer(6)]], constant RecurrentParams& p [[buffer(7)]],
    uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong row = recurrent_row(p, position.y), at = row * p.width + position.x,
              state = ulong(position.y) * n + position.x;
  device float* const sums = d_sums + ulong(position.y) * p.width + position.x;
  ForgetSlopes<float> s = {0.0f, 0.0f, d_h[state]};
  if (recurrent_seen(p, mask, position.y)) {
    s = forget_slopes(float(activated[at]), float(activated[at + n]),
                      recurrent_before(y, initial_h, p, position), precise_exp(-p.beta),
                      d_h[state]);
  }
  sums[0] = s.f;
  sums[n] = s.n;
  d_gates[at] = T(s.f);
  d_gates[at + n] = T(s.n);
  d_h[state] = s.state;
}

template <typename T>
[[kernel]] void recurrent_candidate_grad(device const T* activated [[buffer(0)]],
                                         device const bool* mask [[buffer(1)]],
                                         device const float* d_h [[buffer(2)]],
                                         device float* d_candidate [[buffer(3)]],
                                         device T* d_gates [[buffer(4)]],
                                         constant RecurrentParams& p [[buffer(5)]],
                                         uint2 position [[thread_position_in_grid]]) {
  const ulong at = recurrent_row(p, position.y) * p.width + position.x,
              state = ulong(position.y) * p.units + position.x;
  float d = 0.0f;
  if (recurrent_seen(p, mask, position.y)) {
    const float gate = float(activated[at]), share = p.first != p.units ? 1.0f - gate : gate;
    d = candidate_slope(float(activated[at + p.first]), d_h[state] * share);
  }
  d_candidate[state] = d;
  d_gates[at + p.first] = T(d);
}

// The rest, with the slope of gate * state.
template <typename T>
[[kernel]] void recurrent_gated_grad(
    device const T* activated [[buffer(0)]], device const T* y [[buffer(1)]],
    device const T* initial_h [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const float* d_seen [[buffer(4)]], device float* d_h [[buffer(5)]],
    device float* d_sums [[buffer(6)]], device T* d_gates [[buffer(7)]],
    constant RecurrentParams& p [[buffer(8)]], uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units;
  const ulong at = recurrent_row(p, position.y) * p.width + position.x,
              state = ulong(position.y) * n + position.x;
  device float* const sums = d_sums + ulong(position.y) * p.first + position.x;
  const bool gru = p.first != n;
  float d_gate = 0.0f, d_reset = 0.0f;
  if (recurrent_seen(p, mask, position.y)) {
    const float h = recurrent_before(y, initial_h, p, position), gate = float(activated[at]),
                d = d_h[state], mixed = d * (h - float(activated[at + p.first]));
    const float through = d_seen[state];
    if (gru) {
      const float reset = float(activated[at + n]);
      d_gate = gate_slope(gate, mixed);
      d_reset = gate_slope(reset, through * h);
      d_h[state] = fma(through, reset, d * gate);
    } else {
      d_gate = gate_slope(gate, fms(through, h, mixed));
      d_h[state] = fma(through, gate, d * (1.0f - gate));
    }
  }
  sums[0] = d_gate;
  d_gates[at] = T(d_gate);
  if (gru) {
    sums[n] = d_reset;
    d_gates[at + n] = T(d_reset);
  }
}

#define INSTANTIATE(T)                                                            \
  INSTANTIATE_KERNEL("recurrent_take_" #T, recurrent_take, T)                     \
  INSTANTIATE_KERNEL("recurrent_put_" #T, recurrent_put, T)                       \
  INSTANTIATE_KERNEL("recurrent_lstm_" #T, recurrent_lstm, T)                     \
  INSTANTIATE_KERNEL("recurrent_show_" #T, recurrent_show, T)                     \
  INSTANTIATE_KERNEL("recurrent_gru_" #T, recurrent_gru, T)                       \
  INSTANTIATE_KERNEL("recurrent_forget_" #T, recurrent_forget, T)                 \
  INSTANTIATE_KERNEL("recurrent_gated_" #T, recurrent_gated, T)                   \
  INSTANTIATE_KERNEL("recurrent_candidate_" #T, recurrent_candidate, T)           \
  INSTANTIATE_KERNEL("recurrent_arrive_" #T, recurrent_arrive, T)                 \
  INSTANTIATE_KERNEL("recurrent_lstm_grad_" #T, recurrent_lstm_grad, T)           \
  INSTANTIATE_KERNEL("recurrent_keep_" #T, recurrent_keep, T)                     \
  INSTANTIATE_KERNEL("recurrent_gru_grad_" #T, recurrent_gru_grad, T)             \
  INSTANTIATE_KERNEL("recurrent_forget_grad_" #T, recurrent_forget_grad, T)       \
  INSTANTIATE_KERNEL("recurrent_candidate_grad_" #T, recurrent_candidate_grad, T) \
  INSTANTIATE_KERNEL("recurrent_gated_grad_" #T, recurrent_gated_grad, T)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
