// Products of matrices of two-byte elements in blocks like gemm_blocks.metal.h, for matrix units that
// read threadgroup memory themselves: four simdgroups together have 64 rows of a block.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_WARPGROUPS_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_WARPGROUPS_METAL_H_

#include "kernels/gemm/gemm_blocks.metal.h"
#include "kernels/gemm/warpgroup_tiles.metal.h"

constexpr constant int kWarpgroupDepth = GEMM_WARPGROUP_DEPTH;

// kBehind: products of the step before may still run while a step's are begun; its tiles stay that
// much longer.
template <typename T, int kRows, int kColumns, int kStages, int kBehind>
struct GemmWarpgroups {
  static constexpr constant int kThreads = 2 * kRows, kTiles = kColumns / 8;
  static constexpr constant int kTileA = kRows * kWarpgroupDepth,
                                kTileB = kColumns * kWarpgroupDepth;
  // Steps whose copies are begun before theirs.
  static constexpr constant int kAhead = kStages - 1 - kBehind;
  using Ops = Rows<T>;
  using Store = GemmBlock<T, kRows, kColumns, kWarpgroupDepth, 1, kTiles, kStages, 1>;

  // So many steps, whose tiles copies.next(a, b) brings one after the other.
  template <typename Product, typename Copies>
  ROWS_INLINE static void multiply(thread Copies& copies, int steps, threadgroup T* memory,
                                   uint simdgroup, thread typename Ops::Sums16 (&sums)[kTiles],
                                   uint lane) {
    threadgroup T* const b_memory = memory + kStages * kTileA;
    const int simd_row = int(simdgroup) / 4 * 64, part = int(simdgroup) % 4;
    ROWS_UNROLL
    for (int s = 0; s < kAhead; ++s) {
      if (s < steps) copies.next(memory + s * kTileA, b_memory + s * kTileB);
      gemm_end_copies();
    }
    int stage = 0, next = kAhead;
#pragma clang loop unroll(disable)
    for (int step = 0; step < steps; ++step) {
      gemm_wait_for_copies<kAhead - 1>();
      show_to_products();
      metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      begin_products();
      Product::run(memory + stage * kTileA, simd_row, b_memory + stage * kTileB, part, sums, true,
                   lane);
      end_products();
      if (step + kAhead < steps) copies.next(memory + next * kTileA, b_memory + next * kTileB);
      gemm_end_copies();
      wait_for_products<kBehind>();
      if (++stage == kStages) stage = 0;
      if (++next == kStages) next = 0;
    }
    wait_for_products<0>();
    read_products(sums);
  }

  template <bool kTurnedA, bool kTurnedB>
  ROWS_INLINE static void sum(GemmPlace<T> place, threadgroup T* memory, uint simdgroup,
                              thread typename Ops::Sums16 (&sums)[kTiles], uint thread_,
                              uint lane) {
    using Product = WarpgroupProduct<T, kRows, kColumns, kWarpgroupDepth, !kTurnedA, kTurnedB>;
    constexpr int kLinesA = kTurnedA ? kWarpgroupDepth : kRows;
    constexpr int kLinesB = kTurnedB ? kColumns : kWarpgroupDepth;
    using CopyA = GemmTileCopy<kLinesA, kTurnedA ? kRows : kWarpgroupDepth, kThreads, kTurnedA, T,
                               typename Product::A>;
    using CopyB = GemmTileCopy<kLinesB, kTurnedB ? kWarpgroupDepth : kColumns, kThreads, !kTurnedB,
                               T, typename Product::B>;
    struct Copies {
      CopyA a;
      CopyB b;
      ROWS_INLINE void next(threadgroup T* a_to, threadgroup T* b_to) thread {
        a.next(a_to);
        b.next(b_to);
      }
    };
    Copies copies = {
        CopyA(place.a, kTurnedA ? 0 : place.row, kTurnedA ? place.row : 0, thread_),
        CopyB(place.b, kTurnedB ? place.column : 0, kTurnedB ? 0 : place.column, thread_)};
    multiply<Product>(copies, int((place.terms + kWarpgroupDepth - 1) / kWarpgroupDepth), memory,
                      simdgroup, sums, lane);
  }

  template <typename Epilogue>
  ROWS_INLINE static void run(device const T* a, device const T* b, device T* out,
                              constant GemmParams& params, Epilogue epilogue, threadgroup T* memory,
                              uint3 group, uint thread_, uint simdgroup, uint lane) {
    const GemmPlace<T> place(a, b, params, group, kRows, kColumns);
    typename Ops::Sums16 sums[kTiles];
    ROWS_UNROLL
    for (int j = 0; j < kTiles; ++j) Ops::clear(sums[j]);
    const int simd_row = int(simdgroup) / 4 * 64, part = int(simdgroup) % 4;
    if (gemm_a_turned && gemm_b_turned) {
      sum<true, true>(place, memory, simdgroup, sums, thread_, lane);
    } else if (gemm_a_turned) {
      sum<true, false>(place, memory, simdgroup, sums, thread_, lane);
    } else if (gemm_b_turned) {
      sum<false, true>(place, memory, simdgroup, sums, thread_, lane);
    } else {
      sum<false, false>(place, memory, simdgroup, sums, thread_, lane);
    }
    // Through threadgroup memory, as in GemmBlock.
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    threadgroup float* const space = (threadgroup float*)memory + int(simdgroup) * Store::kSpace;
    Tiles<T>::put(sums, space, Store::kSpaceLine, lane);
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    gemm_store_rows<kTiles, 1>(space, out, params, place.out, epilogue,
                               place.row + simd_row + 16 * part, uint(place.column), lane);
  }
};

template <typename T, int kRows, int kColumns, int kStages, int kBehind>
[[kernel, max_total_threads_per_threadgroup(2 * kRows)]] void gemm_warpgroups(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device T* out [[buffer(2)]],
    constant GemmParams& params [[buffer(3)]], device const T* gamma [[buffer(4)]],
    device const T* beta [[buffer(5)]], device const T* mean [[buffer(6)]],
    device const T* variance [[buffer(7)]], device const T* residual [[buffer(8)]],
    constant EpilogueParams& epilogue [[buffer(9)]], threadgroup T* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  GemmWarpgroups<T, kRows, kColumns, kStages, kBehind>::run(a, b, out, params, fused, memory, group,
                                                            thread_, simdgroup, lane);
}

#define GEMM_WARPGROUPS_KERNELS_WITH(T)                                                    \
  INSTANTIATE_KERNEL("gemm_warpgroups_wide_" #T, gemm_warpgroups, T, GEMM_WIDE_WARPGROUPS) \
  INSTANTIATE_KERNEL("gemm_warpgroups_even_" #T, gemm_warpgroups, T, GEMM_EVEN_WARPGROUPS) \
  INSTANTIATE_KERNEL("gemm_warpgroups_small_" #T, gemm_warpgroups, T, GEMM_SMALL_WARPGROUPS)
#define GEMM_WARPGROUPS_KERNELS      \
  GEMM_WARPGROUPS_KERNELS_WITH(half) \
  IF_BFLOAT(GEMM_WARPGROUPS_KERNELS_WITH(bfloat))

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_WARPGROUPS_METAL_H_
