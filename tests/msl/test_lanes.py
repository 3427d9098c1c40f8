"""Kernels with barriers, as loops over lanes: bit for bit as with a fiber per thread, for every shape of group."""

from __future__ import annotations

import ctypes
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

import numpy as np
import pytest

from metal_ops.metal import (
    Options,
    compile_object,
    compiler,
    cpu,
    lane_code,
    lanes,
    link,
    toolchain,
)
from metal_ops.metal.abi import abi, number
from metal_ops.metal.lane_ir import Fallback, Function, Instruction, size_of
from metal_ops.metal.lane_vectors import Vectors
from metal_ops.metal.launch import Library

from .shaders import HEADER, VALIDATION

# Each kernel's risk. i: the thread's number in its threadgroup, n: how many there are, at: its number in the grid.
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
# Simdgroup functions of all sizes at once, of lanes that part too, whose slots may not touch each other.
BODIES["types_in_slots"] = """
        const float v = x[at];
        const half4 h = half4(half(v), half(i), 1, half(n)) * 0.25h;
        const float3 f = simd_shuffle_xor(float3(v, i, n), 5) + simd_shuffle_up(float3(1, v, 2), 1);
        const half4 g = simd_shuffle_and_fill_down(h, h + 1, 3) + quad_shuffle_xor(h, 1);
        const long l = simd_sum(long(i) << 33) + simd_prefix_exclusive_sum(long(i) << 20);
        const uchar c = simd_max(uchar(i * 37)) ^ simd_shuffle_rotate_down(uchar(i * 11), 9);
        const short2 t = simd_broadcast_first(short2(i, -3)) + simd_shuffle_down(short2(5, i), 2);
        float w = f.x + f.y * f.z + float(g.x + g.y * g.w) + float(l >> 20) * 1e-9f + c + t.x * t.y;
        if (i % 4 == 1) w += simd_sum(half(i % 8)); else if (i % 4 == 2) w -= simd_shuffle_xor(float4(v, i, 2, w), 4).w;
        else if (i % 8 == 3) w += float(simd_max(ulong(i) << 35) >> 35) + quad_product(ushort(3));
        y[at] = w;"""
# Loops within a region, turn by turn: their ends known for all lanes or not, and one that ends the kernel.
BODIES["fours_from_lane_to_lane"] = """
        float most = -1e9, sum = 0;
        device const float4* fours = (device const float4*)x;
        for (uint k = i; k < p.length / 4; k += n) {
          for (short j = 0; j < 4; ++j) most = max(most, fours[k][j]);
        }
        s[i] = most;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const float top = s[0];
        for (uint k = i; k < p.length / 4; k += n) {
          for (short j = 0; j < 4; ++j) sum += exp(fours[k][j] - top);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        s[i] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const float all = s[0] + s[n - 1];
        y[at] = 1;
        for (uint k = i; k < p.length; k += n) y[at] = y[at] * 0.5f + all * x[k];"""
BODIES["turns_that_are_left"] = """
        float sum = 0;
        for (uint k = i; k < p.length; k += n) {
          if (x[k] > 1.5f) break;
          if (x[k] < 0 && k % 3) continue;
          sum += x[k];
        }
        s[i] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < p.rounds * 9; ++k) sum += x[(k * n + i) % p.length] * 0.5f;
        for (uint k = i; k < n + p.rounds; k += 5) {
          for (uint j = k % 4; j < 3 + p.rounds; ++j) sum = sum * 0.75f + s[(k + j) % n];
          if (sum > 40) return;
        }
        y[at] = sum;"""
# Short loops over arrays, left early too, and pairs that go round a loop.
BODIES["arrays_taken_apart"] = """
        float sums[4] = {0.f}, values[16];
        for (uint part = i; part < p.length / 16; part += n) {
          for (short j = 0; j < 16; ++j) values[j] = x[part * 16 + j];
          for (short r = 0; r < 4; ++r) {
            if (r > short(p.rounds)) break;
            for (short j = 0; j < 16; ++j) sums[r] += values[j] * float((j * r + i) % 5);
          }
        }
        float2 pair = float2(x[at], 1);
        for (uint k = 0; k < p.rounds + 1; ++k) {
          s[i] = pair.x;
          threadgroup_barrier(mem_flags::mem_threadgroup);
          pair = simd_shuffle_xor(pair, 1).yx * 0.5f + s[(i + k) % n];
          threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        y[at] = pair.y + simd_sum(sums[0]) - sums[1] + simd_max(sums[2]) * pair.x + sums[3] * pair.y;"""
BODIES["arrays_of_matrices"] = """
        threadgroup float* mine = s + i / 32 * 64 % 256;
        for (uint k = i % 32; k < 64; k += min(n, 32u)) mine[k] = x[(at + k * 3) % p.length];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_float8x8 left[2], right, sums[2];
        for (short j = 0; j < 2; ++j) sums[j] = make_filled_simdgroup_matrix<float, 8>(float(j));
        for (uint k = 0; k < p.rounds; ++k) {
          for (short j = 0; j < 2; ++j) simdgroup_load(left[j], mine, 8, 0, j == 1);
          simdgroup_load(right, mine, 8);
          for (short j = 0; j < 2; ++j) simdgroup_multiply_accumulate(sums[j], left[j], right, sums[j]);
        }
        y[at] = sums[0].thread_elements().x - sums[1].thread_elements().y;"""
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


def source_of(names: Iterable[str]) -> str:
    kernels = (f"kernel void {name}{SIGNATURE}{BODIES[name]}\n}}\n" for name in names)
    head = "struct Parameters { uint rounds, length; };\nconstant bool twice [[function_constant(0)]];\n"
    return HEADER + head + "".join(kernels)


SOURCE = source_of(BODIES)


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
    """As on a GPU. With a fiber per thread, those that passed by the first function would go on without the others."""
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
    names = ("strides", "simd_functions", "matrices", "tree")
    asked = "#if defined(__METAL_CPU__)\n#pragma metal_ops wide_vectors\n#endif\n"
    wide = _library(asked + source_of(names))
    for name in names:
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


WHERE = """{{ threadgroup float s[256];
  s[i] = x[{at}]; threadgroup_barrier(mem_flags::mem_threadgroup);
  y[{at}] = simd_sum(s[i ^ 1]) + {at} / 8;
}}
"""
# A kernel that asks for x alone, and one that asks for y as well; i is the thread's number in its
# threadgroup.
ROWS = HEADER + "".join(
    f"kernel void {name}(device float* x [[buffer(0)]], device float* y [[buffer(1)]], {kind} at [[thread_position_in_grid]], "
    "uint i [[thread_index_in_threadgroup]]) " + WHERE.format(at=at)
    for name, kind, at in (("line", "uint", "at"), ("plane", "uint2", "(at.y * 40 + at.x)"))
)


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_who_asks_for_x_alone_has_no_code_for_short_rows(monkeypatch):
    made = []
    monkeypatch.setattr(
        lanes, "by_lanes", lambda *a, by_lanes=lanes.by_lanes: made.append(by_lanes(*a)) or made[-1]
    )
    library = _library(f"{ROWS}// {time.time_ns()}\n")  # not in the cache
    (((text,), left),) = made
    assert not left and re.findall(r"(?m)^define .*@_msl_lanes(\d+(?:_any)?)\(", text) == [
        "0",
        "1",
        "1_any",
    ]
    monkeypatch.setenv("METAL_OPS_FIBERS", "1")
    fibers = _library(ROWS)
    # Its threadgroups of short rows are run all the same, by fibers, which take their own scratch memory.
    for name, threads, group in (
        ("line", 80, 40),
        ("line", (40, 6), (8, 3)),
        ("plane", (40, 6), (8, 3)),
    ):
        x = np.arange(240, dtype=np.float32)
        by_lanes, by_fibers = np.zeros((2, 240), np.float32)
        library[name].run(threads, group, {0: x, 1: by_lanes})
        fibers[name].run(threads, group, {0: x, 1: by_fibers})
        np.testing.assert_array_equal(by_lanes, by_fibers, f"{name} {group}")
        assert np.any(by_lanes)


@pytest.mark.parametrize(
    ("body", "lowered"),
    [
        # Lanes part for good at a barrier, outside of any loop: unrolling has nothing to change there.
        ("if (i % 3 == 1) return; s[i] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = s[i ^ 1];", 1),
        ("float v = 0; for (uint k = 0; k <= i % 7; ++k) v += simd_sum(x[i]); x[i] = v + simd_max(v);", 2),
    ],
)  # fmt: skip
@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_loops_are_unrolled_where_that_may_help(monkeypatch, body, lowered):
    asked: list[bool] = []
    lightly = lanes._lightly_optimised

    def counted(text, target, unrolled):
        asked.append(unrolled)
        return lightly(text, target, unrolled)

    monkeypatch.setattr(lanes, "_lightly_optimised", counted)
    _library(HEADER + "kernel void f(device float* x, uint i [[thread_index_in_threadgroup]]) "
             f"{{ threadgroup float s[64]; {body} }} // {time.time_ns()}\n")  # fmt: skip
    assert sorted(set(asked)) == [False, True][:lowered]


def test_the_choice_is_part_of_what_the_cache_knows(monkeypatch):
    def key() -> str:
        return compiler.unit("lanes.metal", Options(), SOURCE).key

    without = key()
    monkeypatch.setenv("METAL_OPS_FIBERS", "1")
    assert key() != without
    monkeypatch.setenv("METAL_OPS_FIBERS", "0")
    assert key() == without


@pytest.mark.full("compiles in four processes")
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


def test_slots_are_where_the_library_has_them():
    header = (toolchain.library_root() / "lib/sync.h").read_text()
    for name, expected in (("kSimdWidth", lane_code.LANES), ("kSlotWords", lane_code.SLOT_WORDS)):
        found = re.search(rf"constexpr unsigned {name} = (\d+);", header)
        assert found and int(found[1]) == expected


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_loops_that_lanes_take_turn_by_turn(monkeypatch):
    """Also one behind which the kernel ends, and those that read four values per lane."""
    loops: dict[str, int] = {}

    class Seen(lanes.Regions):
        def __init__(self, flow, *rest):
            super().__init__(flow, *rest)
            loops[name] = sum(header in self.all for header in flow.loops)

    monkeypatch.setattr(lanes, "Regions", Seen)
    for name, least in {"strides": 1, "fours_from_lane_to_lane": 3, "loop_of_barriers": 1}.items():
        _library(f"{HEADER}struct Parameters {{ uint rounds, length; }};\n"
                 f"kernel void f{SIGNATURE}{BODIES[name]}\n}}\n// {time.time_ns()}\n")  # fmt: skip
        assert loops[name] >= least, name


VECTORS = """define void @_msl_thread0(i32 %0, float %1) {
  %3 = insertelement <2 x float> poison, float %1, i64 0
  %4 = insertelement <2 x float> %3, float 2.0, i64 1
  br label %5

5:
  %6 = phi nsz <2 x float> [ %4, %2 ], [ %9, %5 ]
  %7 = bitcast <2 x float> %6 to <2 x i32>
  %8 = extractelement <2 x i32> %7, i64 1
  %9 = phi_or_not
  %10 = extractelement <2 x float> %6, i64 0
  %11 = fcmp olt float %10, 1.0
  br i1 %11, label %5, label %12

12:
  store i32 %8, ptr null
  ret void
}
"""


def test_vectors_that_hold_numbers_together_are_taken_apart():
    function = Function(
        VECTORS.replace("phi_or_not", "insertelement <2 x float> %6, float %1, i64 0"), 2
    )
    Vectors(function).take_apart()
    code = [i.text for block in function.blocks.values() for i in block.instructions]
    assert not any("<2 x" in text for text in code)
    assert "phi nsz float [ %v1, %v2 ], [ %v1, %v5 ]" in code
    assert "phi nsz float [ 2.0, %v2 ], [ %v6.e1, %v5 ]" in code
    assert "store i32 %v7.e1, ptr null" in code


def test_vectors_that_are_computed_stay():
    text = VECTORS.replace("phi_or_not", "fadd <2 x float> %6, %6")
    function = Function(text, 2)
    Vectors(function).take_apart()
    code = [i.text for block in function.blocks.values() for i in block.instructions]
    assert code == [i.text for b in Function(text, 2).blocks.values() for i in b.instructions]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ptr", (8, 8)),
        ("[3 x half]", (6, 2)),
        ("{ i8, float, i8 }", (12, 4)),
        ('%"struct.a::b"', (24, 8)),
        ("[2 x %c]", (4, 2)),
        ("{ half, <3 x float> }", (32, 16)),
    ],
)
def test_sizes_of_types(kind, expected):
    types = {'%"struct.a::b"': "{ %c, double, i16 }", "%c": "{ half }"}
    assert size_of(kind, types) == expected


def test_sizes_of_types_that_are_not_known():
    for kind in ("%d", "x86_fp80", "<4 x i1>"):
        with pytest.raises(LookupError):
            size_of(kind, {})


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
    assert lanes.by_lanes(text, toolchain.default_target()) == ([text], {})


def test_the_stack_of_a_kernel_is_that_of_its_loop_and_of_its_largest_region(tmp_path):
    """They are on it together; a kernel whose regions alone fitted wrote over the next simdgroup's stack."""
    usage = [
        ("_msl_simdgroup5", 31736), ("_msl_lanes5_0", 136), ("_msl_lanes5_whole", 38584),
        ("_msl_simdgroup6", 100), ("_msl_lanes6_0", 60000), ("multiply_some", 712),
    ]  # fmt: skip
    text = "".join(f"<stdin>:{name}\t{size}\tstatic\n" for name, size in usage)
    (tmp_path / "a.su").write_text(text)
    needed = cpu._stack_needed(tmp_path / "a.o")
    assert needed == 31736 + 38584 + 712 + cpu.STACK_RESERVE
    assert cpu._stack_needed(tmp_path / "none.o") == cpu.STACK_RESERVE
