"""The focal loss (Lin et al. 2017) of independent and of exclusive classes, the cross entropy, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops.ops import _arguments, _checks, _declared, _losses

__all__ = ["focal_loss", "softmax_cross_entropy"]
__theme__ = "Losses and activations"

KINDS = ("sigmoid", "softmax")


def focal_loss(
    logits: Any,
    targets: Any,
    kind: str = "sigmoid",
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    label_smoothing: float = 0.0,
    reduce_last: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """The focal loss: a cross entropy that gives little weight to rows that are classified well already.

    Lin et al. 2017, "Focal Loss for Dense Object Detection", equations 4 and 5, as in `keras.losses`:

    - kind "sigmoid" (independent classes, `BinaryFocalCrossentropy`): `-weight q^gamma (y log p + (1 - y) log(1 - p))`,
      p = sigmoid(logit), q = y (1 - p) + (1 - y) p, weight = y alpha + (1 - y) (1 - alpha).
    - kind "softmax" (exclusive classes, `CategoricalFocalCrossentropy`): `-alpha sum_c y_c (1 - p_c)^gamma log p_c`,
      p = softmax(logits).

    Stable for logits of any size; loss and derivative are made in one pass over memory. Differentiable once, in logits.

    Args:
      logits: [...] for "sigmoid", [..., classes] for "softmax"; float32, float16 or bfloat16 (computed in float32).
      targets: In [0, 1], shaped like logits; for "softmax" also the classes' numbers, [...] int32 or int64.
      kind: "sigmoid" or "softmax".
      alpha: Weight as above; None for none.
      gamma: Strength of the focus, at least 0; 0 for the cross entropy.
      label_smoothing: In [0, 1]: moves targets by this part of the way towards 1/2, or towards 1 / classes.
      reduce_last: For "sigmoid": whether to return the mean over the last dimension.
      name: Optional name of the op.

    Returns:
      The loss of logits' dtype: shaped like logits ("sigmoid"), or without the last dimension.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: kind is another one, or a shape does not fit where that is known in a graph.
      tf.errors.InvalidArgumentError: A shape, a number or a class does not fit.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> [round(float(x), 5) for x in metal_ops.focal_loss([0.0, 4.0], [1.0, 1.0], alpha=None)]
      [0.17329, 1e-05]
      >>> metal_ops.focal_loss([[0.0, 0.0]], [1], "softmax", alpha=None).numpy().round(5).tolist()
      [0.17329]
    """
    op = "focal_loss"
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"[{op}] kind: expected 'sigmoid' or 'softmax', got {kind!r}.")
    _checks.refuse_xla(op)
    with tf.name_scope(name or op):
        logits = _arguments.as_floats(op, "logits", logits)
        reduce_last = _arguments.flag(op, "reduce_last", reduce_last)
        options: dict[str, Any] = {"gamma": gamma, "label_smoothing": label_smoothing}
        if alpha is not None:
            alpha = _arguments.number(op, "alpha", alpha)
            most = 1.0 if kind == "sigmoid" else np.finfo(np.float32).max
            if not 0 <= alpha <= most:
                raise ValueError(
                    f"[{op}] alpha: expected {'a number in [0, 1]' if kind == 'sigmoid' else '0 or more'}, or None "
                    f"for none (-1 in torchvision), got {alpha}."
                )
        if kind == "sigmoid":
            options |= {"balanced": alpha is not None, "reduce_last": reduce_last}
            options["alpha"] = 0.5 if alpha is None else alpha
            tensors = {"logits": logits, "targets": targets}
            return _declared.call("sigmoid_focal_loss", tensors, None, label=op, **options)[0]
        if reduce_last:
            raise ValueError(
                f"[{op}] reduce_last: expected False with kind 'softmax', whose sum over the classes is "
                "made already, got True."
            )
        options["alpha"] = 1.0 if alpha is None else alpha
        return _softmax(op, logits, targets, options)


def softmax_cross_entropy(
    logits: Any,
    targets: Any,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The softmax cross entropy of exclusive classes: loss and gradient in one pass over memory.

    `-sum_c y_c log p_c + z_loss L^2` with p = softmax(logits), L = log sum_c exp(logits_c) and y the targets, smoothed:
    `tf.nn.softmax_cross_entropy_with_logits`, or its sparse form. Label smoothing is that of Szegedy et al. 2016,
    [arXiv:1512.00567](https://arxiv.org/abs/1512.00567), section 7. The z loss, which keeps logits from drifting away,
    is that of Chowdhery et al. 2022, "PaLM", [arXiv:2204.02311](https://arxiv.org/abs/2204.02311), section 5, where its
    weight is 1e-4.

    Stable for logits of any size, computed in float32 whatever the dtype. Differentiable once, in logits.
    Deterministic.

    Args:
      logits: [..., classes] float32, float16 or bfloat16.
      targets: The classes' numbers, [...] int32 or int64; or their probabilities, floats shaped like logits.
      label_smoothing: In [0, 1]: moves targets by this part of the way towards 1 / classes.
      z_loss: Weight of the z loss, at least 0.
      ignore_index: The number, for example -100, of rows whose loss and gradient are 0; None for none. Means
        over the other rows are the caller's to make.
      name: Optional name of the op.

    Returns:
      The loss of every row, [...], of logits' dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: ignore_index is given and targets are no integers, or a shape does not fit where that is known in a
        graph.
      tf.errors.InvalidArgumentError: A shape, a number or a class does not fit.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> logits = [[0.0, 0.0], [2.0, 0.0], [5.0, 1.0]]
      >>> metal_ops.softmax_cross_entropy(logits, [1, 0, -100], ignore_index=-100).numpy().round(4).tolist()
      [0.6931, 0.1269, 0.0]
    """
    op = "softmax_cross_entropy"
    _checks.refuse_xla(op)
    with tf.name_scope(name or op):
        logits = _arguments.as_floats(op, "logits", logits)
        options: dict[str, Any] = {"alpha": 1.0, "gamma": 0.0}
        options |= {"label_smoothing": label_smoothing, "z_loss": z_loss}
        if ignore_index is not None:
            options |= {"ignores": True, "ignore_index": ignore_index}
        return _softmax(op, logits, targets, options)


def _softmax(op: str, logits: tf.Tensor, targets: Any, options: dict[str, Any]) -> tf.Tensor:
    targets = _arguments.convert(op, "targets", targets)
    sparse = targets.dtype.is_integer
    if sparse:
        _checks.check_dtype(op, "targets", targets, _arguments.INDICES)
    else:
        _checks.check_dtype(op, "targets", targets, (*_arguments.FLOATS, tf.float64))
        if "ignores" in options:
            raise ValueError(
                f"[{op}] ignore_index: expected None with targets of dtype {targets.dtype.name}, got "
                f"{options['ignore_index']}. Multiply the loss with a mask."
            )
        targets = tf.cast(targets, tf.float32)
    flat, restore = _arguments.flatten_points(op, "logits", logits)
    if logits.shape.rank != 2:  # else the op names the misfit
        meaning = "logits without the classes" if sparse else "logits"
        rows = logits.shape[:-1] if sparse else logits.shape
        if not targets.shape.is_compatible_with(rows):
            raise ValueError(
                f"[{op}] targets: expected the shape of {meaning}, {rows}, got {targets.shape}."
            )
        # Targets of another shape with as many elements would be mixed up.
        shape = tf.shape(logits)[:-1] if sparse else tf.shape(logits)
        if not (targets.shape.is_fully_defined() and rows.is_fully_defined()):
            fits = tf.debugging.assert_equal(
                tf.shape(targets),
                shape,
                f"[{op}] targets: expected the shape of {meaning}, got another one.",
            )
            with tf.control_dependencies([fits]):
                targets = tf.identity(targets)
        targets = tf.reshape(targets, tf.shape(flat)[:1] if sparse else tf.shape(flat))
    tensors = {"logits": flat, "targets": targets}
    loss = _declared.call("softmax_focal_loss", tensors, None, label=op, **options)[0]
    return tf.squeeze(restore(loss[:, None]), axis=-1)


@tf.RegisterGradient("SigmoidFocalLoss")
@tf.RegisterGradient("SoftmaxFocalLoss")
def _focal_loss_gradient(
    op: tf.Operation, d_loss: tf.Tensor, _: tf.Tensor
) -> list[tf.Tensor | None]:
    return [_losses.scale_slope(op, d_loss), None]
