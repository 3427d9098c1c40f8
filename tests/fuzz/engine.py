"""Shared by all fuzzers: inputs that follow from (seed, reader, number), the loop, and the files kept of a
failure.

Not hypothesis, whose bookkeeping takes longer than most readers here: a million inputs are minutes this way, and each
can be made again from its number alone.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import resource
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

SLOW = 20.0  # seconds of processor time for one input
Kept = dict[str, bytes]


class Reader(Protocol):
    """One of the things that are fuzzed."""

    name: str

    def make(self, rng: random.Random) -> Any:
        """An input."""

    def feed(self, content: Any) -> str:
        """Reads it; returns "accepted" or "refused", anything else is raised."""

    def files(self, content: Any) -> Kept:
        """The input as files, to be kept beside a failure."""

    def close(self) -> None: ...


class Wrong(AssertionError):
    """A reader that accepts wrong inputs, or refuses in more or less than a sentence."""


@dataclasses.dataclass
class Report:
    """The counts of a run."""

    reader: str
    seed: int
    inputs: int = 0
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    peak_mib: int = 0

    def line(self) -> str:
        told = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.reader}: {self.inputs} inputs of seed {self.seed} ({told}), {len(self.failures)} failures, "
            f"{self.seconds:.0f} s of processor time, at most {self.peak_mib} MiB more than at the start"
        )


def rng_of(seed: int, reader: str, number: int) -> random.Random:
    return random.Random(f"{seed}/{reader}/{number}")


def run(
    reader: Reader, seed: int, first: int, count: int, keep: Path | None, seconds: float = math.inf
) -> Report:
    """Feeds inputs first, first + 1, ... of a seed, and keeps those that fail in a folder."""
    report = Report(reader.name, seed)
    started, before = time.process_time(), _peak()
    deadline = time.monotonic() + seconds
    for number in range(first, first + count):
        if time.monotonic() > deadline:
            break
        content: Any = None
        begun = time.process_time()
        try:
            content = reader.make(rng_of(seed, reader.name, number))
            outcome = reader.feed(content)
            if time.process_time() - begun > SLOW:
                raise Wrong(f"took {time.process_time() - begun:.0f} s")
        except KeyboardInterrupt:  # the report covers the inputs so far
            break
        except Exception:
            outcome = "failed"
            text = traceback.format_exc()
            report.failures.append((number, text))
            if keep is not None:
                folder = keep / f"{reader.name}-{seed}-{number}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "traceback.txt").write_text(text, errors="backslashreplace")
                for name, data in reader.files(content).items() if content is not None else ():
                    (folder / name).write_bytes(data)
        report.inputs += 1
        report.outcomes[outcome] += 1
    report.seconds = time.process_time() - started
    report.peak_mib = (_peak() - before) // 1024
    return report


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def check_sentence(error: Exception, *names: str) -> None:
    """A refusal is one sentence of a bearable length that names the file."""
    text = str(error)
    if "\n" in text or not text.endswith((".", "?")) or not 10 < len(text) < 6000:
        raise Wrong(f"no sentence: {text[:2000]!r}") from error
    if not any(name in text for name in names):
        raise Wrong(f"does not name {names}: {text[:2000]!r}") from error


# ---- mutations ------------------------------------------------------------------------------------------------------

NUMBERS = (
    0, -0.0, 1, -1, 2, 0.5, 3, 7, 64, 255, 256, 1024, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, 2**63,
    2**64, 10**18, 10**19, 10**30, 10**308, 10**309, 1e-320, 1e-300, 1e-38, 1e38, 3.4e38, 1e39, 1e154, 1e300, 1.7e308,
    math.pi, math.nan, math.inf, -math.inf,
)  # fmt: skip
TEXTS = (
    "", "a", ".", "..", "/", "./", "\0", "\n", "\x1b[2J", "\ud800", "\udcff", "\u2028", "é", "🙂", "[/b]", "{task}",
    "%s", "$x$", "~", "*", "a" * 300, "a" * 5000, "/dev/zero", "/dev/null", "../" * 50, "1", "NaN", "null", "true",
    "file_path", "__class__",
)  # fmt: skip


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any value that JSON has."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind <= 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(TEXTS)
    if kind == 3:
        return rng.choice((None, True, False))
    if kind == 4:
        return rng.uniform(-10, 10)
    if kind == 5:
        return rng.randrange(-10, 1000)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 3, 4, 4, 16, 100)))]
    if kind == 7:
        return {rng.choice(TEXTS): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    nested: Any = rng.choice(NUMBERS)
    for _ in range(rng.choice((2, 5, 60, 70, 200))):
        nested = [nested] if rng.random() < 0.7 else {"a": nested}
    return nested


def places(content: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in a tree."""
    found, todo = [], [content]
    while todo:
        node = todo.pop()
        keys = (
            list(node) if isinstance(node, dict) else range(len(node)) if type(node) is list else ()
        )
        for key in keys:
            found.append((node, key))
            todo.append(node[key])
    return found


def mutate_tree(content: Any, rng: random.Random) -> Any:
    """Changes some places of a tree of dicts and lists."""
    content = json.loads(json.dumps(content))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        spots = places(content)
        if not spots:
            return value(rng)
        node, key = rng.choice(spots)
        kind = rng.randrange(8)
        if kind <= 2:
            node[key] = value(rng)
        elif kind == 3:
            del node[key]
        elif kind == 4:
            other, there = rng.choice(spots)
            if key in node if isinstance(node, dict) else key < len(node):
                node[key] = json.loads(json.dumps(other[there]))
        elif kind == 5 and isinstance(node, dict):
            name = rng.choice((*TEXTS, key[:-1], key.upper(), key + "s", rng.choice(spots)[1]))
            node[str(name)] = node.pop(key)
        elif kind == 6 and isinstance(node, list):
            node[key:key] = [node[key]] * rng.choice((1, 2, 50))
        elif isinstance(node[key], float) or (
            isinstance(node[key], int)
            and abs(node[key]) < 2**64
            and not isinstance(node[key], bool)
        ):
            node[key] = node[key] * rng.choice((-1, 0.999, 1.0001, 2, 1e9)) + rng.choice(
                (0, 1e-6, 1)
            )
    return content


def dump(content: Any, rng: random.Random) -> str:
    """JSON text of a tree, at times with values that a tree cannot hold."""
    text = json.dumps(content)
    kind = rng.randrange(20)
    if kind == 0 and text.startswith("{") and len(text) > 2:  # a key twice
        text = text[:-1] + ", " + text[1:]
    elif kind == 1:  # another literal for some number
        numbers = [i for i, c in enumerate(text) if c.isdigit()]
        if numbers:
            at = rng.choice(numbers)
            literal = rng.choice(
                ("9" * 5000, "1e999", "-1e999", "NaN", "Infinity", "0x1", "1_0", "٣")
            )
            text = text[:at] + literal + text[at + 1 :]
    elif kind == 2:
        at, many = rng.randrange(len(text)), rng.choice((10, 1000, 5000))
        text = text[:at] + rng.choice("[{") * many + text[at:]
    return text


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flips, cuts, copies and inserts."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        size = len(changed)
        at = rng.randrange(size + 1)
        kind = rng.randrange(8)
        if kind <= 2 and size:
            changed[min(at, size - 1)] ^= 1 << rng.randrange(8)
        elif kind == 3 and size:
            changed[min(at, size - 1)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 4:
            del changed[at : at + rng.choice((1, 2, 4, 8, 64, 4096))]
        elif kind == 5:
            other = rng.randrange(size + 1)
            changed[at:at] = changed[other : other + rng.choice((1, 4, 16, 256))]
        elif kind == 6:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice((0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 255, 65535))
            order = rng.choice(("little", "big"))
            changed[at : at + width] = (number % 256**width).to_bytes(width, order)
        else:
            changed[at:] = b"" if rng.random() < 0.3 else changed[at:][::-1][: rng.randrange(64)]
    return bytes(changed)
