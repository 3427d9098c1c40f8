"""NullOp, the template that `make new-op NAME=...` copies. Part 4 of 4: the public function and its gradient."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _declared

# The names that `metal_ops.<name>` offers.
__all__ = ["null_op"]


def null_op(x: Any, scale: float = 1.0, name: str | None = None) -> tf.Tensor:
    """Scales a tensor: `y = scale * x`.

    Args:
      x: A tensor of any shape, float32, float16 or bfloat16.
      scale: The factor, a Python number.
      name: Optional name of the op.

    Returns:
      A tensor of the same shape and dtype, computed in float32 and rounded once.

    Raises:
      TypeError: The dtype is another one.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.null_op([1.0, 2.0], scale=3.0).numpy()
      array([3., 6.], dtype=float32)
    """
    # The declaration's conditions on the op's inputs and attributes are checked here, under the names of this
    # function's arguments.
    return _declared.call("null_op", {"x": x}, name, scale=scale)


@tf.RegisterGradient("NullOp")
def _null_op_gradient(op: tf.Operation, d_y: tf.Tensor) -> tf.Tensor:
    """d loss / d x = scale * d loss / d y. Written with the op itself, so it runs where the op runs."""
    return raw_ops.null_op(d_y, scale=op.get_attr("scale"))
