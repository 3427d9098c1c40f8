// How copy.metal is launched.

#ifndef METAL_OPS_DEVICE_KERNELS_COPY_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_COPY_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// The side of a tile that a thread turns, of elements up to 8 bytes and of larger ones.
#define COPY_TILE 8
#define COPY_TILE_WIDE 4

// How many tiles a thread turns along the result's rows and along the source's.
struct CopyTiles {
  uint32_t to, from;
};
static_assert(sizeof(CopyTiles) == 8, "host and shader must agree");

// [images, rows, columns, inner] in space, [images of each point of a block, part_rows, part_columns, inner] in parts;
// `before`: the points that are padded, or cut away.
struct BlockParams {
  uint32_t images, rows, columns, part_rows, part_columns;
  uint32_t block[2], before[2];
  uint32_t reserved;
  uint64_t inner;
};
static_assert(sizeof(BlockParams) == 48, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_COPY_PARAMS_H_
