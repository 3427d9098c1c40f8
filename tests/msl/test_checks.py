"""HOSTMETAL_CHECK's kernels: faults are told at their lines, and right kernels are left alone."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from metal_ops.metal import Options, cli, compile_object, link
from metal_ops.metal.check_launch import CHECKS, Checks
from metal_ops.metal.launch import Fault, Library

from .check_cases import ARGUMENTS, BARRIER, CASES, TILE, source
from .shaders import HEADER, library

pytestmark = pytest.mark.compiler
F = np.float32
SOURCE = source()
NUMBERS = {name: number for number, name in enumerate(CASES)}


@pytest.fixture(scope="module")
def shader():
    return library(SOURCE, checked=True, checks=True)


def _run(shader, kernel, checks, x=None):
    out, count = np.zeros(128, F), np.zeros(1, np.uint32)
    x = np.arange(1, 129, dtype=F) if x is None else x
    shader[kernel].run(128, 64, {0: x, 1: out, 2: count, 3: np.zeros(128, np.uint8)}, checks=checks)
    return out


def _marked(number: int) -> set[int]:
    """The lines of a fault, its function's before it too."""
    case = list(CASES.values())[number]
    text = HEADER + SOURCE
    begin = text.index(f"kernel void wrong{number}(") - len(case.before)
    lines = text[begin : text.index(f"kernel void right{number}(")].split("\n")
    first = text[:begin].count("\n") + 1
    return {first + k for k, line in enumerate(lines) if "//!" in line}


@pytest.mark.parametrize("schedule", ["plain", "reverse", "one-simdgroup", "random"])
@pytest.mark.parametrize("name", CASES)
def test_fault(name, schedule, shader):
    """In every order of threads, and by its own check alone."""
    case, number = CASES[name], NUMBERS[name]
    checks = Checks((case.check,), schedule, seed=7)
    if case.check == "bounds":
        with pytest.raises(Fault) as caught:
            _run(shader, f"wrong{number}", checks)
        place = caught.value.details["message"].decode()
        assert place == f"test.metal:{_marked(number).pop()}"
        return
    _run(shader, f"wrong{number}", checks)
    assert checks.reports
    for report in checks.reports:
        assert report.startswith(f"[wrong{number}] {case.check}: ")
        assert {int(n) for n in re.findall(r" at test\.metal:(\d+)", report)} <= _marked(number)
    named = set(map(int, re.findall(r" at test\.metal:(\d+)", " ".join(checks.reports))))
    assert named == _marked(number)
    assert case.says in " ".join(checks.reports) or schedule != "plain"


@pytest.mark.parametrize("schedule", ["plain", "reverse", "one-simdgroup", "random"])
@pytest.mark.parametrize("name", CASES)
def test_no_fault(name, schedule, shader):
    """The same without the fault, all checks at once."""
    checks = Checks(CHECKS, schedule, seed=11)
    _run(shader, f"right{NUMBERS[name]}", checks)
    assert checks.reports == []


@pytest.mark.parametrize("name", CASES)
def test_others_say_nothing(name, shader):
    """A fault is found by its own check: without it, kernels run to their end."""
    case = CASES[name]
    others = tuple({*CHECKS} - {case.check, "bounds"} - {"init", "race", "barrier"})
    checks = Checks(others)
    if case.check != "bounds":
        _run(shader, f"wrong{NUMBERS[name]}", checks)
        assert checks.reports == []


@pytest.mark.parametrize(
    "options",
    [{"coverage": True}, {"debug": True}, {"logging": True}, {"fast_math": True}],
    ids=str,
)
def test_beside_other_options(options):
    """Each way of compiling leaves the lines, and the source's name in messages, as they are."""
    case = CASES["no barrier"]
    text = f"kernel void wrong{ARGUMENTS} {{\n{case.wrong}}}\n"
    text += f"kernel void right{ARGUMENTS} {{\n{case.right}}}\n"
    shader = library(text, checked=True, checks=True, **options)
    checks = Checks()
    _run(shader, "right", checks)
    assert checks.reports == []
    _run(shader, "wrong", checks)
    assert set(re.findall(r" at (\S+:\d+)", " ".join(checks.reports))) == {
        "test.metal:6",
        "test.metal:7",
    }, checks.reports


@pytest.mark.parametrize("form", ["absolute", "relative", "under the working directory"])
def test_paths_are_the_users(form, tmp_path, monkeypatch):
    """clang takes what an absolute path shares with the working directory for a folder of its own."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    text = HEADER + f"kernel void wrong{ARGUMENTS} {{\n{CASES['no barrier'].wrong}}}\n"
    (tmp_path / "there/k.metal").write_text(text)
    monkeypatch.chdir(tmp_path if form == "under the working directory" else tmp_path / "here")
    monkeypatch.setenv("PWD", os.getcwd())
    names = {"relative": "../there/k.metal", "under the working directory": "there/k.metal"}
    name = names.get(form, str(tmp_path / "there/k.metal"))
    data, _ = compile_object(name, Options(checks=True))
    (tmp_path / "k.metallib").write_bytes(link([data]))
    checks = Checks(("race",))
    _run(Library(str(tmp_path / "k.metallib"), True), "wrong", checks)
    assert re.findall(r" at (\S+):\d+", checks.reports[0]) == [name, name]


@pytest.mark.parametrize(
    "body, says",
    [
        ("s[0] += 2;", "; make it an atomic update, or give each thread a place of its own"),
        ("s[t / 2] = t;", "; make it an atomic update, or give each thread a place of its own"),
        ("if (t < 63) s[t] += s[t + 1];", "call threadgroup_barrier(mem_flags::mem_threadgroup) between them, or make"),
        ("s[t] = s[63 - t];", "call threadgroup_barrier(mem_flags::mem_threadgroup) between them, or make it"),
        ("s[0] = s[0] + 2;", "between them, or make it an atomic update"),
    ],
)  # fmt: skip
def test_remedy_of_one_line(body, says):
    """An atomic update is no remedy for a neighbour's element."""
    text = f"kernel void k{ARGUMENTS} {{\n{TILE}s[t] = 1;\n{BARRIER}{body}\n{BARRIER}out[i] = s[t];\n}}\n"
    checks = Checks(("race",))
    _run(library(text, checked=True, checks=True), "k", checks)
    assert says in checks.reports[0]


OVERLAP = """
kernel void restricted(device const float* x, device float* __restrict y, uint i [[thread_position_in_grid]]) { y[i] = x[i] + 1; }
kernel void constants(constant float* x, device float* y, uint i [[thread_position_in_grid]]) { y[i] = x[i] + 1; }
kernel void copied(constant float& x, device float* y, uint i [[thread_position_in_grid]]) { y[i] = x + 1; }
kernel void neither(device const float* x, device float* y, uint i [[thread_position_in_grid]]) { y[i] = x[i] + 1; }
kernel void same(device float* y, device float* z, uint i [[thread_position_in_grid]]) { z[0] = 7; z[i] = 7; y[i + 64] = i; }
"""


@pytest.mark.parametrize(
    "kernel, told",
    [("restricted", True), ("constants", True), ("copied", True), ("neither", False)],
)
def test_alias(kernel, told):
    shader = library(OVERLAP, checked=True, checks=True)
    x = np.zeros(128, F)
    checks = Checks(("alias",))
    shader[kernel].run(64, 64, {0: x[:64], 1: x[:64]}, checks=checks)
    assert len(checks.reports) == told
    if told:
        assert (
            "[" + kernel + "] alias: write of 4 bytes at offset 0 (index 0) of buffer(1) 'y'"
            in checks.reports[0]
        )
        assert "where buffer(0) 'x' lies, too: read" in checks.reports[0]
    # The bindings overlap, as parts of one buffer do, and the kernel's accesses do not.
    shader[kernel].run(64, 64, {0: x, 1: x[64:]}, checks=checks)
    assert checks.reports == []


def test_same_value():
    """Threads that write the same are told of nowhere: all orders give the same."""
    shader = library(OVERLAP, checked=True, checks=True)
    checks = Checks(("race",))
    shader["same"].run(64, 64, {0: np.zeros(128, F), 1: np.zeros(64, F)}, checks=checks)
    assert checks.reports == []


def test_dispatches_that_overlap():
    shader = library(OVERLAP, checked=True, checks=True)
    x, y, z = (np.zeros(64, F) for _ in range(3))
    checks = Checks(("race",))
    shader["neither"].run(64, 64, {0: x, 1: y}, checks=checks)
    shader["restricted"].run(64, 64, {0: y, 1: z}, checks=checks)
    assert checks.reports == []  # one after the other
    shader["neither"].run(64, 64, {0: x, 1: y}, checks=checks)
    checks.overlaps = True
    shader["restricted"].run(64, 64, {0: y, 1: z}, checks=checks)
    assert len(checks.reports) == 1
    assert (
        "and write by thread (0, 0, 0) of threadgroup (0, 0, 0) of kernel 'neither'"
        in checks.reports[0]
    )
    assert "memoryBarrierWithScope: between the dispatches" in checks.reports[0]


def test_random_orders_are_reproducible(shader):
    """A seed gives the same result again, and some seeds another: the sum loses updates."""
    kernel = f"wrong{NUMBERS['a sum of all']}"
    sums = [_run(shader, kernel, Checks((), "random", seed))[0] for seed in (1, 1, 2, 3)]
    assert sums[0] == sums[1]
    assert len({*map(float, sums)}) > 1
    assert _run(shader, kernel, Checks((), "plain"))[0] == np.arange(1, 129).sum()


def test_many_reports():
    """At most so many sentences a launch; the others are counted."""
    lines = "".join(f"x[{k}] += i;\n" for k in range(20))
    shader = library(
        f"kernel void k(device float* x, uint i [[thread_position_in_grid]]) {{\n{lines}}}\n",
        checked=True, checks=True,
    )  # fmt: skip
    checks = Checks(("race",))
    shader["k"].run(64, 64, {0: np.zeros(20, F)}, checks=checks)
    assert (len(checks.reports), checks.more) == (8, 12)
    assert len({*checks.reports}) == 8


def test_a_large_buffer_forgets():
    """More memory than can be remembered: history is lost, and nothing wrong is said."""
    shader = library(OVERLAP, checked=True, checks=True)
    checks = Checks(("race",))
    n = 1 << 22
    x, y = np.zeros(n, F), np.zeros(n, F)
    shader["neither"].run(n // 512, 64, {0: x, 1: y}, checks=checks)
    assert checks.reports == [] and y[: n // 512].all() and not y[n // 512 :].any()


def test_command_line(tmp_path):
    """A library of the checks alone, of kernels or of functions that access nothing; without them, it is another."""
    source, out = tmp_path / "x.metal", tmp_path / "x.metallib"
    for text, options, checked in (
        (OVERLAP, ["-fshader-checks"], 2),
        ("[[visible]] float root(float x) { return sqrt(x); }\n", ["-fshader-checks"], 2),
        (OVERLAP, [], 1),
    ):
        source.write_text(HEADER + text)
        assert cli.main([*options, str(source), "-o", str(out)]) == 0
        file = tmp_path / f"{len(text)}{len(options)}.metallib"
        out.rename(file)
        assert Library(file, True).table.checked == checked
