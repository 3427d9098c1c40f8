"""LSTM: Keras' layer on one op for whole sequences."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._recurrent import Recurrent
from metal_ops.ops.recurrent import lstm

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class LSTM(Recurrent, keras.layers.LSTM):
    """`keras.layers.LSTM` by `metal_ops.lstm`.

    Arguments, weights, states and masks are Keras'; weights of the one load into the other. Masks need not be on the
    right. A layer with another activation than tanh, another recurrent_activation than sigmoid or a recurrent_dropout
    is run by Keras' loop; `unroll` and `use_cudnn` change nothing.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      *args: Keras' arguments: units and so on.
      **kwargs: The others, by name.

    Input: [batch, time, features].
    Output: [batch, units], or [batch, time, units] with return_sequences; with return_state h and c, too. Of the
      layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: Keras refuses an argument.

    Example:
      >>> layer = metal_ops.layers.LSTM(16, return_sequences=True)
      >>> layer(tf.zeros([2, 50, 3])).shape
      TensorShape([2, 50, 16])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._require("LSTM")

    def _fits(self) -> bool:
        return (
            self.activation is keras.activations.tanh
            and self.recurrent_activation is keras.activations.sigmoid
            and not self.recurrent_dropout
        )

    def _sequence(self, x: tf.Tensor, states: list[tf.Tensor], mask: Any) -> Any:
        return lstm(*(x, *self._weights(), states), mask=mask)
