"""The cases over which docs/errors.jsonl is measured, one file per area: ops on both devices against float64 oracles.

Each file has `cases()`, which yields (op, dtype, a function that computes it where it is called, the right result).
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

DTYPES = ("float32", "float16", "bfloat16")
DEVICES = ("CPU", "GPU")
APART = "apart"
Case = tuple[str, str, Callable[[], Any], np.ndarray]
Figures = dict[str, dict[str, dict[str, float]]]


def measure(ops: Sequence[str] = ()) -> Figures:
    """{op: {dtype: {device: largest error, "apart": largest difference between the devices}}}, of all or of these ops.

    Each is a part of the oracle's largest value.
    """
    figures: Figures = {}
    for op, dtype, call, expected in all_cases():
        if ops and op not in ops:
            continue
        results = []
        for device in DEVICES:
            with tf.device(f"{device}:0"):
                results.append(np.asarray(call()).astype(np.float64))
        expected = np.asarray(expected, np.float64)
        slot = figures.setdefault(op, {}).setdefault(dtype, {})
        for key, one, other in (
            ("CPU", results[0], expected),
            ("GPU", results[1], expected),
            (APART, results[0], results[1]),
        ):
            assert one.shape == other.shape, f"{op}, {dtype}, {key}: {one.shape}, {other.shape}"
            error = float(np.max(np.abs(one - other)) / (np.max(np.abs(expected)) or 1.0))
            assert math.isfinite(error), f"{op}, {dtype}, {key}"
            slot[key] = max(slot.get(key, 0.0), error)
    return {
        op: {
            dtype: {key: float(f"{error:.3g}") for key, error in by_key.items()}
            for dtype, by_key in by_dtype.items()
        }
        for op, by_dtype in figures.items()
    }


def all_cases() -> Iterator[Case]:
    for file in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{file.name}").cases()


# ---- what the cases are made with -----------------------------------------------------------------------------------


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array in a dtype: the argument of both the op and, widened again, the oracle."""
    return np.asarray(array).astype(tf.as_dtype(dtype).as_numpy_dtype)


def wide(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float64)


def incoming(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Incoming gradients that every dtype holds exactly."""
    return random.integers(-64, 65, shape) / 64


def gradients(
    function: Callable[..., Any], inputs: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> list[tf.Tensor]:
    """The gradients of sum(weights * function(inputs)) with respect to the inputs."""
    tensors = [tf.constant(each) for each in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = tf.nest.flatten(function(*tensors))
    into = [tf.constant(rounded(w, y.dtype.name)) for w, y in zip(weights, outputs, strict=True)]
    return tape.gradient(outputs, tensors, output_gradients=into)
