// Vectors and matrices that host code shares with its shaders, laid out as in Metal: a vector of 3
// takes the room of 4.
#ifndef HOSTMETAL_SIMD_TYPES_H_
#define HOSTMETAL_SIMD_TYPES_H_

#define HOSTMETAL_SIMD_VECTORS(scalar, name)                                         \
  typedef scalar simd_##name##1;                                                     \
  typedef __attribute__((__ext_vector_type__(2))) scalar simd_##name##2;             \
  typedef __attribute__((__ext_vector_type__(3))) scalar simd_##name##3;             \
  typedef __attribute__((__ext_vector_type__(4))) scalar simd_##name##4;             \
  typedef __attribute__((__ext_vector_type__(8))) scalar simd_##name##8;             \
  typedef __attribute__((__ext_vector_type__(16))) scalar simd_##name##16;           \
  typedef simd_##name##2 vector_##name##2;                                           \
  typedef simd_##name##3 vector_##name##3;                                           \
  typedef simd_##name##4 vector_##name##4;                                           \
  typedef simd_##name##8 vector_##name##8;                                           \
  typedef simd_##name##16 vector_##name##16;                                         \
  typedef __attribute__((__ext_vector_type__(2),                                     \
                         __aligned__(sizeof(scalar)))) scalar simd_packed_##name##2; \
  typedef __attribute__((__ext_vector_type__(4),                                     \
                         __aligned__(sizeof(scalar)))) scalar simd_packed_##name##4;

HOSTMETAL_SIMD_VECTORS(char, char)
HOSTMETAL_SIMD_VECTORS(unsigned char, uchar)
HOSTMETAL_SIMD_VECTORS(short, short)
HOSTMETAL_SIMD_VECTORS(unsigned short, ushort)
HOSTMETAL_SIMD_VECTORS(int, int)
HOSTMETAL_SIMD_VECTORS(unsigned int, uint)
HOSTMETAL_SIMD_VECTORS(long, long)
HOSTMETAL_SIMD_VECTORS(unsigned long, ulong)
HOSTMETAL_SIMD_VECTORS(_Float16, half)
HOSTMETAL_SIMD_VECTORS(float, float)
HOSTMETAL_SIMD_VECTORS(double, double)
#undef HOSTMETAL_SIMD_VECTORS

// Columns first: <columns>x<rows>.
#define HOSTMETAL_SIMD_MATRIX(name, c, r) \
  typedef struct {                        \
    simd_##name##r columns[c];            \
  } simd_##name##c##x##r;                 \
  typedef simd_##name##c##x##r matrix_##name##c##x##r;
#define HOSTMETAL_SIMD_MATRICES(name) \
  HOSTMETAL_SIMD_MATRIX(name, 2, 2)   \
  HOSTMETAL_SIMD_MATRIX(name, 2, 3)   \
  HOSTMETAL_SIMD_MATRIX(name, 2, 4)   \
  HOSTMETAL_SIMD_MATRIX(name, 3, 2)   \
  HOSTMETAL_SIMD_MATRIX(name, 3, 3)   \
  HOSTMETAL_SIMD_MATRIX(name, 3, 4)   \
  HOSTMETAL_SIMD_MATRIX(name, 4, 2)   \
  HOSTMETAL_SIMD_MATRIX(name, 4, 3) HOSTMETAL_SIMD_MATRIX(name, 4, 4)
HOSTMETAL_SIMD_MATRICES(half)
HOSTMETAL_SIMD_MATRICES(float)
HOSTMETAL_SIMD_MATRICES(double)
#undef HOSTMETAL_SIMD_MATRICES
#undef HOSTMETAL_SIMD_MATRIX

#ifdef __cplusplus
namespace simd {
#define HOSTMETAL_SIMD_NAMES(name)  \
  typedef ::simd_##name##2 name##2; \
  typedef ::simd_##name##3 name##3; \
  typedef ::simd_##name##4 name##4; \
  typedef ::simd_##name##8 name##8; \
  typedef ::simd_##name##16 name##16;
HOSTMETAL_SIMD_NAMES(char)
HOSTMETAL_SIMD_NAMES(uchar)
HOSTMETAL_SIMD_NAMES(short)
HOSTMETAL_SIMD_NAMES(ushort)
HOSTMETAL_SIMD_NAMES(int)
HOSTMETAL_SIMD_NAMES(uint)
HOSTMETAL_SIMD_NAMES(long)
HOSTMETAL_SIMD_NAMES(ulong)
HOSTMETAL_SIMD_NAMES(half)
HOSTMETAL_SIMD_NAMES(float)
HOSTMETAL_SIMD_NAMES(double)
#undef HOSTMETAL_SIMD_NAMES
typedef ::simd_float2x2 float2x2;
typedef ::simd_float3x3 float3x3;
typedef ::simd_float4x4 float4x4;
}  // namespace simd
#endif

#endif  // HOSTMETAL_SIMD_TYPES_H_
