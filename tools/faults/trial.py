"""Runs kernels with planted faults: in several orders of threads, and under HOSTMETAL_CHECK."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metal_ops.metal import Options, compile_object, link
from metal_ops.metal.check_launch import Checks
from metal_ops.metal.launch import Fault as OutOfBounds
from metal_ops.metal.launch import Library
from tools.faults.plant import Fault, loop_of

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
WORDS = ("race", "init", "barrier", "bounds")
ORDERS = (
    ("plain", 0),
    ("reverse", 0),
    ("one-simdgroup", 0),
    *(("random", seed) for seed in range(1, 13)),
)
PER_MODULE = 40


@dataclass(frozen=True)
class Outcome:
    """The effect of a fault.

    Attributes:
      wrong: whether an order of threads gives another result than the kernel without the fault.
      differs: whether two orders give different results.
      told: the first sentence about it; "" where there is none.
      at_its_line: whether a sentence is about the place that was changed.
    """

    wrong: bool
    differs: bool
    told: str
    at_its_line: bool


def numbers() -> np.ndarray:
    """The kernels' input: whole numbers, whose sums are the same in any order."""
    return np.random.default_rng(5).integers(1, 17, 128).astype(np.float32)


def tried(
    faults: Sequence[Fault], arguments: str, right: Callable[[str], np.ndarray]
) -> list[Outcome]:
    """The outcome of each.

    Args:
      arguments: of all kernels.
      right: the result of a kernel without a fault.
    """
    return [
        outcome
        for begin in range(0, len(faults), PER_MODULE)
        for outcome in _module(faults[begin : begin + PER_MODULE], arguments, right)
    ]


def _module(
    faults: Sequence[Fault], arguments: str, right: Callable[[str], np.ndarray]
) -> list[Outcome]:
    text, first = HEADER, []
    for number, fault in enumerate(faults):
        head = f"kernel void k{number}{arguments} {{\n"
        first.append((text + head).count("\n") + 1)
        text += f"{head}{fault.text}}}\n"
    data, _ = compile_object("faults.metal", Options(checks=True), text)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "faults.metallib"
        file.write_bytes(link([data]))
        library = Library(file, True)
        return [
            _outcome(library, f"k{number}", fault, first[number], right(fault.kernel))
            for number, fault in enumerate(faults)
        ]


def launched(library: Library, kernel: str, checks: Checks) -> tuple[np.ndarray | None, str]:
    """The result, and the place of an access out of bounds, which leaves none."""
    out = np.zeros(128, np.float32)
    buffers = {0: numbers(), 1: out, 2: np.zeros(1, np.uint32), 3: np.zeros(128, np.uint8)}
    try:
        library[kernel].run(128, 64, buffers, checks=checks)
    except OutOfBounds as error:
        message = error.details["message"]
        return None, f"out of bounds at {message.decode() if message else 'an unknown line'}"
    return out, ""


def _outcome(library: Library, kernel: str, fault: Fault, first: int, right: np.ndarray) -> Outcome:
    told: list[str] = []
    for order, seed in (("plain", 0), ("random", 1)):
        checks = Checks(WORDS, order, seed)
        _, beyond = launched(library, kernel, checks)
        told += [*checks.reports, *([beyond] if beyond else [])]
    # With bounds: an index may be any number.
    results = [
        launched(library, kernel, Checks(("bounds",), order, seed))[0] for order, seed in ORDERS
    ]
    wrong = any(result is None or not np.array_equal(result, right) for result in results)
    differs = any(
        (result is None) != (results[0] is None)
        or (result is not None and not np.array_equal(result, results[0]))
        for result in results
    )
    return Outcome(
        wrong, differs, told[0] if told else "", any(_is_about(t, fault, first) for t in told)
    )


def _is_about(sentence: str, fault: Fault, first: int) -> bool:
    """Whether a sentence names the changed line; of a barrier or fence that orders nothing any more: accesses on both
    sides of it, or in the loop around it."""
    lines = [int(n) - first for n in re.findall(r"at faults\.metal:(\d+)", sentence)]
    if fault.line in lines:
        return True
    if fault.kind in ("no barrier", "no fence", "wrong scope", "wrong flags"):
        begin, end = loop_of(fault.text, fault.line)
        whole = (begin, end) == (0, len(fault.text.split("\n")))
        around = [line for line in lines if begin <= line <= end]
        if whole or not around:
            return bool(lines) and min(lines) < fault.line < max(lines)
        return True
    # A store that was left out, or goes elsewhere: of that variable.
    name = re.search(
        r"^(?:if \(.*?\) )?(?:(\w+)\[.*\] = |atomic_store_explicit\(&(\w+))", fault.was
    )
    return bool(name) and " init: " in sentence and f"'{name[1] or name[2]}'" in sentence
