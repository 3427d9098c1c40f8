// Moves elements between strided tensors. Only the size of an element matters, so every dtype
// shares the kernels of five sizes.

#include "device/kernels/copy_params.h"
#include "device/kernels/strided.metal.h"

using namespace metal;

template <typename T>
kernel void copy_strided(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                         constant StridedParams& params [[buffer(2)]],
                         uint3 position [[thread_position_in_grid]]) {
  out[strided_index(params, params.operands[1], position)] =
      in[strided_index(params, params.operands[0], position)];
}

template <typename T, int Step>
kernel void copy_rows(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                      constant StridedParams& params [[buffer(2)]],
                      uint3 position [[thread_position_in_grid]]) {
  out[row_index<1>(params, params.operands[1], position)] =
      in[row_index<Step>(params, params.operands[0], position)];
}

// Turns a whole tile.
template <typename T, uint kTile>
struct Turn {
  static void tile(device const T* from, long from_step, device T* to, long to_step) {
    T values[kTile * kTile];
    for (uint x = 0; x < kTile; ++x) {
      for (uint y = 0; y < kTile; ++y) values[y * kTile + x] = from[long(x) * from_step + long(y)];
    }
    for (uint y = 0; y < kTile; ++y) {
      for (uint x = 0; x < kTile; ++x) to[long(y) * to_step + long(x)] = values[y * kTile + x];
    }
  }
};
#if defined(__METAL_CPU__)
// By a processor's vectors: a compiler turns no matrix by them of its own accord.
template <typename T>
struct Turn<T, 8> {
  typedef T Row __attribute__((ext_vector_type(8), aligned(sizeof(T))));

#define TURN(MASK)                                                                             \
  __builtin_shufflevector(a, b, MASK(0), MASK(1), MASK(2), MASK(3), MASK(4), MASK(5), MASK(6), \
                          MASK(7))
#define TURN_UPPER(j) (((j) & kStep) != 0 ? 8 + (j) - kStep : (j))
#define TURN_LOWER(j) (((j) & kStep) != 0 ? 8 + (j) : (j) + kStep)
  template <int kStep>
  static void blocks(thread Row (&rows)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((i & kStep) != 0) continue;
      const Row a = rows[i], b = rows[i + kStep];
      rows[i] = TURN(TURN_UPPER);
      rows[i + kStep] = TURN(TURN_LOWER);
    }
  }
#undef TURN
#undef TURN_UPPER
#undef TURN_LOWER

  static void tile(device const T* from, long from_step, device T* to, long to_step) {
    Row rows[8];
#pragma unroll
    for (int x = 0; x < 8; ++x) rows[x] = *(device const Row*)(from + long(x) * from_step);
    blocks<4>(rows);
    blocks<2>(rows);
    blocks<1>(rows);
#pragma unroll
    for (int y = 0; y < 8; ++y) *(device Row*)(to + long(y) * to_step) = rows[y];
  }
};
static_assert(COPY_TILE == 8, "as Turn has");
#endif

// Where rows of the source become columns: a thread turns a tile, so that both sides are read and written
// in runs. The source's elements are neighbours along dimension 1, the result's along 0.
template <typename T, uint kTile>
inline void copy_tile(device const T* in, device T* out, constant StridedParams& params,
                      uint3 first) {
  const uint width = min(kTile, params.dims[0] - first.x);
  const uint height = min(kTile, params.dims[1] - first.y);
  const long from_step = params.operands[0].strides[0], to_step = params.operands[1].strides[1];
  device const T* const from = in + row_index<STEP_OF_OPERAND>(params, params.operands[0], first);
  device T* const to = out + row_index<1>(params, params.operands[1], first);
  if (width == kTile && height == kTile) {
    Turn<T, kTile>::tile(from, from_step, to, to_step);
  } else {
    for (uint y = 0; y < height; ++y) {
      for (uint x = 0; x < width; ++x) {
        to[long(y) * to_step + long(x)] = from[long(x) * from_step + long(y)];
      }
    }
  }
}
template <typename T, uint kTile>
kernel void copy_tiles(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       constant StridedParams& params [[buffer(2)]],
                       constant CopyTiles& tiles [[buffer(3)]],
                       uint3 position [[thread_position_in_grid]]) {
  const uint width = tiles.to * kTile, height = tiles.from * kTile;
  const uint left = position.x * width, right = min(left + width, params.dims[0]);
  const uint top = position.y * height, bottom = min(top + height, params.dims[1]);
  for (uint y = top; y < bottom; y += kTile) {
    for (uint x = left; x < right; x += kTile) {
      copy_tile<T, kTile>(in, out, params, uint3(x, y, position.z));
    }
  }
}

// Space and batch: image `part` images + i has the points of image i that lie at `part` in their blocks. Grid of both:
// inner, columns and rows of the result, one image after the other.
template <typename T>
kernel void space_to_batch(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                           constant BlockParams& p [[buffer(2)]],
                           uint3 position [[thread_position_in_grid]]) {
  const uint many = position.z / p.part_rows, part = many / p.images;
  // Padding is 0: as unsigned numbers, indices before the first are behind the last.
  const uint row = (position.z - many * p.part_rows) * p.block[0] + part / p.block[1] - p.before[0];
  const uint column = position.y * p.block[1] + part % p.block[1] - p.before[1];
  const bool inside = row < p.rows && column < p.columns;
  device const T* const from =
      in + ((ulong(many - part * p.images) * p.rows + (inside ? row : 0)) * p.columns +
            (inside ? column : 0)) *
               p.inner;
  device T* const to = out + (ulong(position.z) * p.part_columns + position.y) * p.inner;
  to[position.x] = inside ? from[position.x] : T(0);
}
template <typename T>
kernel void batch_to_space(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                           constant BlockParams& p [[buffer(2)]],
                           uint3 position [[thread_position_in_grid]]) {
  const uint image = position.z / p.rows;
  const uint row = position.z - image * p.rows + p.before[0], column = position.y + p.before[1];
  const uint part_row = row / p.block[0], part_column = column / p.block[1];
  const uint part =
      (row - part_row * p.block[0]) * p.block[1] + (column - part_column * p.block[1]);
  device const T* const from =
      in +
      ((ulong(part * p.images + image) * p.part_rows + part_row) * p.part_columns + part_column) *
          p.inner;
  device T* const to = out + (ulong(position.z) * p.columns + position.y) * p.inner;
  to[position.x] = from[position.x];
}

#define COPY(bytes, type, tile)                                                 \
  INSTANTIATE_KERNEL("space_to_batch_" bytes, space_to_batch, type)             \
  INSTANTIATE_KERNEL("batch_to_space_" bytes, batch_to_space, type)             \
  INSTANTIATE_KERNEL("copy_" bytes "_strided", copy_strided, type)              \
  INSTANTIATE_KERNEL("copy_" bytes "_rows_1", copy_rows, type, 1)               \
  INSTANTIATE_KERNEL("copy_" bytes "_rows_0", copy_rows, type, 0)               \
  INSTANTIATE_KERNEL("copy_" bytes "_rows_-1", copy_rows, type, -1)             \
  INSTANTIATE_KERNEL("copy_" bytes "_rows_n", copy_rows, type, STEP_OF_OPERAND) \
  INSTANTIATE_KERNEL("copy_" bytes "_tiles", copy_tiles, type, tile)
COPY("1", uchar, COPY_TILE)
COPY("2", ushort, COPY_TILE)
COPY("4", uint, COPY_TILE)
COPY("8", ulong, COPY_TILE)
COPY("16", ulong2, COPY_TILE_WIDE)
