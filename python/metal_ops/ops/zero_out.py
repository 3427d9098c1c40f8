"""ZeroOut: TensorFlow's and Apple's hello-world custom op, and its gradient."""

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _declared

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
    return _declared.call("zero_out", {"x": x}, name)


# Only the first element reaches the output, so only its gradient passes: ZeroOut is its own adjoint.
tf.RegisterGradient("ZeroOut")(lambda op, d_zeroed: raw_ops.zero_out(d_zeroed))
