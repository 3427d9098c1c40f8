"""Hamming distances of packed bits or of bytes, and the nearest rows by them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.ops import _arguments, _declared

__all__ = ["hamming_distance", "hamming_top_k"]
__theme__ = "Search"

# Distances that are held at once while the nearest are sought.
_AT_ONCE = 1 << 24


def hamming_distance(a: Any, b: Any, elements: bool = False, name: str | None = None) -> tf.Tensor:
    """How many bits of two rows differ, or how many of their elements.

    Rows are the last axis; the axes before it are broadcast, so that `hamming_distance(a[:, None], b)` has the distance
    of each row of a to each of b. Nothing but the distances is written. Distances of packed bits are those of
    `faiss.IndexBinaryFlat` and OpenCV's NORM_HAMMING. There is no gradient.

    Args:
      a: [..., n] uint8, uint16, uint32 or uint64, bits packed in any order (`np.packbits`), or bool.
      b: In a's dtype, [..., n].
      elements: Whether elements that differ are counted, of uint8 or bool, and not their bits.
      name: Optional name of the op.

    Returns:
      int32, the shape that the axes before the last have together.

    Raises:
      TypeError: A dtype does not fit.
      tf.errors.InvalidArgumentError: The shapes do not fit, or elements of a wider dtype were to be counted.
        (ValueError where that is known when a graph is built.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> a = np.array([[0b1010, 255], [0, 0]], np.uint8)
      >>> metal_ops.hamming_distance(a, a[0]).numpy().tolist()
      [0, 10]
      >>> metal_ops.hamming_distance(a[:, None], a, elements=True).numpy().tolist()
      [[0, 2], [2, 0]]
    """
    op = "hamming_distance"
    with tf.name_scope(name or op):
        # As they are: NumPy's numbers of more bits would be cut.
        a, b = _arguments.convert(op, "a", a), _arguments.convert(op, "b", b)
        return _declared.call(op, {"a": a, "b": b}, None, elements=elements)


def hamming_top_k(
    queries: Any, rows: Any, k: int = 1, elements: bool = False, name: str | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The k rows that are nearest to each query by Hamming distance, the nearest first.

    Among rows at the same distance those with the lower index come first. Queries are taken some at a time, so that no
    more than about 2^24 distances are held.

    Args:
      queries: [..., n] uint8, uint16, uint32, uint64 or bool, as for `hamming_distance`.
      rows: [m, n] of that dtype.
      k: How many, 1 to m.
      elements: As for `hamming_distance`.
      name: Optional name of the op.

    Returns:
      (distances, indices): int32 [..., k] each.

    Raises:
      TypeError: A dtype does not fit, or k is no integer.
      ValueError: The rows are no matrix, or there are less than k.
      tf.errors.InvalidArgumentError: The shapes do not fit. (ValueError where that is known when a graph is built.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> rows = np.array([[0], [1], [7], [3]], np.uint8)
      >>> distances, indices = metal_ops.hamming_top_k(np.array([3], np.uint8), rows, k=3)
      >>> distances.numpy().tolist(), indices.numpy().tolist()
      ([0, 1, 1], [3, 1, 2])
    """
    op = "hamming_top_k"
    k, elements = _arguments.integer(op, "k", k), _arguments.flag(op, "elements", elements)
    with tf.name_scope(name or op):
        rows = _arguments.convert(op, "rows", rows)
        queries = _arguments.convert(op, "queries", queries)
        if rows.shape.rank != 2:
            raise ValueError(f"[{op}] rows: expected shape [m, n], got {rows.shape}.")
        m = rows.shape[0]
        if k < 1 or (m is not None and k > m):
            raise ValueError(f"[{op}] k: expected 1 to the number of rows, {m}, got {k}.")
        if queries.shape.rank is None or queries.shape.rank < 1:
            raise ValueError(f"[{op}] queries: expected shape [..., n], got {queries.shape}.")
        n = queries.shape[-1]
        batch = tf.shape(queries)[:-1]
        flat = tf.reshape(queries, tf.stack([tf.reduce_prod(batch), tf.shape(queries)[-1]]))
        flat.set_shape([queries.shape[:-1].num_elements(), n])

        def nearest(some: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            distances = _declared.call(
                "hamming_distance",
                {"queries": some[:, tf.newaxis], "rows": rows},
                None,
                label=op,
                elements=elements,
            )
            nearness, indices = tf.math.top_k(-distances, k)
            return -nearness, indices

        size = _AT_ONCE // tf.maximum(tf.shape(rows)[0], 1)
        found = _in_parts(nearest, flat, tf.maximum(size, 1), k)
        shape = tf.concat([batch, [k]], 0)
        distances, indices = (tf.reshape(part, shape) for part in found)
        for part in (distances, indices):
            part.set_shape([*queries.shape[:-1], k])
        return distances, indices


def _in_parts(function: Any, rows: tf.Tensor, size: tf.Tensor, k: int) -> list[tf.Tensor]:
    """The function's results for so many rows at a time, one below the other."""
    n_rows = tf.shape(rows)[0]
    n_parts = tf.maximum((n_rows + size - 1) // size, 1)
    arrays = [
        tf.TensorArray(tf.int32, n_parts, infer_shape=False, element_shape=[None, k])
        for _ in range(2)
    ]

    def next_part(i: tf.Tensor, *arrays: Any) -> tuple[Any, ...]:
        parts = function(rows[i * size : (i + 1) * size])
        return i + 1, *(array.write(i, part) for array, part in zip(arrays, parts, strict=True))

    _, *arrays = tf.while_loop(
        lambda i, *_: i < n_parts, next_part, (tf.constant(0), *arrays), parallel_iterations=1
    )
    return [array.concat() for array in arrays]
