"""Rotary position embedding in one pass over memory, and its gradient."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared

__all__ = ["rope"]
__theme__ = "Fused layers"


def rope(
    x: Any,
    positions: Any = None,
    base: float = 10000.0,
    *,
    rotary_size: int | None = None,
    frequencies: Any = None,
    interleaved: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Rotary position embedding of queries or keys: each pair of elements is turned by an angle of its position.

    Su et al. 2021, "RoFormer: Enhanced transformer with rotary position embedding",
    [arXiv:2104.09864](https://arxiv.org/abs/2104.09864), equation 15: pair i of an element at position m is turned by
    m base^(-2 i / rotary_size) radians. Computed in float32 whatever the dtype, from angles that are right to 2^-22 at
    every position up to 2^24. The gradient turns back and keeps nothing; it can be differentiated again.

    Args:
      x: [batch, heads, length, size] float32, float16 or bfloat16, as `scaled_dot_product_attention` takes them.
      positions: Integers [length] or [batch, length], int32 or int64: `KVCache.positions` gives them while text is
        generated. A scalar is the first one, the others follow it. None: 0, 1, ...
      base: The angle of the slowest pair falls as this grows: 10000 in RoFormer and Llama, 500000 in Llama 3.
      rotary_size: How many elements of each are turned, even and at most size; those behind stay. None: all (size must
        be even).
      frequencies: Radians a position, [pairs] with 2 pairs for `rotary_size`, in place of those that follow from
        `base`: numbers, or a tensor of float32 or float64. No gradient flows to them.
      interleaved: Whether a pair are neighbours, elements 2 i and 2 i + 1 (RoFormer, GPT-J, GGUF files of Llama); else
        elements i and i + pairs (GPT-NeoX, Hugging Face's Llama).
      name: Optional name of the op.

    Returns:
      A tensor of x's shape and dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: A number is out of its range; both base and frequencies were chosen, or the rank of x is not 4.
      tf.errors.InvalidArgumentError: A shape does not fit (ValueError where that is known when a graph is built).
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> q = tf.constant([[[[1.0, 0.0], [1.0, 0.0]]]])
      >>> metal_ops.rope(q).numpy().round(4).tolist()  # by 0 and 1 radian
      [[[[1.0, 0.0], [0.5403, 0.8415]]]]
    """
    op = "rope"
    with tf.name_scope(name or op):
        x = _arguments.as_floats(op, "x", x)
        _checks.refuse_xla(op)
        if x.shape.rank != 4:
            raise ValueError(
                f"[{op}] x: expected [batch, heads, length, size], got {_checks.size_of(x)}."
            )
        if frequencies is None:
            turns: Any = _turns_of_base(*_size_and_base(op, x, rotary_size, base))
        else:
            turns = _turns(op, frequencies, rotary_size, base)
        inputs = {"x": x, "positions": _positions(op, positions, x), "turns": turns}
        return _declared.call(op, inputs, None, interleaved=interleaved)


def _size_and_base(op: str, x: tf.Tensor, rotary_size: Any, base: Any) -> tuple[int, float]:
    base = _arguments.number(op, "base", base)
    if not 0 < base < np.inf:
        raise ValueError(f"[{op}] base: expected a number above 0, got {base}.")
    size = x.shape[-1]
    if rotary_size is not None:
        rotary_size = _arguments.integer(op, "rotary_size", rotary_size)
        if rotary_size < 0 or rotary_size % 2 or (size is not None and rotary_size > size):
            most = "" if size is None else f" of at most {size}, the last dimension of x"
            raise ValueError(
                f"[{op}] rotary_size: expected an even number{most}, got {rotary_size}."
            )
        return rotary_size, base
    if size is None:
        raise ValueError(
            f"[{op}] x: expected a last dimension known in the graph, got {x.shape}. Say it with tf.ensure_shape, or "
            "give rotary_size."
        )
    if size % 2:
        raise ValueError(
            f"[{op}] x: expected an even last dimension, got {size}. Give the even number of elements to turn: "
            f"rotary_size={size - 1}."
        )
    return size, base


@functools.lru_cache(maxsize=32)
def _turns_of_base(size: int, base: float) -> np.ndarray:
    pairs = np.arange(size // 2, dtype=np.float64)
    return _as_sum(base ** (-2 * pairs / max(size, 1)))


def _as_sum(frequencies: np.ndarray) -> np.ndarray:
    """Turns a position as sums of two float32, [2, pairs]."""
    turns = frequencies / (2 * np.pi)
    high = turns.astype(np.float32)
    return np.stack([high, (turns - high).astype(np.float32)])


def _turns(op: str, frequencies: Any, rotary_size: Any, base: Any) -> Any:
    if base != 10000.0:
        raise ValueError(f"[{op}] frequencies, base: expected one of them, got both.")
    if not tf.is_tensor(frequencies) and not hasattr(frequencies, "assign"):
        with tf.init_scope():  # numbers, not symbols, inside of a function, too
            frequencies = np.asarray(_arguments.convert(op, "frequencies", frequencies, tf.float64))
    else:
        frequencies = _arguments.convert(op, "frequencies", frequencies)
        _checks.check_dtype(op, "frequencies", frequencies, (tf.float32, tf.float64))
    if len(frequencies.shape) != 1:
        raise ValueError(
            f"[{op}] frequencies: expected shape [pairs], got {tuple(frequencies.shape)}."
        )
    pairs = frequencies.shape[0]
    if rotary_size is not None and pairs is not None:
        rotary_size = _arguments.integer(op, "rotary_size", rotary_size)
        if rotary_size != 2 * pairs:
            raise ValueError(
                f"[{op}] rotary_size: expected {2 * pairs}, twice the number of frequencies, got {rotary_size}."
            )
    if isinstance(frequencies, np.ndarray):
        return _as_sum(frequencies)
    with tf.device("CPU:0"):  # no GPU of Metal has doubles
        turns = tf.cast(tf.stop_gradient(frequencies), tf.float64) / (2 * np.pi)
        high = tf.cast(turns, tf.float32)
        return tf.stack([high, tf.cast(turns - tf.cast(high, tf.float64), tf.float32)])


def _positions(op: str, positions: Any, x: tf.Tensor) -> Any:
    """[1, length] or [batch, length] int32."""
    if positions is not None:
        positions = _arguments.as_indices(op, "positions", positions)
        if positions.dtype != tf.int32:
            positions = tf.cast(positions, tf.int32)
        if positions.shape.rank not in (0, 1, 2):
            raise ValueError(
                f"[{op}] positions: expected a scalar, [length] or [batch, length], got {_checks.size_of(positions)}."
            )
        if positions.shape.rank:
            return positions if positions.shape.rank == 2 else tf.expand_dims(positions, 0)
    # Made on the host where that is known, as a constant is.
    length = x.shape[2]
    rising = tf.range(tf.shape(x)[2]) if length is None else np.arange(length, dtype=np.int32)
    return tf.expand_dims(rising if positions is None else positions + rising, 0)


@tf.RegisterGradient("Rope")
def _rope_gradient(op: tf.Operation, d_y: tf.Tensor) -> list[tf.Tensor | None]:
    options = _declared.attributes(op)
    options["inverse"] = not options["inverse"]
    return [raw_ops.rope(d_y, *op.inputs[1:], **options), None, None]
