"""ZeroOut: TensorFlow's and Apple's hello-world custom op, and its gradient."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks

__all__ = ["zero_out"]


def zero_out(x: Any, name: str | None = None) -> tf.Tensor:
    """Keeps the first element (in row-major order) and sets all others to zero.

    Args:
      x: A tensor of any shape, of a real number type.
      name: Optional name of the op.

    Returns:
      A tensor of the same shape and dtype.

    Raises:
      TypeError: The dtype is not a real number type.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.zero_out([5, 4, 3]).numpy()
      array([5, 0, 0], dtype=int32)
    """
    _checks.refuse_xla("zero_out")
    x = _arguments.convert("zero_out", "x", x)
    if not (x.dtype.is_floating or x.dtype.is_integer) or x.dtype.is_quantized:
        raise TypeError(f"[zero_out] x: expected a real number type, got {x.dtype.name}.")
    return raw_ops.zero_out(x, name=name)


@tf.RegisterGradient("ZeroOut")
def _zero_out_gradient(op: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    """Only the first element reaches the output, so only its gradient passes: ZeroOut is its own adjoint."""
    return raw_ops.zero_out(upstream)
