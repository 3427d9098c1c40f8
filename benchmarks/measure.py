"""Timing: contenders take turns, so that a slower minute of the machine hits all of them; medians and quartiles."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.registry import Case, Contender

WARM_UPS = 2
# One that takes longer is warm after its first call.
SLOW_MS = 5000.0
# A pause before each turn: thread pools of the one before spin for some milliseconds.
PAUSE_S = 0.02
ROUNDS = 15
QUICK_ROUNDS = 5
FEWEST_ROUNDS = 3
SECONDS = 25.0
# A contender this many times slower than ours needs no more than the fewest rounds.
FAR_BEHIND = 20


@dataclass
class Row:
    """A contender's times, or why there are none."""

    name: str
    note: str = ""
    times_ms: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median(self) -> float:
        return float(np.median(self.times_ms))

    @property
    def quartiles(self) -> tuple[float, float]:
        low, high = np.percentile(self.times_ms, [25, 75])
        return float(low), float(high)


def measure(
    case: Case, contenders: list[Contender], quick: bool, progress: Callable[[str, float], None]
) -> list[Row]:
    """Warms every contender up, compares its results with the first one's, and times all in turns.

    A contender that fails keeps its row, with the reason in it; if the first (ours) fails, that is raised.
    """
    rows = [Row(contender.name, contender.note) for contender in contenders]
    expected = None
    for i, (row, contender) in enumerate(zip(rows, contenders, strict=True)):
        progress(f"warm-up: {contender.name}", i / len(rows))
        try:
            for _ in range(0 if contender.once else WARM_UPS):
                if contender.time_ms() > SLOW_MS and i > 0:
                    break
            if contender.results is not None:
                results = contender.results()
                if expected is None:
                    expected = results
                row.error = difference(expected, results, case.tolerance, case.outliers)
        except Exception as error:
            if i == 0:
                raise
            row.error = f"{type(error).__name__}: {error}".splitlines()[0][:200]

    rounds, start = (QUICK_ROUNDS if quick else ROUNDS), time.monotonic()
    for turn in range(rounds):
        if turn >= FEWEST_ROUNDS and time.monotonic() - start > SECONDS:
            break
        for row, contender in zip(rows, contenders, strict=True):
            if contender.once and row.times_ms:
                continue
            if row.error or (turn >= FEWEST_ROUNDS and row.median > FAR_BEHIND * rows[0].median):
                continue
            progress(f"round {turn + 1} of {rounds}: {contender.name}", turn / rounds)
            time.sleep(PAUSE_S)
            row.times_ms.append(contender.time_ms())
    return rows


def difference(
    expected: dict[str, np.ndarray], got: dict[str, np.ndarray], tolerance: float, outliers: float
) -> str:
    """Why two results are not the same computation; "" if they are."""
    for name, want in expected.items():
        if name not in got:
            return f"{name} is missing"
        have = got[name]
        if want.shape != have.shape:
            return f"{name} has shape {have.shape}, ours {want.shape}"
        error = np.abs(want.astype(np.float64) - have.astype(np.float64))
        limit = tolerance * float(np.abs(want.astype(np.float64)).max())
        # Not `error > limit`: NaN must count.
        wrong = float(np.mean(~(error <= limit)))
        if wrong > outliers:
            return f"{name} differs from ours by more than {limit:.2g} in {wrong:.2%} of its values"
    return ""
