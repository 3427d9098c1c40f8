"""SwiGLU: the feed-forward block of Llama's transformers as a Keras layer."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops import _arguments
from metal_ops.ops.swiglu import swiglu

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class SwiGLU(keras.layers.Layer):
    """The feed-forward block silu(x W) (x V) W2, whose gate and product are one op: see `metal_ops.swiglu`.

    Shazeer 2020, "GLU variants improve transformer", [arXiv:2002.05202](https://arxiv.org/abs/2002.05202), equation 6.
    The three matrices are `keras.layers.Dense` layers, `gate`, `up` and `down`: adapters and quantized weights find
    them by these names.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      hidden_units: Columns between the products.
      units: Outputs; None for as many as inputs.
      use_bias: Whether the Dense layers have biases; Llama has none.
      kernel_initializer: Initializer of the matrices.
      bias_initializer: Initializer of the biases.
      **kwargs: Keras' arguments (name, dtype, trainable).

    Input: [..., features]; any number of leading dimensions from 1 on.
    Output: [..., units] of the layer's compute dtype.

    Raises:
      TypeError: An argument is of another kind, or the dtype policy computes in float64.
      ValueError: A size is below 1.

    Example:
      >>> layer = metal_ops.layers.SwiGLU(64)
      >>> layer(tf.zeros([2, 5, 24])).shape
      TensorShape([2, 5, 24])
    """

    def __init__(
        self,
        hidden_units: int,
        units: int | None = None,
        use_bias: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        op = "SwiGLU"
        self.hidden_units = _size(op, "hidden_units", hidden_units)
        self.units = None if units is None else _size(op, "units", units)
        self.use_bias = _arguments.flag(op, "use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        _keras.require_float_policy(op, self)
        self.supports_jit = False
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    def build(self, input_shape: Any) -> None:
        features = input_shape[-1]
        if features is None:
            raise ValueError(
                f"[SwiGLU] inputs: expected a last dimension known in the graph, got {tuple(input_shape)}."
            )
        self.gate, self.up, self.down = (
            keras.layers.Dense(
                units,
                use_bias=self.use_bias,
                # A copy for each: one initializer gives the same numbers each time.
                kernel_initializer=self._copy(self.kernel_initializer),
                bias_initializer=self._copy(self.bias_initializer),
                dtype=self.dtype_policy,
                name=name,
            )
            for name, units in (
                ("gate", self.hidden_units),
                ("up", self.hidden_units),
                ("down", self.units or features),
            )
        )
        self.gate.build(input_shape)
        self.up.build(input_shape)
        self.down.build((*input_shape[:-1], self.hidden_units))
        self.built = True

    @staticmethod
    def _copy(initializer: Any) -> Any:
        if not isinstance(initializer, keras.initializers.Initializer):
            return initializer
        return type(initializer).from_config(initializer.get_config())

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.down(swiglu(self.gate(inputs), self.up(inputs)))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units or input_shape[-1])

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_units": self.hidden_units,
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


def _size(op: str, argument: str, value: Any) -> int:
    number = _arguments.integer(op, argument, value)
    if number < 1:
        raise ValueError(f"[{op}] {argument}: expected 1 or more, got {number}.")
    return number
