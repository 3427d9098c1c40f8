"""Kernels of this library, whose threads share memory, under HOSTMETAL_CHECK: right as they are, told without a barrier."""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from metal_ops.metal import Options, checks, compiler, cpu, ir, lanes, link
from metal_ops.metal.check_launch import Checks
from metal_ops.metal.launch import Fault, Library
from metal_ops.metal.wrappers import wrappers
from tests.processes import ROOT

from . import test_threadgroup
from .shaders import HEADER

pytestmark = pytest.mark.compiler
F = np.float32
LINALG, EIGEN = "device/kernels/linalg.metal", "device/kernels/eigen.metal"
BARRIER = re.compile(
    r"^  (?:tail )?call .*@_ZN5metal\d+(?:threadgroup|simdgroup)_barrier.*\n", re.M
)


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(8).normal(size=shape).astype(F)


def _linalg(*fields: int) -> np.ndarray:
    return np.array([*fields, *[0] * (8 - len(fields))], np.uint32)


def _cholesky() -> list[np.ndarray]:
    a = _normal(20, 20)
    return [a @ a.T + 20 * np.eye(20, dtype=F), np.zeros((20, 20), F), _linalg(20, 20)]


def _lu() -> list[np.ndarray]:
    return [_normal(40, 40), np.zeros((40, 40), F), np.zeros(40, np.int32), _linalg(40, 40)]


def _qr() -> list[np.ndarray]:
    works = [np.zeros(n, F) for n in (20 * 12, 12 * 12, 12 * 32, 12 * 32, 12)]
    return [_normal(20, 12), *works, _linalg(20, 12, 12, 0, 0, 4, 4, 32)]


def _eigen() -> list[np.ndarray]:
    works = [np.zeros(n, F) for n in (10, 100, 100, 100, 10)]
    return [_normal(10, 10), *works, _linalg(10, 10, 1)]


def _ctc() -> list[np.ndarray]:
    numbers = [np.zeros(n, F) for n in (5 * 2 * 4, 2, 2 * 5 * 5, 2 * 2 * 5)]
    indices = [[1, 2, 3], [0, 2, 3], [5, 4], [5, 2, 4, 5, 0, 1]]
    return [-np.abs(_normal(5, 2, 4)), *numbers, *(np.array(i, np.int32) for i in indices)]


def _suppress() -> list[np.ndarray]:
    params = np.array([300, 5], np.uint32).tobytes() + np.array([0.5, -9], F).tobytes()
    work = [np.zeros(300, np.uint8), np.zeros(6, np.int32), np.frombuffer(params, np.uint32)]
    return [np.abs(_normal(300, 4)), _normal(300), *work]


class Case(NamedTuple):
    """A kernel and its launch; `unneeded`: those of its barriers, in the order of the source, that order nothing else."""

    file: str
    kernel: str
    threads: int
    buffers: Callable[[], list[np.ndarray]]
    unneeded: frozenset[int] = frozenset()
    threadgroup_memory: dict[int, int] = {}


CASES = {
    "cholesky": Case(LINALG, "cholesky_float", 64, _cholesky),
    # No row of the panel has changed since the barriers before its columns.
    "lu": Case(LINALG, "lu_float_int", 64, _lu, frozenset({3})),
    # A column's reflection comes from the thread that had the column before, and others see it behind one barrier.
    "qr": Case(LINALG, "qr_float", 64, _qr, frozenset({0, 2, 3})),
    # Each thread turns the pair of rows whose turn it has made.
    "eigen": Case(EIGEN, "symmetric_eigen_float", 64, _eigen, frozenset({3})),
    "ctc": Case("device/kernels/nn/ctc.metal", "ctc_paths", 32, _ctc),
    "suppress": Case("device/kernels/nn/suppress.metal", "suppress_boxes_float", 64, _suppress),
    "tree": Case("", "tree", 64, lambda: [_normal(64), np.zeros(1, F)]),
    "scan": Case("", "scan", 64, lambda: [np.arange(64, dtype=np.int32)], threadgroup_memory={0: 256, 1: 256}),
    "bitonic": Case("", "bitonic", 64, lambda: [_normal(64)]),
    "transposed": Case("", "transposed", 64, lambda: [_normal(8, 8), np.zeros((8, 8), F), np.uint32([8, 8])]),
}  # fmt: skip


@functools.cache
def _code(case_name: str) -> tuple[str, str]:
    """The kernel's IR before it is instrumented, and its processor."""
    case = CASES[case_name]
    text = None if case.file else HEADER + test_threadgroup.SOURCE
    name = str(ROOT / case.file) if case.file else "test.metal"
    one = compiler.unit(name, Options(checks=True, include=(str(ROOT),)), text)
    with tempfile.TemporaryDirectory() as folder:
        flags = one.flags(Path(folder))
        source, reflection, _ = one.read(flags)
        names = [kernel.host_name for kernel in reflection.kernels]
        number = names.index(case.kernel)
        whole = ir.pieces(cpu.front_end(wrappers(reflection).some(source.text, [number]), flags))
    part = ir.prepare(whole.part([number]), [c.name for c in reflection.constants])
    marked = ir.unaligned(part) + ir.mark_names([case.kernel])
    return lanes.by_fibers(ir.checked(marked)), one.target


def _reports(case_name: str, text: str, words: tuple[str, ...], schedule: str = "plain"):
    case = CASES[case_name]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernel.o"
        checks.back_end(text, _code(case_name)[1], out)
        cpu._say_stack(out)
        file = Path(folder) / "kernel.metallib"
        file.write_bytes(link([out.read_bytes()]))
        looking = Checks(words, schedule, seed=3)
        size = (8, 8) if case_name == "transposed" else case.threads
        # Without a barrier, a kernel may go by a number that is no index.
        with contextlib.suppress(Fault):
            Library(file, True)[case.kernel].run(
                size,
                size,
                dict(enumerate(case.buffers())),
                checks=looking,
                threadgroup_memory=case.threadgroup_memory,
            )
    return looking.reports


@pytest.mark.parametrize("schedule", ["plain", "reverse", "random"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_told(name, schedule):
    text, _ = _code(name)
    assert _reports(name, text, ("race", "init", "barrier", "bounds", "alias"), schedule) == []


def _without(text: str, number: int) -> str:
    found = [*BARRIER.finditer(text)][number]
    return text[: found.start()] + text[found.end() :]


def _barriers(text: str) -> list[int]:
    """The barriers' numbers in the text, in the order of the source."""
    calls = [m[0] for m in BARRIER.finditer(text)]
    lines = {
        m[1]: int(m[2]) for m in re.finditer(r"^!(\d+) = .*!DILocation\(line: (\d+)", text, re.M)
    }
    place = [lines[re.search(r"!dbg !(\d+)", call)[1]] for call in calls]
    return sorted(range(len(calls)), key=place.__getitem__)


@pytest.mark.parametrize("name", CASES)
def test_a_barrier_left_out_is_told(name):
    """Each barrier in turn; no other barrier, and no order of threads, hides it."""
    text, _ = _code(name)
    numbers = _barriers(text)
    assert numbers
    silent = {
        at
        for at, number in enumerate(numbers)
        if not _reports(name, _without(text, number), ("race", "bounds"))
    }
    assert silent == CASES[name].unneeded
