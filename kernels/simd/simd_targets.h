// The instruction sets that the Highway loops are compiled for. Included before Highway.
//
// AVX-512, AVX2, SSE4 (x86 since 2010), NEON and plain C++: the names of METAL_OPS_SIMD.
// Newer AVX-512 and NEON variants would add compile time and nothing else; SVE's vectors have no
// size that arrays could have. Bits rather than names: Highway 1.0 does not know all of 1.2's.

#ifndef METAL_OPS_KERNELS_SIMD_SIMD_TARGETS_H_
#define METAL_OPS_KERNELS_SIMD_SIMD_TARGETS_H_

// Instruction sets that this build leaves out besides: kernels/rules.mk.
#ifndef METAL_OPS_TARGETS_LEFT_OUT
#define METAL_OPS_TARGETS_LEFT_OUT 0
#endif

#ifndef HWY_DISABLED_TARGETS
// x86: AVX10 (3, 5), AVX3_SPR (4), AVX3_ZEN4 (6), AVX3_DL (7), SSSE3 (12), SSE2 (14).
// arm64: SVE and NEON variants (15 to 27), NEON without AES (29).
#define HWY_DISABLED_TARGETS (0x2FFFD0F8 | METAL_OPS_TARGETS_LEFT_OUT)
#endif

// Also those whose instructions the compiler's flags already exceed, so that each can be asked for.
#ifndef HWY_COMPILE_ALL_ATTAINABLE
#define HWY_COMPILE_ALL_ATTAINABLE
#endif

// Below GCC 12.3 Highway replaces EMU128 because of a bug of GCC (106322), which 64-bit x86 and arm
// do not have.
#if !defined(HWY_BROKEN_EMU128) && (defined(__x86_64__) || defined(__aarch64__))
#define HWY_BROKEN_EMU128 0
#endif

#endif  // METAL_OPS_KERNELS_SIMD_SIMD_TARGETS_H_
