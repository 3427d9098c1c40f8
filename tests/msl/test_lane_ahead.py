"""Loops over barriers prefetch the memory that they will read some iterations later."""

from __future__ import annotations

import time

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object, lanes, link
from metal_ops.metal.lane_ahead import TURNS
from metal_ops.metal.launch import Library

from .shaders import HEADER, VALIDATION

pytestmark = pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
PREFETCH = "call void @llvm.prefetch.p0(ptr "
ARGUMENTS = """device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant uint& rows [[buffer(2)]],
    uint2 at [[thread_position_in_threadgroup]], uint i [[thread_index_in_threadgroup]], ushort lane [[thread_index_in_simdgroup]],
    ushort simdgroup [[simdgroup_index_in_threadgroup]], ushort simdgroups [[simdgroups_per_threadgroup]]"""


def _object(monkeypatch, body: str, change=lambda text: text) -> tuple[bytes, str]:
    """A kernel, and the module by lanes that the optimiser is given."""
    made: list[str] = []

    def kept(*a, by_lanes=lanes.by_lanes):
        (text,), left = by_lanes(*a)
        assert not left
        made.append(change(text))
        return made[-1:], left

    monkeypatch.setattr(lanes, "by_lanes", kept)
    source = (
        f"{HEADER}kernel void f({ARGUMENTS}) {{ {body} }}\n// {time.time_ns()}"  # not in the cache
    )
    data = compile_object("ahead.metal", Options(validation=False), source)[0]
    (text,) = made
    return data, text


ROWS = """float sum = 0;
    for (uint row = simdgroup; row < rows; row += simdgroups) {
      sum += simd_sum(x[row * 64 + 16 + lane] * x[row * 64 + 16]);
    }
    y[i] = sum;"""
TURN_BY_TURN = """float sum = 0;
    for (uint k = i; k < rows * 64; k += 32 * simdgroups) sum += x[k];
    threadgroup_barrier(mem_flags::mem_none);
    y[i] = simd_sum(sum);"""
SHORT_ROWS = """float sum = at.x;
    for (uint row = simdgroup; row < rows; row += simdgroups) sum += simd_sum(x[row * 64 + 32 + lane] + at.y);
    y[i] = sum;"""

NESTED = """float sum = 0;
    for (uint block = 0; block < 3; ++block) {
      for (uint row = simdgroup; row < rows; row += simdgroups) sum += simd_sum(x[(block * 16 + 1 + row) * 64 + lane]);
    }
    y[i] = sum;"""


@pytest.mark.parametrize(
    ("body", "group", "first"),
    [
        (ROWS, 64, [64 * (row + 2 * TURNS) + 16 for row in range(8)]),
        (ROWS, 96, [64 * (row + 3 * TURNS) + 16 for row in range(8)]),
        (ROWS, 40, [64 * (row + 2 * TURNS) + 16 for row in range(8)]),  # where lanes are missing, too
        (TURN_BY_TURN, 64, [32 * k + 64 * TURNS for k in range(16 + 2)]),  # the last turn is made by none
        (NESTED, 64, [64 * (16 * block + 1 + row + 2 * TURNS) for block in range(3) for row in range(8)]),
        (SHORT_ROWS, (8, 8), [64 * (row + 2 * TURNS) + 32 for row in range(8)]),
    ],
    ids=["rows", "three_simdgroups", "some_lanes", "turn_by_turn", "nested", "short_rows"],
)  # fmt: skip
def test_memory_is_asked_for_what_lanes_will_read(monkeypatch, tmp_path, body, group, first):
    """The prefetch is replaced by the writing of a mark."""

    def marked(text: str) -> str:
        lines = text.split("\n")
        return "\n".join(
            f"  store i8 1, ptr {line.split(PREFETCH)[1].split(',')[0]}"
            if PREFETCH in line
            else line
            for line in lines
        )

    (tmp_path / "ahead.metallib").write_bytes(link([_object(monkeypatch, body, marked)[0]]))
    kernel = Library(str(tmp_path / "ahead.metallib"))["f"]
    x = np.zeros(64 * 64, np.float32)
    kernel.run(group, group, {0: x, 1: np.zeros(96, np.float32), 2: np.uint32(8)})
    expected = {4 * k + line for k in first for line in (0, 64)}
    found = set(np.flatnonzero(x.view(np.uint8)).tolist())
    # Where a turn is begun that no lane makes depends on how the loop was turned round.
    assert found <= expected and len(found) >= len(expected) - 4


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("sum += simd_sum(x[row * 64 + lane]);", 2),
        ("sum += simd_sum(((device const half*)x)[row * 64 + lane]);", 1),
        ("const float2 v = ((device const float2*)x)[row * 32 + lane]; sum += simd_sum(v.x * v.y);", 4),  # the same lines
        ("sum += simd_sum(x[row * 64 + 99 * lane]);", 0),  # far apart
        ("sum += simd_sum(x[lane] * row);", 0),  # the same in each turn
        ("sum += simd_sum(x[uint(x[row]) * 64 + lane]);", 0),  # who knows where
        ("y[row] = sum; sum += simd_sum(own[row % 8]); own[row % 8] = sum;", 0),
        ("float a[8]; a[row % 8] = sum; sum += simd_sum(a[(row + 3) % 8]);", 0),  # a lane's own
    ],
)  # fmt: skip
def test_what_memory_is_asked_for(monkeypatch, body, count):
    loop = f"""float sum = 0, own[8] = {{}};
      for (uint row = simdgroup; row < rows; row += simdgroups) {{ {body} }}
      y[i] = sum;"""
    # For whole simdgroups, and for others.
    assert _object(monkeypatch, loop)[1].count(PREFETCH) == 2 * count


# A lane multiplies 16 numbers at a time, of rows that lie one after the other.
OWN_ROWS = """float sums[2] = {};
    for (uint part = lane; part < rows; part += 32) {
      for (short row = 0; row < 2; ++row) {
        device const uchar* w = (device const uchar*)x + 128 * rows * row + 18 * part;
        for (short k = 0; k < 16; ++k) sums[row] += float(w[k]);
      }
    }
    y[i] = simd_sum(sums[0]) + simd_sum(sums[1]);"""


def test_lanes_with_rows_of_their_own_ask_for_the_line_behind(monkeypatch, tmp_path):
    def marked(text: str) -> str:
        return (
            text.replace(PREFETCH, "call void @mark(ptr ").replace(", i32 0, i32 3, i32 1)", ")")
            + "define internal void @mark(ptr %0) {\n  store i8 1, ptr %0\n  ret void\n}\n"
        )

    data, text = _object(monkeypatch, OWN_ROWS, marked)
    (tmp_path / "behind.metallib").write_bytes(link([data]))
    kernel = Library(str(tmp_path / "behind.metallib"))["f"]
    x = np.zeros(4096, np.float32)
    kernel.run(32, 32, {0: x, 1: np.zeros(32, np.float32), 2: np.uint32(64)})
    found = np.flatnonzero(x.view(np.uint8) == 1)
    first = found[0] - 64  # which of the 16 it is, says the compiler
    assert 0 <= first < 16
    expected = [8192 * row + 18 * part + 64 + first for row in range(2) for part in range(64)]
    np.testing.assert_array_equal(found, expected)
    # At the end of a block, where it does not part instructions that become one vector.
    lines = text.split("\n")
    behind = [
        lines[n + 1] for n, line in enumerate(lines) if "@mark(ptr %" in line and "call" in line
    ]
    assert behind and all(line.lstrip().startswith(("br ", "%", "call")) for line in behind)
