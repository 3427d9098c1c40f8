"""Every op of the device in every dtype combination that it has kernels for, called with a few numbers: twice the same,
and the results of TensorFlow's CPU in wider floats, as close as docs/errors.md says. Shapes, special values and bad
arguments are in the tests of families.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.device_arguments import arguments
from benchmarks.device_calls import SIDE, WIDER, Types, combinations
from benchmarks.device_ops import kernels_beyond, only_in_graphs, without_cpu_kernel
from benchmarks.device_sweep import (
    ALONE,
    ELSEWHERE,
    NOT_CALLED,
    OUTPUTS,
    UNIT,
    UNLIKE,
    Results,
    add_errors,
    called,
    compared,
    named,
    of,
    results,
)
from tests import suites
from tests.device.test_loading import ON_GPU
from tests.processes import Process
from tools.reference import records

ERRORS = records.read(records.DEVICE_ERRORS)
# TensorFlow has kernels for any GPU: control flow, iterators, and some of int32.
WITHOUT_DEVICE = """
import json
from benchmarks.device_ops import kernel_texts
print(json.dumps([*kernel_texts()]))
"""


def device_kernels() -> dict[str, list[Any]]:
    """By op, without TensorFlow's own and those of this library's ops."""
    return kernels_beyond({*Process("-c", WITHOUT_DEVICE).result()})


KERNELS = device_kernels()

# Units in the last place of the largest number that no figure may pass, whatever was measured: of sums of a few
# products. More where series or rotations end.
UNITS = {"float32": 16, "complex64": 16, "float16": 2, "bfloat16": 2}
MORE = {"Betainc|Igammac?|Lu|Qr": 64}
# The committed figures are a processor's, with TensorFlow 2.18.
AS_COMMITTED = not ON_GPU and tf.__version__.startswith("2.18.")


def compare(op: str, found: Results, i: int) -> None:
    assert found.want is not None
    got, want = found.got[i], found.want[i].astype(found.got[i].dtype)
    if got.dtype.name not in UNIT:
        np.testing.assert_array_equal(got, want)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    most = (of(MORE, op) or UNITS[got.dtype.name]) * UNIT[got.dtype.name]
    assert max(found.errors(i).values()) <= most


def agree(dtype: str, measured: float, committed: float) -> bool:
    """Within a factor of two, as sums differ by a machine's SIMD; results that are rounded once or twice anyway."""
    small, large = sorted([measured, committed])
    return large <= max(2 * small, UNIT[dtype])


def test_control_agree():
    assert agree("float32", 0, 2**-23) and agree("float16", 2e-3, 4e-3)
    assert not agree("float32", 0, 2**-22) and not agree("float16", 2e-3, 4.1e-3)


def taken(op: str) -> Iterator[tuple[Types, set[str], bool]]:
    """The combinations of this run's depth, and whether to call one twice: all, or those that together have every dtype
    of each attribute and every pair of kinds of dtypes, of which the first with a kind are called twice."""
    every = list(called(op, KERNELS[op]))
    kinds = [{name: suites.kind_of(t) for name, t in types.items()} for types, _ in every]
    places = range(len(every))
    if suites.depth() != "all":
        cases = [
            types | {f"kind of {n}": k for n, k in kinds[i].items()}
            for i, (types, _) in enumerate(every)
        ]
        places = suites.covering(cases, lambda a, b: a[:7] == b[:7] == "kind of")
    seen: set[str] = set()
    for place, (types, host) in enumerate(called(op, KERNELS[op])):
        if place in places:
            yield types, host, suites.depth() == "all" or not seen >= {*kinds[place].values()}
            seen |= {*kinds[place].values()}
        else:  # its numbers are drawn, so that the next ones are those of the committed figures
            arguments(op, types, SIDE)


@pytest.mark.parametrize("op", [op for op in KERNELS if not of(ELSEWHERE, op)])
def test_kernel(op):
    wrong: dict[str, str] = {}
    errors: dict[str, dict[str, float]] = {}
    for types, host, twice in taken(op):
        try:
            found = results(op, types, host, with_cpu=False, twice=twice)
            want = found.again if found.want is None else found.want
            assert len(found.got) == len(found.again) == len(want) > 0
            for i in of(OUTPUTS, op) or range(len(found.got)):
                assert found.got[i].shape == want[i].shape
                assert found.got[i].dtype == want[i].dtype or found.got[i].dtype.name in WIDER
                if not of(UNLIKE, op):
                    np.testing.assert_array_equal(found.got[i], found.again[i])
            for i in compared(op, found):
                compare(op, found, i)
            add_errors(errors, op, found)
        except Exception as error:
            wrong[str(types)] = f"{type(error).__name__}: {error}"[:400]
    assert not wrong
    if AS_COMMITTED:
        measured = {
            (t, key): error for t, by_key in errors.items() for key, error in by_key.items()
        }
        committed = {(t, key): error for t, by_key in ERRORS.get(op, {}).items()
                     for key, error in by_key.items() if key != "CPU"}  # fmt: skip
        assert measured.keys() == committed.keys(), "run `make docs-reference ARGS=--measure`"
        # All combinations have the largest error that is committed, and some of them at most that.
        least = {key: 0.0 if suites.depth() == "all" else committed[key] for key in committed}
        off = {
            key: (measured[key], committed[key])
            for key in committed
            if not agree(key[0], max(measured[key], least[key]), committed[key])
        }
        assert not off, f"measured and in docs/device_errors.jsonl: {off}"


def test_nothing_else_is_left_out():
    alone = {op for op in KERNELS if only_in_graphs(op)} | without_cpu_kernel(KERNELS)
    assert {op for op in KERNELS if of(ELSEWHERE, op)} == alone
    for table in (ELSEWHERE, UNLIKE, OUTPUTS, MORE):
        for pattern in table:
            assert any(of({pattern: True}, op) for op in KERNELS), pattern
    every = [(op, types) for op in KERNELS for types, _ in combinations(op, KERNELS[op])]
    for row in NOT_CALLED + ALONE:
        assert any(named([row], op, types) for op, types in every), row
    assert len(KERNELS) > 460 and len(every) > 4000
    if AS_COMMITTED:
        assert {*ERRORS} <= {*KERNELS}


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
def test_indices(dtype):
    """int16 was read as if it were int32, whatever the CPU does."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with tf.device("GPU:0"):
        dims = np.array(-1, dtype)
        np.testing.assert_array_equal(tf.raw_ops.ArgMax(input=x, dimension=dims), [3, 3, 3])
        begin, end, strides = (np.array(numbers, dtype) for numbers in ([-1, 0], [0, 4], [-1, 3]))
        part = tf.raw_ops.StridedSlice(input=x, begin=begin, end=end, strides=strides)
        np.testing.assert_array_equal(part, x[-1:0:-1, 0:4:3])
