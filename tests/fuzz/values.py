"""The arrays of right calls, and stand-ins for objects that only TensorFlow can make."""

from __future__ import annotations

from typing import Any

import numpy as np

N, RAYS = 7, 2
F4 = np.float32
POINTS = np.linspace(0, 1, 3 * N, dtype=F4).reshape(N, 3)
T = np.arange(N, dtype=F4)
PACKED = np.array([[0, 3], [3, 4]], np.int32)
ALONG = dict(t_starts=T, t_ends=T + 1, packed_info=PACKED)


class Special:
    """Something that only TensorFlow can make, by name: "variable", "ragged", "dtype", ..."""

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind, self.value = kind, value

    def __repr__(self) -> str:
        return f"Special({self.kind!r}, {self.value!r})"


def variable(value: np.ndarray) -> Special:
    return Special("variable", value)


def handle(value: np.ndarray) -> Special:
    """The handle of a variable, as raw ops take it."""
    return Special("handle", value)
