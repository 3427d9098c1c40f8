"""The CPU's tests once more, on the device; and runs of one computation on both.

The CPU's tests of an op (oracles, derivatives, bad arguments, NaN) have to hold on the device as well. A device
file names the CPU's test modules, whose tests are run there; a guard makes sure that they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import raw_ops

# Whether a test was skipped, as conftest.py notes.
SKIPPED = pytest.StashKey[bool]()
DTYPES = ("float32", "float16", "bfloat16")
# Half a unit in the last place: the change by one rounding to the dtype.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def tests_of(module: ModuleType, leave_out: Iterable[str] = ()) -> type:
    """A test class with the test functions of a module. `leave_out` must be among them.

    Tests with the fixture `device` are run with the device alone: the CPU has its turn elsewhere.
    """
    tests = {name: value for name, value in vars(module).items() if name.startswith("test_")}
    for name in leave_out:
        del tests[name]
    assert tests
    found: dict[str, Any] = {name: staticmethod(test) for name, test in tests.items()}
    return type("TestsOfTheCPU", (), found | {"DEVICES": ["/GPU:0"]})


def guarding(ops: Iterable[str], refused: Iterable[str] = ()) -> Any:
    """A fixture: these ops fail unless they run on the device, and so does a test in which none of them runs.

    `refused` names tests, or cases of them, in which none may run: calls are refused before, or no op is part of them.
    """

    @pytest.fixture
    def fixture(
        monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> Iterator[list[str]]:
        ran = guard(monkeypatch, ops)
        yield ran
        skipped = request.node.stash.get(SKIPPED, False)
        name, case = request.node.originalname, request.node.name
        none = name in refused or case in refused
        assert ran or skipped or none, f"no op of {name} ran on the device"

    return fixture


def guard(monkeypatch: pytest.MonkeyPatch, ops: Iterable[str]) -> list[str]:
    """From now on these ops fail unless they run on the device.

    Returns the list of those that did, and of those that became part of a graph: "graph" stands behind their name, as
    it is not known yet where they will run.
    """
    ran: list[str] = []

    def watched(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(op)  # public functions ask it for its arguments' names
        def run(*args: Any, **kwargs: Any) -> Any:
            result = op(*args, **kwargs)
            if not tf.executing_eagerly():
                ran.append(f"{name} graph")
                return result
            for tensor in tf.nest.flatten(result):
                assert tensor.device.endswith("GPU:0"), f"{name} ran on {tensor.device}"
                ran.append(name)
            return result

        return run

    for name in ops:
        monkeypatch.setattr(raw_ops, name, watched(name, getattr(raw_ops, name)), raising=False)
    return ran


def on_both(function: Callable[..., Any], *arrays: Any) -> tuple[list[Any], list[Any]]:
    """The results of a function of tensors on the CPU and on the device, as NumPy arrays in float64 where
    inexact."""
    results = []
    for device in ("CPU:0", "GPU:0"):
        with tf.device(device):
            tensors = tf.nest.flatten(function(*(tf.constant(array) for array in arrays)))
        for tensor in tensors:
            assert tensor.device.endswith(device), f"expected on {device}, ran on {tensor.device}"
        results.append([wide(tensor) for tensor in tensors])
    return results[0], results[1]


def wide(tensor: tf.Tensor) -> np.ndarray:
    array = tensor.numpy()
    return array.astype(np.float64) if tensor.dtype.is_floating else array


def assert_agree(cpu: list[Any], device: list[Any], dtype: str, rtol: float, atol: float) -> None:
    """Equal to the tolerance of the computation and one rounding each; NaN and infinity in the same places."""
    assert len(cpu) == len(device) > 0
    for expected, actual in zip(cpu, device, strict=True):
        assert expected.shape == actual.shape
        # float16 has fixed steps of 2^-24 near 0.
        tiny = 2.0**-24 if dtype == "float16" else 0.0
        np.testing.assert_allclose(
            actual, expected, rtol=rtol + 2 * ROUNDING[dtype], atol=atol + tiny
        )


def assert_same_bits(function: Callable[[], Any]) -> None:
    """Two runs on the device give the same bits."""
    with tf.device("GPU:0"):
        first, second = (
            [tensor.numpy().tobytes() for tensor in tf.nest.flatten(function())] for _ in range(2)
        )
    assert any(first) and first == second


def assert_same_sentence(function: Callable[[], Any]) -> str:
    """Both devices refuse the call in the same words, which are returned."""
    messages = []
    for device in ("CPU:0", "GPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught, tf.device(device):
            for tensor in tf.nest.flatten(function()):
                tensor.numpy()
        # TensorFlow adds the node's name where an input was moved to the device or from it.
        message = re.sub(r"\s*\[\[\{\{node .*?\}\}\]\]", "", caught.value.message)
        messages.append(message.replace(device, "<device>"))
    assert messages[0] == messages[1], messages
    return messages[0]
