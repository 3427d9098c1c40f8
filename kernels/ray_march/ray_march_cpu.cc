// RayMarch and PackOccupancy on the CPU.
//
// Rays are marched once, into one buffer a block of rays; then, with all counts known, the buffers
// are copied to where they belong. Nothing depends on the number of threads.

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/ray_march/ray_march_call.h"
#include "kernels/ray_march/ray_march_steps.h"

namespace metal_ops {
namespace {

constexpr int64_t kRaysPerBlock = 64;

// Empty blocks of 8^3 or 4^3 cells, so that rays cross empty space in few strides. They do not
// change which steps are samples.
struct EmptyBlocks {
  static constexpr int kLarge = 8, kSmall = 4;  // cells along an edge

  // Worth it only where there are rays enough to pay for looking at all bits once.
  EmptyBlocks(const RayMarchParams& params, const uint8_t* bits, int64_t n_rays)
      : n_large(params.resolution / kLarge), n_small(params.resolution / kSmall) {
    // With several levels, a block must not reach into the next finer one.
    const int unit = params.n_levels > 1 ? 4 * kLarge : kLarge;
    const int64_t n_bytes = static_cast<int64_t>(params.bytes_per_level) * params.n_levels;
    if (params.resolution % unit != 0 || n_large < 2 || n_bytes > 256 * n_rays) return;
    large.resize(params.n_levels * n_large * n_large * n_large, 0);
    small.resize(params.n_levels * n_small * n_small * n_small, 0);
    const int64_t resolution = params.resolution;
    for (int64_t row = 0; row < params.n_levels * resolution * resolution; ++row) {
      const int64_t i = row / resolution, j = row % resolution;  // i counts through the levels
      uint8_t* const to_large = &large[(i / kLarge * n_large + j / kLarge) * n_large];
      uint8_t* const to_small = &small[(i / kSmall * n_small + j / kSmall) * n_small];
      for (int64_t k = 0; k < n_large; ++k) {  // a byte is 8 cells along z
        const uint8_t byte = bits[row * n_large + k];
        to_large[k] |= byte;
        to_small[2 * k] |= byte & 15;
        to_small[2 * k + 1] |= byte >> 4;
      }
    }
  }

  int64_t n_large, n_small;           // blocks along an edge of a level
  std::vector<uint8_t> large, small;  // [levels, n^3], 0: empty; no elements if nothing is known
};

inline int ray_march_empty_edge(const EmptyBlocks& blocks, int level, const int* cell) {
  if (blocks.large.empty()) return 0;
  const auto index = [&](int64_t n, int edge) {
    return ((level * n + cell[0] / edge) * n + cell[1] / edge) * n + cell[2] / edge;
  };
  constexpr int kLarge = EmptyBlocks::kLarge, kSmall = EmptyBlocks::kSmall;
  if (blocks.large[index(blocks.n_large, kLarge)] == 0) return kLarge;
  return blocks.small[index(blocks.n_small, kSmall)] == 0 ? kSmall : 0;
}

// Samples of a block of rays.
struct Block {
  std::vector<float> t_starts, t_ends;
};

inline void ray_march_take(Block& block, float t_start, float t_end) {
  block.t_starts.push_back(t_start);
  block.t_ends.push_back(t_end);
}

template <typename I>
void March(CpuCall& call) {
  const RayMarchParams params = MakeRayMarchParams(call);
  const int64_t n_rays = call.Size("rays");
  const float* const origins = call.in<float>(0);
  const float* const directions = call.in<float>(1);
  const uint8_t* const bits = call.in<uint8_t>(2);
  const float* const t_min = call.in<float>(4);
  const float* const t_max = call.in<float>(5);
  const int64_t min_stride = call.in_shapes[4].rank(), max_stride = call.in_shapes[5].rank();

  const EmptyBlocks empty(params, bits, n_rays);
  const int64_t n_blocks = (n_rays + kRaysPerBlock - 1) / kRaysPerBlock;
  std::vector<Block> blocks(n_blocks);
  std::vector<int64_t> firsts(n_rays + 1, 0);  // at first, the number of samples
  std::atomic<int64_t> too_long{n_rays};
  call.ParallelFor(n_blocks, kRaysPerBlock * 5000, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      Block& block = blocks[b];
      for (int64_t r = b * kRaysPerBlock; r < std::min(n_rays, (b + 1) * kRaysPerBlock); ++r) {
        const size_t before = block.t_starts.size();
        if (!ray_march_steps(params, bits, origins + 3 * r, directions + 3 * r,
                             t_min[r * min_stride], t_max[r * max_stride], static_cast<uint32_t>(r),
                             block, empty)) {
          // The first one, however many there are: a range of rays ends at its first.
          int64_t known = too_long;
          while (r < known && !too_long.compare_exchange_weak(known, r)) {
          }
          return;
        }
        firsts[r] = static_cast<int64_t>(block.t_starts.size() - before);
      }
    }
  });
  RequireFewSteps(call, too_long < n_rays ? too_long.load() : -1);
  if (!call.shapes.ok()) return;
  int64_t n_samples = 0;
  for (int64_t r = 0; r <= n_rays; ++r) {
    const int64_t count = firsts[r];
    firsts[r] = n_samples;
    n_samples += count;
  }
  RequireIndexable(call, n_samples);
  if (!call.shapes.ok()) return;

  for (int i = 0; i < 3; ++i) {
    if (!call.Allocate(i, {n_samples})) return;
  }
  I* const indices = call.out<I>(2);
  I* const info = call.out<I>(3);
  call.ParallelFor(n_blocks, kRaysPerBlock * 100, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first_ray = b * kRaysPerBlock;
      const int64_t first = firsts[first_ray];
      std::copy(blocks[b].t_starts.begin(), blocks[b].t_starts.end(), call.out<float>(0) + first);
      std::copy(blocks[b].t_ends.begin(), blocks[b].t_ends.end(), call.out<float>(1) + first);
      for (int64_t r = first_ray; r < std::min(n_rays, first_ray + kRaysPerBlock); ++r) {
        info[2 * r] = static_cast<I>(firsts[r]);
        info[2 * r + 1] = static_cast<I>(firsts[r + 1] - firsts[r]);
        std::fill(indices + firsts[r], indices + firsts[r + 1], static_cast<I>(r));
      }
    }
  });
}

void RayMarch(CpuCall& call) {
  call.Type("Tindices") == DType::kInt64 ? March<int64_t>(call) : March<int32_t>(call);
}
CPU_KERNEL("RayMarch", RayMarch);

void PackOccupancy(CpuCall& call) {
  const int64_t n_cells = call.Size("cells"), n_bytes = BytesOfCells(n_cells);
  const float threshold = *call.in<float>(1);
  const float* const densities = call.in<float>(0);
  uint8_t* const out = call.out<uint8_t>(0);
  call.ParallelFor(call.outputs[0].n_elements, 8, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t level = i / n_bytes, first = (i % n_bytes) * 8;
      const int64_t n = std::min<int64_t>(8, n_cells - first);
      uint8_t byte = 0;
      for (int64_t j = 0; j < n; ++j) {
        byte |= static_cast<uint8_t>(densities[level * n_cells + first + j] > threshold) << j;
      }
      out[i] = byte;
    }
  });
}
CPU_KERNEL("PackOccupancy", PackOccupancy);

}  // namespace
}  // namespace metal_ops
