// Simdgroup matrices on a processor: the operations of all lanes together. A lane has two neighbours of a row. Where
// lanes are loops, those of all 32 lie side by side (lane_arrays.py), which makes four blocks of 4 x 4, row after row
// each: upper left, upper right, lower left, lower right. A simdgroup loads, multiplies and stores them once, a block a
// vector. By fibers, each lane loads and stores its own, and they wait for each other to multiply.
#pragma once

namespace _msl {

typedef float Block __attribute__((ext_vector_type(16)));
typedef half Halves __attribute__((ext_vector_type(16)));
// Whatever has two or four bytes.
template <int bytes>
struct Bits {
  typedef ushort type;
};
template <>
struct Bits<4> {
  typedef uint type;
};

using Layout = metal::simdgroup_matrix<float, 8, 8>;

template <class V>
inline V turned_block(V v) {
  return __builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}
// Row after row lies `line` elements further; turned, they are the matrix's columns.
template <class U>
inline void load_rows(U* to, const U* from, ulong line, bool turned) {
  typedef U Row __attribute__((ext_vector_type(8)));
  typedef U Four __attribute__((ext_vector_type(16)));
#pragma clang loop unroll(full)
  for (int half = 0; half < 2; ++half) {
    Row r[4];
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) __builtin_memcpy(&r[i], from + (4 * half + i) * line, sizeof(Row));
    const Four two =
        __builtin_shufflevector(r[0], r[1], 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
    const Four more =
        __builtin_shufflevector(r[2], r[3], 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
    Four left =
        __builtin_shufflevector(two, more, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    Four right = __builtin_shufflevector(two, more, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27,
                                         28, 29, 30, 31);
    if (turned) left = turned_block(left), right = turned_block(right);
    __builtin_memcpy(to + 16 * (turned ? half : 2 * half), &left, sizeof(left));
    __builtin_memcpy(to + 16 * (turned ? half + 2 : 2 * half + 1), &right, sizeof(right));
  }
}
template <class U>
inline void store_rows(U* to, const U* from, ulong line, bool turned) {
  typedef U Row __attribute__((ext_vector_type(8)));
  typedef U Four __attribute__((ext_vector_type(16)));
#pragma clang loop unroll(full)
  for (int half = 0; half < 2; ++half) {
    Four left, right;
    __builtin_memcpy(&left, from + 16 * (turned ? half : 2 * half), sizeof(left));
    __builtin_memcpy(&right, from + 16 * (turned ? half + 2 : 2 * half + 1), sizeof(right));
    if (turned) left = turned_block(left), right = turned_block(right);
    Row r[4];
    r[0] = __builtin_shufflevector(left, right, 0, 1, 2, 3, 16, 17, 18, 19);
    r[1] = __builtin_shufflevector(left, right, 4, 5, 6, 7, 20, 21, 22, 23);
    r[2] = __builtin_shufflevector(left, right, 8, 9, 10, 11, 24, 25, 26, 27);
    r[3] = __builtin_shufflevector(left, right, 12, 13, 14, 15, 28, 29, 30, 31);
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) __builtin_memcpy(to + (4 * half + i) * line, &r[i], sizeof(Row));
  }
}

template <class T, class S>
inline void load_pair(T* pair, const S* from, ulong line, bool turned, uint lane) {
  const ulong i = Layout::row(lane), j = Layout::column(lane);
  pair[0] = T(from[turned ? j * line + i : i * line + j]);
  pair[1] = T(from[turned ? (j + 1) * line + i : i * line + j + 1]);
}
template <class T, class S>
inline void store_pair(const T* pair, S* to, ulong line, bool turned, uint lane) {
  const ulong i = Layout::row(lane), j = Layout::column(lane);
  to[turned ? j * line + i : i * line + j] = S(pair[0]);
  to[turned ? (j + 1) * line + i : i * line + j + 1] = S(pair[1]);
}

// ---- products
inline Block floats(const float* from) {
  Block v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
inline Block floats(const half* from) {
  Halves v;
  __builtin_memcpy(&v, from, sizeof(v));
  return __builtin_convertvector(v, Block);
}
inline Block floats(const bfloat* from) {
  typedef uint Words __attribute__((ext_vector_type(16)));
  typedef ushort Shorts __attribute__((ext_vector_type(16)));
  Shorts v;
  __builtin_memcpy(&v, from, sizeof(v));
  return __builtin_bit_cast(Block, __builtin_convertvector(v, Words) << 16);
}
inline void put_floats(float* to, Block v) { __builtin_memcpy(to, &v, sizeof(v)); }
inline void put_floats(half* to, Block v) {
  const Halves halves = __builtin_convertvector(v, Halves);
  __builtin_memcpy(to, &halves, sizeof(halves));
}
inline void put_floats(bfloat* to, Block v) {
#pragma clang loop unroll(full)
  for (int i = 0; i < 16; ++i) to[i] = bfloat(v[i]);
}

inline Block multiplied_and_added(Block a, Block b, Block c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}
// Row k of a block four times, which one load makes of memory: shuffles wait for each other.
template <int k>
inline Block four_times(const float* block) {
  typedef float Row __attribute__((ext_vector_type(4)));
  Row v;
  __builtin_memcpy(&v, block + 4 * k, sizeof(v));
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
}
// Column k of a's blocks by row k of b's.
template <int k>
inline void multiply_column(Block (&c)[4], Block upper, Block lower, const float* b) {
#define MSL_COLUMN(v)                                                                        \
  __builtin_shufflevector(v, v, k, k, k, k, k + 4, k + 4, k + 4, k + 4, k + 8, k + 8, k + 8, \
                          k + 8, k + 12, k + 12, k + 12, k + 12)
  upper = MSL_COLUMN(upper), lower = MSL_COLUMN(lower);
  const Block left = four_times<k>(b), right = four_times<k>(b + 16);
#undef MSL_COLUMN
  c[0] = multiplied_and_added(upper, left, c[0]);
  c[1] = multiplied_and_added(upper, right, c[1]);
  c[2] = multiplied_and_added(lower, left, c[2]);
  c[3] = multiplied_and_added(lower, right, c[3]);
}
// c += a b, products added one after the other.
inline void multiply_blocks(Block (&c)[4], const Block (&a)[4], const float* b) {
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; ++i) {
    multiply_column<0>(c, a[i], a[i + 2], b + 32 * i);
    multiply_column<1>(c, a[i], a[i + 2], b + 32 * i);
    multiply_column<2>(c, a[i], a[i + 2], b + 32 * i);
    multiply_column<3>(c, a[i], a[i + 2], b + 32 * i);
  }
}

// ---- what lanes.py calls, with the lanes that take part
template <class T, class S>
__attribute__((noinline)) void load_matrix(void* d, const void* a, const void*, const void*,
                                           ulong line, uint turned, uint mask) {
  T* to = static_cast<T*>(d);
  const S* from = static_cast<const S*>(a);
  if constexpr (__is_same(T, S)) {
    typedef typename Bits<sizeof(T)>::type U;
    if (mask == ~0u)
      return turned ? load_rows((U*)to, (const U*)from, line, true)
                    : load_rows((U*)to, (const U*)from, line, false);
  }
  for (; mask; mask &= mask - 1) {
    const uint lane = __builtin_ctz(mask);
    load_pair(to + 2 * lane, from, line, turned, lane);
  }
}
template <class T, class S>
__attribute__((noinline)) void store_matrix(void* d, const void* a, const void*, const void*,
                                            ulong line, uint turned, uint mask) {
  S* to = static_cast<S*>(d);
  const T* from = static_cast<const T*>(a);
  if constexpr (__is_same(T, S)) {
    typedef typename Bits<sizeof(T)>::type U;
    if (mask == ~0u)
      return turned ? store_rows((U*)to, (const U*)from, line, true)
                    : store_rows((U*)to, (const U*)from, line, false);
  }
  for (; mask; mask &= mask - 1) {
    const uint lane = __builtin_ctz(mask);
    store_pair(from + 2 * lane, to, line, turned, lane);
  }
}
// Elements of missing lanes count as zero.
template <class T>
inline void some_floats(Block (&to)[4], const T* from, uint mask) {
  float all[64] = {};
  for (; mask; mask &= mask - 1) {
    const uint i = 2 * __builtin_ctz(mask);
    all[i] = float(from[i]), all[i + 1] = float(from[i + 1]);
  }
  __builtin_memcpy(to, all, sizeof(all));
}
template <class D, class A, class B, class C>
__attribute__((noinline)) void multiply_some(D* d, const A* a, const B* b, const C* c, uint mask) {
  Block left[4], right[4], sums[4] = {};
  some_floats(left, a, mask);
  some_floats(right, b, mask);
  if (c) some_floats(sums, c, mask);
  multiply_blocks(sums, left, (const float*)right);
  D all[64];
  for (int i = 0; i < 4; ++i) put_floats(all + 16 * i, sums[i]);
  for (; mask; mask &= mask - 1) {
    const uint i = 2 * __builtin_ctz(mask);
    d[i] = all[i], d[i + 1] = all[i + 1];
  }
}
template <class D, class A, class B, class C>
__attribute__((noinline)) void multiply_matrix(void* d, const void* a, const void* b, const void* c,
                                               ulong, uint, uint mask) {
  D* to = static_cast<D*>(d);
  const A* left_from = static_cast<const A*>(a);
  const B* right_from = static_cast<const B*>(b);
  const C* from = static_cast<const C*>(c);
  if (mask != ~0u) return multiply_some(to, left_from, right_from, from, mask);
  Block left[4], right[4], sums[4] = {};
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    left[i] = floats(left_from + 16 * i);
    if (from) sums[i] = floats(from + 16 * i);
    if constexpr (!__is_same(B, float)) right[i] = floats(right_from + 16 * i);
  }
  if constexpr (__is_same(B, float)) multiply_blocks(sums, left, right_from);
  else multiply_blocks(sums, left, (const float*)right);
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) put_floats(to + 16 * i, sums[i]);
}

// ---- what is called for one lane
template <class T, class S>
void load_lane(void* d, const void* a, const void*, const void*, ulong line, uint turned, ulong,
               uint lane) {
  load_pair(static_cast<T*>(d), static_cast<const S*>(a), line, turned, lane);
}
template <class T, class S>
void store_lane(void* d, const void* a, const void*, const void*, ulong line, uint turned, ulong,
                uint lane) {
  store_pair(static_cast<const T*>(a), static_cast<S*>(d), line, turned, lane);
}
struct MatrixOperands {
  float2 a, b, c;
};
inline void multiply_slots(Slots slots, unsigned mask) {
  float operands[3][64];
  for (unsigned m = mask; m; m &= m - 1) {
    const unsigned lane = __builtin_ctz(m);
    const auto o = get<MatrixOperands>(slots[0] + lane);
    operands[0][2 * lane] = o.a.x, operands[0][2 * lane + 1] = o.a.y;
    operands[1][2 * lane] = o.b.x, operands[1][2 * lane + 1] = o.b.y;
    operands[2][2 * lane] = o.c.x, operands[2][2 * lane + 1] = o.c.y;
  }
  float sums[64];
  multiply_some(sums, operands[0], operands[1], operands[2], mask);
  for (unsigned m = mask; m; m &= m - 1) {
    const unsigned lane = __builtin_ctz(m);
    put(slots[0] + lane, float2(sums[2 * lane], sums[2 * lane + 1]));
  }
}
template <class D, class A, class B, class C>
void multiply_lane(void* d, const void* a, const void* b, const void* c, ulong, uint, ulong site,
                   uint) {
  const auto pair = [](auto* from) { return float2(float(from[0]), float(from[1])); };
  const float2 sum = c ? pair(static_cast<const C*>(c)) : float2(0.0f);
  const MatrixOperands all{pair(static_cast<const A*>(a)), pair(static_cast<const B*>(b)), sum};
  const MatrixOperands done = exchange(site, multiply_slots, all);
  static_cast<D*>(d)[0] = D(done.a.x), static_cast<D*>(d)[1] = D(done.a.y);
}

// ---- what a shader asks for
template <class T, class P>
inline void load_part(metal::simdgroup_matrix<T, 8, 8>& d, P source, ulong line, bool turned) {
  using S = plain<metal::remove_pointer_t<P>>;
  if (_msl_matrices_apart)
    return load_pair(&d.thread_elements().x, (const S*)(const void*)source, line, turned,
                     _msl_lane());
  _msl_matrix(&d, (const void*)source, nullptr, nullptr, line, turned, 2 * sizeof(T), 0,
              &load_matrix<T, S>, &load_lane<T, S>);
}
template <class T, class P>
inline void store_part(const metal::simdgroup_matrix<T, 8, 8>& a, P target, ulong line,
                       bool turned) {
  using S = plain<metal::remove_pointer_t<P>>;
  if (_msl_matrices_apart)
    return store_pair(&a.thread_elements().x, (S*)(void*)target, line, turned, _msl_lane());
  _msl_matrix((void*)target, &a, nullptr, nullptr, line, turned, 2 * sizeof(T) << 8, 0,
              &store_matrix<T, S>, &store_lane<T, S>);
}
template <class D, class A, class B, class C>
inline void multiply_these(ulong site, metal::simdgroup_matrix<D, 8, 8>& d,
                           const metal::simdgroup_matrix<A, 8, 8>& a,
                           const metal::simdgroup_matrix<B, 8, 8>& b,
                           const metal::simdgroup_matrix<C, 8, 8>* c) {
  constexpr uint bytes = 2 * sizeof(D) | 2 * sizeof(A) << 8 | 2 * sizeof(B) << 16;
  _msl_matrix(&d, &a, &b, c, 0, 0, c ? bytes | 2 * sizeof(C) << 24 : bytes, site,
              &multiply_matrix<D, A, B, C>, &multiply_lane<D, A, B, C>);
}
template <class D, class A, class B, class C>
inline void multiply_part(ulong site, metal::simdgroup_matrix<D, 8, 8>& d,
                          const metal::simdgroup_matrix<A, 8, 8>& a,
                          const metal::simdgroup_matrix<B, 8, 8>& b,
                          const metal::simdgroup_matrix<C, 8, 8>* c) {
  if (!_msl_matrices_apart) return multiply_these(site, d, a, b, c);
  metal::simdgroup_matrix<D, 8, 8> product;
  const metal::simdgroup_matrix<A, 8, 8> left = a;
  const metal::simdgroup_matrix<B, 8, 8> right = b;
  metal::simdgroup_matrix<C, 8, 8> sum;
  sum.thread_elements() = c ? c->thread_elements() : metal::vec<C, 2>(C(0));
  multiply_these(site, product, left, right, &sum);
  d = product;
}

}  // namespace _msl
