// Layer norm within the steps of RecurrentSequence and its gradient (Ba, Kiros and Hinton 2016): a row
// is a SIMD group's, or a thread's where those are played one after the other. Grid: lanes, sequences.

#include <metal_stdlib>

#include "kernels/msl/formula.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/row_sum.h"
#include "kernels/recurrent/recurrent_params.h"

using namespace metal;

#include "kernels/recurrent/recurrent_formula.h"

inline ulong norm_row(constant RecurrentParams& p, uint y) { return ulong(y) * p.steps + p.step; }
inline bool norm_seen(constant RecurrentParams& p, device const bool* mask, uint y) {
  return p.use_mask == 0 || mask[norm_row(p, y)];
}

struct RowMoments {
  float mean, factor;  // 1 / sqrt(variance + epsilon)
};
template <int kLanes>
inline RowMoments moments_of(device const float* x, uint n, uint lane, float epsilon) {
  float sum = 0.0f;
  for (uint i = lane; i < n; i += kLanes) sum += x[i];
  RowMoments m;
  m.mean = row_sum<kLanes>(sum) / float(n);
  // The mean's rounding error is found on the way.
  float squares = 0.0f, error = 0.0f;
  for (uint i = lane; i < n; i += kLanes) {
    const float d = x[i] - m.mean;
    squares = fma(d, d, squares);
    error += d;
  }
  error = row_sum<kLanes>(error) / float(n);
  const float square = row_sum<kLanes>(squares) / float(n) - error * error;
  m.mean += error;
  m.factor = 1.0f / precise::sqrt(square < 0.0f ? epsilon : square + epsilon);
  return m;
}

// The products of a block of gates in place; `products` gets their old values.
template <typename T, int kLanes>
[[kernel]] void recurrent_norm(device float* sums [[buffer(0)]],
                               device const T* gamma [[buffer(1)]],
                               device const bool* mask [[buffer(2)]],
                               device float* products [[buffer(3)]],
                               constant RecurrentParams& p [[buffer(4)]],
                               constant RecurrentBlock& block [[buffer(5)]],
                               uint2 position [[thread_position_in_grid]]) {
  const uint n = block.columns, lane = position.x;
  device float* const x = sums + ulong(position.y) * n;
  device float* const kept = products + norm_row(p, position.y) * p.width + block.first;
  if (!norm_seen(p, mask, position.y)) {
    for (uint i = lane; i < n; i += kLanes) kept[i] = 0.0f;
    return;
  }
  const RowMoments m = moments_of<kLanes>(x, n, lane, p.epsilon);
  for (uint i = lane; i < n; i += kLanes) {
    kept[i] = x[i];
    x[i] = (x[i] - m.mean) * m.factor * float(gamma[block.first + i]);
  }
}

// And back: the slopes in place, d_gamma of a sequence is added to.
template <typename T, int kLanes>
[[kernel]] void recurrent_norm_grad(
    device float* d_sums [[buffer(0)]], device const float* products [[buffer(1)]],
    device const T* gamma [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device T* d_products [[buffer(4)]], device float* d_gamma [[buffer(5)]],
    constant RecurrentParams& p [[buffer(6)]], constant RecurrentBlock& block [[buffer(7)]],
    uint2 position [[thread_position_in_grid]]) {
  const uint n = block.columns, lane = position.x;
  const ulong at = norm_row(p, position.y) * p.width + block.first;
  device float* const d = d_sums + ulong(position.y) * n;
  device float* const to_gamma = d_gamma + ulong(position.y) * p.width + block.first;
  if (!norm_seen(p, mask, position.y)) {
    for (uint i = lane; i < n; i += kLanes) d_products[at + i] = T(0.0f);
    return;
  }
  const RowMoments m = moments_of<kLanes>(products + at, n, lane, p.epsilon);
  float sum = 0.0f, product = 0.0f;
  for (uint i = lane; i < n; i += kLanes) {
    const float g = d[i] * float(gamma[block.first + i]);
    sum += g;
    product = fma(g, (products[at + i] - m.mean) * m.factor, product);
  }
  sum = row_sum<kLanes>(sum) / float(n);
  product = row_sum<kLanes>(product) / float(n);
  for (uint i = lane; i < n; i += kLanes) {
    const float normal = (products[at + i] - m.mean) * m.factor;
    const float g = fms(d[i], float(gamma[block.first + i]), sum);
    to_gamma[i] = fma(d[i], normal, to_gamma[i]);
    d[i] = fnma(normal, product, g) * m.factor;
    d_products[at + i] = T(d[i]);
  }
}

// The output of an lstm, o tanh(norm(c)), in place of the one that recurrent_lstm has left there.
template <typename T, int kLanes>
[[kernel]] void recurrent_cell_norm(
    device const T* gates [[buffer(0)]], device const float* sums [[buffer(1)]],
    device const T* gamma [[buffer(2)]], device const T* beta [[buffer(3)]],
    device const bool* mask [[buffer(4)]], device const float* c_state [[buffer(5)]],
    device float* shown [[buffer(6)]], device T* y [[buffer(7)]],
    constant RecurrentParams& p [[buffer(8)]], uint2 position [[thread_position_in_grid]]) {
  if (!norm_seen(p, mask, position.y)) return;
  const uint n = p.units, lane = position.x;
  const ulong row = norm_row(p, position.y), state = ulong(position.y) * n;
  device const T* const x = gates + row * p.width + 3 * n;
  device const float* const h = sums + ulong(position.y) * p.width + 3 * n;
  const RowMoments m = moments_of<kLanes>(c_state + state, n, lane, p.epsilon);
  for (uint i = lane; i < n; i += kLanes) {
    const float normal = (c_state[state + i] - m.mean) * m.factor;
    const float out = recurrent_sigmoid(float(x[i]) + h[i]) *
                      recurrent_tanh(fma(normal, float(gamma[i]), float(beta[i])));
    shown[state + i] = out;
    if (p.projects == 0) y[row * n + i] = T(out);
  }
}

// In place of recurrent_lstm_grad.
template <typename T, int kLanes>
[[kernel]] void recurrent_cell_norm_grad(
    device const T* activated [[buffer(0)]], device const float* cells [[buffer(1)]],
    device const T* initial_c [[buffer(2)]], device const T* gamma [[buffer(3)]],
    device const T* beta [[buffer(4)]], device const bool* mask [[buffer(5)]],
    device const float* d_shown [[buffer(6)]], device float* d_c [[buffer(7)]],
    device float* d_sums [[buffer(8)]], device T* d_gates [[buffer(9)]],
    device float* d_gamma [[buffer(10)]], device float* d_beta [[buffer(11)]],
    constant RecurrentParams& p [[buffer(12)]], uint2 position [[thread_position_in_grid]]) {
  const uint n = p.units, lane = position.x;
  const ulong row = norm_row(p, position.y), at = row * p.width, state = ulong(position.y) * n;
  device float* const sums = d_sums + ulong(position.y) * p.width;
  if (!norm_seen(p, mask, position.y)) {
    for (uint i = lane; i < p.width; i += kLanes) {
      sums[i] = 0.0f;
      d_gates[at + i] = T(0.0f);
    }
    return;
  }
  device const float* const cell = cells + row * n;
  device const T* const gate = activated + at;
  const RowMoments m = moments_of<kLanes>(cell, n, lane, p.epsilon);
  float sum = 0.0f, product = 0.0f;
  for (uint i = lane; i < n; i += kLanes) {
    const float normal = (cell[i] - m.mean) * m.factor, o = float(gate[3 * n + i]);
    const float t = recurrent_tanh(fma(normal, float(gamma[i]), float(beta[i])));
    const float d = candidate_slope(t, d_shown[state + i] * o), g = d * float(gamma[i]);
    sum += g;
    product = fma(g, normal, product);
    d_beta[state + i] += d;
    d_gamma[state + i] = fma(d, normal, d_gamma[state + i]);
    sums[3 * n + i] = gate_slope(o, d_shown[state + i] * t);
    sums[i] = g;  // until its own slope is known
  }
  sum = row_sum<kLanes>(sum) / float(n);
  product = row_sum<kLanes>(product) / float(n);
  for (uint i = lane; i < n; i += kLanes) {
    const float normal = (cell[i] - m.mean) * m.factor;
    const float d = fma(fnma(normal, product, sums[i] - sum), m.factor, d_c[state + i]);
    const float before = p.step == 0 ? float(initial_c[state + i]) : cells[row * n - n + i];
    const LstmSlopes<float> s =
        lstm_slopes(float(gate[i]), float(gate[n + i]), float(gate[2 * n + i]),
                    float(gate[3 * n + i]), before, cell[i], 0.0f, d);
    const float slopes[4] = {s.i, s.f, s.g, sums[3 * n + i]};
    for (uint k = 0; k < 4; ++k) {
      sums[k * n + i] = slopes[k];
      d_gates[at + k * n + i] = T(slopes[k]);
    }
    d_c[state + i] = s.cell;
  }
}

#define INSTANTIATE_LANES(T, LANES)                                                       \
  INSTANTIATE_KERNEL("recurrent_norm_" #T "_" #LANES, recurrent_norm, T, LANES)           \
  INSTANTIATE_KERNEL("recurrent_norm_grad_" #T "_" #LANES, recurrent_norm_grad, T, LANES) \
  INSTANTIATE_KERNEL("recurrent_cell_norm_" #T "_" #LANES, recurrent_cell_norm, T, LANES) \
  INSTANTIATE_KERNEL("recurrent_cell_norm_grad_" #T "_" #LANES, recurrent_cell_norm_grad, T, LANES)
#define INSTANTIATE(T)    \
  INSTANTIATE_LANES(T, 1) \
  INSTANTIATE_LANES(T, 32)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
