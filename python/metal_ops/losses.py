"""Keras 3 losses: `compile(loss=metal_ops.losses.RobustLoss(alpha=0.0))`.

Reductions, sample weights and masks are Keras' own. XLA cannot compile them: give `compile` jit_compile=False.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops.distortion_loss import distortion_loss
from metal_ops.ops.focal_loss import KINDS, focal_loss, softmax_cross_entropy
from metal_ops.ops.robust_loss import robust_loss

_keras.require_tensorflow_backend()

__all__ = ["DistortionLoss", "FocalLoss", "RobustLoss", "SoftmaxCrossEntropy"]


@keras.saving.register_keras_serializable(package="metal_ops")
class RobustLoss(keras.losses.Loss):
    """Barron's general robust loss of `y_pred - y_true`, averaged over the last dimension: see `metal_ops.robust_loss`.

    Args:
      alpha: Shape of the loss: 2 for L2, 1 for Charbonnier, 0 for Cauchy, -2 for Geman-McClure, -inf for Welsch.
      scale: Size of a residual from which on alpha matters, above 0.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none" or None.
      name: Name of the loss.
      dtype: As for every Keras loss: the dtype that y_true and y_pred are cast to.

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
      dtype: As for every Keras loss: the dtype that y_true and y_pred are cast to.

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
        return focal_loss(y_pred, _classes(y_true, y_pred), "softmax", **options)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "kind": self.kind,
            "alpha": self.alpha,
            "gamma": self.gamma,
            "label_smoothing": self.label_smoothing,
        }


@keras.saving.register_keras_serializable(package="metal_ops")
class SoftmaxCrossEntropy(keras.losses.Loss):
    """The softmax cross entropy of logits: see `metal_ops.softmax_cross_entropy`.

    `y_true` holds the classes' numbers, [...] or [..., 1], or their probabilities, shaped like `y_pred`, as
    `keras.losses.SparseCategoricalCrossentropy` and `CategoricalCrossentropy` take them with `from_logits=True`.

    Args:
      label_smoothing: In [0, 1].
      z_loss: Weight of the squared logarithm of the exponentials' sum, at least 0.
      ignore_class: The number of rows that do not count, in no mean either; None for none.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none" or None.
      name: Name of the loss.
      dtype: As for every Keras loss: the dtype that y_true and y_pred are cast to.

    Example:
      >>> loss = metal_ops.losses.SoftmaxCrossEntropy(ignore_class=-1)
      >>> round(float(loss([1, 0, -1], [[0.0, 0.0], [2.0, 0.0], [0.0, 9.0]])), 5)
      0.41004
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str = "softmax_cross_entropy",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.ignore_class = ignore_class

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        y_true = _classes(y_true, y_pred)
        loss = softmax_cross_entropy(
            y_pred,
            y_true,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            ignore_index=self.ignore_class,
        )
        if self.ignore_class is not None:
            # Where Keras' means look for the elements they leave out.
            loss._keras_mask = y_true != self.ignore_class
        return loss

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "z_loss": self.z_loss,
            "ignore_class": self.ignore_class,
        }


def _classes(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """The classes' numbers, of which Keras has made floats; or their probabilities as they are."""
    if y_true.shape.rank == y_pred.shape.rank and y_true.shape[-1] == 1 != y_pred.shape[-1]:
        y_true = tf.squeeze(y_true, axis=-1)
    if y_true.shape.rank == y_pred.shape.rank - 1:
        y_true = tf.cast(y_true, tf.int32)
    return y_true


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
        y_true = tf.convert_to_tensor(y_true)  # Keras leaves lists as they are
        return distortion_loss(y_pred, y_true[:, :-1], y_true[:, 1:])
