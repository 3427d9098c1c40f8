"""Threads' arrays in kernels with barriers: side by side with those of the other lanes, and loops that stay loops."""

from __future__ import annotations

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object
from metal_ops.metal.lane_arrays import Arrays
from metal_ops.metal.lane_ir import Function

from .shaders import HEADER, VALIDATION, by_lanes_and_by_fibers

# A thread's work between barriers, round after round. i: its number, n: how many there are, at: its number in the grid.
BODIES = {
    "numbers": "float a[40] = {};",
    "halves": "half a[40] = {};",
    "bytes": "uchar a[40] = {};",
    "longs": "long a[40] = {};",
    "many_zeros": "float a[400] = {};",
}
ROUNDS = """
        for (uint k = 0; k < 40; ++k) {
          s[i] = x[at] * float(k + 1);
          simdgroup_barrier(mem_flags::mem_threadgroup);
          a[k] += s[i ^ 1] * 3 + k;
          if (i % 3 == 0) a[(k + i) % 40] += 2;
          simdgroup_barrier(mem_flags::mem_threadgroup);
          sum += float(a[(k * p.rounds) % 40]);
        }
        y[at] = sum;"""
BODIES = {name: f"{declared} float sum = 0;{ROUNDS}" for name, declared in BODIES.items()}
BODIES |= {
    "vectors": """
        float4 a[6];
        for (uint k = 0; k < 6; ++k) a[k] = float4(x[at], k, i, 1);
        for (uint k = 0; k < 12; ++k) {
          a[k % 6].yz += simd_sum(x[at] * k);
          a[(k + p.rounds) % 6] *= 0.5f;
        }
        y[at] = dot(a[0] + a[3], a[5] - a[1]);""",
    "structs": """
        struct { float f; float2 v; } a[8];
        for (uint k = 0; k < 8; ++k) a[k].f = x[at], a[k].v = float2(k, i);
        for (uint k = 0; k < 16; ++k) {
          a[k % 8].v.y += simd_shuffle_xor(a[(k + 1) % 8].f, 1);
          a[k % 8].f += a[k / 2].v.y;
        }
        y[at] = a[3].f + a[p.rounds].v.y;""",
    "matrices": """
        simdgroup_float8x8 sums[24], left, right;
        for (uint k = 0; k < 24; ++k) sums[k] = make_filled_simdgroup_matrix<float, 8>(0.25f * k);
        s[i] = x[at], s[i + 1024] = x[at] * 0.5f;
        simdgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 24; ++k) {
          simdgroup_load(left, s + i / 32 * 32, 4);
          simdgroup_load(right, s + 1024 + i / 32 * 32, 4, ulong2(0), k % 2 == 1);
          simdgroup_multiply_accumulate(sums[k], left, right, sums[(k + p.rounds) % 24]);
        }
        float sum = 0;
        for (uint k = 0; k < 24; ++k) sum += sums[k].thread_elements().x - 0.5f * sums[k].thread_elements().y;
        y[at] = sum;""",
    "two_arrays": """
        float a[20], b[20];
        for (uint k = 0; k < 20; ++k) a[k] = x[at] + k, b[k] = k;
        thread float* mine = i % 2 ? a : b;
        for (uint k = 0; k < 20; ++k) mine[(k + p.rounds) % 20] += simd_max(a[k]);
        y[at] = a[7] + b[11] * mine[3];""",
}
SOURCE = "struct Parameters { uint rounds; };\n" + "".join(
    f"""kernel void {name}(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
    constant Parameters& p [[buffer(2)]], uint at [[thread_position_in_grid]],
    uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {{
  threadgroup float s[2048];{body}
}}
"""
    for name, body in BODIES.items()
)


@pytest.fixture(scope="module")
def both():
    return by_lanes_and_by_fibers(SOURCE)


@pytest.mark.parametrize("width", [32, 64, 50, 1])
@pytest.mark.parametrize("name", BODIES)
def test_arrays_side_by_side_hold_what_arrays_hold(both, name, width):
    x = np.random.default_rng(width).standard_normal(2 * width, np.float32)
    if name == "bytes":
        x = np.abs(x) * 0.1
    results = []
    for made in both:
        y = np.zeros_like(x)
        made[name].run(2 * width, width, {0: x, 1: y, 2: np.uint32(3)})
        results.append(y.view(np.uint32))
    np.testing.assert_array_equal(*results)
    assert np.any(results[0])
    assert both[0][name].lanes != VALIDATION


THREAD = """define void @f(ptr %0, i64 %1) {
  %3 = alloca [12 x %pair], align 16
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(96) %3, i8 0, i64 96, i1 false)
  %4 = getelementptr inbounds [12 x %pair], ptr %3, i64 0, i64 %1, i32 1
  %5 = load ACCESS, ptr %4, align 4
  store i32 7, ptr %3, align 16
  MORE
  ret void
}
"""


@pytest.mark.parametrize(
    ("access", "more", "expected"),
    [
        ("float", "", (24, 4)),
        ("i32", "store <2 x float> zeroinitializer, ptr %4, align 4", (24, 4)),
        ("half", "", None),  # elements of two sizes
        ("float", "store ptr %4, ptr %0", None),  # who knows where it is read
        ("float", "call void @g(ptr %3)", None),
        ("float", "%6 = getelementptr i8, ptr %3, i64 2", None),  # between elements
        ("float", "%6 = select i1 true, ptr %3, ptr %0", None),
    ],
)
def test_which_arrays_lie_side_by_side(access, more, expected):
    function = Function(THREAD.replace("ACCESS", access).replace("MORE", more), 2)
    before = [i.text for block in function.blocks.values() for i in block.instructions]
    Arrays(function, {"%pair": "{ float, float }"}).place()
    code = [i.text for block in function.blocks.values() for i in block.instructions]
    assert function.arrays == ({} if expected is None else {"%v3": expected})
    if expected is None:
        assert code == before
        return
    assert "getelementptr [256 x i8], ptr %v3, i64 %v1" in code
    assert "getelementptr i8, ptr %v4.step0, i64 128" in code
    assert "store i32 0, ptr %v3.set1.at23" in code
    assert f"load {access}, ptr %v4" in code
    assert not any("memset" in text or "store <" in text for text in code)


def test_code_does_not_grow_with_the_rounds_of_a_loop_of_meetings():
    def size(rounds: int) -> int:
        source = f"""{HEADER}kernel void f(device float* y, uint i [[thread_index_in_threadgroup]]) {{
          simdgroup_float8x8 sums[{rounds}];
          #pragma unroll
          for (uint k = 0; k < {rounds}; ++k) simdgroup_load(sums[k], y + 64 * k);
          #pragma unroll
          for (uint k = 0; k < {rounds}; ++k) simdgroup_multiply_accumulate(sums[k], sums[k], sums[k], sums[k]);
          #pragma unroll
          for (uint k = 0; k < {rounds}; ++k) simdgroup_store(sums[k], y + 64 * k);
        }}"""
        return len(compile_object("rounds.metal", Options(validation=False), source)[0])

    assert size(48) < 3 * size(4)
