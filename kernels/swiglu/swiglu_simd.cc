// Swiglu and its gradient on the CPU, piece by piece.

#include <algorithm>

#include "kernels/swiglu/swiglu_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu/swiglu_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/swiglu/swiglu_formula.h"

constexpr int64_t kPiece = 512;

// Calls work(i, at, n): elements [i, i + n) of y, whose gates begin at `at`.
template <typename Work>
void ForPieces(CpuCall& call, const SwigluParams& p, int64_t cycles, const Work& work) {
  const int64_t pieces = (p.columns + kPiece - 1) / kPiece;
  const int64_t size = std::min(p.columns, kPiece);
  call.ParallelFor(p.rows * pieces, size * cycles, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece / pieces, column = piece % pieces * kPiece;
      const int64_t i = row * p.columns + column;
      work(i, i + row * p.up_offset, std::min(kPiece, p.columns - column));
    }
  });
}

void Swiglu(CpuCall& call) {
  const SwigluParams p = ToSwigluParams(call, 0);
  const MutableFloatArray y = call.float_out(0);
  ForPieces(call, p, 8, [&](int64_t i, int64_t at, int64_t n) HWY_ATTR {
    HWY_ALIGN float room[3][kPiece];
    const float* const gate = call.Read(0, at, n, room[0]);
    const float* const up = call.Read(p.up_offset > 0 ? 0 : 1, at + p.up_offset, n, room[1]);
    float* const to = y.Piece(i, room[2]);
    ForVectors(
        n, [&](auto load, auto store) HWY_ATTR { store(swiglu_value(load(gate), load(up)), to); });
    y.Store(i, n, to);
  });
}

void SwigluGrad(CpuCall& call) {
  const SwigluParams p = ToSwigluParams(call, 1);
  const MutableFloatArray d_gate = call.float_out(0),
                          d_up = call.float_out(p.up_offset > 0 ? 0 : 1);
  ForPieces(call, p, 14, [&](int64_t i, int64_t at, int64_t n) HWY_ATTR {
    HWY_ALIGN float room[5][kPiece];
    const float* const d_y = call.Read(0, i, n, room[0]);
    const float* const gate = call.Read(1, at, n, room[1]);
    const float* const up = call.Read(p.up_offset > 0 ? 1 : 2, at + p.up_offset, n, room[2]);
    float* const to_gate = d_gate.Piece(at, room[3]);
    float* const to_up = d_up.Piece(at + p.up_offset, room[4]);
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto slopes = swiglu_slopes(load(d_y), load(gate), load(up));
      store(slopes.gate, to_gate);
      store(slopes.up, to_up);
    });
    d_gate.Store(at, n, to_gate);
    d_up.Store(at + p.up_offset, n, to_up);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("Swiglu", Swiglu);
SIMD_KERNEL("SwigluGrad", SwigluGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
