"""Derivatives of an oracle by differences, in float64: independent of every formula for a gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Central differences err by h^2 f''' / 6 + 2^-53 |f| / h: about 1e-10 of the function's scale at this step.
STEP = 1e-5


def gradient(function: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    """d function / d x at x, element by element."""
    x = np.array(x, np.float64)
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        kept = x[index]
        step = STEP * max(1.0, abs(kept))
        x[index] = kept + step
        above = function(x)
        x[index] = kept - step
        below = function(x)
        x[index] = kept
        result[index] = (above - below) / (2 * step)
    return result


def assert_gradient(actual: object, expected: np.ndarray, tolerance: float, name: str) -> None:
    """Fails unless both agree to `tolerance` of the largest entry and `actual` is not trivially zero.

    Checks of errors that an elementwise comparison lets through: a common factor, and a common
    sign.
    """
    actual = np.asarray(actual, np.float64)
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, not {expected.shape}"
    if actual.size == 0:
        return
    scale = np.max(np.abs(expected))
    error = np.max(np.abs(actual - expected))
    assert error <= tolerance * scale + 1e-12, f"{name}: off by {error:.3g}, largest {scale:.3g}"
    if scale > 0:
        factor = np.sum(actual * expected) / np.sum(expected * expected)
        assert abs(factor - 1) <= tolerance, f"{name}: {factor:.6g} times too large"
