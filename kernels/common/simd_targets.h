// Which instruction sets the Highway loops are compiled for. Included before Highway.
//
// AVX-512, AVX2, NEON and plain C++. Newer AVX-512 variants would add compile time and nothing
// else, and x86 without AVX2 is rare enough for the plain one. Bits rather than names: Highway 1.0
// does not know all of 1.2's names.

#ifndef METAL_OPS_KERNELS_COMMON_SIMD_TARGETS_H_
#define METAL_OPS_KERNELS_COMMON_SIMD_TARGETS_H_

#ifndef HWY_DISABLED_TARGETS
// AVX10 (3, 5), AVX3_SPR (4), AVX3_ZEN4 (6), AVX3_DL (7), SSE4 (11), SSSE3 (12), SSE2 (14).
#define HWY_DISABLED_TARGETS 0x58F8
#endif

#endif  // METAL_OPS_KERNELS_COMMON_SIMD_TARGETS_H_
