"""Sums of many terms at a time, in kernels with fast math whose lanes have rows of their own: kept apart, as vectors."""

from __future__ import annotations

import time

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object, lanes, link
from metal_ops.metal.lane_ir import Function
from metal_ops.metal.lane_sums import Cells, Sums
from metal_ops.metal.launch import Library

from .shaders import HEADER, VALIDATION

pytestmark = pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
DEPTH = 2048
ROWS = 12
SOURCE = """struct Block {{ half d; char q[16]; }};
kernel void f(device const Block* w [[buffer(0)]], device const float* x [[buffer(1)]], device float* y [[buffer(2)]],
    constant uint& rows [[buffer(3)]], uint group [[threadgroup_position_in_grid]], ushort lane [[thread_index_in_simdgroup]],
    ushort simdgroup [[simdgroup_index_in_threadgroup]], ushort simdgroups [[simdgroups_per_threadgroup]]) {{
  const uint row = (group * simdgroups + simdgroup) * 4;
{body}
}}
"""
PARTS = f"for (uint part = lane; part < {DEPTH // 16}; part += 32)"
TERMS = "float(b.q[i]) * float(b.d) * x[16 * part + i]"
BLOCK = f"device const Block& b = w[min(row + r, rows - 1) * {DEPTH // 16} + part];"
WRITE = "if (lane == 0 && row + r < rows) y[row + r] = total;"
# A simdgroup's work, and the function that turns the sums of rows into the results.
BODIES = {
    "an_array": (
        f"""float sums[4] = {{0.f}};
        {PARTS} for (short r = 0; r < 4; ++r) {{ {BLOCK} for (short i = 0; i < 16; ++i) sums[r] += {TERMS}; }}
        for (short r = 0; r < 4; ++r) {{ const float total = simd_sum(sums[r]); {WRITE} }}""",
        1.0,
        0.0,
    ),
    "rows_that_end": (
        f"""float sums[4] = {{0.f}};
        {PARTS} for (short r = 0; r < 4; ++r) {{ if (row + r >= rows) break; {BLOCK} for (short i = 0; i < 16; ++i) sums[r] += {TERMS}; }}
        for (short r = 0; r < 4; ++r) {{ const float total = simd_sum(sums[r]); {WRITE} }}""",
        1.0,
        0.0,
    ),
    "one_sum": (
        f"""for (short r = 0; r < 4; ++r) {{
          float sum = lane == 3 ? 5.f : 0.f;
          {PARTS} {{ {BLOCK} for (short i = 0; i < 16; ++i) sum += {TERMS}; }}
          const float total = simd_sum(sum); {WRITE}
        }}""",
        1.0,
        5.0,
    ),
    "set_before_and_between": (
        f"""float sums[4];
        for (short r = 0; r < 4; ++r) sums[r] = lane == 0 ? 3.f : 0.f;
        {PARTS} for (short r = 0; r < 4; ++r) {{ {BLOCK} for (short i = 0; i < 16; ++i) sums[r] += {TERMS}; }}
        for (short r = 0; r < 4; ++r) sums[r] *= 2.f;
        {PARTS} for (short r = 0; r < 4; ++r) {{ {BLOCK} for (short i = 0; i < 16; ++i) sums[r] += {TERMS}; }}
        for (short r = 0; r < 4; ++r) {{ const float total = simd_sum(sums[r]); {WRITE} }}""",
        3.0,
        6.0,
    ),
    "more_terms_than_sums": (
        f"""float sums[4] = {{0.f}};
        {PARTS} for (short r = 0; r < 4; ++r) {{ {BLOCK}
          for (short i = 0; i < 16; ++i) sums[r] += {TERMS} + x[16 * part + i] * 0.5f * {TERMS};
        }}
        for (short r = 0; r < 4; ++r) {{ const float total = simd_sum(sums[r]); {WRITE} }}""",
        None,
        0.0,
    ),
    "some_turns": (
        f"""for (short r = 0; r < 4; ++r) {{
          float sum = 0;
          {PARTS} {{ {BLOCK} if (float(b.d) != 0.f) {{ for (short i = 0; i < 16; ++i) sum += {TERMS}; }} }}
          const float total = simd_sum(sum); {WRITE}
        }}""",
        1.0,
        0.0,
    ),
}


def _made(monkeypatch, body: str, fast: bool = True) -> tuple[bytes, str]:
    """A kernel, and the module by lanes that the optimiser is given."""
    made: list[str] = []

    def kept(*a, by_lanes=lanes.by_lanes):
        texts, left = by_lanes(*a)
        assert not left
        made.extend(texts)
        return texts, left

    monkeypatch.setattr(lanes, "by_lanes", kept)
    source = HEADER + SOURCE.format(body=body) + f"// {time.time_ns()}"  # not in the cache
    options = Options(validation=False, fast_math=fast)
    return compile_object("sums.metal", options, source)[0], "".join(made)


def _sums(text: str) -> int:
    """How many kernels' functions have vectors of sums."""
    return text.count("ptr noalias nocapture %msl.f")


@pytest.mark.parametrize("rows", [ROWS, ROWS - 3])
@pytest.mark.parametrize("name", BODIES)
def test_sums_apart_are_the_sum(monkeypatch, tmp_path, name, rows):
    body, times, more = BODIES[name]
    data, text = _made(monkeypatch, body)
    assert _sums(text)
    (tmp_path / "sums.metallib").write_bytes(link([data]))
    kernel = Library(str(tmp_path / "sums.metallib"))["f"]
    assert kernel.lanes
    numbers = np.random.default_rng(0)
    w = np.zeros((ROWS, DEPTH // 16), np.dtype([("d", "f2"), ("q", "i1", 16)]))
    w["d"] = numbers.uniform(0.01, 0.1, w.shape) * (numbers.uniform(size=w.shape) > 0.2)
    w["q"] = numbers.integers(-128, 128, (*w.shape, 16))
    x = numbers.standard_normal(DEPTH).astype(np.float32)
    y = np.full(ROWS, 7, np.float32)
    kernel.run(96, 32, {0: w, 1: x, 2: y, 3: np.uint32(rows)})
    unpacked = (w["d"].astype(np.float64)[..., None] * w["q"]).reshape(ROWS, DEPTH)
    expected = unpacked @ x if times else unpacked @ (x + 0.5 * x.astype(np.float64) ** 2)
    expected = expected * (times or 1) + more
    expected[rows:] = 7
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("body", "fast"),
    [
        (BODIES["an_array"][0], False),  # the order of terms is the user's
        (BODIES["an_array"][0].replace("i < 16", "i < 4"), True),  # few terms
        (  # asked for in each turn
            f"""float sums[4] = {{0.f}};
            {PARTS} for (short r = 0; r < 4; ++r) {{ {BLOCK}
              for (short i = 0; i < 16; ++i) sums[r] += {TERMS};
              if (sums[r] > 1e3f) sums[r] = 1e3f;
            }}
            for (short r = 0; r < 4; ++r) {{ const float total = simd_sum(sums[r]); {WRITE} }}""",
            True,
        ),
        (  # side by side from lane to lane
            """float sum = 0;
            for (uint k = 0; k < rows; ++k) { for (short i = 0; i < 16; ++i) sum += x[k * 512 + i * 32 + lane]; }
            const float total = simd_sum(sum); if (lane == 0) y[row] = total;""",
            True,
        ),
    ],
    ids=["exact", "few_terms", "asked_for", "by_lanes"],
)
def test_which_sums_stay_one(monkeypatch, body, fast):
    assert not _sums(_made(monkeypatch, body, fast)[1])


TERMS_OF_A_TURN = "\n".join(f"  %t{n} = load float, ptr %0, align 4" for n in range(8))
ADDITIONS = "\n".join(
    f"  %a{n} = fadd fast float %{f'a{n - 1}' if n else 'sum'}, %t{n}" for n in range(8)
)
LOOP = f"""define void @f(ptr %0, i1 %1) {{
  br label %loop
loop:
  %sum = phi float [ 1.0, %2 ], [ %next, %latch ]
{TERMS_OF_A_TURN}
{ADDITIONS}
  br i1 %1, label %skip, label %latch
skip:
  %s = fadd fast float WHAT, 1.0
  br label %latch
latch:
  %next = phi float [ %a7, %loop ], [ SKIPPED, %skip ]
  br i1 %1, label %loop, label %out
out:
  store float RESULT, ptr %0, align 4
  ret void
}}
"""


@pytest.mark.parametrize(
    ("what", "skipped", "result", "variable"),
    [
        ("%t0", "%a7", "%next", True),
        ("%t0", "0.0", "%next", True),  # set to something else
        (
            "%t0",
            "%sum",
            "%next",
            False,
        ),  # its value before the addition: a variable does not hold it any more
        ("%t0", "%a7", "%sum", False),
        ("%sum", "%a7", "%next", False),
        ("%a7", "%s", "%next", False),  # a single term
    ],
)
def test_sums_in_registers_become_variables(what, skipped, result, variable):
    text = LOOP.replace("WHAT", what).replace("SKIPPED", skipped).replace("RESULT", result)
    function = Function(text, 2)
    cells = Cells(function)
    assert cells.all.keys() == ({"%sum.cell"} if variable else set())
    cells.to_memory(set(cells.all))
    code = [i.text for block in function.blocks.values() for i in block.instructions]
    assert any(text.startswith("phi float") for text in code) != variable
    if variable:
        assert "alloca float, align 4" in code
        stored = ["1.0", "%a7", *["0.0"] * (skipped == "0.0")]
        assert [t for t in code if t.endswith("ptr %sum.cell") and "store" in t] == [
            f"store float {value}, ptr %sum.cell" for value in stored
        ]


def test_an_element_becomes_as_many_sums_as_there_are_terms():
    text = LOOP.replace("WHAT", "%t0").replace("SKIPPED", "%a7").replace("RESULT", "%next")
    function = Function(text, 2)
    sums = Sums(function, {})
    sums.widen()
    assert function.sums == {"%sum.cell": 8}
    code = [i.text for block in function.blocks.values() for i in block.instructions]
    assert "alloca [8 x float], align 64" in code
    assert [t for t in code if t.startswith("fadd fast")] == [
        *(f"fadd fast float %sum.cell.sum1.before{n}, %t{n}" for n in range(8)),
        "fadd fast float %t0, 1.0",
    ]
    assert sum(t.startswith("shufflevector") for t in code) == 2 * 3  # as the result is read
