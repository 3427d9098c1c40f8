// <metal_simdgroup_matrix>: 8x8 matrices spread over a simdgroup, two neighbours in a row a lane,
// in the layout that Apple's GPUs use (shaders read it through thread_elements()).
#pragma once

#include "simdgroup.h"

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix is 8x8");
  static_assert(is_floating_point_v<T>, "simdgroup_matrix needs half, bfloat or float");
  typedef vec<T, 2> storage_type;

  simdgroup_matrix() : _elements(T(0)) {}
  explicit simdgroup_matrix(T diagonal) {
    const uint lane = _msl_lane();
    _elements.x = row(lane) == column(lane) ? diagonal : T(0);
    _elements.y = row(lane) == column(lane) + 1 ? diagonal : T(0);
  }
  simdgroup_matrix(const simdgroup_matrix&) = default;
  simdgroup_matrix& operator=(const simdgroup_matrix&) = default;
  thread storage_type& thread_elements() { return _elements; }
  const thread storage_type& thread_elements() const { return _elements; }

  static constexpr uint row(uint lane) { return (lane / 4 & 4) + (lane / 2 & 3); }
  static constexpr uint column(uint lane) { return (lane / 4 & 2) * 2 + (lane & 1) * 2; }

 private:
  storage_type _elements;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int C = 8, int R = C>
inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(
    typename type_identity<T>::type value) {
  simdgroup_matrix<T, C, R> m;
  m.thread_elements() = vec<T, 2>(value);
  return m;
}

}  // namespace metal

#if defined(__NVPTX__)
#include "gpu_simdgroup_matrix.h"
#if _MSL_SM >= 90
#include "gpu_warpgroup_matrix.h"
#endif
#else
namespace _msl {
struct MatrixOperands {
  metal::vec<float, 2> a, b, c;
};
// d = a b + c for the whole simdgroup. Four lanes have a row: two neighbours its first half, the two that are eight lanes
// on its second. So a word of eight lanes, beside the next word of the same, has halves of four rows.
inline void multiply_whole_matrices(Slots slots) {
  typedef float Row __attribute__((ext_vector_type(8)));
  typedef float Rows __attribute__((ext_vector_type(16)));
  // Four rows of an operand, from `lane` on.
  const auto rows = [=](Row* to, int lane, int operand) {
    const auto word = [=](int l, int i) -> Row {
      return *reinterpret_cast<const Row*>(&slots[2 * operand + i][l]);
    };
#define MSL_EVEN(l) __builtin_shufflevector(word(l, 0), word(l, 1), 0, 8, 1, 9, 4, 12, 5, 13)
#define MSL_ODD(l) __builtin_shufflevector(word(l, 0), word(l, 1), 2, 10, 3, 11, 6, 14, 7, 15)
    const Row even = MSL_EVEN(lane), odd = MSL_ODD(lane);
    const Row even_end = MSL_EVEN(lane + 8), odd_end = MSL_ODD(lane + 8);
#undef MSL_EVEN
#undef MSL_ODD
    to[0] = __builtin_shufflevector(even, even_end, 0, 1, 2, 3, 8, 9, 10, 11);
    to[1] = __builtin_shufflevector(odd, odd_end, 0, 1, 2, 3, 8, 9, 10, 11);
    to[2] = __builtin_shufflevector(even, even_end, 4, 5, 6, 7, 12, 13, 14, 15);
    to[3] = __builtin_shufflevector(odd, odd_end, 4, 5, 6, 7, 12, 13, 14, 15);
  };
  Row b[8];
  rows(b, 0, 1), rows(b + 4, 16, 1);
  for (int lane = 0; lane < 32; lane += 16) {
    Row c[4];
    rows(c, lane, 2);
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) {
#pragma clang loop unroll(full)
      for (int k = 0; k < 8; ++k) {
        const unsigned& a = slots[k & 1][lane + 2 * i + (k & 4) * 2 + (k >> 1 & 1)];
        c[i] += *reinterpret_cast<const float*>(&a) * b[k];
      }
    }
    // All 16 lanes of a word at once: their next load would wait for narrower stores to be gathered.
    const Rows first = __builtin_shufflevector(c[0], c[1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                               13, 14, 15);
    const Rows last = __builtin_shufflevector(c[2], c[3], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                              13, 14, 15);
    *reinterpret_cast<Rows*>(&slots[4][lane]) = __builtin_shufflevector(
        first, last, 0, 2, 8, 10, 16, 18, 24, 26, 4, 6, 12, 14, 20, 22, 28, 30);
    *reinterpret_cast<Rows*>(&slots[5][lane]) = __builtin_shufflevector(
        first, last, 1, 3, 9, 11, 17, 19, 25, 27, 5, 7, 13, 15, 21, 23, 29, 31);
  }
}
// Where lanes are missing: their elements count as zero. Rare, and too long to be inlined.
__attribute__((noinline)) inline void multiply_some_lanes(Slots slots, unsigned mask) {
  using M = metal::simdgroup_matrix<float, 8, 8>;
  float a[8][8] = {}, b[8][8] = {}, c[8][8] = {};
  for (unsigned m = mask; m; m &= m - 1) {
    const int lane = __builtin_ctz(m);
    const auto o = get<MatrixOperands>(slots[0] + lane);
    const unsigned i = M::row(lane), j = M::column(lane);
    a[i][j] = o.a.x, a[i][j + 1] = o.a.y;
    b[i][j] = o.b.x, b[i][j + 1] = o.b.y;
    c[i][j] = o.c.x, c[i][j + 1] = o.c.y;
  }
  for (int i = 0; i < 8; ++i)
    for (int k = 0; k < 8; ++k)
      for (int j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
  for (unsigned m = mask; m; m &= m - 1) {
    const int lane = __builtin_ctz(m);
    const unsigned i = M::row(lane), j = M::column(lane);
    put(slots[4] + lane, metal::vec<float, 2>(c[i][j], c[i][j + 1]));
  }
}
inline void multiply_matrices(Slots slots, unsigned mask) {
  mask == ~0u ? multiply_whole_matrices(slots) : multiply_some_lanes(slots, mask);
}
// The lane's two elements of a b + c.
template <class A, class B>
inline float2 multiplied(unsigned long site, metal::vec<A, 2> a, metal::vec<B, 2> b, float2 c) {
  return exchange(site, multiply_matrices, MatrixOperands{float2(a), float2(b), c}).c;
}
// For a GPU's code while it is only looked at: gpu_simdgroup_matrix.h has them.
template <class T>
void multiply_16(thread float (&c)[4], thread const unsigned (&a)[4], thread const unsigned (&b)[2]);
unsigned transposed_8(unsigned m);
template <class T>
unsigned packed_16(float x, float y);
float exp2_16(float x);
void load_8(thread unsigned (&m)[4], threadgroup const void* row);
void load_transposed_8(thread unsigned (&m)[4], threadgroup const void* row);
void copy_16(threadgroup void* to, device const void* from, unsigned bytes);
void end_copies();
template <int batches>
void wait_for_copies();
unsigned long matrix_at(threadgroup const void* at, unsigned next);
template <class T, bool columns_a, bool columns_b, class Sums, int n>
void multiply_64(thread Sums (&c)[n], unsigned long a, unsigned long b, bool adds);
template <class T, bool columns_b, class Sums, int n>
void multiply_64(thread Sums (&c)[n], thread const unsigned (&a)[4], unsigned long b, bool adds);
void begin_products();
void end_products();
template <int batches>
void wait_for_products();
void show_to_products();
}  // namespace _msl
#endif  // __NVPTX__

namespace metal {

template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d,
                                          simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                          simdgroup_matrix<C, 8, 8> c, MSL_SITE) {
  d.thread_elements() = vec<D, 2>(_msl::multiplied(
      site, a.thread_elements(), b.thread_elements(), float2(c.thread_elements())));
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                               simdgroup_matrix<B, 8, 8> b, MSL_SITE) {
  d.thread_elements() = vec<D, 2>(
      _msl::multiplied(site, a.thread_elements(), b.thread_elements(), float2(0.0f)));
}
template <class T>
inline simdgroup_matrix<T, 8, 8> operator*(simdgroup_matrix<T, 8, 8> a,
                                           simdgroup_matrix<T, 8, 8> b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}

// element (row i, column j) lies at (origin.y + i) * elements_per_row + origin.x + j, or with i and
// j exchanged.
#define MSL_MATRIX_LOAD(SPACE)                                                             \
  template <class T, class S>                                                              \
  inline void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& d, const SPACE S* source,   \
                             ulong elements_per_row = 8, ulong2 origin = 0,                \
                             bool transpose = false) {                                     \
    using M = simdgroup_matrix<T, 8, 8>;                                                   \
    const uint lane = _msl_lane(), i = M::row(lane), j = M::column(lane);                  \
    source += origin.y * elements_per_row + origin.x;                                      \
    d.thread_elements() = transpose ? vec<T, 2>(T(source[j * elements_per_row + i]),       \
                                                T(source[(j + 1) * elements_per_row + i])) \
                                    : vec<T, 2>(T(source[i * elements_per_row + j]),       \
                                                T(source[i * elements_per_row + j + 1]));  \
  }
#define MSL_MATRIX_STORE(SPACE)                                                         \
  template <class T, class S>                                                           \
  inline void simdgroup_store(simdgroup_matrix<T, 8, 8> a, SPACE S* target,             \
                              ulong elements_per_row = 8, ulong2 origin = 0,            \
                              bool transpose = false) {                                 \
    using M = simdgroup_matrix<T, 8, 8>;                                                \
    const uint lane = _msl_lane(), i = M::row(lane), j = M::column(lane);               \
    target += origin.y * elements_per_row + origin.x;                                   \
    target[transpose ? j * elements_per_row + i : i * elements_per_row + j] =           \
        S(a.thread_elements().x);                                                       \
    target[transpose ? (j + 1) * elements_per_row + i : i * elements_per_row + j + 1] = \
        S(a.thread_elements().y);                                                       \
  }
MSL_MATRIX_LOAD(device)
MSL_MATRIX_LOAD(threadgroup)
MSL_MATRIX_STORE(device)
MSL_MATRIX_STORE(threadgroup)

}  // namespace metal
