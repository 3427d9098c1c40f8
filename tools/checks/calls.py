"""The calls that `make test-checks` makes, each a name and a function: ops of this library and of TensorFlow on the
device, with a few numbers.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.checks.functions import ROOT

Call = tuple[str, Callable[[], object]]
KINDS = (
    ("float32", "float16", "bfloat16", "float64"),
    ("int32", "int64", "int16", "int8", "uint8", "uint16", "uint32", "uint64"),
    ("complex64", "complex128"),
    ("bool",),
)


def every(device_kernels: dict[str, list[Any]]) -> Iterator[Call]:
    """All of them. The last one leaves TensorFlow deterministic, which some ops are not."""
    yield from _of_the_library()
    yield from _of_tests()
    yield from _of_the_device(device_kernels)
    yield "kernels: every launch", _launches


INSIDE = "METAL_OPS_TEST_DEVICE_PROCESS"  # tests/metal_kernels/on_device/conftest.py
# Test files of the device, whose first cases have more shapes.
TESTS = ("elementwise", "nn", "ops", "rnn", "sequences", "signals", "sort", "sparse", "volumes")


def _kind(dtype: str) -> tuple[int, int]:
    """The kind's number, and the dtype's place in it: kernels for the first one are compiled ahead."""
    for number, kind in enumerate(KINDS):
        if dtype in kind:
            return number, kind.index(dtype)
    return len(KINDS), 0


def _of_the_device(device_kernels: dict[str, list[Any]]) -> Iterator[Call]:
    """TensorFlow's ops as benchmarks/device_sweep.py calls them, with a dtype of each kind: kernels are instances of
    one template, and have other code for other kinds of numbers."""
    from benchmarks import device_arguments
    from benchmarks.device_calls import call, combinations, typed_arguments
    from benchmarks.device_sweep import ELSEWHERE, NOT_CALLED, named, of

    def run(op: str, types: dict[str, str], host: set[str], number: int = 0) -> None:
        device_arguments.begin_anew()
        given = typed_arguments(op, types)
        if number:
            given |= list(_other_shapes(given))[number - 1]
        for result in call(op, given, "GPU:0", host):
            result.numpy()

    for op, registered in device_kernels.items():
        if of(ELSEWHERE, op):
            continue
        found = [
            each for each in combinations(op, registered) if not named(NOT_CALLED, op, each[0])
        ]
        found.sort(key=lambda each: [_kind(dtype)[1] for dtype in each[0].values()])
        chosen: dict[tuple[int, ...], Any] = {}
        for types, host in found:
            chosen.setdefault(tuple(_kind(dtype)[0] for dtype in types.values()), (types, host))
        for types, host in chosen.values():
            name = " ".join(f"{name}={dtype}" for name, dtype in types.items())
            yield f"{op} {name}".strip(), functools.partial(run, op, types, host)
            try:
                others = list(_other_shapes(typed_arguments(op, types)))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            for number in range(1, len(others) + 1):
                yield f"{op} {name} {number}", functools.partial(run, op, types, host, number)


def _other_shapes(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows beside a matrix, columns beside rows, and reductions of the first axis."""
    same = [
        name
        for name, value in given.items()
        if isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[0] > 1 < value.shape[1]
    ]
    if len(same) == 2 and given[same[0]].shape == given[same[1]].shape:
        a, b = same
        yield {b: given[b][:1]}
        yield {a: given[a][:, :1], b: given[b][:1]}
        yield {a: given[a][:, None, :1], b: given[b][None, :3, :].copy()}
    for name in ("axis", "dimension", "reduction_indices"):
        if len(same) == 1 and isinstance(given.get(name), np.ndarray):
            yield {name: np.zeros_like(given[name])}


def _of_tests() -> Iterator[Call]:
    """The first case of each of some tests."""

    def run(file: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("METAL_OPS_TEST_DEPTH", "first")
            patch.setenv(INSIDE, "1")
            options = ["-q", "--no-header", "-s", "-p", "no:cacheprovider", "-p", "no:randomly"]
            pytest.main([*options, "-m", "not slow", "-k", "not bad and not large", str(file)])

    for name in TESTS:
        file = ROOT / f"tests/device/on_device/test_{name}.py"
        yield f"tests: {name}", functools.partial(run, file)


def _of_the_library() -> Iterator[Call]:
    """This library's ops: the cases of docs/errors.jsonl in float32."""
    from tests.metal_kernels.on_device import test_every_launch
    from tools.reference import error_cases

    def cases(area: str) -> None:
        for _, dtype, run, _ in importlib.import_module(f"{error_cases.__name__}.{area}").cases():
            if dtype == error_cases.DTYPES[0]:
                run()

    for area in pkgutil.iter_modules(error_cases.__path__):
        if area.name not in test_every_launch.RUN_BELOW:
            yield f"kernels: {area.name}", functools.partial(cases, area.name)


def _launches() -> None:
    from tests.metal_kernels.on_device import test_every_launch
    from tools.reference import error_cases

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_every_launch, "DTYPES", error_cases.DTYPES[:1])
        test_every_launch.run_what_is_left(patch)
