// Host side of Apple's simd library, as far as code around compute shaders goes: types,
// constructors, geometry.
#ifndef HOSTMETAL_SIMD_SIMD_H_
#define HOSTMETAL_SIMD_SIMD_H_

#include <math.h>
#include <simd/types.h>
#include <stdbool.h>

#define HOSTMETAL_SIMD_INLINE static inline __attribute__((__always_inline__, __unused__))

#define HOSTMETAL_SIMD_OVERLOAD HOSTMETAL_SIMD_INLINE __attribute__((__overloadable__))

#define HOSTMETAL_SIMD_MAKE_OF(result, parameters, ...)                 \
  HOSTMETAL_SIMD_OVERLOAD simd_##result simd_make_##result parameters { \
    simd_##result v = {__VA_ARGS__};                                    \
    return v;                                                           \
  }
#define HOSTMETAL_SIMD_MAKE(scalar, name)                                                         \
  HOSTMETAL_SIMD_MAKE_OF(name##2, (scalar x, scalar y), x, y)                                     \
  HOSTMETAL_SIMD_MAKE_OF(name##2, (simd_##name##3 v3), v3.x, v3.y)                                \
  HOSTMETAL_SIMD_MAKE_OF(name##2, (simd_##name##4 v4), v4.x, v4.y)                                \
  HOSTMETAL_SIMD_MAKE_OF(name##3, (scalar x, scalar y, scalar z), x, y, z)                        \
  HOSTMETAL_SIMD_MAKE_OF(name##3, (simd_##name##2 xy, scalar z), xy.x, xy.y, z)                   \
  HOSTMETAL_SIMD_MAKE_OF(name##3, (simd_##name##4 v4), v4.x, v4.y, v4.z)                          \
  HOSTMETAL_SIMD_MAKE_OF(name##4, (scalar x, scalar y, scalar z, scalar w), x, y, z, w)           \
  HOSTMETAL_SIMD_MAKE_OF(name##4, (simd_##name##2 xy, simd_##name##2 zw), xy.x, xy.y, zw.x, zw.y) \
  HOSTMETAL_SIMD_MAKE_OF(name##4, (simd_##name##3 xyz, scalar w), xyz.x, xyz.y, xyz.z, w)
HOSTMETAL_SIMD_MAKE(int, int)
HOSTMETAL_SIMD_MAKE(unsigned int, uint)
HOSTMETAL_SIMD_MAKE(short, short)
HOSTMETAL_SIMD_MAKE(unsigned short, ushort)
HOSTMETAL_SIMD_MAKE(float, float)
HOSTMETAL_SIMD_MAKE(double, double)
#undef HOSTMETAL_SIMD_MAKE
#undef HOSTMETAL_SIMD_MAKE_OF

// The truth of a comparison's result: a component is true where its highest bit is set.
#define HOSTMETAL_SIMD_TRUTH(type)                                                           \
  HOSTMETAL_SIMD_OVERLOAD bool simd_all(type##2 v) { return v.x < 0 && v.y < 0; }            \
  HOSTMETAL_SIMD_OVERLOAD bool simd_any(type##2 v) { return v.x < 0 || v.y < 0; }            \
  HOSTMETAL_SIMD_OVERLOAD bool simd_all(type##3 v) { return v.x < 0 && v.y < 0 && v.z < 0; } \
  HOSTMETAL_SIMD_OVERLOAD bool simd_any(type##3 v) { return v.x < 0 || v.y < 0 || v.z < 0; } \
  HOSTMETAL_SIMD_OVERLOAD bool simd_all(type##4 v) {                                         \
    return v.x < 0 && v.y < 0 && v.z < 0 && v.w < 0;                                         \
  }                                                                                          \
  HOSTMETAL_SIMD_OVERLOAD bool simd_any(type##4 v) {                                         \
    return v.x < 0 || v.y < 0 || v.z < 0 || v.w < 0;                                         \
  }
HOSTMETAL_SIMD_TRUTH(simd_char)
HOSTMETAL_SIMD_TRUTH(simd_short)
HOSTMETAL_SIMD_TRUTH(simd_int)
HOSTMETAL_SIMD_TRUTH(simd_long)
#undef HOSTMETAL_SIMD_TRUTH
HOSTMETAL_SIMD_OVERLOAD float simd_dot(simd_float2 a, simd_float2 b) {
  return a.x * b.x + a.y * b.y;
}
HOSTMETAL_SIMD_OVERLOAD float simd_dot(simd_float3 a, simd_float3 b) {
  return a.x * b.x + a.y * b.y + a.z * b.z;
}
HOSTMETAL_SIMD_OVERLOAD float simd_dot(simd_float4 a, simd_float4 b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
HOSTMETAL_SIMD_INLINE simd_float3 simd_cross(simd_float3 a, simd_float3 b) {
  return a.yzx * b.zxy - a.zxy * b.yzx;
}
#define HOSTMETAL_SIMD_GEOMETRY(type)                                                        \
  HOSTMETAL_SIMD_OVERLOAD float simd_length_squared(type a) { return simd_dot(a, a); }       \
  HOSTMETAL_SIMD_OVERLOAD float simd_length(type a) { return sqrtf(simd_dot(a, a)); }        \
  HOSTMETAL_SIMD_OVERLOAD float simd_distance(type a, type b) { return simd_length(a - b); } \
  HOSTMETAL_SIMD_OVERLOAD type simd_normalize(type a) { return a / simd_length(a); }         \
  HOSTMETAL_SIMD_OVERLOAD type simd_mix(type a, type b, type t) { return a + (b - a) * t; }
HOSTMETAL_SIMD_GEOMETRY(simd_float2)
HOSTMETAL_SIMD_GEOMETRY(simd_float3)
HOSTMETAL_SIMD_GEOMETRY(simd_float4)
#undef HOSTMETAL_SIMD_GEOMETRY

HOSTMETAL_SIMD_OVERLOAD simd_float3 simd_mul(simd_float3x3 m, simd_float3 v) {
  return m.columns[0] * v.x + m.columns[1] * v.y + m.columns[2] * v.z;
}
HOSTMETAL_SIMD_OVERLOAD simd_float4 simd_mul(simd_float4x4 m, simd_float4 v) {
  return m.columns[0] * v.x + m.columns[1] * v.y + m.columns[2] * v.z + m.columns[3] * v.w;
}
#undef HOSTMETAL_SIMD_OVERLOAD
#undef HOSTMETAL_SIMD_INLINE

#endif  // HOSTMETAL_SIMD_SIMD_H_
