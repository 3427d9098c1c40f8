"""Max pooling that says where its maxima lie in the whole batch, and its unpooling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from metal_ops.ops import _arguments

__all__ = ["max_pool_with_global_indices", "max_unpool"]
__theme__ = "Pooling"


def max_pool_with_global_indices(
    x: Any,
    size: int | Sequence[int] = 2,
    strides: int | Sequence[int] | None = None,
    padding: str = "VALID",
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The greatest value of each window, and where it lies in `tf.reshape(x, [-1])`.

    That is `tf.nn.max_pool_with_argmax` with places counted over the whole batch, so that `tf.gather` and `max_unpool`
    take them as they are, and with a gradient that can be differentiated again. Among equal values in a window the
    first one counts. It takes as long as TensorFlow's op: on the Metal device as `tf.nn.max_pool2d`, on the CPU about
    eight times that.

    Args:
      x: [batch, height, width, channels] float32, float16 or bfloat16.
      size: Size of a window: a number, or [height, width].
      strides: From window to window, likewise. None: the size, so that windows do not overlap.
      padding: "VALID", whole windows only, or "SAME", with windows that reach beyond the edges.
      name: Optional name of the op.

    Returns:
      (values, indices): [batch, rows, columns, channels] of x's dtype, and int64 of that shape.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: x does not have four dimensions, or an argument has no such value.

    Example:
      >>> x = tf.reshape(tf.constant([1.0, 5.0, 2.0, 3.0, 9.0, 4.0, 8.0, 7.0]), [2, 2, 2, 1])
      >>> values, indices = metal_ops.max_pool_with_global_indices(x)
      >>> values.numpy().ravel().tolist(), indices.numpy().ravel().tolist()
      ([5.0, 9.0], [1, 4])
    """
    op = "max_pool_with_global_indices"
    with tf.name_scope(name or op):
        x = _arguments.as_floats(op, "x", x)
        if x.shape.rank != 4:
            raise ValueError(
                f"[{op}] x: expected shape [batch, height, width, channels], got {x.shape}."
            )
        window = _two(op, "size", size)
        steps = window if strides is None else _two(op, "strides", strides)
        if padding not in ("VALID", "SAME"):
            raise ValueError(f"[{op}] padding: expected 'VALID' or 'SAME', got {padding!r}.")

        @tf.custom_gradient
        def pool(x: tf.Tensor) -> Any:
            values, indices = tf.nn.max_pool_with_argmax(
                x, window, steps, padding, include_batch_in_index=True
            )

            @tf.custom_gradient
            def back(d_values: tf.Tensor) -> Any:
                # TensorFlow's own has no derivative on the CPU.
                d_x = tf.raw_ops.MaxPoolGradWithArgmax(
                    input=x,
                    grad=d_values,
                    argmax=indices,
                    ksize=[1, *window, 1],
                    strides=[1, *steps, 1],
                    padding=padding,
                    include_batch_in_index=True,
                )
                return d_x, lambda d_d_x: tf.gather(tf.reshape(d_d_x, [-1]), indices)

            def gradient(d_values: tf.Tensor, d_indices: Any) -> tf.Tensor:
                return back(d_values)

            return (values, indices), gradient

        return pool(x)


def max_unpool(values: Any, indices: Any, shape: Any, name: str | None = None) -> tf.Tensor:
    """Values put back to where `max_pool_with_global_indices` found them, and zeros elsewhere.

    Where windows overlap and several found the same place, it has the sum of their values, as the gradient of the
    pooling has. The gradient is the values at the places.

    Args:
      values: Any shape, float32, float16 or bfloat16.
      indices: int32 or int64 of that shape, in [0, number of elements of `shape`).
      shape: Shape of the result, that of the pooled tensor: a list, or a tensor as `tf.shape` gives it.
      name: Optional name of the op.

    Returns:
      A tensor of that shape and the dtype of `values`.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: values and indices are not shaped alike.
      tf.errors.InvalidArgumentError: An index is out of range, on the CPU; the Metal device leaves it out.

    Example:
      >>> metal_ops.max_unpool([5.0, 9.0], [1, 4], [2, 3]).numpy().tolist()
      [[0.0, 5.0, 0.0], [0.0, 9.0, 0.0]]
    """
    op = "max_unpool"
    with tf.name_scope(name or op):
        values = _arguments.as_floats(op, "values", values)
        indices = tf.cast(_arguments.as_indices(op, "indices", indices), tf.int64)
        if not values.shape.is_compatible_with(indices.shape):
            raise ValueError(
                f"[{op}] indices: expected the shape of values, {values.shape}, got {indices.shape}."
            )
        sizes = _arguments.as_indices(op, "shape", shape)
        if sizes.shape.rank != 1:
            raise ValueError(f"[{op}] shape: expected a list of sizes, got shape {sizes.shape}.")
        n = tf.reduce_prod(tf.cast(sizes, tf.int64), keepdims=True)
        try:
            flat = tf.scatter_nd(tf.reshape(indices, [-1, 1]), tf.reshape(values, [-1]), n)
        except tf.errors.InvalidArgumentError as error:
            said = re.sub(r"^\{\{.*?\}\} | \[Op:.*", "", error.message)
            sentence = f"{op}: indices must be in [0, {n[0]}), the elements of shape: {said}."
            raise tf.errors.InvalidArgumentError(None, None, sentence) from None
        found = tf.reshape(flat, sizes)
        found.set_shape(tf.TensorShape(tf.get_static_value(sizes)))
        return found


def _two(op: str, argument: str, value: Any) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else [value, value]
    values = [_arguments.integer(op, argument, one) for one in values]
    if len(values) != 2 or min(values) < 1:
        raise ValueError(f"[{op}] {argument}: expected 1 or more, or two such, got {value!r}.")
    return values
