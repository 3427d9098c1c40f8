"""Layer norm and RMS norm in one pass over memory, and their gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared

__all__ = ["layer_norm", "rms_norm"]
__theme__ = "Fused layers"


def layer_norm(
    x: Any,
    scale: Any,
    offset: Any = None,
    epsilon: float = 1e-3,
    name: str | None = None,
) -> tf.Tensor:
    """Layer norm over the last dimension: (x - mean) / sqrt(variance + epsilon) scale + offset.

    Ba, Kiros and Hinton 2016, "Layer normalization", [arXiv:1607.06450](https://arxiv.org/abs/1607.06450), as
    `keras.layers.LayerNormalization` has it. Computed in float32 whatever the dtype; mean and factor of a row are all
    that is kept for the gradient. Deterministic.

    Args:
      x: [..., columns] float32, float16 or bfloat16.
      scale: [columns] of that dtype.
      offset: The same, or None for none.
      epsilon: At least 0; Keras has 1e-3.
      name: Optional name of the op.

    Returns:
      A tensor of x's shape and dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: The last dimension is not known in the graph.
      tf.errors.InvalidArgumentError: A shape does not fit, or epsilon is negative (ValueError in a graph).
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.layer_norm([[1.0, 3.0]], [1.0, 2.0], [0.5, 0.0], epsilon=0.0).numpy().tolist()
      [[-0.5, 2.0]]
    """
    return _norm("layer_norm", x, scale, offset, epsilon, True, name)


def rms_norm(x: Any, scale: Any, epsilon: float = 1e-6, name: str | None = None) -> tf.Tensor:
    """RMS norm over the last dimension: x / sqrt(mean(x^2) + epsilon) scale.

    Zhang and Sennrich 2019, "Root mean square layer normalization", [arXiv:1910.07467](https://arxiv.org/abs/1910.07467).
    Computed in float32 whatever the dtype. Deterministic.

    Args:
      x: [..., columns] float32, float16 or bfloat16.
      scale: [columns] of that dtype.
      epsilon: At least 0.
      name: Optional name of the op.

    Returns:
      A tensor of x's shape and dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: The last dimension is not known in the graph.
      tf.errors.InvalidArgumentError: A shape does not fit, or epsilon is negative (ValueError in a graph).
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.rms_norm([[1.0, 7.0]], [5.0, 10.0], epsilon=0.0).numpy().tolist()
      [[1.0, 14.0]]
    """
    return _norm("rms_norm", x, scale, None, epsilon, False, name)


def _norm(
    op: str, x: Any, scale: Any, offset: Any, epsilon: float, center: bool, name: str | None
) -> tf.Tensor:
    with tf.name_scope(name or op):
        x = _arguments.as_floats(op, "x", x)
        _checks.refuse_xla(op)
        flat, restore = _arguments.flatten_points(op, "x", x)
        scale = _arguments.as_dtype_of(op, "scale", scale, x=x)
        if offset is None:
            offset = tf.zeros([0], x.dtype)
        else:
            offset = _arguments.as_dtype_of(op, "offset", offset, x=x)
            # To the op it would mean that there is none.
            if offset.shape == [0] and x.shape[-1] != 0:
                raise ValueError(
                    f"[{op}] offset: expected shape [columns], got [0]. Leave it out for none."
                )
        inputs = {"x": flat, "scale": scale, "offset": offset}
        y, _, _ = _declared.call("row_norm", inputs, None, label=op, epsilon=epsilon, center=center)
        return restore(y)


@tf.RegisterGradient("RowNorm")
def _row_norm_gradient(
    op: tf.Operation, d_y: tf.Tensor, *_: tf.Tensor | None
) -> list[tf.Tensor | None]:
    x, scale, offset = op.inputs
    d_x, d_scale, d_offset = raw_ops.row_norm_grad(
        d_y, x, scale, *op.outputs[1:], **_declared.attributes(op)
    )
    # An empty offset is none; its gradient is never used.
    return [d_x, d_scale, d_offset if offset.shape != [0] else None]
