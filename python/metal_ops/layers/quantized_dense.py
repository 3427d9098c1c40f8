"""QuantizedDense: a dense layer whose kernel is codes."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops.layers._quantized import Quantized
from metal_ops.ops.quantized_matmul import check_dynamic, quantized_matmul


@keras.saving.register_keras_serializable(package="metal_ops")
class QuantizedDense(Quantized, keras.layers.Dense):
    """`keras.layers.Dense` with a kernel of 2 to 8 bits: see `metal_ops.quantized_matmul`.

    `QuantizedDense.from_layer(dense, bits=4, block=32, symmetric=False, per_tensor=False, scales=None, lookup=None,
    dynamic=False)` makes it of a built Dense layer, with its name, bias and arguments; others given by name differ. A
    layer that is built without has its initializer's kernel, rounded. Codes, scales and minima are not trained. The
    bias is, and gradients go through to the inputs.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      *args: Keras' arguments: units, activation, use_bias and so on, except those about training a kernel.
      bits: Bits of a code: 4 or 8; with lookup 2, 3, 4, 6 or 8.
      block: Neighbouring inputs of an output that share a scale, a multiple of 32; None: all of them.
      symmetric: Whether there are no minima.
      per_tensor: Whether all outputs share scales.
      scales: Their dtype, or that of tables: float16 or float32. None: float16 for 4 bits and tables, float32 for 8.
      lookup: Neighbouring outputs that share a lookup table, 0 for all of them; None: there are scales.
      dynamic: Whether rows of inputs are rounded to 8 bits, see `quantized_matmul`; not with lookup.
      **kwargs: Keras' other arguments, by name.

    Input: [..., inputs].
    Output: [..., units] of the layer's compute dtype: float32, float16 or bfloat16.

    Attributes:
      quantized: The kernel, a `metal_ops.QuantizedWeights` or `LookupWeights`.
      kernel: The values of its codes, [inputs, units].
      codes: The variable of codes, [units, ceil(inputs bits / 8)] uint8.
      scales: The variable of scales, [units, blocks], or [1, blocks] if `per_tensor`; None with lookup.
      minima: That of minima, or None if `symmetric` or with lookup.
      tables: The variable of tables, [tables, 2^bits], or None without lookup.
      bias: The variable [units], or None.

    Raises:
      TypeError: An argument is of another kind, the dtype policy computes in float64, or from_layer is given a layer
        that is no Dense, or of a class with another call.
      ValueError: bits or block is none that there is, or from_layer's layer is not built, or quantized by Keras.

    Example:
      >>> dense = keras.layers.Dense(3, name="logits")
      >>> dense.build((None, 64))
      >>> layer = metal_ops.layers.QuantizedDense.from_layer(dense, bits=8)
      >>> layer.name, layer.quantized.shape, layer(tf.zeros([2, 5, 64])).shape
      ('logits', TensorShape([64, 3]), TensorShape([2, 5, 3]))
    """

    def __init__(self, *args: Any, dynamic: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_dynamic("QuantizedDense", dynamic, self.format.lookup is not None)
        self.dynamic = dynamic

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dynamic": self.dynamic}

    @staticmethod
    def _matrix(layer: Any) -> tf.Tensor:
        return tf.convert_to_tensor(layer.kernel)

    def _built_for(self, layer: Any) -> tuple[int | None, ...]:
        return (None, layer.kernel.shape[0])

    @property
    def kernel(self) -> tf.Tensor:
        return self._unpacked()

    def build(self, input_shape: Any) -> None:
        inputs = input_shape[-1]
        if not inputs:
            raise ValueError(
                f"[QuantizedDense] inputs: expected a last dimension of 1 or more, known in the graph, got {inputs}."
            )
        shape = (inputs, self.units)
        self._add_quantized(*shape, lambda: self.kernel_initializer(shape))
        self._add_bias(self.units)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: inputs})
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        x = tf.cast(inputs, self.compute_dtype)
        outputs = quantized_matmul(x, self.quantized, dynamic=self.dynamic)
        if self.bias is not None:
            outputs = tf.nn.bias_add(outputs, tf.cast(self.bias, outputs.dtype))
        return outputs if self.activation is None else self.activation(outputs)
