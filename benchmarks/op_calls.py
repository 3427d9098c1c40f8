"""A call of every declared op at a size worth measuring. Ops are not listed by hand: names come from the op library,
and right calls from those that tests/fuzz derives of declarations, grown. A family whose calls do not grow by
themselves, or say little when they have, states them in a file of benchmarks/ops."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import ops
from tests.fuzz import calls, declared
from tests.fuzz.values import PACKED, RAYS, N, Special

# Bytes of rows, inputs and outputs together, about: more than a core's caches hold, and done in milliseconds.
BYTES = 1 << 24
RAY = 64  # samples
Arguments = dict[str, Any]


@functools.cache
def _declared() -> calls.Declared:
    return declared.read()


@functools.cache
def _stated() -> dict[str, Callable[[int], Arguments]]:
    found: dict[str, Callable[[int], Arguments]] = {}
    for file in pkgutil.iter_modules(ops.__path__):
        found |= importlib.import_module(f"{ops.__name__}.{file.name}").CALLS
    return found


def names() -> list[str]:
    """Names of raw ops."""
    return sorted(_declared()["raw"])


def inputs(name: str) -> list[str]:
    """The arguments of a raw op that are tensors, in order."""
    return list(_declared()["raw"][name][0])


def make(name: str, n: int) -> Arguments:
    """A right call of a raw op with `n` points, samples, rows or whatever it has many of."""
    if name in _stated():
        return _stated()[name](n)
    small = calls.tables_of(_declared())[1][name]
    large = grown(small, n)
    if all(large[key] is small[key] for key in small):
        raise ValueError(
            f"[benchmarks] {name}: no input of its call in tests/fuzz has {N} rows, so it does not grow. State a "
            f"call of n rows in a file of benchmarks/ops: CALLS = {{{name!r}: lambda n: dict(...)}}."
        )
    return large


def grown(small: Arguments, n: int) -> Arguments:
    """The same call of n rows instead of N, and of rays instead of RAYS.

    A row lies between two of the small call's, at the same place in all arrays: values that go together still do. Each
    column has places of its own, and along a ray the first one's ascend, as times have to.
    """
    packed = any(value is PACKED for value in small.values())

    @functools.cache
    def places(column: int) -> np.ndarray:
        found = np.random.default_rng(column).uniform(0, N - 1, n)
        if packed and column == 0:
            found = np.sort(np.resize(found, (-(-n // RAY), RAY))).reshape(-1)[:n]
        return found

    def change(value: Any) -> Any:
        if value is PACKED:
            starts = np.arange(0, n, RAY, dtype=np.int32)
            return np.stack([starts, np.minimum(n - starts, RAY, dtype=np.int32)], axis=1)
        if isinstance(value, Special) and value.kind == "handle":
            changed = change(value.value)
            return value if changed is value.value else Special("handle", changed)
        if isinstance(value, list):
            changed = [change(item) for item in value]
            return value if all(a is b for a, b in zip(changed, value, strict=True)) else changed
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            return value
        if len(value) == N:
            columns = value.reshape(N, -1).astype(np.float64)
            rows = [
                np.interp(places(c), np.arange(N), columns[:, c]) for c in range(columns.shape[1])
            ]
            return np.stack(rows, axis=1).reshape(n, *value.shape[1:]).astype(value.dtype)
        if packed and len(value) == RAYS:
            return np.resize(value, (-(-n // RAY), *value.shape[1:]))
        return value

    return {key: change(value) for key, value in small.items()}
