// Which instruction sets the hash-encode loops are compiled for. Included before Highway.
//
// AVX-512, AVX2, NEON and plain C++ are kept. x86 without AVX2 takes the plain one, as its vectors
// have no fused multiply-add, on which the position of a cell depends; newer AVX-512 variants would
// add nothing but compile time. Bits rather than names: Highway 1.0 does not know all of 1.2's
// names.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_TARGETS_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_TARGETS_H_

// AVX10 (3, 5), AVX3_SPR (4), AVX3_ZEN4 (6), AVX3_DL (7), SSE4 (11), SSSE3 (12), SSE2 (14).
#define HWY_DISABLED_TARGETS 0x58F8

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_TARGETS_H_
