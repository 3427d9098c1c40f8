// matrix<T, Columns, Rows>: column-major, columns are vectors.
#pragma once

#include "vec.h"

namespace metal {

template <class T, int C, int R>
struct matrix {
  using column = vec<T, R>;
  column columns[C];

  matrix() = default;
  // One scalar: the diagonal.
  constexpr explicit matrix(T s) {
    for (int c = 0; c < C; ++c)
      columns[c] = column(T(0)), (&columns[c].x)[c < R ? c : 0] = c < R ? s : T(0);
  }
  template <class... A, class = enable_if_t<sizeof...(A) == C && (sizeof...(A) > 1) &&
                                            (is_convertible_v<A, column> && ...) &&
                                            !(is_arithmetic_v<A> && ...)>>
  constexpr matrix(A... c) : columns{column(c)...} {}
  template <class... A, class = void,
            class = enable_if_t<sizeof...(A) == C * R && (is_arithmetic_v<A> && ...)>>
  constexpr matrix(A... a) {
    const T all[] = {T(a)...};
    for (int c = 0; c < C; ++c)
      for (int r = 0; r < R; ++r) columns[c][r] = all[c * R + r];
  }
  template <class U, class = enable_if_t<!is_same_v<T, U>>>
  constexpr explicit matrix(matrix<U, C, R> o) {
    for (int c = 0; c < C; ++c) columns[c] = column(o.columns[c]);
  }

  constexpr column& operator[](size_t c) { return columns[c]; }
  constexpr const column& operator[](size_t c) const { return columns[c]; }

  friend constexpr matrix operator+(matrix a, matrix b) {
    for (int c = 0; c < C; ++c) a.columns[c] += b.columns[c];
    return a;
  }
  friend constexpr matrix operator-(matrix a, matrix b) {
    for (int c = 0; c < C; ++c) a.columns[c] -= b.columns[c];
    return a;
  }
  constexpr matrix operator-() const {
    matrix m;
    for (int c = 0; c < C; ++c) m.columns[c] = -columns[c];
    return m;
  }
  friend constexpr matrix operator*(matrix a, T s) {
    for (int c = 0; c < C; ++c) a.columns[c] *= s;
    return a;
  }
  friend constexpr matrix operator*(T s, matrix a) { return a * s; }
  friend constexpr matrix operator/(matrix a, T s) {
    for (int c = 0; c < C; ++c) a.columns[c] /= s;
    return a;
  }
  friend constexpr column operator*(matrix a, vec<T, C> v) {
    column sum = a.columns[0] * v.x;
    for (int c = 1; c < C; ++c) sum += a.columns[c] * v[c];
    return sum;
  }
  friend constexpr vec<T, C> operator*(column v, matrix a) {
    vec<T, C> out;
    for (int c = 0; c < C; ++c) {
      column p = v * a.columns[c];
      T sum = p.x;
      for (int r = 1; r < R; ++r) sum += p[r];
      out[c] = sum;
    }
    return out;
  }
  constexpr matrix& operator+=(matrix b) { return *this = *this + b; }
  constexpr matrix& operator-=(matrix b) { return *this = *this - b; }
  constexpr matrix& operator*=(T s) { return *this = *this * s; }
  constexpr matrix& operator/=(T s) { return *this = *this / s; }
  constexpr matrix& operator*=(matrix<T, C, C> b) { return *this = *this * b; }
  friend constexpr bool operator==(matrix a, matrix b) {
    for (int c = 0; c < C; ++c)
      for (int r = 0; r < R; ++r)
        if (a.columns[c][r] != b.columns[c][r]) return false;
    return true;
  }
  friend constexpr bool operator!=(matrix a, matrix b) { return !(a == b); }
};

template <class T, int K, int R, int C>
constexpr matrix<T, C, R> operator*(matrix<T, K, R> a, matrix<T, C, K> b) {
  matrix<T, C, R> out;
  for (int c = 0; c < C; ++c) out.columns[c] = a * b.columns[c];
  return out;
}

template <class T, int C, int R>
constexpr matrix<T, R, C> transpose(matrix<T, C, R> m) {
  matrix<T, R, C> out;
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) out.columns[r][c] = m.columns[c][r];
  return out;
}
template <class T>
constexpr T determinant(matrix<T, 2, 2> m) {
  return m[0].x * m[1].y - m[1].x * m[0].y;
}
template <class T>
constexpr T determinant(matrix<T, 3, 3> m) {
  return m[0].x * (m[1].y * m[2].z - m[2].y * m[1].z) -
         m[1].x * (m[0].y * m[2].z - m[2].y * m[0].z) +
         m[2].x * (m[0].y * m[1].z - m[1].y * m[0].z);
}
template <class T>
constexpr T determinant(matrix<T, 4, 4> m) {
  T sum = 0;
  for (int skip = 0; skip < 4; ++skip) {  // Laplace along the first row
    matrix<T, 3, 3> minor;
    for (int c = 0, to = 0; c < 4; ++c)
      if (c != skip) minor[to++] = m[c].yzw;
    sum += (skip % 2 ? -m[skip].x : m[skip].x) * determinant(minor);
  }
  return sum;
}

}  // namespace metal

#define MSL_MATRIX_NAMES(T, name)              \
  typedef metal::matrix<T, 2, 2> name##2x2;    \
  typedef metal::matrix<T, 2, 3> name##2x3;    \
  typedef metal::matrix<T, 2, 4> name##2x4;    \
  typedef metal::matrix<T, 3, 2> name##3x2;    \
  typedef metal::matrix<T, 3, 3> name##3x3;    \
  typedef metal::matrix<T, 3, 4> name##3x4;    \
  typedef metal::matrix<T, 4, 2> name##4x2;    \
  typedef metal::matrix<T, 4, 3> name##4x3;    \
  typedef metal::matrix<T, 4, 4> name##4x4;    \
  namespace metal {                            \
  using ::name##2x2, ::name##2x3, ::name##2x4; \
  using ::name##3x2, ::name##3x3, ::name##3x4; \
  using ::name##4x2, ::name##4x3, ::name##4x4; \
  }
MSL_MATRIX_NAMES(half, half)
MSL_MATRIX_NAMES(float, float)
