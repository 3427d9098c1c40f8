// Triangular systems, Cholesky, LU and QR decomposition. A group of threads has a matrix: Golub and Van Loan, "Matrix
// Computations", 3.4 (LU with partial pivoting), 4.2 (Cholesky), 5.2 (Householder).

#include <metal_stdlib>

#include "device/kernels/linalg.metal.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// ---- triangular systems -------------------------------------------------------------------------

#if defined(__METAL_CPU__)
static_assert(LINALG_BLOCK == 16, "as LinalgVector has");
// By a processor's vectors: rows of a lower triangle, LINALG_ROWS at once, whose sums read the solved rows once, from
// a cache that is not the nearest. Each has the bits that it has by itself. How many rows are solved.
inline uint solve_many(device const float* a, uint n, device float* x, device float* to,
                       uint columns, uint width) {
  uint i = 0;
  for (; i + LINALG_ROWS <= n; i += LINALG_ROWS) {
    device const float* const rows = a + ulong(i) * n;
    device LinalgVector* const mine = (device LinalgVector*)(x + i * LINALG_BLOCK);
    LinalgVector even[LINALG_ROWS], odd[LINALG_ROWS];
#pragma unroll
    for (uint r = 0; r < LINALG_ROWS; ++r) {
      even[r] = mine[r];
      odd[r] = LinalgVector(0.0f);
    }
    for (uint j = 0; j < i; j += 2) {
      const LinalgVector first = *(device const LinalgVector*)(x + j * LINALG_BLOCK),
                         second = *(device const LinalgVector*)(x + (j + 1) * LINALG_BLOCK);
#pragma unroll
      for (uint r = 0; r < LINALG_ROWS; ++r) {
        even[r] -= rows[ulong(r) * n + j] * first;
        odd[r] -= rows[ulong(r) * n + j + 1] * second;
      }
    }
#pragma unroll
    for (uint r = 0; r < LINALG_ROWS; ++r) {
      device const float* const row = rows + ulong(r) * n + i;
#pragma unroll
      for (uint j = 0; j < r; ++j) (j % 2 == 0 ? even : odd)[r] -= row[j] * mine[j];
      const LinalgVector value = (even[r] + odd[r]) / row[r];
      mine[r] = value;
      device float* const line = to + ulong(i + r) * columns;
      if (width == LINALG_BLOCK) {
        *(device LinalgVector*)line = value;
      } else {
        for (uint k = 0; k < width; ++k) line[k] = value[k];
      }
    }
  }
  return i;
}
inline uint solve_many(device const float2*, uint, device float2*, device float2*, uint, uint) {
  return 0;
}
#endif

// Solves for matrices [rows, rows] and right hand sides [rows, columns], which `batches` pairs. A thread has a
// block of columns, which lie together in `works`: rows far apart by a power of two would push each other out
// of a cache. Grid: blocks of columns, batches.
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
  uint solved = 0;
#if defined(__METAL_CPU__)
  if (downwards && p.adjoint == 0) solved = solve_many(a, n, x, to, columns, width);
#endif
  for (uint step = solved; step < n; ++step) {
    const uint i = downwards ? step : n - 1 - step;
    device const T* const row = a + ulong(i) * n;
    device T* const mine = x + i * LINALG_BLOCK;
    T now[LINALG_BLOCK];
    for (uint k = 0; k < LINALG_BLOCK; ++k) now[k] = mine[k];
    if (p.adjoint == 0) {
      // The rest of this one after the rows before.
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
      // A row is a column of the solution: it is taken from all remaining rows.
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

// sums[k]: a row by row k of `width` ones, `n` elements of each.
template <typename T>
inline void dot_panel(device const T* row, device const T* panel, ulong apart, uint n, uint width,
                      thread T (&sums)[LINALG_PANEL]) {
  for (uint k = 0; k < width; ++k) sums[k] = dot_rows(row, panel + k * apart, n);
}
#if defined(__METAL_CPU__)
template <>
inline void dot_panel<float>(device const float* row, device const float* panel, ulong apart,
                             uint n, uint width, thread float (&sums)[LINALG_PANEL]) {
  uint k = 0;
  for (; k + LINALG_ROWS <= width; k += LINALG_ROWS) {
    float some[LINALG_ROWS];
    dot_many(panel + k * apart, apart, row, n, some);
    for (uint j = 0; j < LINALG_ROWS; ++j) sums[k + j] = some[j];
  }
  for (; k < width; ++k) sums[k] = dot_rows(row, panel + k * apart, n);
}
#endif

// The first `columns` elements of a row of L, by the triangle whose rows begin at `panel`; those before them were
// taken.
template <typename T>
inline void solve_row(device T* row, device const T* panel, ulong apart, uint columns) {
  for (uint k = 0; k < columns; ++k) {
    device const T* const known = panel + k * apart;
    row[k] = (row[k] - dot_rows(row, known, k)) / real_part(known[k]);
  }
}

// The lower triangle alone is read. NaN where a matrix is not positive definite. LINALG_PANEL columns are made at a
// time, for which a row of the finished ones is read once. Grid: LINALG_THREADS a matrix.
template <typename T>
kernel void cholesky(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     constant LinalgParams& p [[buffer(2)]],
                     uint lane [[thread_position_in_threadgroup]],
                     uint group [[threadgroup_position_in_grid]]) {
  const uint n = p.rows;
  device const T* const a = in + ulong(group) * n * n;
  device T* const l = out + ulong(group) * n * n;
  for (uint first = 0; first < n; first += LINALG_PANEL) {
    const uint width = min(uint(LINALG_PANEL), n - first);
    device T* const panel = l + ulong(first) * n;
    // The rest of these after the columns before.
    for (uint i = lane; i < n; i += LINALG_THREADS) {
      device T* const row = l + ulong(i) * n;
      T sums[LINALG_PANEL];
      if (i >= first) dot_panel(row, panel, n, first, width, sums);
      for (uint k = 0; k < width; ++k) {
        row[first + k] = i >= first + k ? a[ulong(i) * n + first + k] - sums[k] : T(0);
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
    if (lane == 0) {
      for (uint j = 0; j < width; ++j) {
        device T* const row = panel + ulong(j) * n + first;
        solve_row(row, panel + first, n, j);
        const float square = real_part(row[j]) - real_part(dot_rows(row, row, j));
        row[j] = from_parts<T>(square > 0.0f ? sqrt(square) : NAN);
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
    for (uint i = first + width + lane; i < n; i += LINALG_THREADS) {
      solve_row(l + ulong(i) * n + first, panel + first, n, width);
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}

INSTANTIATE_KERNEL("cholesky_float", cholesky, float)
INSTANTIATE_KERNEL("cholesky_float2", cholesky, float2)

// ---- LU -----------------------------------------------------------------------------------------

// to[j] -= factors[0] * rows[0][j], then those of the other rows.
template <typename T>
inline void take_panel(device T* to, thread const T (&factors)[LINALG_PANEL], device const T* rows,
                       ulong apart, uint n) {
  uint j = 0;
#if defined(__METAL_CPU__)
  j = take_many(to, factors, rows, apart, n);
#endif
  for (; j < n; ++j) {
    T left = to[j];
    for (uint k = 0; k < LINALG_PANEL; ++k) left -= times(factors[k], rows[k * apart + j]);
    to[j] = left;
  }
}

// Partial pivoting. `order` [rows]: which row of the input is there. LINALG_PANEL columns are made at a time, and are
// taken from those behind them at once, in their order. Grid: LINALG_THREADS a matrix.
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
  for (uint first = 0; first < n; first += LINALG_PANEL) {
    const uint end = min(first + LINALG_PANEL, n);
    for (uint k = first; k < end; ++k) {
      threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
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
      threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
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
        for (uint j = k + 1; j < end; ++j) row[j] -= times(factor, pivot[j]);
      }
    }
    if (end == n) break;
    threadgroup_barrier(mem_flags::mem_device);
    // The panel's own rows, behind it: each waits for those before it, and no column for another.
    device T* const panel = m + ulong(first) * n;
    for (uint j = end + lane * LINALG_BLOCK; j < n; j += LINALG_THREADS * LINALG_BLOCK) {
      for (uint i = 1; i < LINALG_PANEL; ++i) {
        device T* const row = panel + ulong(i) * n;
        for (uint k = 0; k < i; ++k) {
          const T factor = row[first + k];
          for (uint c = j; c < min(j + LINALG_BLOCK, n); ++c) {
            row[c] -= times(factor, panel[ulong(k) * n + c]);
          }
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
    for (uint i = end + lane; i < n; i += LINALG_THREADS) {
      device T* const row = m + ulong(i) * n;
      T factors[LINALG_PANEL];
      for (uint k = 0; k < LINALG_PANEL; ++k) factors[k] = row[first + k];
      take_panel(row + end, factors, panel + end, n, n - end);
    }
  }
}
INSTANTIATE_KERNEL("lu_float_int", lu, float, int)
INSTANTIATE_KERNEL("lu_float_long", lu, float, long)
INSTANTIATE_KERNEL("lu_float2_int", lu, float2, int)
INSTANTIATE_KERNEL("lu_float2_long", lu, float2, long)

// ---- QR -----------------------------------------------------------------------------------------

// Householder's reflections of the columns, which lie in `work` as rows: [columns, apart]; `basis`
// [kept, apart] becomes the columns of Q. Columns behind a panel of `block` get all of its reflections while
// they are in a cache, and so do as many columns of Q. Grid: LINALG_THREADS a matrix. Work is the type of
// computation.
template <typename T, typename Work>
kernel void qr(device const T* in [[buffer(0)]], device T* q [[buffer(1)]],
               device T* r [[buffer(2)]], device Work* works [[buffer(3)]],
               device Work* bases [[buffer(4)]], device Work* scales [[buffer(5)]],
               constant LinalgParams& p [[buffer(6)]], uint lane [[thread_position_in_threadgroup]],
               uint group [[threadgroup_position_in_grid]]) {
  const uint m = p.rows, n = p.columns, steps = min(m, n);
  const ulong apart = p.apart;
  device const T* const a = in + ulong(group) * m * n;
  device Work* const work = works + group * apart * n;
  device Work* const basis = bases + group * apart * p.kept;
  device Work* const scale = scales + ulong(group) * steps;
  for (uint j = lane; j < n; j += LINALG_THREADS) {
    for (uint i = 0; i < m; ++i) work[j * apart + i] = Work(a[ulong(i) * n + j]);
  }
  threadgroup_barrier(mem_flags::mem_device);
  for (uint panel = 0; panel < steps; panel += p.block) {
    const uint end = min(panel + p.block, steps);
    for (uint k = panel; k < end; ++k) {
      device Work* const column = work + k * apart + k;
      const uint length = m - k;
      if (lane == 0) {
        float beta;
        const Work tau = make_reflection(column, length, beta);
        // The rest of the column goes where R is written from; v[0] is known.
        column[0] = from_parts<Work>(beta);
        scale[k] = tau;
      }
      threadgroup_barrier(mem_flags::mem_device);
      for (uint j = k + 1 + lane; j < end; j += LINALG_THREADS) {
        reflect_rows(column, conjugate(scale[k]), work + j * apart + k, 1, apart, length);
      }
      threadgroup_barrier(mem_flags::mem_device);
    }
    for (uint first = end + lane * p.columns_together; first < n;
         first += LINALG_THREADS * p.columns_together) {
      const uint count = min(p.columns_together, n - first);
      for (uint k = panel; k < end; ++k) {
        reflect_rows(work + k * apart + k, conjugate(scale[k]), work + first * apart + k, count,
                     apart, m - k);
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
  // Columns of Q: those of the identity, reflected in the opposite order.
  for (uint first = lane * p.columns_together; first < p.kept;
       first += LINALG_THREADS * p.columns_together) {
    const uint count = min(p.columns_together, p.kept - first);
    device Work* const mine = basis + first * apart;
    for (uint j = 0; j < count; ++j) {
      for (uint i = 0; i < m; ++i) {
        mine[j * apart + i] = from_parts<Work>(i == first + j ? 1.0f : 0.0f);
      }
    }
    for (uint k = steps; k-- > 0;) {
      reflect_rows(work + k * apart + k, scale[k], mine + k, count, apart, m - k);
    }
    for (uint i = 0; i < m; ++i) {
      for (uint j = 0; j < count; ++j) {
        q[(ulong(group) * m + i) * p.kept + first + j] = T(mine[j * apart + i]);
      }
    }
  }
  for (uint j = lane; j < n; j += LINALG_THREADS) {
    for (uint i = 0; i < p.kept; ++i) {
      r[(ulong(group) * p.kept + i) * n + j] = i <= j ? T(work[j * apart + i]) : T(0);
    }
  }
}
INSTANTIATE_KERNEL("qr_float", qr, float, float)
INSTANTIATE_KERNEL("qr_half", qr, half, float)
INSTANTIATE_KERNEL("qr_float2", qr, float2, float2)
