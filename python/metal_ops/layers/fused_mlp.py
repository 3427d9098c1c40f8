"""FusedMLP: a stack of small dense layers as one Keras layer."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops._tcnn import network_arguments
from metal_ops.ops import _arguments
from metal_ops.ops.fused_mlp import (
    MOST_COLUMNS,
    MOST_HIDDEN,
    activation_name,
    fused_mlp,
)

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class FusedMLP(keras.layers.Layer):
    """Dense layers of one width and an output layer, computed in one pass: see `metal_ops.fused_mlp`.

    It has the variables of the `keras.layers.Dense` layers that it stands for, in their order: kernel and bias of the
    first, then of the second, and so on. `get_weights` of one fits `set_weights` of the other.

    Under a mixed policy the variables stay float32 and are cast to the compute dtype at every call; sums are float32.
    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      units: Outputs, 1 to 128.
      n_neurons: Width of the hidden layers, 1 to 128. Others than 16, 32, 64 and 128 take the time of the next one.
      n_hidden_layers: 1 to 8.
      activation: Activation of the hidden layers, one of tiny-cuda-nn's: "relu", "leaky_relu", "exponential", "sine",
        "sigmoid", "squareplus", "softplus", "tanh" or "none" ("linear", None). With "sine" stock ops compute
        the layers one by one.
      output_activation: Activation of the last layer, one of the same.
      use_bias: Whether there are biases; instant-ngp has none.
      squareplus_b: b of squareplus, (x + sqrt(x^2 + b)) / 2.
      softplus_beta: b of softplus, log(1 + exp(b x)) / b.
      negative_slope: The slope of leaky_relu below 0; Keras' own function has 0.2.
      kernel_initializer: Initializer of the matrices.
      bias_initializer: Initializer of the biases.
      seed: An integer for reproducible matrices; None to follow `keras.utils.set_random_seed`.
      **kwargs: Keras' arguments (name, dtype, trainable).

    Input: [..., inputs], 1 to 128 of them; any number of leading dimensions.
    Output: [..., units] of the layer's compute dtype.

    Attributes:
      kernels: The variables [inputs, n_neurons], [n_neurons, n_neurons] and so on, [n_neurons, units].
      biases: A variable a layer, or none.

    Raises:
      TypeError: An argument is of another kind, or the dtype policy computes in float64.
      ValueError: A size or activation is none of these.

    Example:
      >>> layer = metal_ops.layers.FusedMLP(3, n_neurons=32, output_activation="sigmoid", seed=1)
      >>> layer(tf.zeros([2, 5, 16])).shape
      TensorShape([2, 5, 3])
    """

    def __init__(
        self,
        units: int,
        n_neurons: int = 64,
        n_hidden_layers: int = 2,
        activation: str | None = "relu",
        output_activation: str | None = None,
        use_bias: bool = True,
        squareplus_b: float = 4.0,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        seed: int | None = None,
        softplus_beta: float = 1.0,
        negative_slope: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        op = "FusedMLP"
        self.units = _number(op, "units", units, range(1, MOST_COLUMNS + 1))
        self.n_neurons = _number(op, "n_neurons", n_neurons, range(1, MOST_COLUMNS + 1))
        self.n_hidden_layers = _number(
            op, "n_hidden_layers", n_hidden_layers, range(1, MOST_HIDDEN + 1)
        )
        self.activation = activation_name(op, "activation", activation)
        self.output_activation = activation_name(op, "output_activation", output_activation)
        self.use_bias = _arguments.flag(op, "use_bias", use_bias)
        self.squareplus_b = _arguments.number(op, "squareplus_b", squareplus_b)
        self.softplus_beta = _arguments.number(op, "softplus_beta", softplus_beta)
        self.negative_slope = _arguments.number(op, "negative_slope", negative_slope)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = None if seed is None else _arguments.integer(op, "seed", seed)
        _keras.require_float_policy(op, self)
        self.supports_jit = False
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=1)

    @classmethod
    def from_tcnn(cls, config: dict[str, Any] | str, units: int, **kwargs: Any) -> FusedMLP:
        """The layer that a JSON configuration of tiny-cuda-nn describes: `FullyFusedMLP` or `CutlassMLP`.

        Args:
          config: The configuration of a network, or a whole one that has it under "network".
          units: Outputs, tiny-cuda-nn's `n_output_dims`.
          **kwargs: `seed`, initializers, `use_bias` (False unless given: networks there have no biases), and Keras'
            arguments (name, dtype, trainable). tiny-cuda-nn computes in float16; so does this with
            dtype="mixed_float16".

        Raises:
          TypeError: The configuration is not a dict or the JSON text of one.
          ValueError: It asks for a feature that the layer does not have, or has a field that is not known.

        Example:
          >>> config = {"otype": "FullyFusedMLP", "activation": "Softplus", "n_neurons": 64, "n_hidden_layers": 2}
          >>> metal_ops.layers.FusedMLP.from_tcnn(config, units=3)(tf.zeros([5, 32])).shape
          TensorShape([5, 3])
        """
        return cls(units, **{"use_bias": False, **network_arguments(config), **kwargs})

    def build(self, input_shape: Any) -> None:
        inputs = input_shape[-1]
        if inputs is None or not 1 <= inputs <= MOST_COLUMNS:
            raise ValueError(
                f"[FusedMLP] inputs: expected a last dimension of 1 to {MOST_COLUMNS}, known in the graph, got "
                f"{inputs}."
            )
        sizes = [inputs, *[self.n_neurons] * self.n_hidden_layers, self.units]
        self.kernels, self.biases = [], []
        for layer, (rows, columns) in enumerate(zip(sizes, sizes[1:], strict=False)):
            self.kernels.append(
                self.add_weight(
                    name=f"kernel_{layer}",
                    shape=(rows, columns),
                    initializer=self._initializer(layer),
                )
            )
            if self.use_bias:
                self.biases.append(
                    self.add_weight(
                        name=f"bias_{layer}", shape=(columns,), initializer=self.bias_initializer
                    )
                )
        self.input_spec = keras.layers.InputSpec(min_ndim=1, axes={-1: inputs})
        self.built = True

    def _initializer(self, layer: int) -> Any:
        """The matrices of one seed differ from layer to layer."""
        config = self.kernel_initializer.get_config()
        if self.seed is None or "seed" not in config:
            return self.kernel_initializer
        return type(self.kernel_initializer).from_config({**config, "seed": self.seed + layer})

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        kernels, biases = (
            [tf.cast(variable.value, self.compute_dtype) for variable in variables]
            for variables in (self.kernels, self.biases)
        )
        return fused_mlp(
            tf.cast(inputs, self.compute_dtype),
            kernels,
            biases if self.use_bias else None,
            activation=self.activation,
            output_activation=self.output_activation,
            squareplus_b=self.squareplus_b,
            softplus_beta=self.softplus_beta,
            negative_slope=self.negative_slope,
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "n_neurons": self.n_neurons,
            "n_hidden_layers": self.n_hidden_layers,
            "activation": self.activation,
            "output_activation": self.output_activation,
            "use_bias": self.use_bias,
            "squareplus_b": self.squareplus_b,
            "softplus_beta": self.softplus_beta,
            "negative_slope": self.negative_slope,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "seed": self.seed,
        }


def _number(op: str, argument: str, value: Any, allowed: range) -> int:
    number = _arguments.integer(op, argument, value)
    if number not in allowed:
        raise ValueError(
            f"[{op}] {argument}: expected {allowed[0]} to {allowed[-1]}, got {number}."
        )
    return number
