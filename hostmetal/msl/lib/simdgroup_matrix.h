// <metal_simdgroup_matrix>: 8x8 matrices spread over a simdgroup, two neighbours in a row per lane,
// in the layout that Apple's GPUs use (shaders read it through thread_elements()).
#pragma once

#include "simdgroup.h"

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix is 8x8");
  static_assert(is_floating_point_v<T>, "simdgroup_matrix needs half, bfloat or float");
  typedef vec<T, 2> storage_type;

  simdgroup_matrix() = default;
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
#include "whole_matrix.h"
namespace _msl {
// For a GPU's code while it is only looked at: gpu_simdgroup_matrix.h has them.
template <class T>
void multiply_16(thread float (&c)[4], thread const unsigned (&a)[4],
                 thread const unsigned (&b)[2]);
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
unsigned long here(unsigned long at);
unsigned here(unsigned number);
template <class T, bool columns_a, bool columns_b, class Sums, int n>
void multiply_64(thread Sums (&c)[n], unsigned long a, unsigned long b, bool adds);
template <class T, bool columns_b, class Sums, int n>
void multiply_64(thread Sums (&c)[n], thread const unsigned (&a)[4], unsigned long b, bool adds);
void begin_products();
void end_products();
template <int batches>
void wait_for_products();
template <class Sums, int n>
void read_products(thread Sums (&c)[n]);
void show_to_products();
void store_bytes(device void* to, threadgroup const void* from, unsigned bytes);
void add_floats(device float* to, threadgroup const float* from, unsigned bytes);
void begin_stores();
void end_stores();
void wait_for_stores();
void wait_for_reads();
void wait_for_number(device const void* at, unsigned number);
void tell_number(device void* at, unsigned number);
void meet_at(unsigned place, unsigned threads);
void come_to(unsigned place, unsigned threads);
void all_lanes();
template <int registers>
void take_registers();
template <int registers>
void give_registers();
}  // namespace _msl
#endif  // __NVPTX__

namespace metal {

template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d,
                                          const thread simdgroup_matrix<A, 8, 8>& a,
                                          const thread simdgroup_matrix<B, 8, 8>& b,
                                          const thread simdgroup_matrix<C, 8, 8>& c, MSL_SITE) {
  _msl::multiply_part(site, d, a, b, &c);
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d,
                               const thread simdgroup_matrix<A, 8, 8>& a,
                               const thread simdgroup_matrix<B, 8, 8>& b, MSL_SITE) {
  const simdgroup_matrix<float, 8, 8>* const none = nullptr;
  _msl::multiply_part(site, d, a, b, none);
}
template <class T>
inline simdgroup_matrix<T, 8, 8> operator*(const thread simdgroup_matrix<T, 8, 8>& a,
                                           const thread simdgroup_matrix<T, 8, 8>& b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}

// element (row i, column j) lies at (origin.y + i) * elements_per_row + origin.x + j, or with i and
// j exchanged.
#define MSL_MATRIX_LOAD(SPACE)                                                           \
  template <class T, class S>                                                            \
  inline void simdgroup_load(thread simdgroup_matrix<T, 8, 8>& d, const SPACE S* source, \
                             ulong elements_per_row = 8, ulong2 origin = 0,              \
                             bool transpose = false) {                                   \
    source += origin.y * elements_per_row + origin.x;                                    \
    _msl::load_part(d, source, elements_per_row, transpose);                             \
  }
#define MSL_MATRIX_STORE(SPACE)                                                           \
  template <class T, class S>                                                             \
  inline void simdgroup_store(const thread simdgroup_matrix<T, 8, 8>& a, SPACE S* target, \
                              ulong elements_per_row = 8, ulong2 origin = 0,              \
                              bool transpose = false) {                                   \
    target += origin.y * elements_per_row + origin.x;                                     \
    _msl::store_part(a, target, elements_per_row, transpose);                             \
  }
MSL_MATRIX_LOAD(device)
MSL_MATRIX_LOAD(threadgroup)
MSL_MATRIX_STORE(device)
MSL_MATRIX_STORE(threadgroup)

}  // namespace metal
