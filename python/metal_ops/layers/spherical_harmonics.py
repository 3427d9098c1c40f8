"""SphericalHarmonics: the encoding of directions as a Keras layer."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops import _arguments
from metal_ops.ops.sh_encode import sh_encode

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class SphericalHarmonics(keras.layers.Layer):
    """Encodes unit directions by real spherical harmonics: see `metal_ops.sh_encode`.

    Directions keep their float32 under every dtype policy, and harmonics are computed in float32. It has no weights.
    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      degree: Number of bands, 1 to 8: l = 0 to degree - 1.
      **kwargs: Keras' arguments (name, dtype).

    Input: [..., 3] of length 1, in [-1, 1] (tiny-cuda-nn's are in [0, 1]); any number of leading dimensions. Other
      dtypes than float32 are cast to it.
    Output: [..., degree^2] of the layer's compute dtype.

    Raises:
      TypeError: degree is no integer, or the dtype policy computes in float64.
      ValueError: degree is not 1 to 8, or the directions' last dimension is not 3.

    Example:
      >>> layer = metal_ops.layers.SphericalHarmonics(degree=2)
      >>> layer(tf.constant([[0.0, 0.0, 1.0]])).numpy().round(4).tolist()
      [[0.2821, -0.0, 0.4886, -0.0]]
    """

    def __init__(self, degree: int = 4, **kwargs: Any) -> None:
        # autocast=False: Keras would turn the directions into float16.
        super().__init__(autocast=False, **kwargs)
        self.degree = _arguments.integer("SphericalHarmonics", "degree", degree)
        if not 1 <= self.degree <= 8:
            raise ValueError(f"[SphericalHarmonics] degree: expected 1 to 8, got {degree}.")
        _keras.require_float_policy("SphericalHarmonics", self)
        self.supports_jit = False
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=1, axes={-1: 3})

    def call(self, directions: tf.Tensor) -> tf.Tensor:
        return sh_encode(tf.cast(directions, tf.float32), self.degree, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.degree**2)

    def compute_output_spec(self, directions: Any) -> keras.KerasTensor:
        return keras.KerasTensor(
            self.compute_output_shape(directions.shape), dtype=self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "degree": self.degree}
