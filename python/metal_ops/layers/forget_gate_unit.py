"""Cells with a forget gate alone as a Keras layer, on one op for whole sequences."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._recurrent import GatedCell, GatedLayer
from metal_ops.ops.recurrent import forget_gate_unit

_keras.require_tensorflow_backend()


class ForgetGateUnitCell(GatedCell):
    """One step, by Keras' ops."""

    beta: float

    def call(self, inputs: Any, states: Any, training: bool = False) -> tuple[Any, list[Any]]:
        (h,) = states
        s, n = self._sums(inputs)
        products = keras.ops.matmul(h, self.recurrent_kernel)
        s, n = s + products[:, : self.units], n + products[:, self.units :]
        let_in = keras.ops.sigmoid(self.beta - s)
        h = keras.ops.sigmoid(s) * h + let_in * keras.ops.tanh(n)
        return h, [h]

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "beta": self.beta}


class Chrono(keras.initializers.Initializer):
    """A forget gate's bias for sequences of so many steps: log(u), u uniform in [1, steps - 1]; else 0."""

    def __init__(self, steps: int, seed: int | None = None) -> None:
        self.steps, self.seed = steps, seed

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        half = keras.random.uniform((shape[0] // 2,), 1.0, self.steps - 1.0, seed=self.seed)
        return keras.ops.cast(
            keras.ops.concatenate([keras.ops.log(half), keras.ops.zeros_like(half)]), dtype
        )


@keras.saving.register_keras_serializable(package="metal_ops")
class ForgetGateUnit(GatedLayer):
    """A layer of cells with a forget gate alone, "JANET": `metal_ops.forget_gate_unit` with weights.

    Van der Westhuizen and Lasenby 2018, [arXiv:1804.04849](https://arxiv.org/abs/1804.04849). Weights are the kernel
    [features, 2 units], the recurrent kernel [units, 2 units] and the bias [2 units], the forget gate's before the
    candidate's. XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      units: How many, at least 1.
      use_bias: Whether there is a bias.
      kernel_initializer: Keras' initializer of the kernel.
      recurrent_initializer: Initializer of the recurrent kernel.
      bias_initializer: Initializer of the bias; not read where longest is given.
      beta: How much more is let in than is forgotten.
      longest: The longest dependency in steps, more than 2, from which the forget gate's bias is drawn as the paper
        does ("chrono": Tallec and Ollivier 2018, [arXiv:1804.11188](https://arxiv.org/abs/1804.11188)). None: as
        bias_initializer says.
      layer_norm: Whether the products with the input and with the state are normed, with weights kernel_gamma and
        recurrent_gamma: see `metal_ops.forget_gate_unit`.
      layer_norm_epsilon: Added to variances, at least 0.
      **kwargs: Arguments of `keras.layers.RNN`: return_sequences, return_state, go_backwards, stateful,
        zero_output_for_mask; and of a layer: name, dtype.

    Input: [batch, time, features], or a RaggedTensor of such sequences: then so are the states of all steps.
    Output: [batch, units], or [batch, time, units] with return_sequences; with return_state the state, too. In the
      layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: units is no integer above 0, beta no finite number, or longest too small.

    Example:
      >>> layer = metal_ops.layers.ForgetGateUnit(16, longest=50)
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
        beta: float = 1.0,
        longest: int | None = None,
        layer_norm: bool = False,
        layer_norm_epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        if longest is not None and longest <= 2:
            raise ValueError(
                f"[ForgetGateUnit] longest: expected more than 2 steps, got {longest}."
            )
        if not math.isfinite(beta):
            raise ValueError(f"[ForgetGateUnit] beta: expected a finite number, got {beta}.")
        self.longest = longest
        cell = ForgetGateUnitCell(
            units,
            *(use_bias, kernel_initializer, recurrent_initializer, bias_initializer),
            dtype=kwargs.get("dtype"),
            name="forget_gate_unit_cell",
        )
        cell.beta = float(beta)
        super().__init__(cell, layer_norm, layer_norm_epsilon, **kwargs)

    def build(self, sequences_shape: Any, *args: Any, **kwargs: Any) -> None:
        super().build(sequences_shape, *args, **kwargs)
        if self.longest is not None and self.cell.bias is not None:
            self.cell.bias.assign(Chrono(self.longest)(self.cell.bias.shape, self.cell.bias.dtype))

    def _sequence(self, x: tf.Tensor, states: list[tf.Tensor], mask: Any) -> Any:
        inputs = (x, *self._weights(), states[0])
        return forget_gate_unit(*inputs, beta=self.cell.beta, mask=mask, **self._norms())

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "longest": self.longest}
