"""RMSNormalization: Keras' layer in one pass over memory."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops.row_norm import rms_norm

_keras.require_tensorflow_backend()

# Keras before 3.9 has none; this class has all methods itself.
_Base: Any = getattr(keras.layers, "RMSNormalization", keras.layers.Layer)


@keras.saving.register_keras_serializable(package="metal_ops")
class RMSNormalization(_Base):
    """`keras.layers.RMSNormalization` by `metal_ops.rms_norm`: x / sqrt(mean(x^2) + epsilon) scale.

    Zhang and Sennrich 2019, "Root mean square layer normalization", [arXiv:1910.07467](https://arxiv.org/abs/1910.07467).
    Arguments, the weight and its name are Keras'; weights of one load into the other. Means are float32 under every
    dtype policy. Any axis but the last one is moved there for the op, and back.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      axis: The axis, or a list of axes, whose elements are normalized together; each of them has a number of `scale`.
      epsilon: At least 0, added to the mean.
      **kwargs: Keras' arguments (name, dtype, trainable).

    Input: A tensor of any rank from 1 on, whose axes of `axis` have known sizes.
    Output: The same shape, of the layer's compute dtype.

    Attributes:
      scale: The variable, of the shape of the axes, 1 at first.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: An axis is not one of the input, or its size is not known.

    Example:
      >>> layer = metal_ops.layers.RMSNormalization(epsilon=0.0)
      >>> layer(tf.constant([[1.0, 7.0]])).numpy().tolist()
      [[0.20000000298023224, 1.399999976158142]]
    """

    def __init__(self, axis: Any = -1, epsilon: float = 1e-6, **kwargs: Any) -> None:
        keras.layers.Layer.__init__(self, **kwargs)
        self.axis = list(axis) if isinstance(axis, list | tuple) else axis
        self.epsilon = epsilon
        _keras.require_float_policy("RMSNormalization", self)
        self.supports_jit = False
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        sizes = tuple(input_shape[axis] for axis in self._axes(len(input_shape)))
        if None in sizes:
            raise ValueError(
                f"[RMSNormalization] inputs: expected known sizes of axis {self.axis}, got {tuple(input_shape)}."
            )
        self.scale = self.add_weight(name="scale", shape=sizes, initializer="ones")
        self.built = True

    def _axes(self, rank: int) -> list[int]:
        """As numbers from 0 on, ascending, as Keras orders the axes of `scale`."""
        given = self.axis if isinstance(self.axis, list) else [self.axis]
        for axis in given:
            if not -rank <= axis < rank:
                raise ValueError(
                    f"[RMSNormalization] axis: expected axes of an input of {rank} dimensions, got {self.axis}."
                )
        return sorted(axis % rank for axis in given)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        scale = tf.reshape(tf.cast(self.scale.value, x.dtype), [-1])
        rank, size = len(x.shape), scale.shape[0]
        axes = self._axes(rank)
        if axes == [rank - 1]:
            return rms_norm(x, scale, self.epsilon)
        order = [axis for axis in range(rank) if axis not in axes] + axes
        moved = tf.transpose(x, order)
        shape = tf.shape(moved)
        flat = tf.reshape(moved, [tf.reduce_prod(shape[: -len(axes)]), size])
        y = tf.reshape(rms_norm(flat, scale, self.epsilon), shape)
        return tf.ensure_shape(
            tf.transpose(y, [order.index(axis) for axis in range(rank)]), x.shape
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        self._axes(len(input_shape))
        return tuple(input_shape)

    def compute_output_spec(self, x: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **keras.layers.Layer.get_config(self),
            "axis": self.axis,
            "epsilon": self.epsilon,
        }
