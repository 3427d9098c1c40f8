"""LSTM: Keras' layer on one op for whole sequences."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._recurrent import Recurrent
from metal_ops.ops.recurrent import lstm

_keras.require_tensorflow_backend()


class ProjectedLSTMCell(keras.layers.LSTMCell):
    """Keras' weights, those of the state's product and of the projection except the state's size."""

    projection: int

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.projection_kernel = super().add_weight(
            shape=(self.units, self.projection),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="projection",
        )

    def add_weight(
        self, shape: Any = None, *args: Any, name: str | None = None, **kwargs: Any
    ) -> Any:
        if name == "recurrent_kernel":
            shape = (self.projection, shape[1])
        return super().add_weight(shape, *args, name=name, **kwargs)


@keras.saving.register_keras_serializable(package="metal_ops")
class LSTM(Recurrent, keras.layers.LSTM):
    """`keras.layers.LSTM` by `metal_ops.lstm`.

    Arguments, weights, states and masks are Keras'; weights of the one load into the other. Masks may be anywhere, not
    only on the right. A layer with another activation than tanh, another recurrent_activation than sigmoid or a
    recurrent_dropout is run by Keras' loop; `unroll` and `use_cudnn` change nothing.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      *args: Keras' arguments: units and so on.
      projection: How many elements the state h has, which is a product of the cells' output; None for that output.
      layer_norm: Whether the products with the input and with the state are normed, and the cells' state where it is
        shown, with weights kernel_gamma, recurrent_gamma, cell_gamma and cell_beta: see `metal_ops.lstm`.
      layer_norm_epsilon: Added to variances, at least 0.
      **kwargs: The others, by name.

    Input: [batch, time, features], or a RaggedTensor of such sequences: then so are the states of all steps.
    Output: [batch, units], or [batch, time, units] with return_sequences; with return_state h and c, too. In the
      layer's compute dtype. With a projection its size is in place of units, except for c.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: Keras refuses an argument, projection is no integer above 0, or it or layer_norm is wanted of a layer
        that Keras' loop would run.

    Example:
      >>> layer = metal_ops.layers.LSTM(16, return_sequences=True)
      >>> layer(tf.zeros([2, 50, 3])).shape
      TensorShape([2, 50, 16])
    """

    def __init__(
        self,
        *args: Any,
        projection: int | None = None,
        layer_norm: bool = False,
        layer_norm_epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        others = () if projection is None else ("projection",)
        self._require("LSTM", layer_norm, layer_norm_epsilon, *others)
        self.projection = projection
        if projection is None:
            return
        if isinstance(projection, bool) or not isinstance(projection, int) or projection < 1:
            raise ValueError(
                f"[LSTM] projection: expected an integer above 0, or None, got {projection!r}."
            )
        cell = ProjectedLSTMCell.from_config(self.cell.get_config())
        cell.projection = cell.output_size = projection
        cell.state_size = [projection, self.units]
        del self.cell
        self.cell = cell
        self.state_size = list(cell.state_size)

    def _fits(self) -> bool:
        return (
            self.activation is keras.activations.tanh
            and self.recurrent_activation is keras.activations.sigmoid
            and not self.recurrent_dropout
        )

    def _build_norms(self) -> None:
        super()._build_norms()
        self._add_gamma("cell_gamma", self.units)
        self._add_gamma("cell_beta", self.units, "zeros")

    def _sequence(self, x: tf.Tensor, states: list[tf.Tensor], mask: Any) -> Any:
        projection = None
        if self.projection is not None:
            projection = keras.ops.cast(self.cell.projection_kernel, self.cell.compute_dtype)
        inputs = (x, *self._weights(), states)
        return lstm(*inputs, mask=mask, projection=projection, **self._norms())

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return config if self.projection is None else {**config, "projection": self.projection}
