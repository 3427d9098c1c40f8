"""Libraries of many kernels are cut into parts, one optimiser each: every kernel has all that it reaches, once."""

from __future__ import annotations

import os

import numpy as np
import pytest

from metal_ops.metal import CompileError, Options, compile_object, cpu, ir, link

from .shaders import HEADER, library

KERNELS = 3 * cpu.KERNELS_PER_PART + 5
# What kernels of several parts share: a table, strings, function constants, functions that call each other, one with a
# variable of its own, threadgroup memory, and a barrier in every other kernel.
SOURCE = """
constant float table[3] = {0.5f, 2, 8};
constant char* const constant words[] = {"abc", "defg"};
constant int shift [[function_constant(0)]];
constant bool is_set = is_function_constant_defined(shift);
[[gnu::noinline]] float inner(float x, int n) { return x * table[n % 3] + words[n & 1][1]; }
template <int N> [[gnu::noinline]] float outer(float x) { return inner(x + N, N) + (is_set ? shift : 1000); }
template <int N, bool Barrier> void body(device float* out, threadgroup float* shared, uint i) {
  shared[i] = outer<N / 2>(i);
  if (Barrier) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[Barrier ? i ^ 1 : i];
}
""" + "".join(
    f"kernel void k{n}(device float* out, uint i [[thread_position_in_grid]]) "
    f"{{ threadgroup float shared[8]; body<{n}, {str(bool(n % 2)).lower()}>(out, shared, i); }}\n"
    for n in range(KERNELS)
)


def expected(n: int, shift: int) -> np.ndarray:
    i = np.arange(8) ^ 1 if n % 2 else np.arange(8)
    half = n // 2
    return (i + half) * [0.5, 2, 8][half % 3] + ord("be"[half & 1]) + shift


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("constants", [{}, {0: np.int32(7)}], ids=["unset", "set"])
def test_every_kernel_of_every_part(checked, constants):
    shader = library(SOURCE, checked)
    for n in range(KERNELS):
        out = np.zeros(8, np.float32)
        shader[f"k{n}"].run(8, 8, {0: out}, constants=constants)
        np.testing.assert_array_equal(out, expected(n, 7 if constants else 1000), f"k{n}")


def test_the_object_does_not_depend_on_the_machines_cores(monkeypatch):
    made = []
    for cores in ({0}, {0, 1, 2, 3}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores)
        # The name of the file is part of the cache's key.
        text = HEADER + f'#line 1 "parts.metal"\n{SOURCE}'
        made.append(compile_object(f"parts{len(cores)}.metal", Options(validation=False), text)[0])
    assert made[0] == made[1]


def test_names_of_all_parts_are_known_to_the_linker():
    text = HEADER + SOURCE.replace("kernel void k", "kernel void other")
    first = compile_object("first.metal", Options(validation=False), HEADER + SOURCE)[0]
    other = compile_object("other.metal", Options(validation=False), text)[0]
    link([first, other])
    for n in (0, KERNELS - 1):
        one = f"kernel void k{n}(device float* out) {{ out[0] = 1; }}"
        with pytest.raises(CompileError, match=f"k{n}"):
            link([first, compile_object("one.metal", Options(validation=False), HEADER + one)[0]])


@pytest.mark.parametrize(
    ("kernels", "sizes"),
    [(1, [1]), (16, [16]), (23, [23]), (25, [12, 13]), (53, [17, 18, 18]), (0, [0])],
)
def test_sizes_of_parts(kernels, sizes):
    text = "".join(
        f"@_msl_entry{n} = internal constant ptr @k{n}\ndefine internal void @k{n}() {{\n  ret void\n}}\n"
        for n in range(kernels)
    )
    parts = ir.split(text, 16)
    assert [len(numbers) for numbers, _ in parts] == sizes
    assert [n for numbers, _ in parts for n in numbers] == list(range(kernels))
    for numbers, part in parts:
        assert part.count("define ") == len(numbers)
