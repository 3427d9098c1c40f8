"""FrequencyEncoding: sines and cosines of octaves as a Keras layer."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops import _arguments
from metal_ops.ops.frequency_encode import frequency_encode

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class FrequencyEncoding(keras.layers.Layer):
    """Encodes points by sines and cosines of octaves: see `metal_ops.frequency_encode`.

    Mildenhall et al. 2020, "NeRF", equation 4. Points keep their float32 under every dtype policy, and phases are
    reduced exactly. It has no weights. XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does
    without.

    Args:
      n_frequencies: Number of octaves, 0 to 32.
      include_input: Whether the points themselves come first.
      times_pi: Whether the lowest frequency is pi or 1.
      **kwargs: Keras' arguments (name, dtype).

    Input: [..., D] float32 (float64 is rounded to it); any number of leading dimensions.
    Output: [..., D (2 n_frequencies + include_input)] of the layer's compute dtype.

    Raises:
      TypeError: An argument is of another kind, points are half precision, or the dtype policy computes in float64.
      ValueError: n_frequencies is not 0 to 32.

    Example:
      >>> layer = metal_ops.layers.FrequencyEncoding(n_frequencies=2)
      >>> layer(tf.constant([[0.125]])).numpy().round(4).tolist()
      [[0.125, 0.3827, 0.9239, 0.7071, 0.7071]]
    """

    def __init__(
        self,
        n_frequencies: int = 10,
        include_input: bool = True,
        times_pi: bool = True,
        **kwargs: Any,
    ) -> None:
        # autocast=False: float16 cannot tell the phases of high octaves apart.
        super().__init__(autocast=False, **kwargs)
        op = "FrequencyEncoding"
        self.n_frequencies = _arguments.integer(op, "n_frequencies", n_frequencies)
        if not 0 <= self.n_frequencies <= 32:
            raise ValueError(f"[{op}] n_frequencies: expected 0 to 32, got {n_frequencies}.")
        self.include_input = _arguments.flag(op, "include_input", include_input)
        self.times_pi = _arguments.flag(op, "times_pi", times_pi)
        _keras.require_float_policy(op, self)
        self.supports_jit = False
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=1)

    def call(self, points: tf.Tensor) -> tf.Tensor:
        if points.dtype in (tf.float16, tf.bfloat16):
            raise TypeError(
                f"[FrequencyEncoding] points: expected float32, got {points.dtype.name}, which cannot tell phases of "
                "high octaves apart. Keep them float32; a keras.Model subclass under a mixed policy does so if its "
                "constructor calls super().__init__(autocast=False)."
            )
        return frequency_encode(
            tf.cast(points, tf.float32),
            self.n_frequencies,
            include_input=self.include_input,
            times_pi=self.times_pi,
            dtype=self.compute_dtype,
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        size = input_shape[-1]
        blocks = 2 * self.n_frequencies + self.include_input
        return (*input_shape[:-1], None if size is None else size * blocks)

    def compute_output_spec(self, points: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(points.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "n_frequencies": self.n_frequencies,
            "include_input": self.include_input,
            "times_pi": self.times_pi,
        }
