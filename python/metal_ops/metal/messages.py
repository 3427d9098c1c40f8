"""The compiler's messages: source locations and errors, in MSL's words, as clang prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

# Clang's messages, in MSL's words.
WORDS = [
    (re.compile(r"\b__global_device\b"), "device"),
    (re.compile(r"\bconst __global_host\b"), "constant"),
    (re.compile(r"\b__global_host\b"), "constant"),
    (re.compile(r"\b__local\b"), "threadgroup"),
    (re.compile(r"\b__thread\b"), "threadgroup"),
    (re.compile(r"\b_Float16\b"), "half"),
    (re.compile(r"\bunsigned (char|short|int|long)\b"), r"u\1"),
    (re.compile(r"\b(?:metal::)?vec<(\w+), (\d)>"), r"\1\2"),
    (re.compile(r"\b(?:metal::)?packed_vec<(\w+), (\d)>"), r"packed_\1\2"),
    (re.compile(r"\b(?:metal::)?matrix<(\w+), (\d), (\d)>"), r"\1\2x\3"),
    (re.compile(r"'(\w+)' \(aka '\1'\)"), r"'\1'"),
    (re.compile(r"^no setter defined for property '(\w+)'"), r"swizzle '\1' repeats a component and cannot be assigned"),
    (re.compile(r"\bmetal::access::"), "access::"),
    (re.compile(r"^automatic variable qualified with an address space"),
     "a local variable cannot be declared in the device or constant address space"),
    (re.compile(r"^use of (\w+) requires -frtti"), r"\1 is not supported in Metal"),
]  # fmt: skip


def in_metal(text: str) -> str:
    """A type or a message of clang's in MSL's words."""
    for pattern, word in WORDS:
        text = pattern.sub(word, text)
    return text


@dataclass(frozen=True)
class Place:
    """Where the user wrote something."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Message:
    """One diagnostic."""

    place: Place | None
    severity: str  # error, warning or note
    text: str


def render(messages: list[Message], line_of: Callable[[Place], str | None]) -> str:
    """Messages as clang prints them: place, text, the line and a caret; `line_of` has the text of a place's line."""
    out = []
    for message in messages:
        place = message.place
        if place is None:
            out.append(f"metal: {message.severity}: {message.text}\n")
            continue
        out.append(
            f"{place.file}:{place.line}:{place.column}: {message.severity}: {message.text}\n"
        )
        line = line_of(place)
        if line is not None:
            lead = "".join("\t" if c == "\t" else " " for c in line[: place.column - 1])
            out.append(f"{line}\n{lead}^\n")
    return "".join(out)
