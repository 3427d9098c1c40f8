// Triangular systems, Cholesky, LU and QR decomposition, eigenvalues of symmetric matrices. A group of
// threads has a matrix: Golub and Van Loan, "Matrix Computations", 3.4 (LU with partial pivoting), 4.2
// (Cholesky), 5.2 (Householder), 8.5 (Jacobi, in rounds of disjoint pairs).

#include <metal_stdlib>

#include "device/kernels/complex.metal.h"
#include "device/kernels/linalg_params.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// Sums that do not wait for each other.
#define DOT_LANES 32
inline float dot_rows(device const float* a, device const float* b, uint n) {
  float sums[DOT_LANES];
  for (uint k = 0; k < DOT_LANES; ++k) sums[k] = 0.0f;
  uint i = 0;
  for (; i + DOT_LANES <= n; i += DOT_LANES) {
    for (uint k = 0; k < DOT_LANES; ++k) sums[k] += a[i + k] * b[i + k];
  }
  // Stored, and added as many as there are: a sum of known terms would have them one or two at a time before.
  float folded[8], sum = 0.0f;
  for (uint k = 0; k < 8; ++k) folded[k] = (sums[k] + sums[k + 8]) + (sums[k + 16] + sums[k + 24]);
  for (uint k = 0; k < min(n, 8u); ++k) sum += folded[k];
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
// to += factor * from
inline void add_row(device float* to, device const float* from, float factor, uint n) {
  for (uint i = 0; i < n; ++i) to[i] += factor * from[i];
}
// a times the conjugate of b.
inline float2 dot_rows(device const float2* a, device const float2* b, uint n) {
  float2 sum = float2(0.0f);
  for (uint i = 0; i < n; ++i) sum += times(a[i], conjugate(b[i]));
  return sum;
}

// ---- triangular systems -------------------------------------------------------------------------

// Of matrices [rows, rows] and right hand sides [rows, columns], which `batches` pairs. A thread has a block of
// columns, which lie together in `works`: rows far apart by a power of two would push each other out of a
// cache. Grid: blocks of columns, batches.
template <typename T>
kernel void triangular_solve(device const T* matrices [[buffer(0)]],
                             device const T* sides [[buffer(1)]], device T* out [[buffer(2)]],
                             device T* works [[buffer(3)]], constant ulong2* batches [[buffer(4)]],
                             constant LinalgParams& p [[buffer(5)]],
                             uint2 position [[thread_position_in_grid]],
                             uint2 grid [[threads_per_grid]]) {
  const uint n = p.rows, columns = p.columns;
  const uint first = position.x * LINALG_BLOCK;
  const uint width = min(uint(LINALG_BLOCK), columns - first);
  device const T* const a = matrices + batches[position.y].x * n * n;
  device const T* const b = sides + batches[position.y].y * n * columns + first;
  device T* const to = out + ulong(position.y) * n * columns + first;
  device T* const x = works + (ulong(position.y) * grid.x + position.x) * n * LINALG_BLOCK;
  const bool downwards = (p.lower != 0) != (p.adjoint != 0);
  for (uint i = 0; i < n; ++i) {
    for (uint k = 0; k < LINALG_BLOCK; ++k) {
      x[i * LINALG_BLOCK + k] = b[ulong(i) * columns + min(k, width - 1)];
    }
  }
  for (uint step = 0; step < n; ++step) {
    const uint i = downwards ? step : n - 1 - step;
    device const T* const row = a + ulong(i) * n;
    device T* const mine = x + i * LINALG_BLOCK;
    T now[LINALG_BLOCK];
    for (uint k = 0; k < LINALG_BLOCK; ++k) now[k] = mine[k];
    if (p.adjoint == 0) {
      // What the rows before leave of this one.
      const uint from = downwards ? 0 : i + 1, end = downwards ? i : n;
      T second[LINALG_BLOCK];  // sums that do not wait for each other
      for (uint k = 0; k < LINALG_BLOCK; ++k) second[k] = T(0);
      uint j = from;
      for (; j + 2 <= end; j += 2) {
        for (uint k = 0; k < LINALG_BLOCK; ++k) {
          now[k] -= times(row[j], x[j * LINALG_BLOCK + k]);
          second[k] -= times(row[j + 1], x[(j + 1) * LINALG_BLOCK + k]);
        }
      }
      if (j < end) {
        for (uint k = 0; k < LINALG_BLOCK; ++k) now[k] -= times(row[j], x[j * LINALG_BLOCK + k]);
      }
      for (uint k = 0; k < LINALG_BLOCK; ++k) now[k] += second[k];
    }
    const T divisor = p.adjoint != 0 ? conjugate(row[i]) : row[i];
    for (uint k = 0; k < LINALG_BLOCK; ++k) {
      now[k] = over(now[k], divisor);
      mine[k] = now[k];
      if (k < width) to[ulong(i) * columns + k] = now[k];
    }
    if (p.adjoint != 0) {
      // A row is a column of what is solved: it is taken from all rows that are left.
      const uint from = downwards ? i + 1 : 0, end = downwards ? n : i;
      for (uint j = from; j < end; ++j) {
        const T factor = conjugate(row[j]);
        for (uint k = 0; k < LINALG_BLOCK; ++k) {
          x[j * LINALG_BLOCK + k] -= times(factor, now[k]);
        }
      }
    }
  }
}
INSTANTIATE_KERNEL("triangular_solve_float", triangular_solve, float)
INSTANTIATE_KERNEL("triangular_solve_float2", triangular_solve, float2)

// ---- Cholesky -----------------------------------------------------------------------------------

inline float real_part(float x) { return x; }
inline float real_part(float2 x) { return x.x; }
template <typename T>
inline T from_real(float x);
template <>
inline float from_real<float>(float x) {
  return x;
}
template <>
inline float2 from_real<float2>(float x) {
  return float2(x, 0.0f);
}

// The lower triangle alone is read. NaN where a matrix is not positive definite. Grid: LINALG_THREADS a
// matrix.
template <typename T>
kernel void cholesky(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     constant LinalgParams& p [[buffer(2)]],
                     uint lane [[thread_position_in_threadgroup]],
                     uint group [[threadgroup_position_in_grid]]) {
  const uint n = p.rows;
  device const T* const a = in + ulong(group) * n * n;
  device T* const l = out + ulong(group) * n * n;
  for (uint j = 0; j < n; ++j) {
    device T* const row = l + ulong(j) * n;
    if (lane == 0) {
      const float square = real_part(a[ulong(j) * n + j]) - real_part(dot_rows(row, row, j));
      row[j] = from_real<T>(square > 0.0f ? sqrt(square) : NAN);
    }
    threadgroup_barrier(mem_flags::mem_device);
    const float root = real_part(row[j]);
    for (uint i = lane; i < n; i += LINALG_THREADS) {
      if (i < j) {
        l[ulong(i) * n + j] = T(0);
      } else if (i > j) {
        l[ulong(i) * n + j] = (a[ulong(i) * n + j] - dot_rows(l + ulong(i) * n, row, j)) / root;
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}

INSTANTIATE_KERNEL("cholesky_float", cholesky, float)
INSTANTIATE_KERNEL("cholesky_float2", cholesky, float2)

// ---- LU -----------------------------------------------------------------------------------------

// Partial pivoting. `order` [rows]: which row of the input is there. Grid: LINALG_THREADS a matrix.
template <typename T, typename Index>
kernel void lu(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
               device Index* order [[buffer(2)]], constant LinalgParams& p [[buffer(3)]],
               uint lane [[thread_position_in_threadgroup]],
               uint group [[threadgroup_position_in_grid]]) {
  const uint n = p.rows;
  device const T* const a = in + ulong(group) * n * n;
  device T* const m = out + ulong(group) * n * n;
  device Index* const places = order + ulong(group) * n;
  for (uint i = lane; i < n; i += LINALG_THREADS) {
    places[i] = Index(i);
    for (uint j = 0; j < n; ++j) m[ulong(i) * n + j] = a[ulong(i) * n + j];
  }
  threadgroup uint found[1];
  for (uint k = 0; k < n; ++k) {
    threadgroup_barrier(mem_flags::mem_device);
    if (lane == 0) {
      found[0] = k;
      float largest = magnitude(m[ulong(k) * n + k]);
      for (uint i = k + 1; i < n; ++i) {
        const float size = magnitude(m[ulong(i) * n + k]);
        if (size > largest) {
          largest = size;
          found[0] = i;
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint best = found[0];
    if (best != k) {
      for (uint j = lane; j < n; j += LINALG_THREADS) {
        const T value = m[ulong(k) * n + j];
        m[ulong(k) * n + j] = m[ulong(best) * n + j];
        m[ulong(best) * n + j] = value;
      }
      if (lane == 0) {
        const Index place = places[k];
        places[k] = places[best];
        places[best] = place;
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
    device const T* const pivot = m + ulong(k) * n;
    for (uint i = k + 1 + lane; i < n; i += LINALG_THREADS) {
      device T* const row = m + ulong(i) * n;
      const T factor = over(row[k], pivot[k]);
      row[k] = factor;
      for (uint j = k + 1; j < n; ++j) row[j] -= times(factor, pivot[j]);
    }
  }
}
INSTANTIATE_KERNEL("lu_float_int", lu, float, int)
INSTANTIATE_KERNEL("lu_float_long", lu, float, long)
INSTANTIATE_KERNEL("lu_float2_int", lu, float2, int)
INSTANTIATE_KERNEL("lu_float2_long", lu, float2, long)

// ---- QR -----------------------------------------------------------------------------------------

// The reflection of a column, whose first element is known to be 1, on `rows` rows of `length`, `apart` elements
// from each other.
inline void reflect_rows(device const float* column, float tau, device float* rows, uint count,
                         ulong apart, uint length) {
  for (uint j = 0; j < count; ++j) {
    device float* const row = rows + j * apart;
    const float sum = tau * (row[0] + dot_rows(column + 1, row + 1, length - 1));
    row[0] -= sum;
    add_row(row + 1, column + 1, -sum, length - 1);
  }
}

// Householder's reflections of the columns, which lie in `work` as rows: [columns, rows]; `basis`
// [kept, rows] becomes the columns of Q. Columns behind a panel of `block` get all of its reflections while
// they are in a cache, and so do as many columns of Q. Grid: LINALG_THREADS a matrix.
template <typename T>
kernel void qr(device const T* in [[buffer(0)]], device T* q [[buffer(1)]],
               device T* r [[buffer(2)]], device float* works [[buffer(3)]],
               device float* bases [[buffer(4)]], device float* scales [[buffer(5)]],
               constant LinalgParams& p [[buffer(6)]], uint lane [[thread_position_in_threadgroup]],
               uint group [[threadgroup_position_in_grid]]) {
  const uint m = p.rows, n = p.columns, steps = min(m, n);
  device const T* const a = in + ulong(group) * m * n;
  device float* const work = works + ulong(group) * m * n;
  device float* const basis = bases + ulong(group) * m * p.kept;
  device float* const scale = scales + ulong(group) * steps;
  for (uint j = lane; j < n; j += LINALG_THREADS) {
    for (uint i = 0; i < m; ++i) work[ulong(j) * m + i] = float(a[ulong(i) * n + j]);
  }
  threadgroup_barrier(mem_flags::mem_device);
  for (uint panel = 0; panel < steps; panel += p.block) {
    const uint end = min(panel + p.block, steps);
    for (uint k = panel; k < end; ++k) {
      // The reflection 1 - tau v v^T, with v[0] = 1, that leaves beta of a column.
      device float* const column = work + ulong(k) * m + k;
      const uint length = m - k;
      if (lane == 0) {
        const float tail = dot_rows(column + 1, column + 1, length - 1);
        const float head = column[0];
        float tau = 0.0f;
        if (tail > 0.0f) {
          const float norm = sqrt(head * head + tail);
          const float beta = head >= 0.0f ? -norm : norm;
          tau = (beta - head) / beta;
          for (uint i = 1; i < length; ++i) column[i] /= head - beta;
          // What is left of the column goes where R is written from; v[0] is known.
          column[0] = beta;
        }
        scale[k] = tau;
      }
      threadgroup_barrier(mem_flags::mem_device);
      for (uint j = k + 1 + lane; j < end; j += LINALG_THREADS) {
        reflect_rows(column, scale[k], work + ulong(j) * m + k, 1, m, length);
      }
      threadgroup_barrier(mem_flags::mem_device);
    }
    for (uint j = end + lane; j < n; j += LINALG_THREADS) {
      for (uint k = panel; k < end; ++k) {
        reflect_rows(work + ulong(k) * m + k, scale[k], work + ulong(j) * m + k, 1, m, m - k);
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
  // Columns of Q: those of the identity, reflected in the opposite order.
  for (uint first = lane * p.columns_together; first < p.kept;
       first += LINALG_THREADS * p.columns_together) {
    const uint count = min(p.columns_together, p.kept - first);
    device float* const mine = basis + ulong(first) * m;
    for (uint j = 0; j < count; ++j) {
      for (uint i = 0; i < m; ++i) mine[ulong(j) * m + i] = i == first + j ? 1.0f : 0.0f;
    }
    for (uint k = steps; k-- > 0;) {
      reflect_rows(work + ulong(k) * m + k, scale[k], mine + k, count, m, m - k);
    }
    for (uint i = 0; i < m; ++i) {
      for (uint j = 0; j < count; ++j) {
        q[(ulong(group) * m + i) * p.kept + first + j] = T(mine[ulong(j) * m + i]);
      }
    }
  }
  for (uint j = lane; j < n; j += LINALG_THREADS) {
    for (uint i = 0; i < p.kept; ++i) {
      r[(ulong(group) * p.kept + i) * n + j] = T(i <= j ? work[ulong(j) * m + i] : 0.0f);
    }
  }
}
INSTANTIATE_KERNEL("qr_float", qr, float)
INSTANTIATE_KERNEL("qr_half", qr, half)

// ---- eigenvalues of symmetric matrices ----------------------------------------------------------

// Jacobi's rotations in rounds, which a group shares: of the n columns (and one that is none, of an odd number) each meets each
// other once in a sweep, n / 2 pairs at a time. The lower triangle alone is read. `works` [rows, rows],
// `vectors` [rows, rows] whose rows become the eigenvectors, `turns` [pairs] sines, and the
// tangents of half the angles: with these a small turn does not stretch (Rutishauser 1966).
// Grid: LINALG_THREADS a matrix.
kernel void symmetric_eigen(device const float* in [[buffer(0)]],
                            device float* values [[buffer(1)]], device float* out [[buffer(2)]],
                            device float* works [[buffer(3)]], device float* bases [[buffer(4)]],
                            device float2* turns [[buffer(5)]],
                            constant LinalgParams& p [[buffer(6)]],
                            uint lane [[thread_position_in_threadgroup]],
                            uint group [[threadgroup_position_in_grid]]) {
  const uint n = p.rows, pairs = (n + 1) / 2, rounds = 2 * pairs - 1;
  device const float* const given = in + ulong(group) * n * n;
  device float* const a = works + ulong(group) * n * n;
  device float* const v = bases + ulong(group) * n * n;
  device float2* const turn = turns + ulong(group) * pairs;
  for (uint i = lane; i < n; i += LINALG_THREADS) {
    for (uint j = 0; j < n; ++j) {
      a[ulong(i) * n + j] = i >= j ? given[ulong(i) * n + j] : given[ulong(j) * n + i];
      v[ulong(i) * n + j] = i == j ? 1.0f : 0.0f;
    }
  }
  threadgroup_barrier(mem_flags::mem_device);
  threadgroup uint done[1];
  for (uint sweep = 0; sweep < 30; ++sweep) {
    if (lane == 0) {
      float off = 0.0f, all = 0.0f;
      for (uint i = 0; i < n; ++i) {
        const float rest = dot_rows(a + ulong(i) * n, a + ulong(i) * n, i);
        const float diagonal = a[ulong(i) * n + i];
        off += rest;
        all += rest + diagonal * diagonal;
      }
      done[0] = off > 2e-14f * float(n) * all ? 0 : 1;  // what rounding leaves
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
        float2 angle = float2(0.0f);
        if (j < n) {
          const float side = a[ulong(i) * n + j];
          const float lower = a[ulong(i) * n + i], upper = a[ulong(j) * n + j];
          if (side != 0.0f) {
            const float theta = (upper - lower) / (2.0f * side);
            const float t = isinf(theta * theta) ? 0.5f / theta
                                                 : (theta >= 0.0f ? 1.0f : -1.0f) /
                                                       (abs(theta) + sqrt(1.0f + theta * theta));
            const float c = 1.0f / sqrt(1.0f + t * t);
            angle = float2(t * c, t * c / (1.0f + c));
          }
        }
        turn[k] = angle;
      }
      threadgroup_barrier(mem_flags::mem_device);
      for (uint k = lane; k < pairs; k += LINALG_THREADS) {
        const uint x = k == 0 ? rounds : (round + k) % rounds;
        const uint y = k == 0 ? round : (round + rounds - k) % rounds;
        const uint i = min(x, y), j = max(x, y);
        if (j >= n) continue;
        const float s = turn[k].x, half_turn = turn[k].y;
        for (uint at = 0; at < n; ++at) {
          const float upper = a[ulong(i) * n + at], lower = a[ulong(j) * n + at];
          a[ulong(i) * n + at] = upper - s * (lower + half_turn * upper);
          a[ulong(j) * n + at] = lower + s * (upper - half_turn * lower);
        }
        if (p.kept != 0) {
          for (uint at = 0; at < n; ++at) {
            const float upper = v[ulong(i) * n + at], lower = v[ulong(j) * n + at];
            v[ulong(i) * n + at] = upper - s * (lower + half_turn * upper);
            v[ulong(j) * n + at] = lower + s * (upper - half_turn * lower);
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
          const float s = turn[k].x, half_turn = turn[k].y;
          const float left = a[ulong(row) * n + i], right = a[ulong(row) * n + j];
          a[ulong(row) * n + i] = left - s * (right + half_turn * left);
          a[ulong(row) * n + j] = right + s * (left - half_turn * right);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
  // In ascending order; NaN last.
  for (uint i = lane; i < n; i += LINALG_THREADS) {
    const float value = a[ulong(i) * n + i];
    uint place = 0;
    for (uint j = 0; j < n; ++j) {
      const float other = a[ulong(j) * n + j];
      const bool before = other < value || (value != value && other == other);
      const bool same = other == value || (value != value && other != other);
      if (before || (same && j < i)) ++place;
    }
    values[ulong(group) * n + place] = value;
    if (p.kept != 0) {
      for (uint j = 0; j < n; ++j) out[(ulong(group) * n + j) * n + place] = v[ulong(i) * n + j];
    }
  }
}

#if defined(__METAL_CPU__)
// The same where threads run after each other, by one of them: Householder's reflections leave a tridiagonal matrix
// (8.3), of which implicit QL steps leave the eigenvalues (8.3, in float as EISPACK's tql2). `scratch`:
// EIGEN_SCRATCH(rows) a matrix.

// Of some columns of `vectors`, the turns of `sweeps` QL steps: of rows i + 1 and i, from last[step] - 1 down to
// first[step]. The row that two turns share stays in registers.
template <uint kLanes>
inline void turn_columns(device float* vectors, uint n, uint sweeps, thread const uint* first,
                         thread const uint* last, device const float2* turns) {
  for (uint sweep = 0; sweep < sweeps; ++sweep) {
    float upper[kLanes];
    device float* row = vectors + ulong(last[sweep]) * n;
    for (uint k = 0; k < kLanes; ++k) upper[k] = row[k];
    for (uint i = last[sweep]; i-- > first[sweep];) {
      device float* const below = row - n;
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
inline void turn_rows(device float* vectors, uint n, uint sweeps, thread const uint* first,
                      thread const uint* last, device const float2* turns) {
  uint column = 0;
  for (; column + 64 <= n; column += 64) {
    turn_columns<64>(vectors + column, n, sweeps, first, last, turns);
  }
  for (; column + 8 <= n; column += 8) {
    turn_columns<8>(vectors + column, n, sweeps, first, last, turns);
  }
  for (; column < n; ++column) turn_columns<1>(vectors + column, n, sweeps, first, last, turns);
}

// sqrt(a^2 + b^2), whose squares stay in range.
inline float length_of(float a, float b) {
  const float large = max(abs(a), abs(b)), small = min(abs(a), abs(b));
  const float part = large > 0.0f ? small / large : 0.0f;
  return large * sqrt(1.0f + part * part);
}

// The diagonal `d` and what is beside it, `e`, of a [n, n], whose rows become the reflections, `taus` of them.
inline void make_tridiagonal(device float* a, uint n, device float* d, device float* e,
                             device float* taus, device float* w, device float* next) {
  for (uint k = 0; k < n; ++k) {
    device float* const row = a + ulong(k) * n;
    // What the reflection before leaves: minus v w^T + w v^T. v lies in its row.
    device const float* const v = row - n;
    if (k > 0) {
      const float vk = v[k], wk = w[k];
      for (uint j = k; j < n; ++j) row[j] -= vk * w[j] + wk * v[j];
    }
    d[k] = row[k];
    if (k + 1 == n) return;
    device float* const x = row + k + 1;
    const uint length = n - k - 1;
    const float tail = dot_rows(x + 1, x + 1, length - 1), head = x[0];
    float tau = 0.0f, beta = head;
    if (tail > 0.0f) {
      const float norm = sqrt(head * head + tail);
      beta = head >= 0.0f ? -norm : norm;
      tau = (beta - head) / beta;
      for (uint i = 1; i < length; ++i) x[i] /= head - beta;
    }
    x[0] = 1.0f;
    e[k] = beta;
    taus[k] = tau;
    for (uint i = k + 1; i < n; ++i) {
      device float* const other = a + ulong(i) * n;
      if (k > 0) {
        const float vi = v[i], wi = w[i];
        for (uint j = k + 1; j < n; ++j) other[j] -= vi * w[j] + wi * v[j];
      }
      next[i] = tau * dot_rows(other + k + 1, x, length);
    }
    const float half_part = 0.5f * tau * dot_rows(next + k + 1, x, length);
    add_row(next + k + 1, x, -half_part, length);
    device float* const spare = w;
    w = next;
    next = spare;
  }
}

// Grid: matrices.
kernel void symmetric_eigen_ql(device const float* in [[buffer(0)]],
                               device float* values [[buffer(1)]], device float* out [[buffer(2)]],
                               device float* works [[buffer(3)]], device float* bases [[buffer(4)]],
                               device float2* scratch [[buffer(5)]],
                               constant LinalgParams& p [[buffer(6)]],
                               uint matrix [[thread_position_in_grid]]) {
  const uint n = p.rows;
  device const float* const given = in + ulong(matrix) * n * n;
  device float* const a = works + ulong(matrix) * n * n;
  device float* const v = bases + ulong(matrix) * n * n;
  device float2* const turns = scratch + ulong(matrix) * EIGEN_SCRATCH(n);
  device float* const d = (device float*)(turns + ulong(EIGEN_SWEEPS) * n);
  device float* const e = d + n;
  device float* const taus = e + n;
  // By a power of two, so that squares stay in range and nothing is rounded.
  float largest = 0.0f;
  for (uint i = 0; i < n; ++i) {
    for (uint j = 0; j <= i; ++j) largest = max(largest, abs(given[ulong(i) * n + j]));
  }
  int exponent = 0;
  if (largest > 0.0f && !isinf(largest)) frexp(largest, exponent);
  for (uint i = 0; i < n; ++i) {
    for (uint j = 0; j <= i; ++j) {
      const float value = ldexp(given[ulong(i) * n + j], -exponent);
      a[ulong(i) * n + j] = value;
      a[ulong(j) * n + i] = value;
    }
  }
  make_tridiagonal(a, n, d, e, taus, taus + n, taus + 2 * n);
  e[n - 1] = 0.0f;
  // Row j: what the reflections make of the j-th column of the identity, the last first.
  for (uint first = 0; p.kept != 0 && first < n; first += p.block) {
    const uint end = min(first + p.block, n);
    for (uint j = first; j < end; ++j) {
      for (uint i = 0; i < n; ++i) v[ulong(j) * n + i] = i == j ? 1.0f : 0.0f;
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
        turn_rows(v, n, sweeps, firsts, lasts, turns);
        sweeps = 0;
      }
    }
  }
  if (sweeps != 0) turn_rows(v, n, sweeps, firsts, lasts, turns);
  // In ascending order; NaN last. Which comes where is kept in `e`.
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
    values[ulong(matrix) * n + place] = ldexp(value, exponent);
    order[place] = i;
  }
  for (uint j = 0; p.kept != 0 && j < n; ++j) {
    for (uint place = 0; place < n; ++place) {
      out[(ulong(matrix) * n + j) * n + place] = v[ulong(order[place]) * n + j];
    }
  }
}
#endif
