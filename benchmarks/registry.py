"""The parts of a benchmark. A file in benchmarks/cases/ registers its cases; there is no other list."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Named arrays for the cross-check.
Results = dict[str, np.ndarray]


@dataclass
class Contender:
    """One row of a table.

    `time_ms` does the work once, waits for its end and says how long it took. `results`, where given, returns the
    results, which are compared with the first contender's. Work to be done `once` takes minutes, and is measured
    unwarmed.
    """

    name: str
    time_ms: Callable[[], float]
    results: Callable[[], Results] | None = None
    note: str = ""
    once: bool = False


@dataclass
class Context:
    """The context of a case. Whatever is entered into `stack` is closed when the case is done."""

    quick: bool
    peers: bool
    stack: ExitStack


@dataclass(frozen=True)
class Case:
    """Contenders that are timed in turns. The first is ours, and the others are compared with it."""

    group: str  # the cases of a group share a page
    name: str
    title: str
    contenders: Callable[[Context], list[Contender]] = field(compare=False)
    units: float = 0.0  # of work in one call, for the rate column; 0: no such column
    unit: str = "points"
    in_quick: bool = True
    # A result may differ from ours by this part of its largest value, except for `outliers` of all values.
    tolerance: float = 1e-4
    outliers: float = 1e-3


_cases: list[Case] = []


def register(case: Case) -> Case:
    """Adds a case. Called by the modules of benchmarks.cases."""
    if any(other.name == case.name for other in _cases):
        raise ValueError(
            f"[benchmarks] two cases are named {case.name!r}; expected a name of its own."
        )
    _cases.append(case)
    return case


def all_cases() -> list[Case]:
    """Imports benchmarks/cases/*.py and returns the cases they registered."""
    from benchmarks import cases

    for module in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"{cases.__name__}.{module.name}")
    return list(_cases)


def timed(
    function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """A `time_ms` for a function that returns when its work is done. `clock` says seconds."""

    def time_ms() -> float:
        start = clock()
        function()
        return (clock() - start) * 1e3

    return time_ms


def select(cases: list[Case], pattern: str, quick: bool) -> Iterator[Case]:
    """Cases whose name contains `pattern`; with `quick`, only those that are meant for it."""
    return (case for case in cases if pattern in case.name and (case.in_quick or not quick))
