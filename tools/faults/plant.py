"""The faults of a seed: each barrier and fence of all kernels, and others drawn at random."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# The most of each kind that is drawn.
DRAWN = {
    "off by one": 24,
    "no value": 24,
    "barrier in a branch": 16,
    "no atomic": 12,
    "wrong scope": 14,
    "wrong flags": 14,
}
_MEETING = re.compile(r"(?:threadgroup|simdgroup)_barrier\(|atomic_thread_fence\(")
_INDEX = re.compile(r"\b(?:s|a|b|h|n|p|w|parts|table)\[([^\][]+)\]")
_BOUND = re.compile(r"(\bfor \(.*?; \w+ <=?) (\w+)(;)")
_UPDATE = re.compile(
    r"atomic_fetch_(add|min)_explicit\((&?\w+(?:\[.*?\])?), (.*), memory_order_relaxed\);"
)
_DECLARED = re.compile(r"^((?:float|uint|int) \w+) = 0;$")
_FIRST_STORE = re.compile(
    r"^(?:if \(t [<=]+ \d+\) )?(?:\w+\[.*?\] = .*|atomic_store_explicit\(.*);$"
)


@dataclass(frozen=True)
class Fault:
    """A kernel's text with a fault.

    Attributes:
      kind: "no barrier", "no fence", or one of DRAWN.
      line: the number of the changed one, from 0.
      was, now: that line.
      text: of the whole kernel.
    """

    kernel: str
    kind: str
    line: int
    was: str
    now: str
    text: str


def planted(kernels: Mapping[str, str], seed: int) -> list[Fault]:
    """The faults of these texts."""
    every = [fault for name, text in kernels.items() for fault in _of(name, text)]
    chosen = [fault for fault in every if fault.kind not in DRAWN]
    draw = random.Random(seed)
    for kind, most in DRAWN.items():
        of_kind = [fault for fault in every if fault.kind == kind]
        chosen += sorted(draw.sample(of_kind, min(most, len(of_kind))), key=every.index)
    return chosen


def _of(name: str, text: str) -> Iterator[Fault]:
    """All faults that a kernel can have."""
    lines = text.rstrip("\n").split("\n")

    def fault(kind: str, number: int, now: str) -> Fault:
        changed = "\n".join([*lines[:number], now, *lines[number + 1 :]]) + "\n"
        return Fault(name, kind, number, lines[number], now, changed)

    for number, line in enumerate(lines):
        if _MEETING.search(line):
            yield fault("no fence" if "fence" in line else "no barrier", number, ";")
            if "threadgroup_barrier" in line:
                yield fault("wrong scope", number, line.replace("threadgroup_b", "simdgroup_b"))
            if "thread_scope_device" in line:
                yield fault(
                    "wrong scope",
                    number,
                    line.replace("thread_scope_device", "thread_scope_threadgroup"),
                )
            if "barrier" in line:
                other = {"mem_device": "mem_threadgroup", "mem_threadgroup": "mem_device"}
                for flags in (
                    "mem_none",
                    other["mem_device" if "mem_device" in line else "mem_threadgroup"],
                ):
                    yield fault(
                        "wrong flags",
                        number,
                        re.sub(r"mem_flags::\w+", f"mem_flags::{flags}", line),
                    )
                for condition in ("t < 40", "t % 32 < 16"):
                    yield fault("barrier in a branch", number, f"if ({condition}) {line}")
            continue
        for found in _INDEX.finditer(line):
            if not line.startswith("threadgroup "):
                for more in (" + 1", " - 1"):
                    now = f"{line[: found.start(1)]}{found[1]}{more}{line[found.end(1) :]}"
                    yield fault("off by one", number, now)
        if found := _BOUND.search(line):
            for more in (" + 1", " - 1"):
                now = f"{line[: found.end(2)]}{more}{line[found.end(2) :]}"
                yield fault("off by one", number, now)
        if found := _UPDATE.search(line):
            where, value = found[2], found[3]
            space = "device" if where == "count" else "threadgroup"
            place = f"*({space} uint*)({where})"
            if "before" not in line:
                now = (
                    f"{place} += {value};"
                    if found[1] == "add"
                    else f"{place} = min({place}, {value});"
                )
                yield fault("no atomic", number, line[: found.start()] + now)
        if found := _DECLARED.match(line):
            yield fault("no value", number, found[1] + ";")
        if _FIRST_STORE.match(line) and number < lines.index(
            next(x for x in lines if _MEETING.search(x))
        ):
            yield fault("no value", number, ";")


def loop_of(text: str, line: int) -> tuple[int, int]:
    """The first and last line of the innermost loop around a line; those of the whole text where there is none."""
    lines = text.split("\n")
    ahead: list[tuple[int, bool]] = []
    loops = [(0, len(lines))]
    for number, words in enumerate(lines):
        if words.startswith("}") and ahead:
            begin, is_loop = ahead.pop()
            if is_loop and begin <= line <= number:
                loops.append((begin, number))
        if words.endswith("{"):
            ahead.append((number, words.startswith("for ")))
    return min(loops, key=lambda loop: loop[1] - loop[0])
