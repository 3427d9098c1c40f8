// Products of simdgroup matrices on a GPU: the matrix unit for half and bfloat, shuffles and fma for
// float, which the unit would cut to 10 bits.
#pragma once

namespace _msl {

// A lane's element pair lies at row and column of Apple's layout (simdgroup_matrix); the unit wants
// it at row lane / 4, column lane % 4 * 2.
inline unsigned unit_lane_of(unsigned lane) {  // of Apple's lane
  return (lane & 16) | (lane & 4) << 1 | (lane & 2) << 1 | (lane & 8) >> 2 | (lane & 1);
}
inline unsigned apple_lane_of(unsigned lane) {  // of the unit's lane
  return (lane & 16) | (lane & 8) >> 1 | (lane & 4) >> 1 | (lane & 2) << 2 | (lane & 1);
}

template <class A, class B>
inline float2 multiplied(unsigned long, metal::vec<A, 2> a, metal::vec<B, 2> b, float2 c) {
  const unsigned lane = _msl_lane();
  if constexpr (metal::is_same_v<A, B> && sizeof(A) == 2) {
    const unsigned from = apple_lane_of(lane);
    const unsigned left = from_lane(~0u, __builtin_bit_cast(unsigned, a), from);
    unsigned right = from_lane(~0u, __builtin_bit_cast(unsigned, b), from);
    float2 sum = from_lane(~0u, c, from);
    float none0, none1;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(right));
    // The unit multiplies 16 rows: the lower 8 are zero.
    if constexpr (metal::is_same_v<A, half>) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
          "{%7, %8, %9, %9};"
          : "=f"(sum.x), "=f"(sum.y), "=f"(none0), "=f"(none1)
          : "r"(left), "r"(0u), "r"(right), "f"(sum.x), "f"(sum.y), "f"(0.0f));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
          "{%7, %8, %9, %9};"
          : "=f"(sum.x), "=f"(sum.y), "=f"(none0), "=f"(none1)
          : "r"(left), "r"(0u), "r"(right), "f"(sum.x), "f"(sum.y), "f"(0.0f));
    }
    return from_lane(~0u, sum, unit_lane_of(lane));
  } else {
    using M = metal::simdgroup_matrix<float, 8, 8>;
    const float2 left = float2(a), right = float2(b);
    const unsigned row = M::row(lane), column = M::column(lane);
    for (unsigned k = 0; k < 8; ++k) {
      // Element (i, j) is the part j % 2 of Apple's lane for row i, column j.
      const unsigned l = apple_lane_of(row * 4 + k / 2), r = apple_lane_of(k * 4 + column / 2);
      const float x = from_lane(~0u, k % 2 ? left.y : left.x, l);
      const float2 y = from_lane(~0u, right, r);
      c.x += x * y.x;
      c.y += x * y.y;
    }
    return c;
  }
}

template <class T, class P>
inline void load_part(metal::simdgroup_matrix<T, 8, 8>& d, P source, ulong line, bool turned) {
  using M = metal::simdgroup_matrix<T, 8, 8>;
  const uint lane = _msl_lane(), i = M::row(lane), j = M::column(lane);
  d.thread_elements() =
      turned ? metal::vec<T, 2>(T(source[j * line + i]), T(source[(j + 1) * line + i]))
             : metal::vec<T, 2>(T(source[i * line + j]), T(source[i * line + j + 1]));
}
template <class T, class P>
inline void store_part(const metal::simdgroup_matrix<T, 8, 8>& a, P target, ulong line,
                       bool turned) {
  using M = metal::simdgroup_matrix<T, 8, 8>;
  using S = plain<metal::remove_pointer_t<P>>;
  const uint lane = _msl_lane(), i = M::row(lane), j = M::column(lane);
  target[turned ? j * line + i : i * line + j] = S(a.thread_elements().x);
  target[turned ? (j + 1) * line + i : i * line + j + 1] = S(a.thread_elements().y);
}
template <class D, class A, class B, class C>
inline void multiply_part(ulong site, metal::simdgroup_matrix<D, 8, 8>& d,
                          const metal::simdgroup_matrix<A, 8, 8>& a,
                          const metal::simdgroup_matrix<B, 8, 8>& b,
                          const metal::simdgroup_matrix<C, 8, 8>* c) {
  const float2 sum = c ? float2(c->thread_elements()) : float2(0.0f);
  d.thread_elements() =
      metal::vec<D, 2>(multiplied(site, a.thread_elements(), b.thread_elements(), sum));
}

// For shaders that find __HAVE_SIMDGROUP_MATRIX_16__: c += a b, with a 16x16, b 16x8 and c 16x8 in the
// unit's layout. In its 8x8 parts, lane l has row l / 4, columns l % 4 * 2 and the next; in b's, column
// l / 4 and those rows. Parts of a and c come by columns: upper left, lower left, and so on.
template <class T>
inline void multiply_16(thread float (&c)[4], thread const unsigned (&a)[4],
                        thread const unsigned (&b)[2]) {
  if constexpr (metal::is_same_v<T, half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}
// An 8x8 matrix of two-byte elements, transposed.
inline unsigned transposed_8(unsigned m) {
  unsigned t;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(m));
  return t;
}
// Two numbers, the first in the lower half.
template <class T>
inline unsigned packed_16(float x, float y) {
  unsigned both;
  if constexpr (metal::is_same_v<T, half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  }
  return both;
}
// 2^x as exactly as two bytes tell.
inline float exp2_16(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Four 8x8 matrices, whose 32 rows of 16 bytes lie where the 32 lanes say.
inline void load_8(thread unsigned (&m)[4], threadgroup const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"((unsigned)(unsigned long)row)
               : "memory");
}
// The same, each transposed.
inline void load_transposed_8(thread unsigned (&m)[4], threadgroup const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"((unsigned)(unsigned long)row)
               : "memory");
}

// For shaders that find __HAVE_THREADGROUP_COPY_ASYNC__: 16 bytes to threadgroup memory, zeros from `bytes` on, while the
// thread goes on. Copies end in batches, of which all but the last few are waited for; a barrier shows them to others.
inline void copy_16(threadgroup void* to, device const void* from, unsigned bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"((unsigned)(unsigned long)to), "l"((unsigned long)from), "r"(bytes)
               : "memory");
}
inline void end_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int batches>
inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(batches) : "memory");
}

}  // namespace _msl
