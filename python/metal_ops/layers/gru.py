"""GRU: Keras' layer on one op for whole sequences."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._recurrent import Recurrent
from metal_ops.ops.recurrent import gru

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class GRU(Recurrent, keras.layers.GRU):
    """`keras.layers.GRU` by `metal_ops.gru`.

    Arguments, weights, states and masks are Keras', `reset_after` both ways; weights of the one load into the other.
    Masks may be anywhere, not only on the right. A layer with another activation than tanh, another
    recurrent_activation than sigmoid or a recurrent_dropout is run by Keras' loop; `unroll` and `use_cudnn` change
    nothing.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      *args: Keras' arguments: units and so on.
      layer_norm: Whether the products with the input and with the state are normed, with weights kernel_gamma and
        recurrent_gamma: see `metal_ops.gru`.
      layer_norm_epsilon: Added to variances, at least 0.
      **kwargs: The others, by name.

    Input: [batch, time, features], or a RaggedTensor of such sequences: then so are the states of all steps.
    Output: [batch, units], or [batch, time, units] with return_sequences; with return_state the state, too. In the
      layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: Keras refuses an argument, or layer_norm is wanted of a layer that its loop would run.

    Example:
      >>> layer = metal_ops.layers.GRU(16)
      >>> layer(tf.zeros([2, 50, 3])).shape
      TensorShape([2, 16])
    """

    def __init__(
        self,
        *args: Any,
        layer_norm: bool = False,
        layer_norm_epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._require("GRU", layer_norm, layer_norm_epsilon)

    def _fits(self) -> bool:
        return (
            self.activation is keras.activations.tanh
            and self.recurrent_activation is keras.activations.sigmoid
            and not self.recurrent_dropout
        )

    def _sequence(self, x: tf.Tensor, states: list[tf.Tensor], mask: Any) -> Any:
        kernel, recurrent_kernel, bias = self._weights()
        recurrent_bias = None
        if bias is not None and self.reset_after:
            bias, recurrent_bias = tf.unstack(bias)
        return gru(
            *(x, kernel, recurrent_kernel, bias, states[0]),
            recurrent_bias=recurrent_bias,
            reset_after=self.reset_after,
            mask=mask,
            **self._norms(),
        )
