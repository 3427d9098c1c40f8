"""Rows written into a variable in place, each sequence's at a place of its own, for `metal_ops.KVCache`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.ops import _arguments, _declared

__all__ = ["cache_rows"]
__theme__ = "Fused layers"


def cache_rows(
    cache: tf.Variable,
    rows: Any,
    starts: Any,
    counts: Any = None,
    *,
    ring: bool = False,
    name: str | None = None,
) -> Any:
    """Writes rows into a variable in place: cache[b, :, starts[b] + i] = rows[b, :, i] for i < counts[b].

    Nothing else of the variable is read or written. Only while a tensor that was read before is still held is it copied
    first, as all updates of variables do.

    Args:
      cache: A tf.Variable [batch, heads, capacity, size] of float32, float16 or bfloat16.
      rows: [batch, heads, n, size] of that dtype.
      starts: Where the first row of each sequence goes, [batch] int32.
      counts: How many of the n rows each sequence has, [batch] int32; None for all.
      ring: Whether places are taken modulo the capacity, so that the oldest rows are overwritten.
      name: Optional name of the op.

    Returns:
      The operation, in a graph.

    Raises:
      TypeError: The cache is no variable, or a dtype does not fit.
      tf.errors.InvalidArgumentError: A shape does not fit, or the rows have no place in the cache.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> cache = tf.Variable(tf.zeros([2, 1, 4, 1]))
      >>> _ = metal_ops.cache_rows(cache, tf.ones([2, 1, 2, 1]), starts=[0, 2])
      >>> cache[:, 0, :, 0].numpy().tolist()
      [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
    """
    op = "cache_rows"
    cache = _arguments.variable(op, "cache", cache)
    rows = _arguments.as_dtype(op, "rows", rows, cache.dtype)
    if counts is None:
        batch, _, n, _ = rows.shape if rows.shape.rank == 4 else [None] * 4
        sizes = tf.shape(rows) if batch is None or n is None else None
        with tf.device("CPU:0"):  # where the op looks at them
            counts = tf.fill([batch], n) if sizes is None else tf.fill([sizes[0]], sizes[2])
    places = {"starts": starts, "counts": counts}
    return _declared.call(
        "resource_cache_rows",
        {
            "cache": cache,
            "rows": rows,
            **{key: _int32(op, key, value) for key, value in places.items()},
        },
        name,
        label=op,
        ring=ring,
    )


def _int32(op: str, argument: str, value: Any) -> tf.Tensor:
    return tf.cast(_arguments.as_indices(op, argument, value), tf.int32)
