"""SwiGLU in one pass over memory, and its gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared

__all__ = ["swiglu"]
__theme__ = "Fused layers"


def swiglu(gate: Any, up: Any = None, name: str | None = None) -> tf.Tensor:
    """A gated linear unit: silu(gate) up, silu(x) = x / (1 + exp(-x)).

    Shazeer 2020, "GLU variants improve transformer", [arXiv:2002.05202](https://arxiv.org/abs/2002.05202): the part
    between the products of a transformer's feed-forward block, swiglu(x W, x V) W2. One pass over memory, computed in
    float32 whatever the dtype; the gradients computes silu again and keeps nothing.

    Args:
      gate: A tensor of any shape, float32, float16 or bfloat16. Where `up` is None, [..., 2 columns]: gate and up in
        halves, as one product with both matrices side by side gives them.
      up: Has gate's shape and dtype, or None.
      name: Optional name of the op.

    Returns:
      A tensor of gate's shape, or [..., columns], and dtype.

    Raises:
      TypeError: A dtype does not fit.
      tf.errors.InvalidArgumentError: The shapes differ, or gate alone has no even last dimension. (ValueError where
        that is known when a graph is built.)
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.swiglu([0.0, 1.0], [3.0, 2.0]).numpy().round(4).tolist()
      [0.0, 1.4621]
      >>> metal_ops.swiglu([0.0, 1.0, 3.0, 2.0]).numpy().round(4).tolist()
      [0.0, 1.4621]
    """
    op = "swiglu"
    with tf.name_scope(name or op):
        gate = _arguments.as_floats(op, "gate", gate)
        _checks.refuse_xla(op)
        if up is None:
            up = tf.zeros([0], gate.dtype)
            # The op would take it for an `up` of that shape.
            if gate.shape == [0]:
                return gate
        else:
            up = _arguments.as_dtype_of(op, "up", up, gate=gate)
            # To the op it would mean that gate holds both.
            if up.shape == [0] and not gate.shape.is_compatible_with([0]):
                raise ValueError(
                    f"[{op}] up: expected the shape of gate, {_checks.size_of(gate)}, got [0]. "
                    "Leave it out where gate holds both."
                )
        return _declared.call(op, {"gate": gate, "up": up}, None)


@tf.RegisterGradient("Swiglu")
def _swiglu_gradient(op: tf.Operation, d_y: tf.Tensor) -> list[tf.Tensor]:
    return list(raw_ops.swiglu_grad(d_y, *op.inputs))
