// Arguments of the shaders of segment.metal and sequence.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_SEGMENT_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_SEGMENT_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SEGMENT_BLOCK 64

// data [rows, inner], ids [n] in order, out [segments, inner].
struct SegmentParams {
  uint64_t n, inner, rows;
  float power;  // sums are divided by their number to it: 0, 1 / 2, 1
  uint32_t unused;
};

// A tensor [.., batch, .., sequence, ..] or with the two the other way round (swapped).
struct ReverseParams {
  uint64_t middle, inner;
  uint64_t first, second;  // sizes of the first and of the second of the two
  uint64_t total;
  uint32_t swapped, unused;
};

// Rows [.., size + before + after, inner], folded to `size`.
struct FoldParams {
  uint64_t size, inner, total;
  uint64_t before, after, edge;
  uint32_t edges_alone;  // the rows between them are copied
  uint32_t unused;
};

// Rows of `inner` elements; `first` of them are another's.
struct MoveParams {
  uint64_t inner, first, total, rows;
};

#define UNRAVEL_DIMS 32
struct UnravelParams {
  int64_t dims[UNRAVEL_DIMS];
  uint64_t n;
  uint32_t rank, unused;
};

#define CHECK_PIECE 4096

#endif  // METAL_OPS_DEVICE_KERNELS_SEGMENT_PARAMS_H_
