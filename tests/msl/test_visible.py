"""[[visible]] functions: those that tables can hold, and the errors of the others."""

from __future__ import annotations

import pytest

from metal_ops.metal import CompileError, Options, compile_object
from metal_ops.metal.compiler import gpu_usage

from .shaders import HEADER, library

KERNEL = """kernel void k(device float* x, visible_function_table<float(float)> t [[buffer(1)]],
                          uint i [[thread_position_in_grid]]) { x[i] = t[0](x[i]); }"""


def test_they_are_in_the_library():
    names = library(
        "[[visible]] float f(float x) { return x; } [[stitchable]] float g(float x) { return x; }\n"
        f"float h(float x) {{ return x; }} {KERNEL}"
    )
    assert {name: kernel.visible for name, kernel in names.kernels.items()} == {
        "f": True,
        "g": True,
        "k": False,
    }
    with pytest.raises(ValueError, match="f is a function for tables, and no kernel"):
        names["f"].run((1,), (1,))


@pytest.mark.parametrize(
    "body, said",
    [
        ("simd_sum(x)", "meets other threads (a barrier, a simd_ or a quad_ function)"),
        ("helper(x)", "meets other threads (a barrier, a simd_ or a quad_ function)"),
        ("x * c", "reads function constant 'c'"),
        ("x * twice", "reads function constant 'twice'"),
    ],
)
def test_those_that_need_a_kernel_are_named(body: str, said: str):
    _, text = compile_object(
        "test.metal",
        Options(validation=False),
        HEADER + "constant float c [[function_constant(0)]]; constant float twice = 2 * c;\n"
        "float helper(float x) { simdgroup_barrier(mem_flags::mem_none); return x; }\n"
        f"[[visible]] float f(float x) {{ return {body}; }}\n"
        "kernel void k(device float* x) { x[0] = f(x[0]); }",
    )
    assert f"warning: visible function 'f' {said}: kernels may call it by name" in text


def test_gpus_have_no_tables(tmp_path):
    file = tmp_path / "tables.metal"
    file.write_text(HEADER + KERNEL)
    with pytest.raises(
        CompileError, match=r"tables.metal:3:\d+: error: argument 't' is a table of functions"
    ):
        gpu_usage(str(file), Options(gpu=("sm_80",)))
