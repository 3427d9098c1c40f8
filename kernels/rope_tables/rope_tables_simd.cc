// MetalRopeTables on the CPU, row by row.

#include <array>
#include <vector>

#include "kernels/rope_tables/rope_tables_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope_tables/rope_tables_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// Backward each element goes where it came from, by the sine of where it is.
template <bool kBackward>
void TurnHalvesBy(int64_t pairs, const float* x, const float* cosines, const float* sines,
                  float* y) {
  const float* const sine = sines + (kBackward ? pairs : 0);
  const float* const other = sines + (kBackward ? 0 : pairs);
  ForVectors(pairs, [&](auto load, auto store) HWY_ATTR {
    const Floats a = load(x), b = load(x + pairs), s = load(sine), t = load(other);
    store(fms(a, load(cosines), b * (kBackward ? -s : s)), y);
    store(fma(b, load(cosines + pairs), a * (kBackward ? -t : t)), y + pairs);
  });
}

template <bool kBackward>
void TurnNeighboursBy(int64_t pairs, const float* x, const float* cosines, const float* sines,
                      float* y) {
  constexpr int kSine = kBackward ? 1 : 0, kOther = 1 - kSine;
  constexpr float kTurn = kBackward ? -1.0f : 1.0f;
  const hn::ScalableTag<float> d;
  int64_t i = 0;
  for (; i + Floats::Lanes() <= pairs; i += Floats::Lanes()) {
    Floats a, b, c[2], s[2];
    hn::LoadInterleaved2(d, x + 2 * i, a.v, b.v);
    hn::LoadInterleaved2(d, cosines + 2 * i, c[0].v, c[1].v);
    hn::LoadInterleaved2(d, sines + 2 * i, s[0].v, s[1].v);
    const Floats first = fms(a, c[0], b * (kBackward ? -s[kSine] : s[kSine]));
    const Floats second = fma(b, c[1], a * (kBackward ? -s[kOther] : s[kOther]));
    hn::StoreInterleaved2(first.v, second.v, d, y + 2 * i);
  }
  for (; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    const float* const s = sines + 2 * i;
    y[2 * i] = a * cosines[2 * i] - b * (kTurn * s[kSine]);
    y[2 * i + 1] = b * cosines[2 * i + 1] + a * (kTurn * s[kOther]);
  }
}

template <bool kBackward>
constexpr auto kTurns = std::array{TurnHalvesBy<kBackward>, TurnNeighboursBy<kBackward>};

void RopeTables(CpuCall& call) {
  const RopeTablesParams p = ToRopeTablesParams(call);
  if (call.outputs[0].n_elements == 0) return;
  const MutableFloatArray y = call.float_out(0);
  const int64_t size = 2 * p.pairs;
  const auto& turns = p.backward != 0 ? kTurns<true> : kTurns<false>;
  const auto turn = turns[call.Bool("interleaved") ? 1 : 0];
  call.ParallelFor(p.outer * p.middle * p.inner, 2 * size, [&](int64_t begin, int64_t end) {
    std::vector<float> room(4 * size);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t inner = row % p.inner, middle = row / p.inner % p.middle;
      const int64_t outer = row / p.inner / p.middle;
      const auto read = [&](int input, const int64_t* strides) {
        const int64_t at = outer * strides[0] + middle * strides[1] + inner * strides[2];
        return call.Read(input, at, size, room.data() + input * size);
      };
      float* const to = y.Piece(row * size, room.data() + 3 * size);
      turn(p.pairs, read(0, p.x), read(1, p.cosines), read(2, p.sines), to);
      y.Store(row * size, size, to);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("MetalRopeTables", RopeTables);
}  // namespace metal_ops
#endif  // HWY_ONCE
