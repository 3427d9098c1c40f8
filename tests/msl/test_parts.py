"""Libraries of many kernels are cut into parts, one optimiser each: every kernel has all that it reaches, once."""

from __future__ import annotations

import functools
import os
import re
import time

import numpy as np
import pytest

from metal_ops.metal import (
    CompileError,
    Options,
    cache,
    compile_object,
    compiler,
    cpu,
    ir,
    link,
    on_demand,
)
from metal_ops.metal.launch import Library

from .shaders import HEADER, library, path

pytestmark = pytest.mark.compiler

KERNELS = 3 * cpu.KERNELS_PER_PART + 5
# Shared by kernels of several parts: a table, strings, function constants, functions that call each other, one with a
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


@functools.cache
def whole() -> bytes:
    """The object of SOURCE, which library(SOURCE) leaves in the cache."""
    return compile_object("test.metal", Options(validation=False), HEADER + SOURCE)[0]


def test_the_object_does_not_depend_on_the_machines_cores(monkeypatch):
    first, read = whole(), cache.read
    cores = {0} if len(os.sched_getaffinity(0)) > 1 else {0, 1, 2, 3}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    asked = []

    def only_the_prelude(name):
        asked.append(name)
        return read(name) if name.startswith("prelude-") else None

    monkeypatch.setattr(cache, "read", only_the_prelude)
    assert compile_object("test.metal", Options(validation=False), HEADER + SOURCE)[0] == first
    assert len(asked) > 1


def test_names_of_all_parts_are_known_to_the_linker():
    few = SOURCE[: SOURCE.index(f"kernel void k{2 * cpu.KERNELS_PER_PART}(")]
    text = HEADER + few.replace("kernel void k", "kernel void other")
    other = compile_object("other.metal", Options(validation=False), text)[0]
    link([whole(), other])
    for n in (0, KERNELS - 1):
        one = f"kernel void k{n}(device float* out) {{ out[0] = 1; }}"
        with pytest.raises(CompileError, match=f"k{n}"):
            link([whole(), compile_object("one.metal", Options(validation=False), HEADER + one)[0]])


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


def test_kernels_whose_threads_meet_are_apart():
    """They are lightly optimised first, and taken apart: nothing that others need."""
    text = "".join(
        f"@_msl_entry{n} = internal constant ptr @k{n}\n"
        f"define internal void @k{n}() {{\n  {f'load i32, ptr @_msl_by_lanes{n}' if n % 3 == 0 else ''}\n"
        "  ret void\n}\n" + f"@_msl_by_lanes{n} = external hidden constant i32\n" * (n % 3 == 0)
        for n in range(10)
    )
    parts = ir.split(text, 16)
    assert [numbers for numbers, _ in parts] == [[1, 2, 4, 5, 7, 8], [0, 3, 6, 9]]
    assert [ir.meeting(part) for _, part in parts] == [set(), {0, 3, 6, 9}]


# ---- on demand: the library of many kernels that has what describes them, and the code of those that are asked for


class Ask:
    """Compiles SOURCE as if for the first time, and counts the front end's modules."""

    def __init__(self, monkeypatch):
        self.made: list[
            int
        ] = []  # the kernels' functions in the module of each call of the front end
        self._files = 0
        self._define = f"TIME={time.time_ns()}"  # part of the cache's key
        front_end = cpu.front_end

        def counted(*arguments):
            text = front_end(*arguments)
            self.made.append(len(re.findall(r"(?m)^define .*@_Z\w*?k\d+\w*\(", text)))
            return text

        monkeypatch.setattr(cpu, "front_end", counted)

    def options(self, checked: bool = False) -> Options:
        return Options(validation=checked, plain=not checked, defines=(self._define,))

    def __call__(self, *kernels: str, source: str = SOURCE, checked: bool = False) -> Library:
        self._files += 1
        file = path(f"{self._define}_{self._files}.metallib")
        options = self.options(checked)
        file.write_bytes(
            on_demand.compile_library("many.metal", options, HEADER + source, kernels)[0]
        )
        return Library(file, checked)


@pytest.fixture
def ask(monkeypatch) -> Ask:
    return Ask(monkeypatch)


def right(shader: Library, n: int) -> None:
    out = np.zeros(8, np.float32)
    shader[f"k{n}"].run(8, 8, {0: out}, constants={0: np.int32(3)})
    np.testing.assert_array_equal(out, expected(n, 3), f"k{n}")


@pytest.mark.parametrize("checked", [False, True])
def test_code_comes_when_it_is_asked_for(ask, checked):
    every = {f"k{n}" for n in range(KERNELS)}
    first = ask(checked=checked)
    assert {name for name, kernel in first.kernels.items() if kernel.absent} == every
    for name, kernel in library(SOURCE, checked).kernels.items():  # as one with code says it
        for what in ("arguments", "constants", "fibers", "static_threadgroup_bytes"):
            assert getattr(first[name], what) == getattr(kernel, what)
    with pytest.raises(
        ValueError, match="k7 has no code: its library was made by 'metal --on-demand'"
    ):
        first["k7"].run(8, 8)
    # A function and a barrier, alone and with others; more of them than one optimiser has.
    for wanted in ([6], [7, 0], range(20, 20 + 2 * cpu.KERNELS_PER_PART)):
        some = ask(*(f"k{n}" for n in wanted), checked=checked)
        assert sorted(some.kernels) == sorted(f"k{n}" for n in wanted)
        for n in wanted:
            right(some, n)
    later = ask(checked=checked)
    there = {name for name, kernel in later.kernels.items() if not kernel.absent}
    assert there == {f"k{n}" for n in (6, 7, 0, *range(20, 20 + 2 * cpu.KERNELS_PER_PART))}
    assert set(later.kernels) == every
    for n in (0, 7, 25):
        right(later, n)
    assert ask.made == [0, 1, 2, 2 * cpu.KERNELS_PER_PART]


def test_instances_of_templates_are_made_when_they_are_asked_for(ask):
    wrapped = (
        '#define INSTANCE(n) template [[host_name("k" #n)]] kernel decltype(k0<n, 0>) k0<n, 0>;\n'
    )
    source = (
        "namespace inner { struct Unused; }\n"
        "template <int N, int Zero> kernel void k0(device int* out, constant int2& p [[buffer(3)]]) "
        "{ out[0] = N + Zero + p.y; }\n"
        f"{wrapped}{''.join(f'INSTANCE({n})' for n in range(KERNELS))}"
    )
    assert ask(source=source)["k7"].arguments == ask("k7", source=source)["k7"].arguments
    for n in (7, KERNELS - 1):
        out = np.zeros(1, np.int32)
        ask(f"k{n}", source=source)[f"k{n}"].run(1, 1, {0: out, 3: np.int32([1, 5])})
        assert out == n + 5
    assert ask.made == [0, 1, 1]


def test_what_the_cache_lost_is_made_again(ask):
    ask()
    right(ask("k3"), 3)
    key = compiler.unit("many.metal", ask.options(), HEADER + SOURCE).key
    lost = list(cache.folder().glob(f"{key}*"))
    assert {file.suffix for file in lost} == {".source", ".o", ".index"}
    for file in lost:
        file.unlink()
    assert ask()["k3"].absent
    right(ask("k3"), 3)
    assert ask.made == [0, 1, 0, 1]


def test_few_kernels_are_compiled_at_once(ask):
    source = SOURCE[: SOURCE.index("kernel void k2(")]
    for kernels in ((), ("k1",)):
        shader = ask(*kernels, source=source)
        right(shader, 0)
        right(shader, 1)


def test_a_kernel_that_is_not_there(ask):
    ask()
    with pytest.raises(
        CompileError,
        match=r"--kernel=other: many.metal has no kernel of that name; it has k0, k1, .*",
    ):
        ask("other")


def test_one_variant_alone(tmp_path):
    text = HEADER + "kernel void one(device float* out) { out[0] = 1; }"
    for options in (Options(plain=False), Options(validation=False)):
        data = link([compile_object("one.metal", options, text)[0]])
        file = tmp_path / f"{options.plain}.metallib"
        file.write_bytes(data)
        assert bool(Library(file).kernels) == options.plain
        if options.validation:
            assert set(Library(file, checked=True).kernels) == {"one"}
    with pytest.raises(CompileError, match="duplicate kernel name 'one'"):
        link([compile_object(f"{i}.metal", Options(plain=False), text)[0] for i in range(2)])


def test_checked_kernels_are_small_unless_somebody_waits_for_them(monkeypatch):
    levels = []
    back_end = cpu._back_end_checked

    def counted(*arguments):
        levels.append(arguments[-1])
        back_end(*arguments)

    monkeypatch.setattr(cpu, "_back_end_checked", counted)
    text = f"{HEADER}kernel void one(device float* out) {{ out[0] = 1; }}\n// {time.time_ns()}\n"
    for options in (Options(), Options(plain=False)):
        file = path(
            f"{len(options.variants)}_variants.metallib"
        )  # a file that is loaded stays as it is
        file.write_bytes(link([compile_object("one.metal", options, text)[0]]))
        out = np.zeros(1, np.float32)
        Library(file, checked=True)["one"].run(1, 1, {0: out})
        assert out == 1
    assert levels == ["-O1", "-O0"]
