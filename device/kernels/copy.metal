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

// Where rows of the source become columns: a thread turns a tile, so that both sides are read and written
// in runs. The source's elements are neighbours along dimension 1, the result's along 0.
template <typename T, uint kTile>
kernel void copy_tiles(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       constant StridedParams& params [[buffer(2)]],
                       uint3 position [[thread_position_in_grid]]) {
  const uint3 first = uint3(position.x * kTile, position.y * kTile, position.z);
  const uint width = min(kTile, params.dims[0] - first.x);
  const uint height = min(kTile, params.dims[1] - first.y);
  const long from_step = params.operands[0].strides[0], to_step = params.operands[1].strides[1];
  device const T* const from = in + row_index<STEP_OF_OPERAND>(params, params.operands[0], first);
  device T* const to = out + row_index<1>(params, params.operands[1], first);
  if (width == kTile && height == kTile) {
    T tile[kTile * kTile];
    for (uint x = 0; x < kTile; ++x) {
      for (uint y = 0; y < kTile; ++y) tile[y * kTile + x] = from[long(x) * from_step + long(y)];
    }
    for (uint y = 0; y < kTile; ++y) {
      for (uint x = 0; x < kTile; ++x) to[long(y) * to_step + long(x)] = tile[y * kTile + x];
    }
  } else {
    for (uint y = 0; y < height; ++y) {
      for (uint x = 0; x < width; ++x) {
        to[long(y) * to_step + long(x)] = from[long(x) * from_step + long(y)];
      }
    }
  }
}

#define COPY(bytes, type, tile)                                                 \
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
