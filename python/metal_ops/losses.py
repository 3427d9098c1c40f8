"""Keras 3 losses: `compile(loss=metal_ops.losses.RobustLoss(alpha=0.0))`.

Reductions, sample weights and masks are Keras' own. XLA cannot compile them: give `compile` jit_compile=False.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops.distortion_loss import distortion_loss
from metal_ops.ops.focal_loss import KINDS, focal_loss
from metal_ops.ops.robust_loss import robust_loss

_keras.require_tensorflow_backend()

__all__ = ["DistortionLoss", "FocalLoss", "RobustLoss"]


@keras.saving.register_keras_serializable(package="metal_ops")
class RobustLoss(keras.losses.Loss):
    """Barron's general robust loss of `y_pred - y_true`, averaged over the last dimension: see `metal_ops.robust_loss`.

    Args:
      alpha: Shape of the loss: 2 for L2, 1 for Charbonnier, 0 for Cauchy, -2 for Geman-McClure, -inf for Welsch.
      scale: Size of a residual from which on alpha matters, above 0.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none" or None.
      name: Name of the loss.
      dtype: As for every Keras loss: what y_true and y_pred are cast to.

    Example:
      >>> loss = metal_ops.losses.RobustLoss(alpha=0.0, scale=0.5)
      >>> round(float(loss([[0.0, 1.0]], [[0.5, 1.0]])), 4)
      0.2027
    """

    def __init__(
        self,
        alpha: float = 1.0,
        scale: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "robust_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if not scale > 0:
            raise ValueError(f"[RobustLoss] scale: expected a number above 0, got {scale}.")
        self.alpha = float(alpha)
        self.scale = float(scale)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        return robust_loss(y_pred, self.alpha, self.scale, targets=y_true, reduce_last=True)

    def get_config(self) -> dict[str, Any]:
        # JSON knows no infinity.
        alpha = self.alpha if abs(self.alpha) != float("inf") else str(self.alpha)
        return {**super().get_config(), "alpha": alpha, "scale": self.scale}


@keras.saving.register_keras_serializable(package="metal_ops")
class FocalLoss(keras.losses.Loss):
    """The focal loss of logits: see `metal_ops.focal_loss`.

    Args:
      kind: "sigmoid" for independent classes (averaged over the last dimension), "softmax" for exclusive ones.
        y_true is shaped like y_pred; with "softmax" it may also hold the classes' numbers, [...] or [..., 1].
      alpha: Weight of the positive class ("sigmoid") or a factor ("softmax"); None for none.
      gamma: Strength of the focus, at least 0.
      label_smoothing: In [0, 1].
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none" or None.
      name: Name of the loss.
      dtype: As for every Keras loss: what y_true and y_pred are cast to.

    Example:
      >>> loss = metal_ops.losses.FocalLoss("softmax", alpha=None)
      >>> round(float(loss([1, 0], [[0.0, 0.0], [2.0, 0.0]])), 5)
      0.08755
    """

    def __init__(
        self,
        kind: str = "sigmoid",
        alpha: float | None = 0.25,
        gamma: float = 2.0,
        label_smoothing: float = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "focal_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if kind not in KINDS:
            raise ValueError(f"[FocalLoss] kind: expected 'sigmoid' or 'softmax', got {kind!r}.")
        self.kind = kind
        self.alpha = alpha
        self.gamma = gamma
        self.label_smoothing = label_smoothing

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        options: dict[str, Any] = {
            "alpha": self.alpha,
            "gamma": self.gamma,
            "label_smoothing": self.label_smoothing,
        }
        # Keras takes a list for a structure and leaves it one.
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        if self.kind == "sigmoid":
            return focal_loss(y_pred, y_true, "sigmoid", reduce_last=True, **options)
        # Keras has made floats of the classes' numbers.
        if y_true.shape.rank == y_pred.shape.rank and y_true.shape[-1] == 1 != y_pred.shape[-1]:
            y_true = tf.squeeze(y_true, axis=-1)
        if y_true.shape.rank == y_pred.shape.rank - 1:
            y_true = tf.cast(y_true, tf.int32)
        return focal_loss(y_pred, y_true, "softmax", **options)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "kind": self.kind,
            "alpha": self.alpha,
            "gamma": self.gamma,
            "label_smoothing": self.label_smoothing,
        }


@keras.saving.register_keras_serializable(package="metal_ops")
class DistortionLoss(keras.losses.Loss):
    """The distortion of rays' weights: see `metal_ops.distortion_loss`.

    `y_pred` are the weights, [rays, samples]; `y_true` the borders of their intervals, [rays, samples + 1].

    Args:
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none" or None.
      name: Name of the loss.
      dtype: As for every Keras loss; only float32 is provided.

    Example:
      >>> loss = metal_ops.losses.DistortionLoss()
      >>> round(float(loss([[0.0, 1.0, 2.0]], [[0.5, 0.5]])), 4)
      0.6667
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str = "distortion_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        y_true = tf.convert_to_tensor(y_true)  # Keras leaves lists what they are
        return distortion_loss(y_pred, y_true[:, :-1], y_true[:, 1:])
