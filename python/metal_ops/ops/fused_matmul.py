"""Products of matrices and the ops after them in one op: the public face of MetalFusedMatMul, and its gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from metal_ops.ops import _arguments, _declared, _fused

__all__ = ["fused_matmul"]
__theme__ = "Fused layers"


def fused_matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    *,
    bias: Any = None,
    batch_norm: Iterable[Any] | None = None,
    residual: Any = None,
    activation: str | None = None,
    epsilon: float = 1e-4,
    alpha: float = 0.2,
    name: str | None = None,
) -> tf.Tensor:
    """`activation(norm(matmul(a, b)) + residual)` in one pass over memory, rounded once.

    The op that `metal_ops.fusion` makes of stock ops in a graph, to be called directly. Sums and everything after them
    are float32. Differentiable any number of times: the gradient computes the product once more, from stock ops.

    Args:
      a: [..., m, k], or [..., k, m] with transpose_a; float32, float16 or bfloat16.
      b: [..., k, n], or [..., n, k] with transpose_b, of a's dtype. Leading dimensions are broadcast.
      transpose_a: Whether a's last two dimensions are exchanged.
      transpose_b: Whether b's last two dimensions are exchanged.
      bias: [n] of a's dtype, added to the product. Not with batch_norm.
      batch_norm: (gamma, beta, mean, variance), float32, or (scale, shift), float32 or a's dtype, each [n]. Inference:
        (y - mean) / sqrt(variance + epsilon) gamma + beta, or y scale + shift.
      residual: Has the result's shape and a's dtype, added next.
      activation: Applied last: "relu", "relu6", "elu", "leaky_relu", "sigmoid", "tanh", "silu" (or "swish"), "gelu",
        "gelu_approximate", "mish".
      epsilon: Added to the variance.
      alpha: Slope of "leaky_relu" below zero.
      name: Optional name of the op.

    Returns:
      [..., m, n], of a's dtype.

    Raises:
      TypeError: A dtype is not one of these.
      ValueError: Nothing is fused (use tf.matmul), or an argument is none of its choices.
      tf.errors.InvalidArgumentError: Shapes do not fit. (ValueError in a graph.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> a, b = tf.constant([[1.0, 2.0]]), tf.constant([[1.0, 0.0], [0.0, -1.0]])
      >>> metal_ops.fused_matmul(a, b, bias=[0.5, 0.5], activation="relu").numpy().tolist()
      [[1.5, 0.0]]
    """
    op = "fused_matmul"
    a = _arguments.as_floats(op, "a", a)
    names, args = _fused.sequence(op, a.dtype, bias, batch_norm, residual, activation, "tf.matmul")
    return _declared.call(
        "metal_fused_mat_mul",
        {"a": a, "b": b, "args": args},
        name,
        label=op,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        fused_ops=names,
        epsilon=epsilon,
        leakyrelu_alpha=_arguments.number(op, "alpha", alpha),
    )


@tf.RegisterGradient("MetalFusedMatMul")
def _fused_matmul_gradient(op: tf.Operation, d_product: tf.Tensor) -> list[tf.Tensor]:
    def product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        transposed = {n: op.get_attr(n) for n in ("transpose_a", "transpose_b")}
        return tf.matmul(a, b, **transposed)

    return _fused.gradient(op, d_product, product)
