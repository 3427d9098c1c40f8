"""os_log: what the compiler says of formats, and which kernels may write messages. The messages themselves:
tests/hostmetal/log_test.mm and test_log_message.py."""

from __future__ import annotations

import pytest

from metal_ops.metal import Options, compile_object, gpu
from metal_ops.metal.abi import number
from metal_ops.metal.compiler import gpu_usage

from .shaders import HEADER, library, messages

pytestmark = pytest.mark.compiler

NAMES = "uint i; ulong n; float x; half h; float4 v; half2 w; uchar3 b;"
ERRORS = {
    '"%s", i': "Metal has no %s; write the text into the format, or log a number",
    '"%5.2s", i': "Metal has no %s",
    '"%n", i': "Metal has no %n",
    '"%@", i': "Metal has no %@",
    '"%y", i': "none of printf's",
    '"%v5d", i': "none of printf's",
    '"100%"': "none of printf's",
    '"%d %d", i': "more conversions than arguments",
    '"%*d", i': "more conversions than arguments",
    '"%d", S()': "os_log takes numbers, vectors and pointers",
}
WARNINGS = {
    '"%d", i, x': "the others are not printed",
    '"%d %f", i, i': "the conversion of argument 2 does not fit its type",
    '"%d", x': "the conversion of argument 1",
    '"%d", n': "the conversion of argument 1",
    '"%ld", i': "the conversion of argument 1",
    '"%v4f", v': "the conversion of argument 1",
    '"%f", v': "the conversion of argument 1",
    '"%v3hlf", v': "the conversion of argument 1",
    '"%d%d%d%d%d%d", i, i, i, i, i, x': "argument 5, or of one after it",
}
RIGHT = [
    '"plain, 100%%"',
    '"%d %u %x %c %i", i, i, i, i, bool(i)',
    '"%lu %ld %f %g %p", n, n, x, h, p',
    '"%v4hlf %v2hf %v3hhu %.3v4hlf", v, w, b, v',
    '"%*d %.*f", 5, i, 2, x',
]


def _source(arguments: str) -> str:
    lines = [
        f"struct S {{ int a; }}; kernel void k(device int* p [[buffer(0)]]) {{ {NAMES}",
        f"os_log_default.log({arguments}); p[0] = 1; }}",
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("arguments", ERRORS)
def test_formats_that_metal_has_not_are_errors(arguments):
    said = messages(_source(arguments))
    assert "error: " in said and ERRORS[arguments] in said, said
    if "S()" not in arguments:
        assert said.startswith("test.metal:2:"), said


@pytest.mark.parametrize("arguments", WARNINGS)
def test_conversions_that_do_not_fit_are_warnings(arguments):
    _, said = compile_object("test.metal", Options(validation=False), HEADER + _source(arguments))
    assert "warning: os_log: " in said and WARNINGS[arguments] in said, said


@pytest.mark.parametrize("arguments", RIGHT)
def test_formats_that_are_right(arguments):
    _, said = compile_object("test.metal", Options(validation=False), HEADER + _source(arguments))
    assert said == ""


KERNELS = """
constant os_log mine("sub", "category");
void deep(uint i) { mine.log_error("%u", i); }
kernel void calls(device int* x, uint i [[thread_position_in_grid]]) { deep(i); x[i] = 1; }
kernel void quiet(device int* x, uint i [[thread_position_in_grid]]) { x[i] = simd_sum(1); }
"""


def test_kernels_that_log_say_so_and_only_with_logging():
    logs = number("KERNEL_LOGS")
    flags = {
        logging: {
            k.name: k._table.flags & logs
            for k in library(KERNELS, checked=False, logging=logging).kernels.values()
        }
        for logging in (True, False)
    }
    assert flags == {True: {"calls": logs, "quiet": 0}, False: {"calls": 0, "quiet": 0}}


def test_kernels_that_log_assemble_for_gpus():
    try:
        gpu.ptxas()
    except Exception as why:
        pytest.skip(str(why))
    used = {
        logging: {u.kernel: u for u in gpu_usage("test.metal", Options(gpu=("sm_80",), logging=logging), HEADER + KERNELS)}
        for logging in (True, False)
    }  # fmt: skip
    assert used[True]["quiet"] == used[False]["quiet"]
    assert used[True]["calls"].threadgroup_bytes > used[False]["calls"].threadgroup_bytes == 0
