"""Kernels whose threads meet, as loops over lanes: bit for bit what a fiber a thread computes, for every shape of group."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object, compiler, lanes, link, toolchain
from metal_ops.metal.abi import abi, number
from metal_ops.metal.lane_ir import Fallback, Function, Instruction
from metal_ops.metal.launch import Library

from .shaders import HEADER, VALIDATION

# Of each kernel: what it has that could go wrong. i: the thread's number in its threadgroup, n: how many there are,
# at: its number in the grid.
BODIES = {
    "return_before_barrier": """
        s[i] = x[at];
        if (i % 3 == 1) return;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = s[(i + 5) % n] + s[0];""",
    "branches_between_barriers": """
        s[i] = 0;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i % 2) s[i] = x[at] * 2; else if (x[at] > 0) s[i] = sin(x[at]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float v = s[n - 1 - i];
        for (uint k = 0; k < i % 5; ++k) v = v * 0.5f + s[k % n];
        y[at] = v;""",
    "loop_of_barriers": """
        float sum = 0;
        for (uint k = 0; k < p.rounds; ++k) {
          s[i] = x[at] + k;
          threadgroup_barrier(mem_flags::mem_threadgroup);
          for (uint j = 0; j < n; j += 3) sum += s[(i + j) % n] * 0.125f;
          threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        y[at] = sum;""",
    "tree": """
        s[i] = x[at];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint half_ = 512; half_ > 0; half_ /= 2) {
          if (i < half_ && i + half_ < n) s[i] += s[i + half_];
          threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        y[at] = s[0];""",
    "atomics": """
        if (i == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 3; ++k) {
          if (x[at] > 0) atomic_fetch_add_explicit(&count, i + k, memory_order_relaxed);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = float(atomic_load_explicit(&count, memory_order_relaxed));""",
    "arrays_across_barriers": """
        float mine[9];
        for (uint k = 0; k < 9; ++k) mine[k] = x[at] * float(k + i);
        s[i] = mine[i % 9];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        mine[(i + p.rounds) % 9] = s[(i + 1) % n];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float sum = 0;
        for (uint k = 0; k < 9; ++k) sum += mine[(k * p.rounds) % 9];
        y[at] = sum;""",
    "types_across_barriers": """
        half h = half(x[at]); uchar c = uchar(i * 7); bool b = x[at] > 0; float3 v = float3(x[at], i, n); short2 t = short2(i, 3);
        ulong l = ulong(i) << 33; bool2 bb = bool2(b, i % 2);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        s[i] = float(h) + c + b + v.x * v.y - v.z + t.x * t.y + float(l >> 33) + bb.x - bb.y;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = s[n - 1 - i] + float(h) * c + (b ? v.y : v.z) + t.x + float(l >> 32) + bb.y;""",
    "strides": """
        float sum = 0, most = -1e9;
        for (uint k = i; k < p.length; k += n) { sum += x[k] * x[k]; most = max(most, x[k]); }
        s[i] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = i; k < n; k += 7) most += s[k];
        y[at] = most;""",
    "simd_functions": """
        const float v = x[at];
        const float a = simd_sum(v), b = simd_max(v), c = simd_shuffle_xor(v, 3), d = simd_prefix_inclusive_sum(v);
        const uint e = uint((simd_vote::vote_t)simd_ballot(v > 0));
        const float f = simd_shuffle_down(v, 2) + quad_sum(v) + simd_broadcast(v, 1) + simd_broadcast_first(v);
        s[i] = a + b * c - d + float(e % 1024) + f + simd_is_first() + float(simd_product(half(1 + i % 2)));
        if (simd_any(v > 1)) s[i] += 1;
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = s[i] + s[i / 32 * 32];""",
    "reduction": """
        float v = simd_sum(x[at]);
        if (i % 32 == 0) s[i / 32] = v;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i < 32) {
          v = simd_sum(i < (n + 31) / 32 ? s[i] : 0.f);
          if (i == 0) s[0] = v;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = x[at] / s[0];""",
    "simd_where_lanes_part": """
        float v = x[at];
        if (i % 4 == 1) v += simd_sum(v); else if (i % 4 == 2) v -= simd_max(v);
        y[at] = v;""",
    "meetings_in_a_loop_of_each": """
        float v = 0;
        for (uint k = 0; k <= i % 7; ++k) v += simd_sum(x[at]);
        y[at] = v;""",
    "meetings_after_such_a_loop": """
        float v = 0;
        for (uint k = 0; k <= i % 7; ++k) v += simd_sum(x[at]);
        y[at] = v + simd_max(v);""",
    "positions": """
        s[i] = at3.x + 3 * at3.y + 7 * at3.z + x[at];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = s[n - 1 - i] + in3.x * 2 + in3.y * 5 + in3.z + simd_sum(float(in3.x));""",
    "by_columns_of_the_grid": """
        const uint block = at3.x / 32;
        float v = 0;
        for (uint k = 0; k < block % 5 + 1; ++k) v += simd_sum(x[at] + k);
        y[at] = v;""",
    "chosen_by_constant": """
        float v = x[at];
        if (twice) { s[i] = v; threadgroup_barrier(mem_flags::mem_threadgroup); v += s[(i + 1) % n]; }
        switch (p.rounds) {
          case 1: v = simd_sum(v); break;
          case 4: v = simd_min(v) * 2; break;
          default: v = -v;
        }
        y[at] = v;""",
    "matrices": """
        threadgroup float* mine = s + i / 32 * 64 % 256;
        for (uint k = i % 32; k < 64; k += min(n, 32u)) mine[k] = x[(at + k * 3) % p.length];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_float8x8 a, b, c(1.5f), d = make_filled_simdgroup_matrix<float, 8>(0.25f);
        simdgroup_load(a, mine, 8);
        simdgroup_load(b, mine, 8, 0, true);
        for (uint k = 0; k < p.rounds; ++k) {
          simdgroup_multiply_accumulate(d, a, b, d);
          simdgroup_multiply(c, a, c);
        }
        y[at] = d.thread_elements().x - c.thread_elements().y;""",
}
# Those that stay with fibers, and why.
FIBERS = {
    "meetings_after_such_a_loop": "threads that go round a loop of meetings at different times",
}
SHAPES = [
    1,
    3,
    31,
    32,
    33,
    64,
    100,
    1024,
    (8, 4),
    (16, 3),
    (32, 4),
    (64, 2),
    (40, 2),
    (5, 3, 2),
    (4, 4, 4),
    (32, 2, 3),
]
SIGNATURE = """(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant Parameters& p [[buffer(2)]],
    uint3 at3 [[thread_position_in_grid]], uint3 grid [[threads_per_grid]], uint3 in3 [[thread_position_in_threadgroup]],
    uint i [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]]) {
  threadgroup float s[1024];
  threadgroup atomic_uint count;
  const uint n = size.x * size.y * size.z, at = at3.x + grid.x * (at3.y + grid.y * at3.z);
"""
SOURCE = (
    HEADER
    + "struct Parameters { uint rounds, length; };\nconstant bool twice [[function_constant(0)]];\n"
    + "".join(f"kernel void {name}{SIGNATURE}{body}\n}}\n" for name, body in BODIES.items())
)


def _library(source: str = SOURCE, **options) -> Library:
    data, _ = compile_object("lanes.metal", Options(validation=VALIDATION, **options), source)
    with tempfile.NamedTemporaryFile(suffix=".metallib") as file:
        file.write(link([data]))
        file.flush()
        return Library(file.name, VALIDATION)


@pytest.fixture(scope="module")
def both():
    """The kernels by lanes, and by fibers."""
    by_lanes = _library()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAL_OPS_FIBERS", "1")
        by_fibers = _library()
    return by_lanes, by_fibers


def _run(library: Library, name: str, shape, rounds: int) -> np.ndarray:
    group = (*((shape,) if isinstance(shape, int) else shape), 1, 1)[:3]
    # A threadgroup and a part of one in the first two directions.
    threads = (group[0] * 2 + group[0] // 2, group[1] + group[1] // 2, group[2])
    n = math.prod(threads)
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype(np.float32)
    y = np.zeros(n, np.float32)
    parameters = np.array([rounds, n], np.uint32)
    library[name].run(
        threads, group, {0: x, 1: y, 2: parameters}, constants={0: np.bool_(rounds % 2)}
    )
    return y


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_lanes_compute_what_fibers_do(both, name, shape):
    for rounds in (1, 4):
        got, expected = (_run(library, name, shape, rounds) for library in both)
        np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))
        assert np.any(expected)


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
@pytest.mark.parametrize("name", BODIES)
def test_which_kernels_go_by_lanes(both, name):
    by_lanes, by_fibers = both
    assert by_lanes[name].lanes == (name not in FIBERS)
    assert by_lanes[name].fibers and by_fibers[name].fibers and not by_fibers[name].lanes


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_lanes_that_part_meet_again():
    """As on a GPU. With a fiber a thread, those that passed by the first function would meet without the others."""
    library = _library(
        HEADER
        + """kernel void parting(device int* y, uint i [[thread_index_in_threadgroup]]) {
          int v = i;
          if (i % 4 == 1) v = simd_sum(v);
          y[i] = simd_shuffle_xor(v, 1);
        }"""
    )
    y = np.zeros(64, np.int32)
    library["parting"].run(64, 64, {0: y})
    v = np.arange(64)
    for group in (v[:32], v[32:]):
        group[1::4] = group[1::4].sum()
    np.testing.assert_array_equal(y, v[np.arange(64) ^ 1])


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_wider_vectors_compute_the_same(both):
    wide = _library(f"#if defined(__METAL_CPU__)\n#pragma metal_ops wide_vectors\n#endif\n{SOURCE}")
    for name in ("strides", "simd_functions", "matrices", "tree"):
        assert wide[name].lanes
        np.testing.assert_array_equal(_run(wide, name, 64, 4), _run(both[1], name, 64, 4))


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_scratch_holds_a_stack_a_simdgroup(both):
    """Where lanes are loops a threadgroup needs 32 stacks at most, not 1024."""
    launch = abi().struct("metallib_launch")(
        threadgroup_size=(ctypes.c_uint32 * 3)(1024, 1, 1),
        threadgroup_lengths=(ctypes.c_uint32 * number("MAX_BUFFERS"))(),
    )
    sizes = [library["tree"]._table.scratch_size(launch) for library in both]
    assert sizes[0] * 16 < sizes[1]


def test_the_choice_is_part_of_what_the_cache_knows(monkeypatch):
    def key() -> str:
        return compiler.unit("lanes.metal", Options(), SOURCE).key

    without = key()
    monkeypatch.setenv("METAL_OPS_FIBERS", "1")
    assert key() != without
    monkeypatch.setenv("METAL_OPS_FIBERS", "0")
    assert key() == without


def test_code_does_not_depend_on_how_strings_hash():
    """Sets of names have another order in each process."""
    program = f"""
import os, sys
from metal_ops.metal import Options, compile_object
text = {HEADER!r} + "// " + os.environ["PYTHONHASHSEED"] + '''
kernel void sums(device float* y, uint i [[thread_index_in_threadgroup]]) {{
  float a = y[i], b = y[i + 32], c = y[i + 64], d = y[i + 96], e = y[i + 128];
  threadgroup_barrier(mem_flags::mem_device);
  y[i] = simd_sum(a) + b * simd_max(c) + d * e;
}}'''
sys.stdout.buffer.write(compile_object("sums.metal", Options(validation=False), text)[0])
"""
    objects = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in (str(time.time_ns() % 2**31 + n) for n in range(2))
    ]
    assert objects[0] and len(set(objects)) == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("add nuw nsw i32 %1, %2", "i32"),
        ("load <4 x half>, ptr %p, align 2", "<4 x half>"),
        ("icmp samesign ult <2 x i32> %a, %b", "<2 x i1>"),
        ("select i1 %c, ptr %a, ptr %b", "ptr"),
        ("call noundef range(i64 -4, 9) i64 @llvm.smin.i64(i64 %1, i64 16)", "i64"),
        ("call align 4 ptr @llvm.threadlocal.address.p0(ptr @s)", "ptr"),
        (
            "shufflevector <4 x float> %a, <4 x float> poison, <2 x i32> <i32 0, i32 1>",
            "<2 x float>",
        ),
        ("extractelement <3 x float> %a, i64 1", "float"),
        ("zext nneg i16 %a to i64", "i64"),
        ("phi { i32, i1 } [ %a, %b ]", "{ i32, i1 }"),
    ],
)
def test_types_of_values(text, kind):
    assert Instruction("%r", text, text.split(" ", 1)[0]).type() == kind


def test_what_is_not_understood_falls_back():
    with pytest.raises(Fallback, match="several entries|nowhere|no instruction"):
        Function("define void @f() {\n  br label %1\n\nnot an instruction\n}\n", 0)
    with pytest.raises(Fallback, match="is kept"):
        Instruction("%r", "va_arg ptr %a, i32", "va_arg").type()


def test_nothing_is_done_without_meetings():
    text = "define void @f() {\n  ret void\n}\n"
    assert lanes.by_lanes(text, toolchain.default_target()) == (text, {})
