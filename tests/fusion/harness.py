"""Runs a function eagerly, where nothing is fused, and as a tf.function with fusion on; and lists the fusions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops

# Half a unit in the last place of a value of size 1. The fused op rounds once; unfused, each op rounds, of which there
# are at most ten (GELU), each by half a unit of the largest value on the way: hence the factor. In half precision that
# would be as large as the values: there the fused op is compared with a computation in float32.
UNIT = {"float64": 0.0, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ROUNDINGS = 10
# Sums of up to a few hundred products in float32, in another order.
SUMS = 32 * 2.0**-24


def tolerance(dtype: str, size: float) -> float:
    """The tolerance between two results whose largest value on the way is about `size`."""
    return size * (ROUNDINGS * UNIT[dtype] + SUMS)


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> tf.Tensor:
    """Random values of size 1 or less, none of them 0."""
    random = np.random.default_rng(seed * 1000 + sum(shape) + len(shape))
    sign = random.choice([-1.0, 1.0], shape)
    return tf.constant(sign * random.uniform(0.1, 1.0, shape), dtype)


@dataclass
class Seen:
    """The results of a function, and the ops that ran."""

    explanation: metal_ops.fusion.Explanation
    fused: list[list[str]]  # fused_ops of each new node
    conditions: set[str]  # of misses, and of chains that end early

    def reason(self, condition: str) -> str:
        """The sentence for a condition."""
        records = [*self.explanation.missed, *self.explanation.fused]
        return next(record.reason for record in records if record.condition == condition)


def look(fn: Callable[..., Any], *args: Any, cpu: bool = True, patterns: Any = None) -> Seen:
    """Explains without running."""
    if not hasattr(fn, "get_concrete_function"):
        fn = tf.function(fn, autograph=False)
    with metal_ops.fusion.enabled(patterns, cpu=cpu):
        explanation = metal_ops.fusion.explain(fn, *args)
    return Seen(
        explanation,
        [fusion.fused_ops for fusion in explanation.fused],
        {record.condition for record in [*explanation.missed, *explanation.fused]} - {""},
    )


def assert_refused(op: str, condition: str, words: str, fn: Callable[..., Any], *args: Any) -> None:
    """No such op is made, for this condition, by a sentence with these words."""
    seen = look(fn, *args)
    assert op not in {node.op for node in seen.explanation.after}, seen.explanation
    records = [*seen.explanation.missed, *seen.explanation.fused]
    reasons = [record.reason for record in records if record.condition == condition]
    assert any(words in reason for reason in reasons), seen.explanation


def wide(values: Any) -> Any:
    """The same values in float32."""
    return tf.nest.map_structure(lambda value: tf.cast(value, tf.float32), values)


def assert_rounded(
    got: tf.Tensor, exact: tf.Tensor, size: float = 8.0, before: float = 0.0
) -> None:
    """Half precision: within one rounding of float32's result, whose own sums are of this size.

    `before` is the size of values that have been rounded already when they reach the fused op, as scales and
    shifts are.
    """
    unit = UNIT[got.dtype.name]
    exact = np.asarray(exact, np.float64)
    limit = unit * (1.01 * np.abs(exact) + before) + (ROUNDINGS * UNIT["float32"] + SUMS) * size
    # float16 has fixed steps near 0.
    limit += 2.0**-25 if got.dtype == tf.float16 else 0.0
    error = np.abs(np.asarray(got, np.float64) - exact)
    assert got.shape == exact.shape and np.all(error <= limit), (
        f"off by {np.max(error / limit)} of what may be"
    )


def same_as_eager(
    fn: Callable[..., Any],
    *args: Any,
    signature: Any = None,
    cpu: bool = True,
    size: float = 8.0,
    exact: Any = None,
    before: float = 0.0,
    eager: Callable[..., Any] | None = None,
) -> Seen:
    """Asserts that a function computes the same with fusion on and that `explain` reports the pass' changes.

    `eager` is called eagerly in its place, where TensorFlow has some kernel on some processors only.

    Half precision wants the results of a computation in float32, `exact`; `before` is that of `assert_rounded`.
    """
    expected = tf.nest.flatten((eager or fn)(*args))
    function = tf.function(fn, input_signature=signature, autograph=False)
    start = metal_ops.fusion.status()
    with metal_ops.fusion.enabled(cpu=cpu):
        seen = look(function, *(signature or args), cpu=cpu)
        explained = metal_ops.fusion.status()
        got = tf.nest.flatten(function(*args))
    after = metal_ops.fusion.status()
    assert after.errors == start.errors
    # The fusions that explain reported happened once for explain, and once more in earnest.
    assert after.fused - explained.fused == len(seen.fused) == explained.fused - start.fused
    for i, (a, b) in enumerate(zip(expected, got, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype in (tf.float16, tf.bfloat16):
            assert_rounded(b, tf.nest.flatten(exact)[i], size, before)
        elif a.dtype.is_floating:
            a64, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
            limit = tolerance(a.dtype.name, max(size, np.abs(a64).max(initial=0.0)))
            np.testing.assert_allclose(b64, a64, rtol=0, atol=limit)
        else:
            np.testing.assert_array_equal(a, b)
    return seen
