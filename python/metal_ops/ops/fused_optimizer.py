"""An optimizer's update of a variable as one op that touches every element once. Called by `metal_ops.optimizers`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.ops import _declared

__all__ = ["fused_adam", "fused_sgd"]
__theme__ = "Optimizer steps"


def fused_adam(
    variable: tf.Variable,
    m: tf.Variable,
    v: tf.Variable,
    gradient: Any,
    *,
    step: Any,
    learning_rate: Any,
    beta_1: Any = 0.9,
    beta_2: Any = 0.999,
    epsilon: Any = 1e-7,
    weight_decay: Any = 0.0,
    v_hat: tf.Variable | None = None,
    skip_zero_rows: bool = False,
    float32_powers: bool = False,
    name: str | None = None,
) -> Any:
    """One step of Adam (Kingma and Ba 2015, end of section 2), in one pass over memory.

    With weight decay as in AdamW (Loshchilov and Hutter 2019) and, given `v_hat`, AMSGrad (Reddi et al. 2018):

        x -= learning_rate weight_decay x
        m += (g - m) (1 - beta_1);  v += (g^2 - v) (1 - beta_2);  v_hat = max(v_hat, v)
        x -= learning_rate sqrt(1 - beta_2^step) / (1 - beta_1^step) m / (sqrt(v_hat or v) + epsilon)

    Args:
      variable: x, a tf.Variable of float32, float16, bfloat16 or float64.
      m: First moment, a tf.Variable of x's shape: float32, or float64 if x is. Zeros before the first step.
      v: Second moment, likewise.
      gradient: g, a tensor of x's shape and dtype.
      step: 1 at the first step.
      learning_rate: A number or a scalar tensor, like the next four.
      beta_1: Decay of m, in [0, 1).
      beta_2: Decay of v, in [0, 1).
      epsilon: Added to the square root ("epsilon hat" in the paper).
      weight_decay: Times the learning rate: the part by which x shrinks.
      v_hat: AMSGrad's maximum of v, a tf.Variable like it.
      skip_zero_rows: Leaves rows of x (slices of its first dimension) whose gradient is all zero as they are, moments
        included, as instant-ngp does with the entries of its hash table that no sample touched.
      float32_powers: Rounds beta^step to float32 as Keras does, for the same digits as Keras' Adam; the bias correction
        is then off by up to 1e-5 of it in the first steps. No matter for float64 variables.
      name: Optional name of the op.

    Returns:
      The operation, in a graph.

    Raises:
      TypeError: x's dtype is none of those above, or the gradient's is another; or x or a moment is no variable.
      tf.errors.InvalidArgumentError: A moment's shape or dtype does not fit, or a number is out of range.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> x, m, v = (tf.Variable(value) for value in ([3.0, -2.0], [0.0, 0.0], [0.0, 0.0]))
      >>> _ = metal_ops.fused_adam(x, m, v, [1.0, -1.0], step=1, learning_rate=0.5)
      >>> x.numpy().round(4).tolist()
      [2.5, -1.5]
    """
    return _declared.call(
        "resource_fused_adam",
        {
            "variable": variable,
            "m": m,
            "v": v,
            "v_hat": [] if v_hat is None else [v_hat],
            "step": step,
            "learning_rate": learning_rate,
            "beta_1": beta_1,
            "beta_2": beta_2,
            "epsilon": epsilon,
            "weight_decay": weight_decay,
            "gradient": gradient,
        },
        name,
        label="fused_adam",
        skip_zero_rows=skip_zero_rows,
        float32_powers=float32_powers,
    )


def fused_sgd(
    variable: tf.Variable,
    gradient: Any,
    *,
    learning_rate: Any,
    m: tf.Variable | None = None,
    momentum: Any = 0.0,
    nesterov: bool = False,
    weight_decay: Any = 0.0,
    skip_zero_rows: bool = False,
    name: str | None = None,
) -> Any:
    """One step of gradient descent, with momentum or without, in one pass over memory.

        x -= learning_rate weight_decay x
        m = momentum m - learning_rate g;  x += m, or momentum m - learning_rate g (Nesterov, as Sutskever et al. 2013)

    Args:
      variable: x, a tf.Variable of float32, float16, bfloat16 or float64.
      gradient: g, a tensor of x's shape and dtype.
      learning_rate: A number or a scalar tensor, like momentum and weight_decay.
      m: A tf.Variable of x's shape, float32 (float64 if x is); None for no momentum.
      momentum: Decay of m.
      nesterov: Whether momentum is Nesterov's.
      weight_decay: Times the learning rate: the part by which x shrinks.
      skip_zero_rows: Leaves rows whose gradient is all zero as they are, momentum included.
      name: Optional name of the op.

    Returns:
      The operation, in a graph.

    Raises:
      ValueError: There is momentum, but no m.
      TypeError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError: As in `fused_adam`.

    Example:
      >>> x, m = tf.Variable([3.0, -2.0]), tf.Variable([0.0, 0.0])
      >>> _ = metal_ops.fused_sgd(x, [1.0, -1.0], learning_rate=0.5, m=m, momentum=0.9)
      >>> x.numpy().tolist()
      [2.5, -1.5]
    """
    label = "fused_sgd"
    if m is None and (tf.is_tensor(momentum) or hasattr(momentum, "assign") or momentum != 0):
        raise ValueError(
            f"[{label}] m: expected a tf.Variable with momentum {momentum}, got None. Give one of zeros, or "
            "momentum=0."
        )
    return _declared.call(
        "resource_fused_sgd",
        {
            "variable": variable,
            "m": [] if m is None else [m],
            "learning_rate": learning_rate,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "gradient": gradient,
        },
        name,
        label=label,
        nesterov=nesterov,
        skip_zero_rows=skip_zero_rows,
    )
