"""Shapes in words, as ops are declared with: "any", "like x", or sizes and their names, "[rows, 3]", "[2*rows]"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from metal_ops.kernel.functions import Argument

FACTOR = re.compile(r"[A-Za-z_]\w*|\d+")


@dataclass(frozen=True)
class Words:
    """A shape as it was written.

    Attributes:
      text: The given text.
      like: The argument whose shape it is, or "".
      sizes: The factors of each size; None for "any" and "like".
    """

    text: str
    like: str = ""
    sizes: tuple[tuple[str, ...], ...] | None = None


def read(label: str, argument: str, text: str) -> Words:
    """The words of a shape.

    Raises:
      ValueError: It is none.
    """
    stripped = text.strip()
    if stripped == "any":
        return Words(stripped)
    if stripped.startswith("like ") and FACTOR.fullmatch(stripped[5:].strip()):
        return Words(stripped, like=stripped[5:].strip())
    if stripped.startswith("[") and stripped.endswith("]"):
        inside = stripped[1:-1].strip()
        sizes = tuple(
            tuple(factor.strip() for factor in size.split("*"))
            for size in inside.split(",")
            if inside
        )
        if all(FACTOR.fullmatch(factor) for size in sizes for factor in size):
            return Words(stripped, sizes=sizes)
    raise ValueError(
        f"[{label}] {argument}: expected 'any', 'like <input>' or sizes and their names, such as '[rows, 3]', got "
        f"{text!r}."
    )


@dataclass
class Sizes:
    """The values of the names of sizes in a call, and conditions that only a graph's run can check."""

    label: str
    values: dict[str, Any] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)  # the input that a name was met in
    checks: list[tf.Operation] = field(default_factory=list)

    def check(self, name: str, words: Words, seen: Mapping[str, Argument]) -> None:
        """Holds an input against its words.

        Raises:
          ValueError: It does not fit.
        """
        shape = seen[name].shape
        if words.like:
            self._same(name, shape, words.like, seen[words.like].shape)
        if words.sizes is None:
            return
        rank = len(words.sizes)
        expected = f"[{self.label}] {name}: expected shape {words.text}"
        if tf.is_tensor(shape):
            self._require(tf.equal(tf.size(shape), rank), f"{expected}, got", shape)
            with tf.control_dependencies(self.checks):
                shape = tuple(tf.identity(shape)[i] for i in range(rank))
        if len(shape) != rank:
            raise ValueError(f"{expected}, got {_text(shape)}.")
        for factors, size in zip(words.sizes, shape, strict=True):
            names = [factor for factor in factors if not factor.isdigit()]
            if len(factors) == 1 and names and names[0] not in self.values:
                self.values[names[0]], self.first[names[0]] = size, name
                continue
            wanted = self._product(name, factors)
            known = ", ".join(
                f"{n} = {self.values[n]} as in {self.first[n]}"
                for n in names
                if not tf.is_tensor(self.values[n])
            )
            said = f"{expected}{f' with {known}' if known else ''}, got"
            if not tf.is_tensor(size) and not tf.is_tensor(wanted):
                if size != wanted:
                    raise ValueError(f"{said} {_text(shape)}.")
            else:
                self._require(
                    tf.equal(tf.cast(size, tf.int64), tf.cast(wanted, tf.int64)), said, shape
                )

    def shape(self, words: Words, argument: str, seen: Mapping[str, Argument]) -> Any:
        """An output's shape."""
        if words.like:
            return seen[words.like].shape
        assert words.sizes is not None
        return [self._product(argument, factors) for factors in words.sizes]

    def _product(self, argument: str, factors: tuple[str, ...]) -> Any:
        for factor in factors:
            if not factor.isdigit() and factor not in self.values:
                raise ValueError(
                    f"[{self.label}] {argument}: there is no size {factor!r}; known are "
                    f"{', '.join(self.values) or 'none'}."
                )
        return math.prod(int(f) if f.isdigit() else self.values[f] for f in factors)

    def _same(self, name: str, shape: Any, like: str, other: Any) -> None:
        expected = f"[{self.label}] {name}: expected the shape of {like}"
        if not tf.is_tensor(shape) and not tf.is_tensor(other):
            pairs = list(zip(shape, other, strict=False))
            open_ended = [pair for pair in pairs if any(tf.is_tensor(size) for size in pair)]
            fixed = [a == b for a, b in pairs if not tf.is_tensor(a) and not tf.is_tensor(b)]
            if len(shape) != len(other) or not all(fixed):
                raise ValueError(f"{expected}, {_text(other)}, got {_text(shape)}.")
            for a, b in open_ended:
                same = tf.equal(tf.cast(a, tf.int64), tf.cast(b, tf.int64))
                self._require(same, f"{expected}, got", shape)
            return
        a, b = (tf.convert_to_tensor(value, tf.int64) for value in (shape, other))
        same = tf.cond(
            tf.equal(tf.size(a), tf.size(b)), lambda: tf.reduce_all(tf.equal(a, b)), lambda: False
        )
        self._require(same, f"{expected}, got", shape)

    def _require(self, condition: tf.Tensor, said: str, shape: Any) -> None:
        self.checks.append(
            tf.debugging.Assert(condition, [said, tf.convert_to_tensor(shape, tf.int64)])
        )


def _text(shape: Any) -> str:
    return f"[{', '.join('?' if tf.is_tensor(size) else str(size) for size in shape)}]"
