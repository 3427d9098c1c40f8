// HammingDistance's shader: a thread compares two rows.

#include <metal_stdlib>

#include "kernels/hamming_distance/hamming_distance_params.h"
#include "kernels/msl/wide_access.h"

using namespace metal;

// For each byte of a word that is not 0 its highest bit, or the word itself.
inline uint differing(uint word, bool elements) {
  return elements ? (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u : word;
}

// Grid: sizes[0], sizes[1], the other sizes' product.
[[kernel]] void hamming_distance(device const uchar* a [[buffer(0)]],
                                 device const uchar* b [[buffer(1)]],
                                 device int* distances [[buffer(2)]],
                                 constant HammingParams& p [[buffer(3)]],
                                 uint3 position [[thread_position_in_grid]]) {
  long a_row = position.x * p.a_strides[0] + position.y * p.a_strides[1];
  long b_row = position.x * p.b_strides[0] + position.y * p.b_strides[1];
  uint rest = position.z;
  for (uint dim = 2; dim < p.n_dims; ++dim) {
    const uint size = uint(p.sizes[dim]), at = rest % size;
    a_row += at * p.a_strides[dim];
    b_row += at * p.b_strides[dim];
    rest /= size;
  }
  device const uchar* const x = a + a_row * p.bytes;
  device const uchar* const y = b + b_row * p.bytes;
  const bool elements = p.elements != 0;
  const ulong places = reinterpret_cast<ulong>(a) | reinterpret_cast<ulong>(b) | ulong(p.bytes);
  uint n = 0;
  if (is_wide(a) && is_wide(b) && p.bytes % 16 == 0) {
    for (long i = 0; i < p.bytes / 16; ++i) {
      const uint4 word = ((device const uint4*)x)[i] ^ ((device const uint4*)y)[i];
      n += popcount(differing(word.x, elements)) + popcount(differing(word.y, elements)) +
           popcount(differing(word.z, elements)) + popcount(differing(word.w, elements));
    }
  } else if (places % 4 == 0) {
    for (long i = 0; i < p.bytes / 4; ++i) {
      n += popcount(differing(((device const uint*)x)[i] ^ ((device const uint*)y)[i], elements));
    }
  } else {
    for (long i = 0; i < p.bytes; ++i) n += popcount(differing(uint(x[i] ^ y[i]), elements));
  }
  distances[(position.z * p.sizes[1] + position.y) * p.sizes[0] + position.x] = int(n);
}
