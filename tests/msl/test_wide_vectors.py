"""Shaders that ask for it are compiled for processors with AVX-512 as well, which then run that: with the same results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object, link, toolchain
from metal_ops.metal.launch import Library

from .shaders import HEADER, VALIDATION, path

PRAGMA = "#if defined(__METAL_CPU__)\n#pragma metal_ops wide_vectors\n#endif\n"
SOURCE = """
constant float start [[function_constant(0)]];
kernel void rows(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
  float sums[32];
  for (int j = 0; j < 32; ++j) sums[j] = start;
  for (int k = 0; k < 64; ++k)
    for (int j = 0; j < 32; ++j) sums[j] = fma(x[k], x[k * 32 + j], sums[j]);
  for (int j = 0; j < 32; ++j) out[i * 32 + j] = sums[j];
}
kernel void neighbours(device const float* x, device float* out, threadgroup float* shared,
                       uint i [[thread_position_in_threadgroup]]) {
  shared[i] = exp(x[i]) / 3 + half(x[i]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[i ^ 1] + simd_sum(x[i]);
}
"""
pytestmark = pytest.mark.skipif(
    toolchain.default_target() not in toolchain.NARROW, reason="only these have a wider one"
)


def compiled(text: str, name: str, **options) -> str:
    data, said = compile_object("test.metal", Options(validation=VALIDATION, **options), text)
    assert not said
    file = path(name)
    file.write_bytes(link([data], options.get("target")))
    return str(file)


@pytest.fixture(scope="module")
def file():
    return compiled(HEADER + PRAGMA + SOURCE, "wide.metallib")


def has_zmm(file: str) -> bool:
    """Whether some fused multiply-add is of 512 bits: prefix 62, map 0F38, length 2, opcode 98, A8 or B8."""
    return any(
        code[1] & 7 == 2 and code[3] & 0x60 == 0x40
        for code in re.findall(
            rb"\x62..[\x40-\x5f\xc0-\xdf][\x98\xa8\xb8]", Path(file).read_bytes(), re.S
        )
    )


def test_code_of_both_widths_where_a_shader_asks(file):
    assert has_zmm(file)
    assert not has_zmm(compiled(HEADER + SOURCE, "narrow.metallib"))


def test_a_processor_that_is_named_is_all_that_code_is_for():
    whole = compiled(HEADER + PRAGMA + SOURCE, "v4.metallib", target="x86-64-v4")
    with pytest.raises(AttributeError):
        Library(whole)._handle.metallib_v1_wide  # noqa: B018


@pytest.mark.skipif(VALIDATION, reason="the checked kernels are of one width")
def test_both_give_the_same(file):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2048).astype(np.float32)
    results = []
    for wide in (True, False):
        library = Library(file, wide=wide)
        rows, shared = np.zeros((3, 32), np.float32), np.zeros(64, np.float32)
        library["rows"].run(3, 3, {0: x, 1: rows}, constants={0: np.float32(0.25)})
        library["neighbours"].run(64, 64, {0: x, 1: shared}, threadgroup_memory={0: 256})
        results.append((rows, shared))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    expected = x[:64].astype(np.float64) @ x.reshape(64, 32).astype(np.float64) + 0.25
    np.testing.assert_allclose(results[0][0], np.tile(expected, (3, 1)), rtol=1e-5, atol=1e-5)


# Products of 8 rows of bfloat, whose sums SLP vectors of 512 bits lost: the case of gemm_few_columns_bfloat_8.
FEW = """
#include <metal_stdlib>
#include "kernels/gemm/gemm_few.metal.h"
#include "kernels/msl/instantiate.h"
using namespace metal;
INSTANTIATE_KERNEL("few", gemm_few, bfloat, 8, GEMM_FEW_LANES, false)
"""


@pytest.mark.skipif(VALIDATION, reason="the checked kernels are of one width")
@pytest.mark.parametrize("fibers", ["0", "1"])
def test_values_that_are_gathered_are_all_there(monkeypatch, fibers):
    monkeypatch.setenv("METAL_OPS_FIBERS", fibers)
    root = str(Path(__file__).parents[2])
    file = compiled(PRAGMA + FEW, f"few{fibers}.metallib", include=(root,))
    rows, columns, depth = 8, 32, 24
    rng = np.random.default_rng(0)
    # Small whole numbers: exact in bfloat, and so are their sums.
    a, b = (
        rng.integers(-3, 4, size).astype(np.float32) for size in ((rows, depth), (depth, columns))
    )
    strides = np.zeros(24, np.int64)
    strides[[0, 3, 4, 5, 6, 9, 10]] = rows, depth, 1, columns, 1, columns, 1
    sizes = np.ones(22, np.uint32)
    sizes[6:8] = columns, depth
    params = np.concatenate([strides.view(np.uint8), sizes.view(np.uint8)])
    for wide in (True, False):
        out = _bfloat(np.zeros((rows, columns)))
        Library(file, wide=wide)["few"].run(
            256,
            256,
            {
                0: _bfloat(a),
                1: _bfloat(b),
                2: out,
                3: params,
                9: np.zeros(2, np.float32),
                10: np.uint32(1),
            },
        )
        got = (out.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(got, a @ b, str(wide))


def _bfloat(x: np.ndarray) -> np.ndarray:
    """At a multiple of 16 bytes, as buffers are."""
    memory = np.zeros(x.size + 8, np.uint16)
    out = memory[-memory.ctypes.data % 16 // 2 :][: x.size].reshape(x.shape)
    out[...] = x.astype(np.float32).view(np.uint32) >> 16
    return out
