"""Simdgroup matrices in kernels with barriers: work that all lanes do once, bit for bit as with a fiber per thread."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object, lanes
from metal_ops.metal.lane_arrays import Arrays
from metal_ops.metal.lane_ir import Fallback, Function
from metal_ops.metal.lane_matrices import Operation

from .shaders import HEADER, VALIDATION, by_lanes_and_by_fibers

# i: the thread's number in its threadgroup, at: in the grid. s has 64 floats for each simdgroup at `mine`, half as many
# different ones behind each other, and x the same as h.
BODIES = {
    "halves": """
        simdgroup_half8x8 a, b, c(half(0.5));
        simdgroup_load(a, h + 8, 12);
        simdgroup_load(b, h, 20, ulong2(3, 1), true);
        simdgroup_multiply_accumulate(c, a, b, c);
        simdgroup_multiply(a, b, c);
        y[at] = float(a.thread_elements().x) - float(c.thread_elements().y);""",
    "bfloats": """
        simdgroup_bfloat8x8 a, b(bfloat(1.25f)), c;
        simdgroup_load(a, (device const bfloat*)h, 9, ulong2(0), true);
        simdgroup_multiply(c, a, b);
        simdgroup_multiply_accumulate(c, a, a, c);
        y[at] = float(c.thread_elements().x) + float(c.thread_elements().y);""",
    "mixed": """
        simdgroup_half8x8 a;
        simdgroup_bfloat8x8 b;
        simdgroup_float8x8 c, d = make_filled_simdgroup_matrix<float, 8>(0.125f);
        simdgroup_load(a, x, 8);  // converted
        simdgroup_load(b, h, 8);
        simdgroup_load(c, h, 16, ulong2(1, 2), true);
        simdgroup_multiply_accumulate(d, a, c, d);
        simdgroup_multiply_accumulate(d, b, a, d);
        simdgroup_store(d, (threadgroup half*)mine, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = float(((threadgroup half*)mine)[2 * (i % 32)]) + d.thread_elements().y;""",
    "stored": """
        simdgroup_float8x8 a, b;
        simdgroup_load(a, x, 8);
        simdgroup_load(b, x + 16, 24);
        simdgroup_store(a, mine, 8, ulong2(0), true);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = mine[i % 32] - mine[63 - i % 32];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_multiply(b, b, a);
        simdgroup_store(b, mine);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[at] += mine[2 * (i % 32)];""",
    "elements": """
        simdgroup_float8x8 a, b;
        simdgroup_load(a, x, 8);
        for (uint k = 0; k < 3; ++k) {
          b.thread_elements() = a.thread_elements() * float(i + k);
          b.thread_elements()[k % 2] += 0.5f;
          simdgroup_multiply_accumulate(a, b, a, b);
          a.thread_elements().y *= 0.03125f;
          a.thread_elements().x = simd_shuffle_xor(a.thread_elements().x, 3) * 0.0625f;
        }
        y[at] = a.thread_elements()[0] - a.thread_elements()[1];""",
    "copies": """
        struct Four { simdgroup_float8x8 part[2][2]; } a, b;
        for (short j = 0; j < 4; ++j) simdgroup_load(a.part[j / 2][j % 2], x + 16 * j, 8);
        b = a;
        for (short j = 0; j < 4; ++j) {
          const simdgroup_float8x8 one = b.part[j % 2][j / 2];
          simdgroup_multiply_accumulate(a.part[j / 2][j % 2], one, b.part[0][1], a.part[1][0]);
          if (j == 1) b = a;
        }
        y[at] = a.part[1][1].thread_elements().x - b.part[0][0].thread_elements().y;""",
    "some_lanes": """
        simdgroup_float8x8 a(1.0f), b(2.0f), c(0.5f);
        // Of fibers the first that waits goes on with all that wait with it: lanes meet again if it is not among those that pass.
        if (i % 4 != 1) simdgroup_load(a, x, 8);
        if (i % 32 % 3 == 1) simdgroup_load(b, x + 5, 10, ulong2(1, 1), true); else simdgroup_multiply(b, a, a);
        simdgroup_barrier(mem_flags::mem_none);
        if (i % 32 % 7 != 3) simdgroup_multiply_accumulate(c, a, b, c);
        simdgroup_barrier(mem_flags::mem_none);
        if (i % 5 == 2) return;
        simdgroup_store(c, mine, 8, ulong2(0), true);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = mine[i % 32] + a.thread_elements().y - b.thread_elements().x;""",
    "where_a_simdgroup_decides": """
        simdgroup_float8x8 a(1.0f), b(0.5f);
        for (uint k = 0; k < 4; ++k) {
          if ((i / 32 + k) % 2) simdgroup_load(a, x + 8 * k, 8);
          else if (simd_sum(x[at]) > 0) simdgroup_multiply_accumulate(b, a, a, b);
          if (k == 2 && i / 32 == 1) break;
        }
        y[at] = a.thread_elements().x + b.thread_elements().y * 0.25f;""",
    "left_at_different_times": """
        simdgroup_float8x8 a(0.5f), b(2.0f);
        for (uint k = 0; k <= i % 3; ++k) {
          simdgroup_load(a, x + 3 * k, 8);
          simdgroup_multiply(b, a, b);
        }
        y[at] = a.thread_elements().x + b.thread_elements().y;""",
    # The structs beside matrices hold the number of iterations.
    "structs": """
        struct State { int n; simdgroup_float8x8 sums[2]; int m; } t;
        t.n = 3 + (x[1000] > 9), t.m = 1 + (x[1001] > 9);
        for (int j = 0; j < 2; ++j) t.sums[j] = simdgroup_float8x8(1.0f);
        simdgroup_float8x8 a;
        for (int k = 0; k < t.n; ++k) {
          simdgroup_load(a, x + 8 * k, 64);
          for (int j = 0; j < t.m; ++j) simdgroup_multiply_accumulate(t.sums[0], a, a, t.sums[1]);
          t.m ^= 3;
          simdgroup_barrier(mem_flags::mem_none);
        }
        y[at] = t.sums[0].thread_elements().x + float(t.m);""",
    # Each of these has lanes in another form alone: with its loops unrolled, and with products on copies as well.
    "unrolled": """
        uint rounds[3];
        for (uint j = 0; j < 3; ++j) rounds[j] = j + 1 + (x[1000 + j] > 9);
        float v = x[i];
        for (uint j = 0; j < 3; ++j) {
          for (uint k = 0; k < rounds[j]; ++k) v = v * 0.5f + simd_sum(v) * 0.125f;
        }
        y[at] = v;""",
    "unrolled_structs": """
        struct State { int n; simdgroup_float8x8 sum; } t;
        t.n = 2 + (x[1003] > 9), t.sum = simdgroup_float8x8(1.0f);
        uint rounds[3];
        for (uint j = 0; j < 3; ++j) rounds[j] = j + 1 + (x[1000 + j] > 9);
        simdgroup_float8x8 a;
        for (uint j = 0; j < 3; ++j) {
          for (uint k = 0; k < rounds[j]; ++k) {
            simdgroup_load(a, x + 8 * k, 64);
            for (int m = 0; m < t.n; ++m) simdgroup_multiply_accumulate(t.sum, a, a, t.sum);
          }
        }
        y[at] = t.sum.thread_elements().x + float(t.n);""",
    # Who knows that all lanes pass by together, or none?
    "loads_where_lanes_part": """
        simdgroup_float8x8 a(0.5f), b(2.0f);
        if (x[1000 + i / 32] < 5) {
          for (uint k = 0; k < 3 + i / 1024; ++k) {
            simdgroup_load(a, x + 3 * k, 8, ulong2(0), k == 1);
            a.thread_elements() += b.thread_elements();
          }
        }
        simdgroup_multiply_accumulate(b, a, a, b);
        if (h[at] < 9) for (uint k = 0; k < 3; ++k) simdgroup_store(b, mine, 8, ulong2(0), true);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = mine[i % 32] + a.thread_elements().x;""",
    "arrays": """
        simdgroup_float8x8 left[3], right, sums[6];
        for (short j = 0; j < 6; ++j) sums[j] = make_filled_simdgroup_matrix<float, 8>(float(j));
        for (uint k = 0; k < 40; k += 8) {
          for (short j = 0; j < 3; ++j) simdgroup_load(left[j], x + 8 * j + k, 16);
          for (short j = 0; j < 2; ++j) {
            simdgroup_load(right, x + 5 * j + k, 16, ulong2(0), true);
            for (short l = 0; l < 3; ++l) simdgroup_multiply_accumulate(sums[3 * j + l], left[l], right, sums[3 * j + l]);
          }
        }
        float sum = 0;
        for (short j = 0; j < 6; ++j) sum = sum * 0.5f + sums[j].thread_elements().x - sums[j].thread_elements().y;
        y[at] = sum;""",
}
SOURCE = "".join(
    f"""kernel void {name}(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
    device const half* h [[buffer(2)]], uint at [[thread_position_in_grid]], uint i [[thread_index_in_threadgroup]]) {{
  threadgroup float s[2048];
  threadgroup float* mine = s + i / 32 * 64;
  mine[i % 32] = x[i], mine[i % 32 + 32] = x[i + 1];
  simdgroup_barrier(mem_flags::mem_threadgroup);{body}
}}
"""
    for name, body in BODIES.items()
)
VALUES = np.random.default_rng(0).standard_normal(1024).astype(np.float16)


@pytest.fixture(scope="module")
def both():
    return by_lanes_and_by_fibers(SOURCE)


@pytest.mark.parametrize("width", [32, 128, 50, 3])
@pytest.mark.parametrize("name", BODIES)
def test_a_simdgroup_computes_what_fibers_do(both, name, width):
    results = []
    for made in both:
        y = np.full(2 * width, 7, np.float32)
        made[name].run(2 * width, width, {0: VALUES.astype(np.float32), 1: y, 2: VALUES})
        results.append(y)
    np.testing.assert_array_equal(results[0].view(np.uint32), results[1].view(np.uint32))
    assert np.isfinite(results[0]).all() and len(np.unique(results[0])) > 1
    assert both[0][name].lanes != VALIDATION


def test_products_of_whole_matrices(both):
    x = VALUES.astype(np.float32)
    y = np.zeros(32, np.float32)
    both[0]["stored"].run(32, 32, {0: x, 1: y, 2: VALUES})
    a = x[:64].reshape(8, 8)
    b = np.stack([x[16 + 24 * row : 24 + 24 * row] for row in range(8)])
    turned, product = a.T.reshape(-1), (b.astype(np.float64) @ a).reshape(-1)
    expected = turned[:32] - turned[63:31:-1] + product[::2]
    np.testing.assert_allclose(y, expected, atol=1e-5)


def _made(monkeypatch, body: str) -> str:
    """The module by lanes that the optimiser is given."""
    made: list[str] = []

    def kept(*a, by_lanes=lanes.by_lanes):
        (text,), left = by_lanes(*a)
        assert not left
        made.append(text)
        return [text], left

    monkeypatch.setattr(lanes, "by_lanes", kept)
    source = f"""{HEADER}kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
        uint i [[thread_index_in_threadgroup]]) {{ {body} }}
        // {time.time_ns()}"""  # not in the cache
    compile_object("matrices.metal", Options(validation=False), source)
    (one,) = made
    return one


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_operations_on_matrices_are_no_loops_over_lanes(monkeypatch):
    """Loads, products and stores of a loop over tiles are calls, one behind the other."""
    text = _made(
        monkeypatch,
        """simdgroup_float8x8 a, b, c = make_filled_simdgroup_matrix<float, 8>(0.0f);
        for (uint k = i / 32; k < 64; k += 8) {
          simdgroup_load(a, x + k, 64);
          simdgroup_load(b, x + 64 * k, 64, ulong2(0), true);
          simdgroup_multiply_accumulate(c, a, b, c);
        }
        simdgroup_store(c, y + i / 32 * 64);""",
    )
    code = "".join(re.findall(r"(?ms)^define internal \S+ @_msl_lanes0\S*\(.*?^}", text))
    calls = re.findall(r"call void @_ZN4_msl\d+(load|multiply|store)_matrix\w+\(", code)
    assert sorted(calls) == ["load", "load", "multiply", "store"]
    assert "@_msl_matrix(" not in code
    assert len(re.findall(r"!llvm\.loop", code)) == 1  # zeros of c


MATRICES = """define void @f(ptr %0, i64 %1) {
  %3 = alloca [12 x %matrix], align 16
  %4 = alloca [2 x %matrix], align 16
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(96) %3, i8 0, i64 96, i1 false)
  %5 = getelementptr inbounds [12 x %matrix], ptr %3, i64 0, i64 %1
  %6 = getelementptr inbounds i8, ptr %5, i64 4
  %7 = load float, ptr %6, align 4
  store float %7, ptr %3, align 4
  MORE
  call void @_msl_matrix(ptr noundef nonnull %5, ptr noundef %0, ptr noundef null, ptr noundef null, i64 noundef 8, i32 noundef 0, i32 noundef 8, i64 noundef 0, ptr noundef nonnull @whole, ptr noundef nonnull @lane)
  ret void
}
"""


@pytest.mark.parametrize(
    ("more", "arrays", "code"),
    [
        ("", {"%v3": (12, 8)}, "getelementptr i8, ptr %v5, i64 4"),
        ("%8 = getelementptr i8, ptr %3, i64 20", {"%v3": (12, 8)}, "getelementptr i8, ptr %v3, i64 516"),
        ("store i64 0, ptr %5, align 4", {"%v3": (12, 8)}, "store i64 0, ptr %v5"),
        ("store <2 x float> zeroinitializer, ptr %5, align 4", {"%v3": (12, 8)}, "getelementptr i8, ptr %v5, i64 4"),
        # Several matrices at a time are copied one by one.
        ("call void @llvm.memcpy.p0.p0.i64(ptr align 16 %3, ptr align 16 %4, i64 16, i1 false)", {"%v3": (12, 8), "%v4": (2, 8)},
         "getelementptr i8, ptr %v4, i64 256"),
        ("store i64 0, ptr %6, align 4", {}, ""),  # of two matrices
        ("store <4 x float> zeroinitializer, ptr %5, align 4", {}, ""),
        ("%8 = getelementptr float, ptr %3, i64 %1", {"%v3": (12, 8)}, "mul i64 %v8.of3, 32"),
        ("%8 = getelementptr float, ptr %3, i64 %1\n %9 = getelementptr float, ptr %8, i64 1", {}, ""),
        ("store ptr %5, ptr %0", {}, ""),
    ],
)  # fmt: skip
def test_which_matrices_lie_side_by_side(more, arrays, code):
    function = Function(MATRICES.replace("MORE", more), 2)
    Arrays(function, {"%matrix": "{ { float, float } }"}).place()
    assert function.arrays == arrays
    texts = [i.text for block in function.blocks.values() for i in block.instructions]
    assert not code or code in texts
    if arrays:
        assert "getelementptr [256 x i8], ptr %v3, i64 %v1" in texts


def test_a_function_that_is_chosen_at_run_time_is_no_operation():
    function = Function(MATRICES.replace("MORE", "").replace("@whole", "%0"), 2)
    (call,) = [
        i for b in function.blocks.values() for i in b.instructions if "_msl_matrix" in i.text
    ]
    with pytest.raises(Fallback, match="not known before"):
        Operation.of(call)
