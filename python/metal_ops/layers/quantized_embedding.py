"""QuantizedEmbedding: rows of codes, unpacked as they are looked up."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops.layers._quantized import Quantized
from metal_ops.ops.lookup_weights import LookupWeights
from metal_ops.ops.quantized_matmul import QuantizedWeights, unpacked_rows


@keras.saving.register_keras_serializable(package="metal_ops")
class QuantizedEmbedding(Quantized, keras.layers.Embedding):
    """`keras.layers.Embedding` with rows of 2 to 8 bits, of which those that are asked for are unpacked.

    `QuantizedEmbedding.from_layer(embedding, bits=4, block=32, symmetric=False, per_tensor=False, scales=None,
    lookup=None)` makes it of a built Embedding, as `layers.QuantizedDense` is made. Nothing of it is trained.

    Args:
      *args: Keras' arguments: input_dim, output_dim and so on, except those about training embeddings.
      bits: Bits of a code: 4 or 8; with lookup 2, 3, 4, 6 or 8.
      block: Neighbours in a row that share a scale, a multiple of 32; None: all of them.
      symmetric: Whether there are no minima.
      per_tensor: Whether all rows share scales.
      scales: Their dtype, or that of tables: float16 or float32. None: float16 for 4 bits and tables, float32 for 8.
      lookup: Neighbouring rows that share a lookup table, 0 for all of them; None: there are scales.
      **kwargs: Keras' other arguments, by name.

    Input: indices of any shape, in [0, input_dim), ragged ones, too.
    Output: [..., output_dim] of the layer's compute dtype: float32, float16 or bfloat16.

    Attributes:
      quantized: The embeddings as [output_dim, input_dim], a `metal_ops.QuantizedWeights` or `LookupWeights`.
      embeddings: The values of their codes, [input_dim, output_dim].
      codes: The variable of codes, [input_dim, ceil(output_dim bits / 8)] uint8.
      scales: The variable of scales, [input_dim, blocks], or [1, blocks] if `per_tensor`; None with lookup.
      minima: That of minima, or None if `symmetric` or with lookup.
      tables: The variable of tables, [tables, 2^bits], or None without lookup.

    Raises:
      TypeError: As `layers.QuantizedDense`.
      ValueError: As `layers.QuantizedDense`.
      tf.errors.InvalidArgumentError: An index is out of range, on the CPU; a GPU gives zeros, as for Keras' layer.

    Example:
      >>> layer = metal_ops.layers.QuantizedEmbedding(1000, 64)
      >>> layer(tf.constant([[3, 5, 3]])).shape
      TensorShape([1, 3, 64])
    """

    @staticmethod
    def _matrix(layer: Any) -> tf.Tensor:
        return tf.transpose(layer.embeddings)

    def _built_for(self, layer: Any) -> tuple[int | None, ...]:
        return (None, None)

    @property
    def embeddings(self) -> tf.Tensor:
        return tf.transpose(self._unpacked())

    def build(self, input_shape: Any = None) -> None:
        shape = (self.input_dim, self.output_dim)
        self._add_quantized(
            *shape[::-1], lambda: tf.transpose(self.embeddings_initializer(shape, "float32"))
        )
        self.built = True

    def call(self, inputs: Any) -> tf.Tensor:
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(self._looked_up(inputs.flat_values))
        return self._looked_up(inputs)

    def _looked_up(self, inputs: Any) -> tf.Tensor:
        indices = tf.convert_to_tensor(inputs)
        if indices.dtype not in (tf.int32, tf.int64):
            indices = tf.cast(indices, tf.int32)
        weights, flat = self.quantized, tf.reshape(indices, [-1])

        def looked_up(table: tf.Tensor) -> tf.Tensor:
            return tf.gather(table, flat)

        codes = looked_up(weights.codes)
        few: QuantizedWeights | LookupWeights
        if isinstance(weights, LookupWeights):
            # Each row with its own table.
            of_row = flat // weights.group if weights.group else tf.zeros_like(flat)
            few = LookupWeights(
                codes,
                tf.gather(weights.tables, of_row),
                inputs=weights.inputs,
                bits=weights.bits,
                group=1,
            )
        else:
            scales, minima = weights.scales, weights.minima
            if not self.format.per_tensor:
                scales = looked_up(scales)
                minima = minima if self.format.symmetric else looked_up(minima)
            few = QuantizedWeights(
                codes,
                scales,
                minima,
                inputs=weights.inputs,
                bits=weights.bits,
                block=weights.block,
            )
        outputs = tf.stop_gradient(unpacked_rows(few, self.compute_dtype))
        outputs = tf.reshape(outputs, tf.concat([tf.shape(indices), [self.output_dim]], 0))
        outputs.set_shape([*indices.shape, self.output_dim])
        return outputs
