// Rope on the CPU: sines and cosines of a position are made once for all heads.

#include <algorithm>
#include <vector>

#include "kernels/rope/rope_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/msl/wave_formula.h"

struct Turned {
  Floats a, b;
};

HWY_INLINE Turned Turn(Floats a, Floats b, Floats sine, Floats cosine) {
  return {fms(a, cosine, b * sine), fma(a, sine, b * cosine)};
}

void TurnHalves(int64_t pairs, const float* sines, const float* cosines, const float* from,
                float* to) {
  ForVectors(pairs, [&](auto load, auto store) HWY_ATTR {
    const auto y = Turn(load(from), load(from + pairs), load(sines), load(cosines));
    store(y.a, to);
    store(y.b, to + pairs);
  });
}

void TurnNeighbours(int64_t pairs, const float* sines, const float* cosines, const float* from,
                    float* to) {
  const hn::ScalableTag<float> d;
  int64_t i = 0;
  for (; i + Floats::Lanes() <= pairs; i += Floats::Lanes()) {
    Floats a, b;
    hn::LoadInterleaved2(d, from + 2 * i, a.v, b.v);
    const auto y = Turn(a, b, Floats::Load(sines + i), Floats::Load(cosines + i));
    hn::StoreInterleaved2(y.a.v, y.b.v, d, to + 2 * i);
  }
  for (; i < pairs; ++i) {
    const float a = from[2 * i], b = from[2 * i + 1];
    to[2 * i] = a * cosines[i] - b * sines[i];
    to[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

void Rope(CpuCall& call) {
  const RopeParams p = ToRopeParams(call);
  if (call.outputs[0].n_elements == 0) return;
  const MutableFloatArray y = call.float_out(0);
  const float* const turns = call.in<float>(2);
  const bool shared = p.batch_stride == 0;
  const int64_t rows = (shared ? p.batch : 1) * p.heads;
  const auto turn = p.interleaved != 0 ? TurnNeighbours : TurnHalves;
  call.ParallelFor(
      (shared ? 1 : p.batch) * p.length, rows * p.size + 20 * p.pairs,
      [&](int64_t begin, int64_t end) {
        std::vector<float> waves(2 * p.pairs), room(2 * p.size);
        float *const sines = waves.data(), *const cosines = sines + p.pairs;
        for (int64_t i = begin; i < end; ++i) {
          const Floats position(static_cast<float>(call.in<int32_t>(1)[i])), sign(p.sign);
          ForVectors(p.pairs, [&](auto load, auto store) HWY_ATTR {
            const auto at = wave(turns_of(position, load(turns), load(turns + p.pairs)));
            store(at.sine * sign, sines);
            store(at.cosine, cosines);
          });
          // The first head; the others follow, and the other sequences where all share positions.
          const int64_t first = i / p.length * p.heads * p.length + i % p.length;
          for (int64_t row = 0; row < rows; ++row) {
            const int64_t at = (first + row * p.length) * p.size;
            const float* const from = call.Read(0, at, p.size, room.data());
            float* const to = y.Piece(at, room.data() + p.size);
            turn(p.pairs, sines, cosines, from, to);
            if (from != to) std::copy(from + 2 * p.pairs, from + p.size, to + 2 * p.pairs);
            y.Store(at, p.size, to);
          }
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("Rope", Rope);
}  // namespace metal_ops
#endif  // HWY_ONCE
