"""Thirty kernels whose threads share memory, for tools/faults: each with the result that it has to give.

All take the arguments of check_cases.py and run as two threadgroups of 64 threads. Their numbers are whole, so that
sums are the same in any order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

B = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
DEVICE = "threadgroup_barrier(mem_flags::mem_device);\n"
TILE = "threadgroup float s[64];\n"
LOAD = "s[t] = in[i];\n"
ADD = "atomic_fetch_add_explicit"
Oracle = Callable[[np.ndarray], np.ndarray]

KERNELS: dict[str, tuple[str, Oracle]] = {}


def kernel(name: str, text: str, oracle: Callable[[np.ndarray], object], rows: bool = True) -> None:
    """`oracle`: of a threadgroup's 64 numbers, or of all 128, the first numbers of `out` there."""

    def whole(x: np.ndarray) -> np.ndarray:
        out = np.zeros(128)
        for begin, part in [(0, x[:64]), (64, x[64:])] if rows else [(0, x)]:
            found = np.atleast_1d(oracle(part))
            out[begin : begin + len(found)] = found
        return out

    KERNELS[name] = (text, whole)


FIRST = "if (t == 0) out[g * 64] = "
kernel(
    "tree",
    TILE
    + LOAD
    + B
    + "for (uint n = 32; n > 0; n /= 2) {\nif (t < n) s[t] += s[t + n];\n"
    + B
    + "}\n"
    + FIRST
    + "s[0];\n",
    np.sum,
)
kernel(
    "simdgroups",
    "threadgroup float parts[2];\nfloat part = simd_sum(in[i]);\nif (t % 32 == 0) parts[t / 32] = part;\n"
    + B
    + "float sum = 0;\nfor (uint k = 0; k < 2; ++k) sum += parts[k];\nout[i] = in[i] * sum;\n",
    lambda x: x * x.sum(),
)
kernel(
    "scan",
    "threadgroup float a[64], b[64];\na[t] = in[i];\n"
    + B
    + "for (uint n = 1; n < 64; n *= 2) {\nb[t] = a[t];\nif (t >= n) b[t] += a[t - n];\n"
    + B
    + "a[t] = b[t];\n"
    + B
    + "}\nout[i] = a[t];\n",
    np.cumsum,
)
kernel(
    "scan in place",
    TILE
    + LOAD
    + B
    + "for (uint n = 1; n < 64; n *= 2) {\nfloat x = 0;\nif (t >= n) x = s[t - n];\n"
    + B
    + "s[t] += x;\n"
    + B
    + "}\nout[i] = s[t];\n",
    np.cumsum,
)
kernel(
    "bitonic",
    TILE
    + LOAD
    + B
    + "for (uint n = 2; n <= 64; n *= 2) {\nfor (uint j = n / 2; j > 0; j /= 2) {\nuint o = t ^ j;\nif (o > t) {\nfloat a = s[t], b = s[o];\n"
    "if ((a > b) == ((t & n) == 0)) {\ns[t] = b;\ns[o] = a;\n}\n}\n" + B + "}\n}\nout[i] = s[t];\n",
    np.sort,
)
kernel(
    "transposed",
    TILE + LOAD + B + "out[i] = s[t % 8 * 8 + t / 8];\n",
    lambda x: x.reshape(8, 8).T.ravel(),
)
kernel(
    "product",
    "threadgroup float a[32], b[32];\nfloat sum = 0;\nfor (uint k = 0; k < 2; ++k) {\nif (t < 32) a[t] = in[g * 64 + t / 4 * 8 + k * 4 + t % 4];\n"
    "if (t < 32) b[t] = in[g * 64 + k * 32 + t];\n"
    + B
    + "for (uint j = 0; j < 4; ++j) {\nsum += a[t / 8 * 4 + j] * b[j * 8 + t % 8];\n}\n"
    + B
    + "}\nout[i] = sum;\n",
    lambda x: (x.reshape(8, 8) @ x.reshape(8, 8)).ravel(),
)
kernel(
    "histogram",
    "threadgroup atomic_uint h[8];\nif (t < 8) atomic_store_explicit(&h[t], 0, memory_order_relaxed);\n"
    + B
    + ADD
    + "(&h[uint(in[i]) % 8], 1, memory_order_relaxed);\n"
    + B
    + "if (t < 8) out[i] = atomic_load_explicit(&h[t], memory_order_relaxed);\n",
    lambda x: np.bincount(x.astype(int) % 8, minlength=8),
)
kernel(
    "stencil",
    "threadgroup float s[66];\ns[t + 1] = in[i];\nif (t == 0) {\ns[0] = 0;\ns[65] = 0;\n}\n"
    + B
    + "out[i] = s[t] + s[t + 1] + s[t + 2];\n",
    lambda x: np.convolve(x, [1, 1, 1], "same"),
)
kernel(
    "largest and share",
    TILE
    + LOAD
    + B
    + "for (uint n = 32; n > 0; n /= 2) {\nif (t < n) s[t] = max(s[t], s[t + n]);\n"
    + B
    + "}\nfloat top = s[0];\n"
    + B
    + "s[t] = top - in[i];\n"
    + B
    + "for (uint n = 32; n > 0; n /= 2) {\nif (t < n) s[t] += s[t + n];\n"
    + B
    + "}\nout[i] = s[0] + top;\n",
    lambda x: np.full(64, (x.max() - x).sum() + x.max()),
)
kernel(
    "mean and spread",
    "threadgroup float parts[4];\nfloat x = in[i];\nfloat sum = simd_sum(x);\nif (t % 32 == 0) parts[t / 32] = sum;\n"
    + B
    + "float mean = (parts[0] + parts[1]) / 64;\nfloat spread = simd_sum((x - mean) * (x - mean));\nif (t % 32 == 0) parts[2 + t / 32] = spread;\n"
    + B
    + "out[i] = floor(parts[2] + parts[3]);\n",
    lambda x: np.full(64, np.floor(((x - x.mean()) ** 2).sum())),
)
kernel(
    "place of the largest",
    TILE
    + "threadgroup uint p[64];\ns[t] = in[i] * 64 + t;\np[t] = t;\n"
    + B
    + "for (uint n = 32; n > 0; n /= 2) {\nif (t < n && s[t + n] > s[t]) {\ns[t] = s[t + n];\np[t] = p[t + n];\n}\n"
    + B
    + "}\n"
    + FIRST
    + "p[0];\n",
    lambda x: np.argmax(x * 64 + np.arange(64)),
)
kernel(
    "the last one",
    "threadgroup uint before;\nout[i] = in[i];\n"
    + DEVICE
    + "if (t == 0) {\natomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel, thread_scope_device);\n"
    "before = "
    + ADD
    + "(count, 1, memory_order_relaxed);\natomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel, thread_scope_device);\n}\n"
    + B
    + "if (before == 1) {\nfloat x = out[t] + out[64 + t];\n"
    + DEVICE
    + "out[t] = x;\n}\n",
    lambda x: np.r_[x[:64] + x[64:], x[64:]],
    rows=False,
)
kernel(
    "those above",
    "threadgroup uint n[64];\nn[t] = in[i] > 8;\n"
    + B
    + "for (uint j = 1; j < 64; j *= 2) {\nuint x = t >= j ? n[t - j] : 0;\n"
    + B
    + "n[t] += x;\n"
    + B
    + "}\nif (in[i] > 8) out[g * 64 + n[t] - 1] = in[i];\n",
    lambda x: x[x > 8],
)
kernel("reversed", TILE + LOAD + B + "out[i] = s[63 - t];\n", lambda x: x[::-1])
kernel(
    "by a table",
    "threadgroup float table[16];\nif (t < 16) table[t] = t * t;\n"
    + B
    + "float sum = 0;\nfor (uint k = 0; k < 4; ++k) sum += table[(uint(in[i]) + k) % 16];\nout[i] = sum;\n",
    lambda x: sum(((x + k) % 16) ** 2 for k in range(4)),
)
kernel(
    "odd and even",
    TILE
    + LOAD
    + B
    + "for (uint k = 0; k < 64; ++k) {\nuint at = t * 2 + k % 2;\nif (at + 1 < 64 && s[at] > s[at + 1]) {\nfloat x = s[at];\ns[at] = s[at + 1];\ns[at + 1] = x;\n}\n"
    + B
    + "}\nout[i] = s[t];\n",
    np.sort,
)
kernel(
    "less the total",
    TILE
    + "threadgroup float total;\n"
    + LOAD
    + B
    + "if (t == 0) {\nfloat sum = 0;\nfor (uint k = 0; k < 64; ++k) sum += s[k];\ntotal = sum;\n}\n"
    + B
    + "out[i] = s[t] - total;\n",
    lambda x: x - x.sum(),
)
kernel(
    "sums before",
    "threadgroup float parts[2];\nfloat x = in[i];\nfloat before = simd_prefix_exclusive_sum(x);\nif (t % 32 == 31) parts[t / 32] = before + x;\n"
    + B
    + "if (t >= 32) before += parts[0];\nout[i] = before;\n",
    lambda x: np.cumsum(x) - x,
)
kernel(
    "weights",
    TILE
    + "threadgroup float w[5];\n"
    + LOAD
    + "if (t < 5) w[t] = t + 1;\n"
    + B
    + "float sum = 0;\nfor (uint k = 0; k < 5; ++k) {\nif (t + k < 64) sum += w[k] * s[t + k];\n}\nout[i] = sum;\n",
    lambda x: np.correlate(np.r_[x, np.zeros(4)], np.arange(1, 6)),
)
kernel(
    "two buffers",
    "threadgroup float s[2][64];\ns[0][t] = in[i];\n"
    + B
    + "for (uint k = 0; k < 4; ++k) {\ns[1 - k % 2][t] = s[k % 2][(t + 1) % 64] + 1;\n"
    + B
    + "}\nout[i] = s[0][t];\n",
    lambda x: np.roll(x, -4) + 4,
)
kernel(
    "elimination",
    TILE
    + LOAD
    + B
    + "for (uint k = 0; k < 8; ++k) {\nfloat x = s[k * 8 + t % 8] - s[t / 8 * 8 + k];\n"
    + B
    + "s[t] += x;\n"
    + B
    + "}\nout[i] = s[t];\n",
    lambda x: _elimination(x),
)
kernel(
    "smoothed",
    "threadgroup float s[66];\nif (t < 2) s[t * 65] = 0;\ns[t + 1] = in[i];\n"
    + B
    + "for (uint k = 0; k < 3; ++k) {\nfloat x = s[t] + s[t + 2];\n"
    + B
    + "s[t + 1] = x;\n"
    + B
    + "}\nout[i] = s[t + 1];\n",
    lambda x: _smoothed(x),
)
kernel(
    "counted twice",
    "threadgroup atomic_uint n;\nif (t == 0) atomic_store_explicit(&n, 0, memory_order_relaxed);\n"
    + B
    + "if (in[i] > 4) "
    + ADD
    + "(&n, 1, memory_order_relaxed);\n"
    + B
    + "uint all = atomic_load_explicit(&n, memory_order_relaxed);\nout[i] = all;\nif (t == 0) "
    + ADD
    + "(count, all, memory_order_relaxed);\n",
    lambda x: np.full(64, (x > 4).sum()),
)
kernel(
    "the smallest",
    "threadgroup atomic_uint n;\nif (t == 0) atomic_store_explicit(&n, 1000, memory_order_relaxed);\n"
    + B
    + "atomic_fetch_min_explicit(&n, uint(in[i]), memory_order_relaxed);\n"
    + B
    + "out[i] = atomic_load_explicit(&n, memory_order_relaxed);\n",
    lambda x: np.full(64, x.min()),
)
kernel(
    "in a simdgroup",
    TILE
    + LOAD
    + "simdgroup_barrier(mem_flags::mem_threadgroup);\nfloat x = s[t ^ 1];\nsimdgroup_barrier(mem_flags::mem_threadgroup);\ns[t] = x + 1;\n"
    "simdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = s[t ^ 2];\n",
    lambda x: x[np.arange(64) ^ 3] + 1,
)
kernel(
    "through a buffer",
    "out[i] = in[i];\n"
    + DEVICE
    + "float x = out[g * 64 + 63 - t];\n"
    + DEVICE
    + "out[i] = x * 2;\n"
    + DEVICE
    + "x = out[g * 64 + (t ^ 1)];\n"
    + DEVICE
    + "out[i] = x;\n",
    lambda x: 2 * x[::-1][np.arange(64) ^ 1],
)
kernel(
    "segments",
    "threadgroup float s[8];\nif (t < 8) {\nfloat sum = 0;\nfor (uint k = 0; k < 8; ++k) sum += in[g * 64 + t * 8 + k];\ns[t] = sum;\n}\n"
    + B
    + "float before = 0;\n"
    "for (uint k = 0; k < t / 8; ++k) before += s[k];\nout[i] = before + in[i];\n",
    lambda x: np.repeat(np.r_[0, np.cumsum(x.reshape(8, 8).sum(1))[:-1]], 8) + x,
)
kernel(
    "by bits",
    "threadgroup uint s[64], n[64];\ns[t] = uint(in[i]);\n"
    + B
    + "for (uint bit = 0; bit < 5; ++bit) {\nuint x = s[t];\nn[t] = 1 - (x >> bit & 1);\n"
    + B
    + "uint before = 0, all = 0;\nfor (uint k = 0; k < 64; ++k) {\nif (k < t) before += n[k];\nall += n[k];\n}\nuint at = n[t] ? before : all + t - before;\n"
    + B
    + "s[at] = x;\n"
    + B
    + "}\nout[i] = s[t];\n",
    np.sort,
)
kernel("Walsh", TILE + LOAD + B + "for (uint n = 1; n < 64; n *= 2) {\nfloat a = s[t], b = s[t ^ n];\n" + B + "s[t] = t & n ? b - a : a + b;\n" + B + "}\nout[i] = s[t];\n",
       lambda x: _walsh(x))  # fmt: skip


def _elimination(x: np.ndarray) -> np.ndarray:
    a = x.reshape(8, 8).copy()
    for k in range(8):
        a = a + a[k][None, :] - a[:, k][:, None]
    return a.ravel()


def _smoothed(x: np.ndarray) -> np.ndarray:
    for _ in range(3):
        wide = np.r_[0, x, 0]
        x = wide[:-2] + wide[2:]
    return x


def _walsh(x: np.ndarray) -> np.ndarray:
    at, n = np.arange(64), 1
    while n < 64:
        x = np.where(at & n, x[at ^ n] - x, x + x[at ^ n])
        n *= 2
    return x
