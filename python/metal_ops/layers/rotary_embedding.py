"""RotaryEmbedding: KerasHub's layer in one pass over memory."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops import _arguments
from metal_ops.ops.rope import rope

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class RotaryEmbedding(keras.layers.Layer):
    """`keras_hub.layers.RotaryEmbedding` by `metal_ops.rope`: features turn in pairs by angles of positions.

    Su et al. 2021, "RoFormer: Enhanced transformer with rotary position embedding",
    [arXiv:2104.09864](https://arxiv.org/abs/2104.09864). Names and the call are KerasHub's, which this does not need.
    Angles are right to 2^-22 under every dtype policy; KerasHub rounds sines and cosines to the compute dtype.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      max_wavelength: The base: pair i turns by max_wavelength^(-2 i / features) radians a position.
      scaling_factor: Positions are divided by it.
      sequence_axis: The axis of positions: 1, as [batch, length, heads, features], or 2, as [batch, heads, length,
        features], the layout of `metal_ops.scaled_dot_product_attention`.
      feature_axis: The last one: -1, or its number.
      interleaved: Whether a pair are neighbours, elements 2 i and 2 i + 1 (RoFormer, GPT-J); else elements i and i +
        features / 2, as in KerasHub.
      **kwargs: Keras' arguments (name, dtype, trainable).

    Input: [batch, length, features], [batch, length, heads, features] or with heads before lengths; features are even.
      In the call: `start_index`, the integer position of the first element, or integers `positions`, [length] or
      [batch, length].
    Output: The same shape, of the layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64, or an argument is of another kind.
      ValueError: An axis is none of these, a number is not above 0, or features are odd.

    Example:
      >>> layer = metal_ops.layers.RotaryEmbedding()
      >>> layer(tf.constant([[[1.0, 0.0], [1.0, 0.0]]])).numpy().round(4).tolist()  # by 0 and 1 radian
      [[[1.0, 0.0], [0.5403, 0.8415]]]
    """

    def __init__(
        self,
        max_wavelength: float = 10000,
        scaling_factor: float = 1.0,
        sequence_axis: int = 1,
        feature_axis: int = -1,
        interleaved: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        op = "RotaryEmbedding"
        self.max_wavelength = _above_0(op, "max_wavelength", max_wavelength)
        self.scaling_factor = _above_0(op, "scaling_factor", scaling_factor)
        self.sequence_axis = _arguments.integer(op, "sequence_axis", sequence_axis)
        self.feature_axis = _arguments.integer(op, "feature_axis", feature_axis)
        self.interleaved = _arguments.flag(op, "interleaved", interleaved)
        _keras.require_float_policy(op, self)
        self.supports_jit = False
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self._check(input_shape)
        self.built = True

    def _check(self, shape: Any) -> None:
        rank = len(shape)
        if rank not in (3, 4):
            raise ValueError(
                "[RotaryEmbedding] inputs: expected [batch, length, features] or [batch, length, heads, features], "
                f"got {tuple(shape)}."
            )
        if self.sequence_axis not in range(1, rank - 1):
            raise ValueError(
                f"[RotaryEmbedding] sequence_axis: expected {' or '.join(map(str, range(1, rank - 1)))} of an input "
                f"of {rank} dimensions, got {self.sequence_axis}."
            )
        if self.feature_axis not in (-1, rank - 1):
            raise ValueError(
                f"[RotaryEmbedding] feature_axis: expected -1, the last one, got {self.feature_axis}. Transpose the "
                "input."
            )
        if shape[-1] is None or shape[-1] % 2:
            raise ValueError(
                f"[RotaryEmbedding] inputs: expected an even number of features, known in the graph, got {shape[-1]}."
            )

    def call(self, inputs: tf.Tensor, start_index: Any = 0, positions: Any = None) -> tf.Tensor:
        self._check(inputs.shape)
        shape, static = tf.shape(inputs), inputs.shape
        length = static[self.sequence_axis]
        length = shape[self.sequence_axis] if length is None else length
        op = "RotaryEmbedding"
        if positions is None:
            first = _arguments.as_indices(op, "start_index", start_index)
            positions = tf.range(length) + tf.cast(first, tf.int32)
        else:
            positions = tf.cast(_arguments.as_indices(op, "positions", positions), tf.int32)
        # The op takes [batch, heads, length, features]. Heads behind lengths are more elements of the same position.
        x = inputs
        if self.sequence_axis == 1:
            heads = 1 if len(static) == 3 else static[2] if static[2] is not None else shape[2]
            positions = tf.repeat(positions, heads, axis=-1)
            x = tf.reshape(inputs, [shape[0], 1, length * heads, static[-1]])
        y = rope(x, positions, interleaved=self.interleaved, **self._turns(static[-1]))
        return y if x is inputs else tf.ensure_shape(tf.reshape(y, shape), static)

    def _turns(self, size: int) -> dict[str, Any]:
        if self.scaling_factor == 1:
            return {"base": self.max_wavelength}
        base, pairs = self.max_wavelength, range(size // 2)
        return {"frequencies": [base ** (-2 * i / size) / self.scaling_factor for i in pairs]}

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return tuple(input_shape)

    def compute_output_spec(
        self, inputs: Any, start_index: Any = 0, positions: Any = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "scaling_factor": self.scaling_factor,
            "sequence_axis": self.sequence_axis,
            "feature_axis": self.feature_axis,
            "interleaved": self.interleaved,
        }


def _above_0(op: str, argument: str, value: Any) -> float:
    number = _arguments.number(op, argument, value)
    if not 0 < number < float("inf"):
        raise ValueError(f"[{op}] {argument}: expected a number above 0, got {number}.")
    return number
