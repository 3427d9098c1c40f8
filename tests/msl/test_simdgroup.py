"""simdgroup and quadgroup functions against a sequential oracle, lane by lane, also in divergent and partial groups."""

from __future__ import annotations

import numpy as np
import pytest

from .shaders import library

RNG = np.random.default_rng(2)
LANES = np.arange(32)


def _reduced(f):
    return lambda x: np.full(len(x), f(x))


def _inclusive(f):
    return lambda x: np.array([f(x[: i + 1]) for i in range(len(x))])


def _exclusive(f, identity):
    return lambda x: np.array([f(x[:i]) if i else identity for i in range(len(x))])


def _lanes(f):
    """Values of the source lane f(lane); lanes whose source is outside keep their own."""
    return lambda x: np.array([x[f(i)] if 0 <= f(i) < len(x) else x[i] for i in range(len(x))])


_xor = np.bitwise_xor.reduce
# name: (type, body of the kernel with x, lane; oracle of the values of one group). Results are exact: integers, and
# floats that are small integers.
SIMD = {
    "sum_float": ("float", "simd_sum(x)", _reduced(np.sum)), "sum_half": ("half", "simd_sum(x)", _reduced(np.sum)),
    "sum_int": ("int", "simd_sum(x)", _reduced(np.sum)), "sum_ulong": ("ulong", "simd_sum(x)", _reduced(np.sum)),
    "sum_ushort": ("ushort", "simd_sum(x)", _reduced(np.sum)), "sum_float3": ("float", "simd_sum(float3(x, 1, 2)).x", _reduced(np.sum)),
    "sum_bfloat": ("float", "float(simd_sum(bfloat(x / 64)) * 64)", None),
    "product": ("float", "simd_product(select(1.0f, 2.0f, lane % 8 == 0))", lambda x: np.full(len(x), 16.0)),
    "min_float": ("float", "simd_min(x)", _reduced(np.min)), "max_half": ("half", "simd_max(x)", _reduced(np.max)),
    "max_int": ("int", "simd_max(x)", _reduced(np.max)), "min_uchar": ("uchar", "simd_min(x)", _reduced(np.min)),
    "and": ("uint", "simd_and(x | 0x90)", _reduced(lambda x: np.bitwise_and.reduce(x | 0x90))),
    "or": ("uint", "simd_or(x)", _reduced(np.bitwise_or.reduce)), "xor": ("uint", "simd_xor(x)", _reduced(_xor)),
    "inclusive_sum": ("int", "simd_prefix_inclusive_sum(x)", np.cumsum),
    "exclusive_sum": ("float", "simd_prefix_exclusive_sum(x)", _exclusive(np.sum, 0)),
    "inclusive_product": ("uint", "simd_prefix_inclusive_product(x | 1)", lambda x: np.cumprod((x | 1).astype(np.uint32), dtype=np.uint32)),
    "exclusive_product": ("uint", "simd_prefix_exclusive_product(x | 1)", lambda x: np.roll(np.cumprod((x | 1).astype(np.uint32), dtype=np.uint32), 1) * (LANES > 0) + (LANES == 0)),
    "broadcast": ("float", "simd_broadcast(x, 5)", _lanes(lambda i: 5)), "broadcast_first": ("int", "simd_broadcast_first(x)", _lanes(lambda i: 0)),
    "shuffle": ("float", "simd_shuffle(x, ushort((lane * 7) % 32))", _lanes(lambda i: i * 7 % 32)),
    "shuffle_xor": ("uint", "simd_shuffle_xor(x, 9)", _lanes(lambda i: i ^ 9)), "shuffle_up": ("float", "simd_shuffle_up(x, 3)", _lanes(lambda i: i - 3)),
    "shuffle_down": ("half", "simd_shuffle_down(x, 4)", _lanes(lambda i: i + 4)), "rotate_up": ("int", "simd_shuffle_rotate_up(x, 5)", _lanes(lambda i: (i - 5) % 32)),
    "rotate_down": ("int", "simd_shuffle_rotate_down(x, 6)", _lanes(lambda i: (i + 6) % 32)),
    "shuffle_bool4": ("int", "int(simd_shuffle_xor(bool4(x > 50), 1).w)", lambda x: (x[LANES ^ 1] > 50).astype(int)),
    "fill_up": ("int", "simd_shuffle_and_fill_up(x, x + 1000, 3)", lambda x: np.where(LANES < 3, x[(LANES - 3) % 32] + 1000, x[(LANES - 3) % 32])),
    "fill_down": ("int", "simd_shuffle_and_fill_down(x, x + 1000, 2)", lambda x: np.where(LANES > 29, x[(LANES + 2) % 32] + 1000, x[(LANES + 2) % 32])),
    "fill_up_8": ("int", "simd_shuffle_and_fill_up(x, x + 1000, 1, 8)", lambda x: np.where(LANES % 8 < 1, x[LANES // 8 * 8 + 7] + 1000, x[LANES - 1])),
    "ballot": ("uint", "uint((simd_vote::vote_t)simd_ballot(x > 50))", lambda x: np.full(32, sum(1 << i for i in range(32) if x[i] > 50), np.uint32)),
    "all": ("int", "int(simd_all(x >= 0)) * 2 + int(simd_all(x > 50))", lambda x: np.full(32, 2)),
    "any": ("int", "int(simd_any(x < 0)) * 2 + int(simd_any(x > 50))", lambda x: np.full(32, 1)),
    "vote_members": ("int", "int(simd_ballot(x > 50).any()) * 2 + int(simd_ballot(true).all())", lambda x: np.full(32, 3)),
    "is_first": ("int", "int(simd_is_first())", lambda x: (LANES == 0).astype(int)),
    "active": ("uint", "uint((simd_vote::vote_t)simd_active_threads_mask())", lambda x: np.full(32, 0xFFFFFFFF, np.uint32)),
    "quad_sum": ("float", "quad_sum(x)", lambda x: np.repeat(x.reshape(8, 4).sum(1), 4)),
    "quad_max": ("int", "quad_max(x)", lambda x: np.repeat(x.reshape(8, 4).max(1), 4)),
    "quad_shuffle_xor": ("int", "quad_shuffle_xor(x, 2)", lambda x: x[LANES ^ 2]),
    "quad_broadcast": ("int", "quad_broadcast(x, 1)", lambda x: np.repeat(x[1::4], 4)),
    "quad_scan": ("int", "quad_prefix_inclusive_sum(x)", lambda x: np.cumsum(x.reshape(8, 4), 1).ravel()),
    "quad_any": ("int", "int(quad_any(lane == 5))", lambda x: (LANES // 4 == 1).astype(int)),
    "quad_rotate": ("int", "quad_shuffle_rotate_down(x, 1)", lambda x: x[LANES // 4 * 4 + (LANES + 1) % 4]),
    # Only the lanes that make the call take part.
    "divergent": ("int", "lane % 3 == 0 ? simd_sum(x) : -simd_sum(x)", lambda x: np.where(LANES % 3 == 0, x[LANES % 3 == 0].sum(), -x[LANES % 3 != 0].sum())),
    "divergent_first": ("int", "lane > 6 ? int(simd_is_first()) + simd_broadcast_first(x) : 0", lambda x: np.where(LANES > 6, x[7] + (LANES == 7), 0)),
    "divergent_shuffle": ("int", "lane % 2 ? simd_shuffle(x, 4) + simd_shuffle(x, 5) : 0", lambda x: np.where(LANES % 2, x + x[5], 0)),
    "loop": ("int", "[&] { int s = 0; for (uint i = 0; i <= lane; ++i) s += simd_sum(1); return s; }()", lambda x: np.array([sum(32 - j for j in range(i + 1)) for i in LANES])),
    "in_function": ("int", "twice(x) + helper::sum(x)", lambda x: 2 * x + x.sum()),
    "combined": ("int", "simd_max(x) - simd_min(x) + simd_shuffle_xor(simd_shuffle_xor(x, 1), 1)", lambda x: x.max() - x.min() + x),
}  # fmt: skip
SIMD["sum_bfloat"] = ("float", "float(simd_sum(bfloat(lane % 4)))", lambda x: np.full(32, 48.0))
DTYPES = {
    "float": np.float32,
    "half": np.float16,
    "int": np.int32,
    "uint": np.uint32,
    "ulong": np.uint64,
    "ushort": np.uint16,
    "uchar": np.uint8,
}
GROUPS = 3


@pytest.fixture(scope="module")
def shader():
    kernels = "".join(
        f"kernel void {name}(device const {t}* in, device {t}* out, uint i [[thread_position_in_grid]], "
        f"uint lane [[thread_index_in_simdgroup]]) {{ {t} x = in[i]; out[i] = {body}; }}\n"
        for name, (t, body, _) in ((f"k_{n}", v) for n, v in SIMD.items())
    )
    helpers = """
        template <typename T> T twice(T x) { return simd_shuffle_xor(simd_shuffle_xor(x, 1), 1) * 2; }
        struct helper { static int sum(int x) { return simd_sum(x); } };
    """
    return library(helpers + kernels, std=(3, 2))  # 3.2: lambdas


@pytest.mark.parametrize("name", SIMD)
def test_function(name, shader):
    type_, _, oracle = SIMD[name]
    x = RNG.integers(0, 100, 32 * GROUPS).astype(DTYPES[type_])
    out = np.zeros_like(x)
    kernel = shader[f"k_{name}"]
    assert kernel.fibers
    kernel.run(len(x), len(x), {0: x, 1: out})
    expected = np.concatenate([np.asarray(oracle(x[32 * g : 32 * g + 32])) for g in range(GROUPS)])
    np.testing.assert_array_equal(out, expected.astype(x.dtype))


@pytest.mark.parametrize("threads", [1, 5, 31, 33, 50])
def test_partial_simdgroup(threads, shader):
    """A threadgroup that is no multiple of 32: the last simdgroup has fewer lanes."""
    x = np.arange(1, threads + 1, dtype=np.int32)
    out = np.zeros_like(x)
    shader["k_sum_int"].run(threads, threads, {0: x, 1: out})
    np.testing.assert_array_equal(out, np.where(x <= 32, x[:32].sum(), x[32:].sum()))


def test_lanes_that_returned_take_no_part():
    shader = library("""
        kernel void early(device int* out, uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
          if (lane >= 20) return;
          int s = simd_sum(1);
          if (lane >= 10) { out[i] = s; return; }
          out[i] = s * 100 + simd_sum(1);
        }""")
    out = np.zeros(64, np.int32)
    shader["early"].run(64, 64, {0: out})
    np.testing.assert_array_equal(
        out.reshape(2, 32), np.tile(np.repeat([2010, 20, 0], [10, 10, 12]), (2, 1))
    )


@pytest.mark.parametrize("t", ["float", "half", "bfloat"])
def test_matrix(t):
    """Tiled matrix product by 8x8 simdgroup matrices; load and store with stride, origin and transposition."""
    shader = library(f"""
        typedef {t} T;
        kernel void matmul(device const T* a, device const T* b, device float* c, constant uint& n,
                           uint2 tile [[threadgroup_position_in_grid]]) {{
          simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
          simdgroup_matrix<T, 8, 8> x, y;
          for (uint k = 0; k < n; k += 8) {{
            simdgroup_load(x, a + tile.y * 8 * n + k, n);
            simdgroup_load(y, b, n, ulong2(tile.x * 8, k));
            simdgroup_multiply_accumulate(sum, x, y, sum);
          }}
          simdgroup_store(sum, c + tile.y * 8 * n, n, ulong2(tile.x * 8, 0));
        }}
        kernel void others(device const T* a, device T* out, ushort lane [[thread_index_in_simdgroup]]) {{
          threadgroup T shared[64];
          simdgroup_matrix<T, 8, 8> x, y, z(T(2));
          simdgroup_load(x, a, 8, 0, true);
          simdgroup_multiply(y, x, z);
          simdgroup_store(y, shared);
          simdgroup_barrier(mem_flags::mem_threadgroup);
          for (uint i = lane; i < 64; i += 32) out[i] = shared[i];
          y = x * z;
          y.thread_elements()[0] += T(1);
          simdgroup_store(y, out + 64, 8, 0, true);
        }}""")
    from .shaders import from_bfloat, to_bfloat

    bits = (
        (lambda x: to_bfloat(x))
        if t == "bfloat"
        else (lambda x: x.astype(np.float16 if t == "half" else np.float32))
    )
    n = 24
    a, b = RNG.integers(-4, 5, (2, n, n)).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    shader["matmul"].run(
        (n // 8 * 32, n // 8), (32, 1), {0: bits(a), 1: bits(b), 2: c, 3: np.uint32(n)}
    )
    np.testing.assert_array_equal(c, a @ b)
    given = np.arange(64, dtype=np.float32).reshape(8, 8)
    out = bits(np.zeros((2, 8, 8), np.float32))
    shader["others"].run(32, 32, {0: bits(given), 1: out})
    out = from_bfloat(out.reshape(-1)).reshape(2, 8, 8) if t == "bfloat" else out
    np.testing.assert_array_equal(out[0], given.T * 2)
    plus = np.zeros((8, 8))
    plus[:, ::2] = 1  # a lane's first element lies in an even column
    np.testing.assert_array_equal(out[1], (given.T * 2 + plus).T)
