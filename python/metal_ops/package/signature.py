"""The arguments and results of a packed function, as the manifest has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from metal_ops.package.errors import PackageError


@dataclass(frozen=True)
class Spec:
    """An input or an output.

    Attributes:
      name: An input's name, or an output's place in the result.
      dtype: The dtype's name.
      shape: The sizes, None for those that calls may choose; None for an unknown rank.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def bytes(self) -> int:
        """The size of a tensor whose sizes are all known."""
        known = [size for size in self.shape or () if size is not None]
        return math.prod(known) * tf.as_dtype(self.dtype).size

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{shape_text(self.shape)}"


def shape_text(shape: Any) -> str:
    """ "[?, 3]"."""
    if shape is None:
        return " of unknown rank"
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def sizes(shape: tf.TensorShape) -> tuple[int | None, ...] | None:
    """A shape as a tuple."""
    return None if shape.rank is None else tuple(shape.as_list())


def describe(structure: Any) -> tuple[Any, list[Any]]:
    """A nested result as JSON, its leaves numbered, and the leaves.

    Raises:
      PackageError: It holds something that is neither a tensor nor a dict, list or tuple.
    """
    leaves: list[Any] = []

    def walk(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise PackageError(
                    "[package.save] result: a dict's keys are not all strings; return a dict whose keys are."
                )
            # In TensorFlow's order, which is that of the keys; the dict's own is kept beside it.
            found = {key: walk(value[key]) for key in sorted(value)}
            return {"dict": [[key, found[key]] for key in value]}
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [walk(each) for each in value]}
        if isinstance(value, tf.Tensor | tf.TensorSpec):
            leaves.append(value)
            return len(leaves) - 1
        raise PackageError(
            f"[package.save] result: expected tensors in dicts, lists and tuples, got {type(value).__name__}; convert "
            "it to a tensor (tf.RaggedTensor.to_tensor, tf.sparse.to_dense)."
        )

    return walk(structure), leaves


def build(structure: Any, values: Sequence[Any]) -> Any:
    """The inverse of `describe`.

    Raises:
      ValueError: The JSON is not one that `describe` makes.
    """
    if structure is None:
        return None
    if isinstance(structure, int) and not isinstance(structure, bool):
        if 0 <= structure < len(values):
            return values[structure]
    elif isinstance(structure, dict) and len(structure) == 1:
        ((kind, content),) = structure.items()
        if kind == "dict" and isinstance(content, list):
            if all(isinstance(e, list) and len(e) == 2 and isinstance(e[0], str) for e in content):
                return {key: build(value, values) for key, value in content}
        elif kind in ("list", "tuple") and isinstance(content, list):
            found = [build(value, values) for value in content]
            return found if kind == "list" else tuple(found)
    raise ValueError("result")


def paths(structure: Any, n: int) -> list[str]:
    """Where in the result each output is: "logits", "boxes[0]"."""
    names = [""] * n

    def walk(value: Any, path: str) -> None:
        if isinstance(value, int) and 0 <= value < n:
            names[value] = path or "result"
        elif isinstance(value, dict):
            ((kind, content),) = value.items()
            for index, each in enumerate(content):
                if kind == "dict":
                    walk(each[1], f"{path}.{each[0]}" if path else each[0])
                else:
                    walk(each, f"{path}[{index}]")

    walk(structure, "")
    return names
