"""Softshrink, and its gradient: the least that a differentiable op needs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _declared

__all__ = ["softshrink"]
__theme__ = "Losses and activations"


def softshrink(x: Any, lambd: float = 0.5, name: str | None = None) -> tf.Tensor:
    """Shrinks towards zero: `x - lambd` above lambd, `x + lambd` below -lambd, 0 between.

    The proximal operator of `lambd |x|`, as in `torch.nn.Softshrink`. Differentiable any number of times.

    Args:
      x: A tensor of any shape, float32, float16 or bfloat16.
      lambd: At least 0.
      name: Optional name of the op.

    Returns:
      A tensor of the same shape and dtype. NaN stays NaN.

    Raises:
      TypeError: The dtype is another one.
      tf.errors.InvalidArgumentError: lambd is negative. (ValueError in a graph.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.softshrink([-2.0, 0.25, 1.0]).numpy().tolist()
      [-1.5, 0.0, 0.5]
    """
    return _declared.call("softshrink", {"x": x}, name, lambd=lambd)


@tf.RegisterGradient("Softshrink")
def _softshrink_gradient(op: tf.Operation, d_activations: tf.Tensor) -> tf.Tensor:
    return raw_ops.softshrink_grad(d_activations, op.inputs[0], lambd=op.get_attr("lambd"))


@tf.RegisterGradient("SoftshrinkGrad")
def _softshrink_grad_gradient(op: tf.Operation, d_backprops: tf.Tensor) -> list[tf.Tensor | None]:
    """Linear in the gradients; in the features it is constant except at two points."""
    return [raw_ops.softshrink_grad(d_backprops, op.inputs[1], lambd=op.get_attr("lambd")), None]
