// Rope's shader: a thread turns one pair of a row, or copies one element behind the last pair.

#include <metal_stdlib>

#include "kernels/msl/formula.h"
#include "kernels/msl/instantiate.h"
#include "kernels/rope/rope_params.h"

using namespace metal;

#include "kernels/msl/wave_formula.h"

// Grid: size - pairs, length, batch x heads.
template <typename T>
[[kernel]] void rope(device const T* x [[buffer(0)]], device const int* positions [[buffer(1)]],
                     device const float* turns [[buffer(2)]], device T* y [[buffer(3)]],
                     constant RopeParams& params [[buffer(4)]],
                     uint3 position [[thread_position_in_grid]]) {
  const ulong row = (ulong(position.z) * ulong(params.length) + position.y) * ulong(params.size);
  const ulong pairs = ulong(params.pairs), i = position.x;
  if (i >= pairs) {
    y[row + pairs + i] = x[row + pairs + i];
    return;
  }
  const ulong sequence = position.z / uint(params.heads);
  const int at = positions[sequence * ulong(params.batch_stride) + position.y];
  const Wave<float> w = wave(turns_of(float(at), turns[i], turns[pairs + i]));
  const ulong first = row + (params.interleaved != 0 ? 2 * i : i);
  const ulong second = first + (params.interleaved != 0 ? 1 : pairs);
  const float a = float(x[first]), b = float(x[second]), sine = w.sine * params.sign;
  y[first] = T(fms(a, w.cosine, b * sine));
  y[second] = T(fma(a, sine, b * w.cosine));
}

INSTANTIATE_KERNEL("rope_float", rope, float)
INSTANTIATE_KERNEL("rope_half", rope, half)
IF_BFLOAT(INSTANTIATE_KERNEL("rope_bfloat", rope, bfloat))
