"""Minimal gated units as a Keras layer, on one op for whole sequences."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._recurrent import GatedCell, GatedLayer
from metal_ops.ops.recurrent import minimal_gated_unit

_keras.require_tensorflow_backend()


class MinimalGatedUnitCell(GatedCell):
    """One step, by Keras' ops."""

    def call(self, inputs: Any, states: Any, training: bool = False) -> tuple[Any, list[Any]]:
        (h,) = states
        f, n = self._sums(inputs)
        f = keras.ops.sigmoid(f + keras.ops.matmul(h, self.recurrent_kernel[:, : self.units]))
        n = n + keras.ops.matmul(f * h, self.recurrent_kernel[:, self.units :])
        h = (1 - f) * h + f * keras.ops.tanh(n)
        return h, [h]


@keras.saving.register_keras_serializable(package="metal_ops")
class MinimalGatedUnit(GatedLayer):
    """A layer of minimal gated units (Zhou et al. 2016): `metal_ops.minimal_gated_unit` with weights.

    Weights are the kernel [features, 2 units], the recurrent kernel [units, 2 units] and the bias [2 units], the forget
    gate's before the candidate's. XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does
    without.

    Args:
      units: How many, at least 1.
      use_bias: Whether there is a bias.
      kernel_initializer: Keras' initializer of the kernel.
      recurrent_initializer: Initializer of the recurrent kernel.
      bias_initializer: Initializer of the bias.
      layer_norm: Whether the products with the input and with the state are normed, with weights kernel_gamma and
        recurrent_gamma: see `metal_ops.minimal_gated_unit`.
      layer_norm_epsilon: Added to variances, at least 0.
      **kwargs: Arguments of `keras.layers.RNN`: return_sequences, return_state, go_backwards, stateful,
        zero_output_for_mask; and of a layer: name, dtype.

    Input: [batch, time, features], or a RaggedTensor of such sequences: then so are the states of all steps.
    Output: [batch, units], or [batch, time, units] with return_sequences; with return_state the state, too. In the
      layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: units is no integer above 0.

    Example:
      >>> layer = metal_ops.layers.MinimalGatedUnit(16)
      >>> layer(tf.zeros([2, 50, 3])).shape
      TensorShape([2, 16])
    """

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        layer_norm: bool = False,
        layer_norm_epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        cell = MinimalGatedUnitCell(
            units,
            *(use_bias, kernel_initializer, recurrent_initializer, bias_initializer),
            dtype=kwargs.get("dtype"),
            name="minimal_gated_unit_cell",
        )
        super().__init__(cell, layer_norm, layer_norm_epsilon, **kwargs)

    def _sequence(self, x: tf.Tensor, states: list[tf.Tensor], mask: Any) -> Any:
        return minimal_gated_unit(*(x, *self._weights(), states[0]), mask=mask, **self._norms())
