"""Spherical harmonics of directions, and their gradient."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared

__all__ = ["sh_encode"]
__theme__ = "Encodings"


def sh_encode(
    directions: Any, degree: int = 4, *, dtype: Any = tf.float32, name: str | None = None
) -> tf.Tensor:
    """Real spherical harmonics of unit directions: the usual encoding of where a ray looks.

    Orthonormal on the sphere, as polynomials of (x, y, z), with the Condon-Shortley phase and in the order of
    tiny-cuda-nn and torch-ngp: `Y_l^m` at `l^2 + l + m`. (tiny-cuda-nn takes `(direction + 1) / 2`.)

    Args:
      directions: [..., 3] float32, of length 1. Other lengths give the same polynomials; the gradient is theirs.
      degree: Number of bands, 1 to 8: l = 0 to degree - 1.
      dtype: float32, float16 or bfloat16; computed in float32 in any case.
      name: Optional name of the op.

    Returns:
      [..., degree^2] of the dtype.

    Raises:
      TypeError: directions are not float32.
      ValueError: The last dimension is not 3. (tf.errors.InvalidArgumentError when the graph runs, where it was not
        known before, and for another degree.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.sh_encode([[0.0, 0.0, 1.0]], degree=2).numpy().round(4).tolist()
      [[0.2821, -0.0, 0.4886, -0.0]]
    """
    op = "sh_encode"
    with tf.name_scope(name or op):
        directions = _arguments.as_floats(op, "directions", directions, [tf.float32])
        directions = _checks.check_last_dim(op, "directions", directions, 3, "x, y, z")
        flat, restore = _arguments.flatten_points(op, "directions", directions)
        of_type = _arguments.float_dtype(op, dtype)
        return restore(_declared.call(op, {"directions": flat}, None, T=of_type, degree=degree))


@tf.RegisterGradient("ShEncode")
def _sh_encode_gradient(op: tf.Operation, d_outputs: tf.Tensor) -> tf.Tensor:
    return raw_ops.sh_encode_grad(d_outputs, op.inputs[0], **_declared.attributes(op))


_arguments.no_second_derivative("ShEncodeGrad")
