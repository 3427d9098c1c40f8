"""Tensors in the memory layout of a kernel's buffers, and results in that of NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from metal_ops.kernel import launch
from metal_ops.kernel.layouts import Layout, Numbers


@dataclass(frozen=True)
class Stored:
    """The content of a buffer.

    Attributes:
      tensor: In the kernel's layout; None for an output.
      shape: Shape of that memory: a list, of which some may be tensors of a graph, or a tensor.
      dtype: Dtype of its numbers.
      restored: Makes the result that the caller expects of it; None where that is the same.
    """

    tensor: tf.Tensor | None
    shape: Any
    dtype: tf.DType
    restored: Callable[[tf.Tensor], tf.Tensor] | None = None

    def count(self, size: int) -> Any:
        """How many elements of the kernel it holds, which have `size` bytes each."""
        if _is_known(self.shape):
            return math.prod(self.shape) * self.dtype.size // size
        with tf.device(launch.HOST):
            return _count(self.shape) * self.dtype.size // size

    def need_one(self, where: str, size: int, checks: list[tf.Operation]) -> None:
        """Refuses memory without an element, of which a kernel would read one.

        Raises:
          ValueError: There is none.
        """
        count = self.count(size)
        message = f"{where}: expected an element, as the kernel takes a reference, got none."
        if tf.is_tensor(count):
            with tf.device(launch.HOST):
                checks.append(tf.debugging.assert_positive(count, message))
        elif not count:
            raise ValueError(message)


def store(
    where: str,
    layout: Layout | None,
    size: int,
    tensor: tf.Tensor | None,
    shape: Any,
    dtype: tf.DType,
    checks: list[tf.Operation],
) -> Stored:
    """Numbers of a shape as the kernel's memory has them.

    Args:
      where: The kernel and the argument in messages.
      layout: Layout of an element.
      size: Bytes of an element.
      tensor: The numbers; None for an output.
      shape: Shape of the numbers, as Stored has it.
      dtype: Dtype of the numbers.
      checks: Gets the conditions that are known only when the graph runs.

    Raises:
      ValueError: They are no whole number of elements.
    """
    if isinstance(layout, Numbers) and layout.padded:
        return _pad(where, layout, tensor, shape, dtype, checks)
    one = size // math.gcd(size, dtype.size)
    expected = (
        f"a multiple of {layout}" if isinstance(layout, Numbers) else f"elements of {size} bytes"
    )
    if not _is_known(shape):
        _check_later(where, expected, shape, one, checks)
    elif math.prod(shape) % one:
        raise ValueError(f"{where}: expected {expected}, got {dtype.name} of shape {_text(shape)}.")
    return Stored(tensor, shape, dtype)


def _pad(
    where: str,
    layout: Numbers,
    tensor: tf.Tensor | None,
    shape: Any,
    dtype: tf.DType,
    checks: list[tf.Operation],
) -> Stored:
    """Vectors of 3, which take the room of 4."""
    rank, one = len(layout.shape), math.prod(layout.shape)
    sizes = shape if isinstance(shape, list) else []
    last = tuple(size if isinstance(size, int) else None for size in sizes[-rank:])
    if len(sizes) > rank and last == layout.stored:
        return Stored(tensor, shape, dtype)  # as it lies in memory
    flat = len(sizes) == 1 and last != layout.shape
    if flat and isinstance(sizes[0], int) and sizes[0] % one:
        raise ValueError(f"{where}: expected a multiple of {layout}, got shape {_text(shape)}.")
    if not flat and last != layout.shape:
        raise ValueError(
            f"{where}: expected {layout} as the last dimensions, {list(layout.shape)}, got shape {_text(shape)}."
        )
    if flat and not isinstance(sizes[0], int):
        _check_later(where, f"a multiple of {layout}", shape, one, checks)
    lead = [sizes[0] // one] if flat else sizes[:-rank]
    width, room = layout.shape[-1], layout.stored[-1]
    if tensor is not None:
        wide = tf.reshape(tensor, [-1, *layout.shape]) if flat else tensor
        tensor = tf.pad(wide, [[0, 0]] * (len(lead) + rank - 1) + [[0, room - width]])

    def restored(result: tf.Tensor) -> tf.Tensor:
        narrow = result[..., :width]
        return tf.reshape(narrow, [-1]) if flat else narrow

    return Stored(tensor, [*lead, *layout.stored], dtype, restored)


def _check_later(
    where: str, expected: str, shape: Any, one: int, checks: list[tf.Operation]
) -> None:
    if one == 1:
        return
    with tf.device(launch.HOST):
        rest = _count(shape) % one
        checks.append(
            tf.debugging.assert_equal(rest, tf.zeros_like(rest), f"{where}: expected {expected}.")
        )


def _is_known(shape: Any) -> bool:
    return isinstance(shape, list) and all(isinstance(size, int) for size in shape)


def _count(shape: Any) -> tf.Tensor:
    sizes = [tf.cast(size, tf.int64) for size in shape] if isinstance(shape, list) else shape
    return tf.reduce_prod(tf.cast(sizes, tf.int64))


def _text(shape: Any) -> str:
    if not isinstance(shape, list):
        return "that is not known"
    return "[" + ", ".join(str(size) if isinstance(size, int) else "?" for size in shape) + "]"
