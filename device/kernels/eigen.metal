// Eigenvalues of symmetric and of Hermitian matrices: Golub and Van Loan, "Matrix Computations", 8.5 (Jacobi, in rounds of
// disjoint pairs), and, where threads run after each other, 8.3.

#include <metal_stdlib>

#include "device/kernels/linalg.metal.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// The argument of Jacobi's angle: a real number with its sign, a complex one's length.
inline float length_and_sign(float x) { return x; }
inline float length_and_sign(float2 x) { return magnitude(x); }
// The remaining phase of a number.
inline float phase_of(float, float) { return 1.0f; }
inline float2 phase_of(float2 x, float length) { return x / length; }

// Turns two elements by an angle of that sine; c = 1 - |sine half_turn|.
template <typename T>
inline void turn_pair(device T& first, device T& second, T sine, T half_turn) {
  const T upper = first, lower = second;
  first = upper - times(sine, lower + times(half_turn, upper));
  second = lower + times(conjugate(sine), upper - times(conjugate(half_turn), lower));
}

// Jacobi's rotations in rounds, which a group shares: of the n columns (and a dummy one, of an odd number) each is
// paired with each other once in a sweep, n / 2 pairs at a time. The lower triangle alone is read. `works` [rows,
// rows], `bases` [rows, rows] whose rows become the eigenvectors, conjugated, `turns` [pairs, 2] sines, and the
// tangents of half the angles: with these a small turn does not stretch (Rutishauser 1966). Both are times the phase of
// the element that a turn removes, the second conjugated. Grid: LINALG_THREADS a matrix.
template <typename T>
kernel void symmetric_eigen(device const T* in [[buffer(0)]], device T* values [[buffer(1)]],
                            device T* out [[buffer(2)]], device T* works [[buffer(3)]],
                            device T* bases [[buffer(4)]], device T* turns [[buffer(5)]],
                            constant LinalgParams& p [[buffer(6)]],
                            uint lane [[thread_position_in_threadgroup]],
                            uint group [[threadgroup_position_in_grid]]) {
  const uint n = p.rows, pairs = (n + 1) / 2, rounds = 2 * pairs - 1;
  device const T* const given = in + ulong(group) * n * n;
  device T* const a = works + ulong(group) * n * n;
  device T* const v = bases + ulong(group) * n * n;
  device T* const turn = turns + 2 * ulong(group) * pairs;
  for (uint i = lane; i < n; i += LINALG_THREADS) {
    for (uint j = 0; j < n; ++j) {
      const T value = i >= j ? given[ulong(i) * n + j] : conjugate(given[ulong(j) * n + i]);
      a[ulong(i) * n + j] = i == j ? from_parts<T>(real_part(value)) : value;
      v[ulong(i) * n + j] = from_parts<T>(i == j ? 1.0f : 0.0f);
    }
  }
  threadgroup_barrier(mem_flags::mem_device);
  threadgroup uint done[1];
  for (uint sweep = 0; sweep < 30; ++sweep) {
    if (lane == 0) {
      float off = 0.0f, all = 0.0f;
      for (uint i = 0; i < n; ++i) {
        const float rest = real_part(dot_rows(a + ulong(i) * n, a + ulong(i) * n, i));
        const float diagonal = real_part(a[ulong(i) * n + i]);
        off += rest;
        all += rest + diagonal * diagonal;
      }
      done[0] = off > 2e-14f * float(n) * all ? 0 : 1;  // the rounding errors
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (done[0] != 0) break;
    for (uint round = 0; round < rounds; ++round) {
      threadgroup_barrier(mem_flags::mem_device);
      for (uint k = lane; k < pairs; k += LINALG_THREADS) {
        // The last column stays, the others go round.
        const uint x = k == 0 ? rounds : (round + k) % rounds;
        const uint y = k == 0 ? round : (round + rounds - k) % rounds;
        const uint i = min(x, y), j = max(x, y);
        T sine = T(0), half_turn = T(0);
        if (j < n) {
          const T element = a[ulong(i) * n + j];
          const float side = length_and_sign(element);
          const float lower = real_part(a[ulong(i) * n + i]);
          const float upper = real_part(a[ulong(j) * n + j]);
          if (side != 0.0f) {
            const float theta = (upper - lower) / (2.0f * side);
            const float t = isinf(theta * theta) ? 0.5f / theta
                                                 : (theta >= 0.0f ? 1.0f : -1.0f) /
                                                       (abs(theta) + sqrt(1.0f + theta * theta));
            const float c = 1.0f / sqrt(1.0f + t * t);
            const T phase = phase_of(element, side);
            sine = phase * (t * c);
            half_turn = conjugate(phase) * (t * c / (1.0f + c));
          }
        }
        turn[2 * k] = sine;
        turn[2 * k + 1] = half_turn;
      }
      threadgroup_barrier(mem_flags::mem_device);
      for (uint k = lane; k < pairs; k += LINALG_THREADS) {
        const uint x = k == 0 ? rounds : (round + k) % rounds;
        const uint y = k == 0 ? round : (round + rounds - k) % rounds;
        const uint i = min(x, y), j = max(x, y);
        if (j >= n) continue;
        const T s = turn[2 * k], half_turn = turn[2 * k + 1];
        for (uint at = 0; at < n; ++at) {
          turn_pair(a[ulong(i) * n + at], a[ulong(j) * n + at], s, half_turn);
        }
        if (p.kept != 0) {
          for (uint at = 0; at < n; ++at) {
            turn_pair(v[ulong(i) * n + at], v[ulong(j) * n + at], s, half_turn);
          }
        }
      }
      threadgroup_barrier(mem_flags::mem_device);
      for (uint row = lane; row < n; row += LINALG_THREADS) {
        for (uint k = 0; k < pairs; ++k) {
          const uint x = k == 0 ? rounds : (round + k) % rounds;
          const uint y = k == 0 ? round : (round + rounds - k) % rounds;
          const uint i = min(x, y), j = max(x, y);
          if (j >= n) continue;
          const T s = turn[2 * k], half_turn = turn[2 * k + 1];
          turn_pair(a[ulong(row) * n + i], a[ulong(row) * n + j], conjugate(s),
                    conjugate(half_turn));
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  }
  // In ascending order; NaN last.
  for (uint i = lane; i < n; i += LINALG_THREADS) {
    const float value = real_part(a[ulong(i) * n + i]);
    uint place = 0;
    for (uint j = 0; j < n; ++j) {
      const float other = real_part(a[ulong(j) * n + j]);
      const bool before = other < value || (value != value && other == other);
      const bool same = other == value || (value != value && other != other);
      if (before || (same && j < i)) ++place;
    }
    values[ulong(group) * n + place] = from_parts<T>(value);
    if (p.kept != 0) {
      for (uint j = 0; j < n; ++j) {
        out[(ulong(group) * n + j) * n + place] = conjugate(v[ulong(i) * n + j]);
      }
    }
  }
}
INSTANTIATE_KERNEL("symmetric_eigen_float", symmetric_eigen, float)
INSTANTIATE_KERNEL("symmetric_eigen_float2", symmetric_eigen, float2)

#if defined(__METAL_CPU__)
// The same where threads run after each other, by one of them: Householder's reflections leave a tridiagonal matrix
// (8.3), of which implicit QL steps leave the eigenvalues (8.3, in float as EISPACK's tql2). `scratch`:
// EIGEN_SCRATCH * rows a matrix.

// Applies to some columns of `vectors`, rows of `columns` floats, the turns of `sweeps` QL steps of n rows each: of
// rows i + 1 and i, from last[step] - 1 down to first[step]. The row that two turns share stays in registers.
template <uint kLanes>
inline void turn_columns(device float* vectors, uint columns, uint n, uint sweeps,
                         thread const uint* first, thread const uint* last,
                         device const float2* turns) {
  for (uint sweep = 0; sweep < sweeps; ++sweep) {
    float upper[kLanes];
    device float* row = vectors + ulong(last[sweep]) * columns;
    for (uint k = 0; k < kLanes; ++k) upper[k] = row[k];
    for (uint i = last[sweep]; i-- > first[sweep];) {
      device float* const below = row - columns;
      const float2 turn = turns[ulong(sweep) * n + i];
      float lower[kLanes], turned[kLanes];
      for (uint k = 0; k < kLanes; ++k) lower[k] = below[k];
      for (uint k = 0; k < kLanes; ++k) {
        turned[k] = turn.y * lower[k] + turn.x * upper[k];
        upper[k] = turn.x * lower[k] - turn.y * upper[k];
      }
      for (uint k = 0; k < kLanes; ++k) row[k] = turned[k];
      row = below;
    }
    for (uint k = 0; k < kLanes; ++k) row[k] = upper[k];
  }
}
inline void turn_rows(device float* vectors, uint columns, uint n, uint sweeps,
                      thread const uint* first, thread const uint* last,
                      device const float2* turns) {
  uint column = 0;
  for (; column + 64 <= columns; column += 64) {
    turn_columns<64>(vectors + column, columns, n, sweeps, first, last, turns);
  }
  for (; column + 8 <= columns; column += 8) {
    turn_columns<8>(vectors + column, columns, n, sweeps, first, last, turns);
  }
  for (; column < columns; ++column) {
    turn_columns<1>(vectors + column, columns, n, sweeps, first, last, turns);
  }
}

// sqrt(a^2 + b^2), whose squares stay in range.
inline float length_of(float a, float b) {
  const float large = max(abs(a), abs(b)), small = min(abs(a), abs(b));
  const float part = large > 0.0f ? small / large : 0.0f;
  return large * sqrt(1.0f + part * part);
}

// The diagonal `d` and the one beside it, `e`, both real, of a matrix whose columns are the rows of a [n, n]; these
// become the reflections, `taus` of them.
template <typename T>
inline void make_tridiagonal(device T* a, uint n, device float* d, device float* e, device T* taus,
                             device T* w, device T* next) {
  for (uint k = 0; k < n; ++k) {
    device T* const row = a + ulong(k) * n;
    // The previous reflection's update: minus v w^H + w v^H. v lies in its row.
    device const T* const v = row - n;
    if (k > 0) {
      const T vk = conjugate(v[k]), wk = conjugate(w[k]);
      for (uint j = k; j < n; ++j) row[j] -= times(vk, w[j]) + times(wk, v[j]);
    }
    d[k] = real_part(row[k]);
    if (k + 1 == n) return;
    device T* const x = row + k + 1;
    const uint length = n - k - 1;
    float beta;
    const T tau = make_reflection(x, length, beta);
    x[0] = from_parts<T>(1.0f);
    e[k] = beta;
    taus[k] = tau;
    for (uint i = k + 1; i < n; ++i) {
      device T* const other = a + ulong(i) * n;
      if (k > 0) {
        const T vi = conjugate(v[i]), wi = conjugate(w[i]);
        for (uint j = k + 1; j < n; ++j) other[j] -= times(vi, w[j]) + times(wi, v[j]);
      }
      next[i] = times(tau, dot_rows(x, other + k + 1, length));
    }
    const T half_part = times(0.5f * conjugate(tau), dot_rows(next + k + 1, x, length));
    add_row(next + k + 1, x, -half_part, length);
    device T* const spare = w;
    w = next;
    next = spare;
  }
}

// Grid: matrices.
template <typename T>
kernel void symmetric_eigen_ql(device const T* in [[buffer(0)]], device T* values [[buffer(1)]],
                               device T* out [[buffer(2)]], device T* works [[buffer(3)]],
                               device T* bases [[buffer(4)]], device float2* scratch [[buffer(5)]],
                               constant LinalgParams& p [[buffer(6)]],
                               uint matrix [[thread_position_in_grid]]) {
  const uint n = p.rows, columns = n * sizeof(T) / sizeof(float);
  device const T* const given = in + ulong(matrix) * n * n;
  device T* const a = works + ulong(matrix) * n * n;
  device T* const v = bases + ulong(matrix) * n * n;
  device float2* const turns = scratch + ulong(matrix) * EIGEN_SCRATCH * n;
  device float* const d = (device float*)(turns + ulong(EIGEN_SWEEPS) * n);
  device float* const e = d + n;
  device T* const taus = (device T*)(e + n);
  // By a power of two, so that squares stay in range and nothing is rounded.
  float largest = 0.0f;
  for (uint i = 0; i < n; ++i) {
    for (uint j = 0; j <= i; ++j) {
      const T value = given[ulong(i) * n + j];
      largest = max(largest, max(abs(real_part(value)), abs(imaginary_part(value))));
    }
  }
  int exponent = 0;
  if (largest > 0.0f && !isinf(largest)) frexp(largest, exponent);
  for (uint i = 0; i < n; ++i) {
    for (uint j = 0; j <= i; ++j) {
      const T value = given[ulong(i) * n + j];
      const float real = ldexp(real_part(value), -exponent);
      const float other = i == j ? 0.0f : ldexp(imaginary_part(value), -exponent);
      a[ulong(i) * n + j] = from_parts<T>(real, -other);
      a[ulong(j) * n + i] = from_parts<T>(real, other);
    }
  }
  make_tridiagonal(a, n, d, e, taus, taus + n, taus + 2 * n);
  e[n - 1] = 0.0f;
  // Row j: the reflections of the j-th column of the identity, the last first.
  for (uint first = 0; p.kept != 0 && first < n; first += p.block) {
    const uint end = min(first + p.block, n);
    for (uint j = first; j < end; ++j) {
      for (uint i = 0; i < n; ++i) v[ulong(j) * n + i] = from_parts<T>(i == j ? 1.0f : 0.0f);
    }
    for (uint k = end - 1; k-- > 0;) {
      const uint from = max(first, k + 1);
      reflect_rows(a + ulong(k) * n + k + 1, taus[k], v + ulong(from) * n + k + 1, end - from, n,
                   n - k - 1);
    }
  }
  uint sweeps = 0, firsts[EIGEN_SWEEPS], lasts[EIGEN_SWEEPS];
  for (uint l = 0; l < n; ++l) {
    for (uint step = 0; step < 60; ++step) {
      uint m = l;
      for (; m + 1 < n; ++m) {
        if (!(abs(e[m]) > 1.1920929e-7f * (abs(d[m]) + abs(d[m + 1])))) break;
      }
      if (m == l) break;
      float g = (d[l + 1] - d[l]) / (2.0f * e[l]);
      const float root = length_of(g, 1.0f);
      g = d[m] - d[l] + e[l] / (g + (g >= 0.0f ? root : -root));
      float s = 1.0f, c = 1.0f, shift = 0.0f;
      uint i = m;
      bool whole = true;
      for (; i-- > l;) {
        const float f = s * e[i], b = c * e[i], r = length_of(f, g);
        e[i + 1] = r;
        if (r == 0.0f) {
          d[i + 1] -= shift;
          e[m] = 0.0f;
          whole = false;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - shift;
        const float t = (d[i] - g) * s + 2.0f * c * b;
        shift = s * t;
        d[i + 1] = g + shift;
        g = c * t - b;
        turns[ulong(sweeps) * n + i] = float2(c, s);
      }
      if (whole) {
        d[l] -= shift;
        e[l] = g;
        e[m] = 0.0f;
      }
      firsts[sweeps] = whole ? l : i + 1;
      lasts[sweeps] = m;
      if (p.kept != 0 && ++sweeps == EIGEN_SWEEPS) {
        turn_rows((device float*)v, columns, n, sweeps, firsts, lasts, turns);
        sweeps = 0;
      }
    }
  }
  if (sweeps != 0) turn_rows((device float*)v, columns, n, sweeps, firsts, lasts, turns);
  // In ascending order; NaN last. Their order is kept in `e`.
  device uint* const order = (device uint*)e;
  for (uint i = 0; i < n; ++i) {
    const float value = d[i];
    uint place = 0;
    for (uint j = 0; j < n; ++j) {
      const float other = d[j];
      const bool before = other < value || (value != value && other == other);
      const bool same = other == value || (value != value && other != other);
      if (before || (same && j < i)) ++place;
    }
    values[ulong(matrix) * n + place] = from_parts<T>(ldexp(value, exponent));
    order[place] = i;
  }
  for (uint j = 0; p.kept != 0 && j < n; ++j) {
    for (uint place = 0; place < n; ++place) {
      out[(ulong(matrix) * n + j) * n + place] = v[ulong(order[place]) * n + j];
    }
  }
}
INSTANTIATE_KERNEL("symmetric_eigen_ql_float", symmetric_eigen_ql, float)
INSTANTIATE_KERNEL("symmetric_eigen_ql_float2", symmetric_eigen_ql, float2)
#endif
