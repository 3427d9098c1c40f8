// MetalFusedBatchNormGrad on the CPU: a part of the rows after the other, twice.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_batch_norm_grad/fused_batch_norm_grad_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_formula.h"

// Calls work(part, its first row, the one behind its last).
template <typename Work>
void ForParts(CpuCall& call, const FusedBatchNormGradParams& p, const Work& work) {
  call.ParallelFor(p.n_parts, 3 * p.columns * p.part_rows, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      work(part, part * p.part_rows, std::min(p.rows, (part + 1) * p.part_rows));
    }
  });
}

// Calls work(part, channel, first element, how many) for pieces of a channel of a picture.
template <typename Work>
void ForPieces(CpuCall& call, const FusedBatchNormGradParams& p, const Work& work) {
  call.ParallelFor(p.n_parts * p.columns, 3 * p.part_rows, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      for (int64_t first = 0; first < p.part_rows; first += NORM_GRAD_PLANE_PIECE) {
        work(plane / p.columns, plane % p.columns, plane * p.part_rows + first,
             std::min<int64_t>(NORM_GRAD_PLANE_PIECE, p.part_rows - first));
      }
    }
  });
}

// `sums`, of each part: the gradients that pass the ReLU, and their products with x - mean.
void SumRows(CpuCall& call, const FusedBatchNormGradParams& p, const MutableFloatArray& d_x,
             float* sums) {
  const int64_t n = p.columns;
  const float* const mean = call.in<float>(4);
  ForParts(call, p, [&](int64_t part, int64_t begin, int64_t end) HWY_ATTR {
    std::vector<float> room(4 * n);
    float *const total = sums + 2 * n * part, *const products = total + n;
    for (int64_t row = begin; row < end; ++row) {
      const float* const gradients = call.Read(0, row * n, n, room.data());
      const float* const features = call.Read(1, row * n, n, room.data() + n);
      const float* const x = call.Read(2, row * n, n, room.data() + 2 * n);
      float* const to = d_x.Piece(row * n, room.data() + 3 * n);
      ForVectors(n, [&](auto load, auto store) HWY_ATTR {
        const auto passed = norm_grad_passed(load(gradients), load(features), p.relu6 != 0);
        store(load(total) + passed, total);
        store(fma(passed, load(x) - load(mean), load(products)), products);
        store(passed, to);
      });
      d_x.Store(row * n, n, to);
    }
  });
}

void SumPlanes(CpuCall& call, const FusedBatchNormGradParams& p, const MutableFloatArray& d_x,
               float* sums) {
  constexpr int64_t kPiece = NORM_GRAD_PLANE_PIECE;
  const float* const mean = call.in<float>(4);
  ForPieces(call, p, [&](int64_t part, int64_t channel, int64_t at, int64_t n) HWY_ATTR {
    float room[4 * kPiece], passed[kPiece], products[kPiece];
    const float* const gradients = call.Read(0, at, n, room);
    const float* const features = call.Read(1, at, n, room + kPiece);
    const float* const x = call.Read(2, at, n, room + 2 * kPiece);
    const Floats center(mean[channel]);
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      const auto slope = norm_grad_passed(load(gradients), load(features), p.relu6 != 0);
      store(slope * (load(x) - center), products);
      store(slope, passed);
    });
    float* const to = d_x.Piece(at, room + 3 * kPiece);
    std::copy(passed, passed + n, to);
    d_x.Store(at, n, to);
    float* const total = sums + 2 * p.columns * part + channel;
    total[0] += std::accumulate(passed, passed + n, 0.0f);
    total[p.columns] += std::accumulate(products, products + n, 0.0f);
  });
}

// The numbers of a batch norm's gradient that exist per channel.
struct Channels {
  const float *mean, *by, *less, *slopes;
};

// d_x holds the gradients that passed before.
void SlopeRows(CpuCall& call, const FusedBatchNormGradParams& p, const Channels& of,
               const MutableFloatArray& d_x) {
  const int64_t n = p.columns;
  const FloatArray passed = {d_x.data, d_x.type};
  ForParts(call, p, [&](int64_t, int64_t begin, int64_t end) HWY_ATTR {
    std::vector<float> room(3 * n);
    for (int64_t row = begin; row < end; ++row) {
      const float* const from = passed.Read(row * n, n, room.data());
      const float* const x = call.Read(2, row * n, n, room.data() + n);
      float* const to = d_x.Piece(row * n, room.data() + 2 * n);
      ForVectors(n, [&](auto load, auto store) HWY_ATTR {
        store(norm_grad_slope(load(from), load(x) - load(of.mean), load(of.by), load(of.less),
                              load(of.slopes)),
              to);
      });
      d_x.Store(row * n, n, to);
    }
  });
}

void SlopePlanes(CpuCall& call, const FusedBatchNormGradParams& p, const Channels& of,
                 const MutableFloatArray& d_x) {
  constexpr int64_t kPiece = NORM_GRAD_PLANE_PIECE;
  const FloatArray passed = {d_x.data, d_x.type};
  ForPieces(call, p, [&](int64_t, int64_t channel, int64_t at, int64_t n) HWY_ATTR {
    float room[3 * kPiece];
    const float* const from = passed.Read(at, n, room);
    const float* const x = call.Read(2, at, n, room + kPiece);
    float* const to = d_x.Piece(at, room + 2 * kPiece);
    const Floats mean(of.mean[channel]), by(of.by[channel]), less(of.less[channel]);
    const Floats slope(of.slopes[channel]);
    ForVectors(n, [&](auto load, auto store) HWY_ATTR {
      store(norm_grad_slope(load(from), load(x) - mean, by, less, slope), to);
    });
    d_x.Store(at, n, to);
  });
}

void FusedBatchNormGrad(CpuCall& call) {
  const FusedBatchNormGradParams p = ToFusedBatchNormGradParams(call);
  const int64_t n = p.columns;
  if (n == 0) return;
  const bool planes = call.Text("data_format") == "NCHW";
  const MutableFloatArray d_x = call.float_out(0);
  std::vector<float> sums(2 * n * std::max<int64_t>(p.n_parts, 1), 0.0f);
  (planes ? SumPlanes : SumRows)(call, p, d_x, sums.data());
  for (int64_t part = 1; part < p.n_parts; ++part) {
    for (int64_t i = 0; i < 2 * n; ++i) sums[i] += sums[2 * n * part + i];
  }
  const float count =
      p.training != 0 ? static_cast<float>(p.rows) : std::numeric_limits<float>::infinity();
  std::vector<float> factors(3 * n);
  float *const by = factors.data(), *const less = by + n, *const slopes = less + n;
  for (int64_t c = 0; c < n; ++c) {
    const float inverse = 1.0f / std::sqrt(call.in<float>(5)[c] + p.epsilon);
    const auto found =
        norm_grad_factors(sums[c], sums[n + c], call.in<float>(3)[c], inverse, count);
    call.out<float>(1)[c] = sums[n + c] * inverse;
    call.out<float>(2)[c] = sums[c];
    by[c] = found.by;
    less[c] = found.mean;
    slopes[c] = found.slope;
  }
  (planes ? SlopePlanes : SlopeRows)(call, p, {call.in<float>(4), by, less, slopes}, d_x);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("MetalFusedBatchNormGrad", FusedBatchNormGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
