"""Shared by the losses: their derivative is made on the way forwards and scaled on the way back."""

from __future__ import annotations

import tensorflow as tf

from metal_ops import raw_ops


def scale_slope(op: tf.Operation, d_loss: tf.Tensor, slope: int = 1) -> tf.Tensor:
    """The gradient that an operation's output number `slope` stands for."""
    return raw_ops.scale_slope(d_loss, op.outputs[slope])


def sum_slope(op: tf.Operation, d_loss: tf.Tensor, slope: int, parameter: tf.Tensor) -> tf.Tensor:
    """Likewise for a parameter, a scalar or one value per channel, that all elements share."""
    return raw_ops.scale_slope_sum(d_loss, op.outputs[slope], parameter)


def is_wanted(op: tf.Operation, index: int) -> bool:
    """Whether the gradient of an input is wanted: the eager tape says so, a graph prunes by itself."""
    return index not in (getattr(op, "skip_input_indices", None) or ())
