"""QuantizedConv2D: a convolution whose kernel is codes."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from metal_ops.layers._quantized import Quantized


@keras.saving.register_keras_serializable(package="metal_ops")
class QuantizedConv2D(Quantized, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with a kernel of 2 to 8 bits.

    The kernel is kept as codes, and unpacked into memory in each call for TensorFlow's convolution: it takes the time
    of that, and of one more write and read of the weights. Products of patches with packed weights take two to three
    times as long from 28 x 28 pixels on. A block is of neighbouring input channels, and where there are fewer goes on
    with those of the next position.

    `QuantizedConv2D.from_layer(conv, bits=4, block=32, symmetric=False, per_tensor=False, scales=None, lookup=None)`
    makes it of a built Conv2D, as `layers.QuantizedDense` is made, whose page names the trained variables, too.

    Args:
      *args: Keras' arguments: filters, kernel_size and so on, except those about training a kernel.
      bits: Bits of a code: 4 or 8; with lookup 2, 3, 4, 6 or 8.
      block: Neighbouring weights of a filter that share a scale, a multiple of 32; None: all of them.
      symmetric: Whether there are no minima.
      per_tensor: Whether all filters share scales.
      scales: Their dtype, or that of tables: float16 or float32. None: float16 for 4 bits and tables, float32 for 8.
      lookup: Neighbouring filters that share a lookup table, 0 for all of them; None: there are scales.
      **kwargs: Keras' other arguments, by name: strides, padding, groups, data_format and so on.

    Input: [batch, height, width, channels], or as `data_format` says.
    Output: [batch, rows, columns, filters] of the layer's compute dtype: float32, float16 or bfloat16.

    Attributes:
      quantized: The kernel as [height width channels / groups, filters], a `metal_ops.QuantizedWeights` or
        `LookupWeights`.
      kernel: The values of its codes, [height, width, channels / groups, filters].
      codes: The variable of codes, [filters, ceil(height width channels / groups bits / 8)] uint8.
      scales: The variable of scales, [filters, blocks], or [1, blocks] if `per_tensor`; None with lookup.
      minima: That of minima, or None if `symmetric` or with lookup.
      tables: The variable of tables, [tables, 2^bits], or None without lookup.
      bias: The variable [filters], or None.

    Raises:
      TypeError: As `layers.QuantizedDense`.
      ValueError: As `layers.QuantizedDense`.

    Example:
      >>> layer = metal_ops.layers.QuantizedConv2D(8, 3, padding="same", activation="relu")
      >>> layer(tf.zeros([1, 28, 28, 16])).shape, layer.quantized.shape
      (TensorShape([1, 28, 28, 8]), TensorShape([144, 8]))
    """

    @staticmethod
    def _matrix(layer: Any) -> tf.Tensor:
        kernel = tf.convert_to_tensor(layer.kernel)
        return tf.reshape(kernel, [-1, kernel.shape[-1]])

    def _built_for(self, layer: Any) -> tuple[int | None, ...]:
        channels = layer.kernel.shape[-2] * layer.groups
        if self.data_format == "channels_last":
            return (None, None, None, channels)
        return (None, channels, None, None)

    @property
    def kernel(self) -> tf.Tensor:
        return tf.reshape(self._unpacked(), self._kernel_shape)

    def build(self, input_shape: Any) -> None:
        axis = -1 if self.data_format == "channels_last" else 1
        channels = input_shape[axis]
        if not channels or channels % self.groups:
            raise ValueError(
                f"[QuantizedConv2D] inputs: expected a multiple of {self.groups} (groups) channels, known in the "
                f"graph, got {channels}."
            )
        self._kernel_shape = (*self.kernel_size, channels // self.groups, self.filters)
        matrix = (math.prod(self._kernel_shape[:-1]), self.filters)
        self._add_quantized(
            *matrix, lambda: tf.reshape(self.kernel_initializer(self._kernel_shape), matrix)
        )
        self._add_bias(self.filters)
        self.input_spec = keras.layers.InputSpec(min_ndim=4, axes={axis: channels})
        self.built = True
