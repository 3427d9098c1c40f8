"""Barron's general and adaptive robust loss (CVPR 2019), and its gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.ops import _arguments, _checks, _declared, _losses

__all__ = ["robust_loss"]
__theme__ = "Losses and activations"


def robust_loss(
    x: Any,
    alpha: Any = 1.0,
    scale: Any = 1.0,
    *,
    targets: Any = None,
    reduce_last: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """The general robust loss of residuals: one family from squared error to bounded losses.

    Barron 2019, "A General and Adaptive Robust Loss Function", equation 8:

        rho(x) = |alpha - 2| / alpha (((x / scale)^2 / |alpha - 2| + 1)^(alpha / 2) - 1)

    | alpha | is | |
    |---|---|---|
    | 2 | L2 | (x / scale)^2 / 2 |
    | 1 | Charbonnier, pseudo-Huber | sqrt((x / scale)^2 + 1) - 1 |
    | 0 | Cauchy, Lorentzian | log((x / scale)^2 / 2 + 1) |
    | -2 | Geman-McClure | 2 (x / scale)^2 / ((x / scale)^2 + 4) |
    | -inf | Welsch, Leclerc | 1 - exp(-(x / scale)^2 / 2) |
    | inf | | exp((x / scale)^2 / 2) - 1 |

    Exact at all of these and smooth between; loss and derivative are made in one pass over memory. Differentiable
    once in x, targets, alpha and scale. (At alpha = 2 itself the derivative with respect to alpha is infinite; it is
    given as 0, as in Barron's code.)

    Args:
      x: Residuals, or predictions where targets are given; of any shape, float32, float16 or bfloat16 (computed in
        float32).
      alpha: Shape of the loss: a number, or a float32 tensor that is a scalar or a vector of x's last dimension.
      scale: Size of a residual from which on alpha matters, above 0; likewise.
      targets: The values subtracted from x, of x's shape and dtype.
      reduce_last: Whether to return the mean over the last dimension.
      name: Optional name of the op.

    Returns:
      The loss, shaped like x or without its last dimension, of x's dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: A shape does not fit, where that is known in a graph.
      tf.errors.InvalidArgumentError: A shape does not fit, or scale is not above 0.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.robust_loss([0.0, 1.0, 100.0], alpha=2.0).numpy().tolist()
      [0.0, 0.5, 5000.0]
      >>> metal_ops.robust_loss([0.0, 1.0, 100.0], alpha=-2.0).numpy().round(4).tolist()
      [0.0, 0.4, 1.9992]
    """
    op = "robust_loss"
    with tf.name_scope(name or op):
        x = _arguments.as_floats(op, "x", x)
        if targets is None:
            targets = tf.zeros([0], x.dtype)
        else:
            targets = _arguments.as_dtype_of(op, "targets", targets, x=x)
            # An empty vector would mean to the op that there are none.
            if targets.shape == [0] and not x.shape.is_compatible_with([0]):
                raise ValueError(
                    f"[{op}] targets: expected the shape of x, {_checks.size_of(x)}, got {_checks.size_of(targets)}."
                )
        # A number has no gradient, and its derivative is not made.
        trained = any(tf.is_tensor(p) or hasattr(p, "assign") for p in (alpha, scale))
        tensors = {"x": x, "targets": targets, "alpha": alpha, "scale": scale}
        return _declared.call(
            op, tensors, None, reduce_last=reduce_last, parameter_gradients=trained
        )[0]


@tf.RegisterGradient("RobustLoss")
def _robust_loss_gradient(
    op: tf.Operation, d_loss: tf.Tensor, *_: tf.Tensor
) -> list[tf.Tensor | None]:
    _, targets, *parameters = op.inputs
    d_x = _losses.scale_slope(op, d_loss)
    result: list[tf.Tensor | None] = [d_x, None, None, None]
    if targets.shape.rank != 1 or targets.shape[0] != 0:
        if _losses.is_wanted(op, 1):
            result[1] = -d_x
    if op.get_attr("parameter_gradients"):
        for index, parameter in enumerate(parameters, start=2):
            if _losses.is_wanted(op, index):
                result[index] = _losses.sum_slope(op, d_loss, index, parameter)
    return result
