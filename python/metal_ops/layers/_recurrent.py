"""Shared by the recurrent layers: Keras' RNN, whose loop over the steps is one op."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops._packed import Packed


class Recurrent(keras.layers.Layer):
    """Stands before a class of Keras' and takes the place of its loop."""

    cell: Any
    go_backwards: bool
    zero_output_for_mask: bool
    layer_norm: bool
    layer_norm_epsilon: float

    def _require(self, op: str, layer_norm: bool, layer_norm_epsilon: float, *others: str) -> None:
        _keras.require_float_policy(op, self)
        if self._fits():
            self.supports_jit = False
        elif layer_norm or others:
            raise ValueError(
                f"[{op}] {' and '.join(['layer_norm'] * bool(layer_norm) + list(others))}: expected the activations "
                "tanh and sigmoid, and no recurrent_dropout, as there is no Keras loop with it, got others."
            )
        self.layer_norm = bool(layer_norm)
        self.layer_norm_epsilon = float(layer_norm_epsilon)
        if not 0 <= self.layer_norm_epsilon < float("inf"):
            raise ValueError(
                f"[{op}] layer_norm_epsilon: expected 0 or more, got {layer_norm_epsilon}."
            )

    def build(self, sequences_shape: Any, *args: Any, **kwargs: Any) -> None:
        super().build(sequences_shape, *args, **kwargs)
        self._gammas: dict[str, Any] = {}
        if self.layer_norm:
            self._build_norms()

    def _build_norms(self) -> None:
        for name in ("kernel_gamma", "recurrent_gamma"):
            self._add_gamma(name, self.cell.kernel.shape[1])

    def _add_gamma(self, name: str, size: int, initializer: str = "ones") -> None:
        self._gammas[name] = self.add_weight(shape=(size,), initializer=initializer, name=name)

    def _norms(self) -> dict[str, Any]:
        """The op's arguments for its norms."""
        gammas = {k: keras.ops.cast(w, self.cell.compute_dtype) for k, w in self._gammas.items()}
        return {**gammas, "epsilon": self.layer_norm_epsilon}

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.layer_norm:  # else that of Keras' layer
            config["layer_norm"] = True
            config["layer_norm_epsilon"] = self.layer_norm_epsilon
        return config

    def _fits(self) -> bool:
        """Whether the op computes the function that the arguments ask for."""
        return True

    def _sequence(self, x: tf.Tensor, states: list[tf.Tensor], mask: Any) -> Any:
        """States after all steps, and after the last one."""
        raise NotImplementedError

    def _weights(self) -> list[Any]:
        cell = self.cell
        given = (cell.kernel, cell.recurrent_kernel, cell.bias)
        return [None if w is None else keras.ops.cast(w, cell.compute_dtype) for w in given]

    # Keras' own call indexes into steps, which a RaggedTensor refuses.
    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        given = {"initial_state": initial_state, "training": training}
        if not isinstance(sequences, tf.RaggedTensor):
            return super().call(sequences, mask=mask, **given)
        name = type(self).__name__
        if self.go_backwards and self.return_sequences:
            raise ValueError(
                f"[{name}] go_backwards: expected False where a RaggedTensor's states are all returned, got True. Give "
                "padded steps and a mask: x.to_tensor(), tf.sequence_mask(x.row_lengths())."
            )
        packed = Packed(name, sequences, mask, None)
        padded = packed.padded(sequences.flat_values)
        found = super().call(padded, mask=packed.mask, **given)
        if not self.return_sequences:
            return found
        if not self.return_state:
            return packed.packed(found)
        return packed.packed(found[0]), *found[1:]

    def inner_loop(
        self, sequences: Any, initial_state: Any, mask: Any, training: bool = False
    ) -> tuple[Any, Any, list[Any]]:
        if not self._fits():
            return super().inner_loop(sequences, initial_state, mask, training)
        states = list(initial_state) if isinstance(initial_state, list | tuple) else [initial_state]
        if isinstance(mask, list | tuple):
            mask = mask[0]
        if training and getattr(self.cell, "dropout", None):
            # One mask for all steps, as Keras has it.
            kept = self.cell.get_dropout_mask(sequences[:, 0, :])
            sequences = sequences * tf.expand_dims(kept, 1)
        if mask is not None:
            mask = tf.cast(mask, tf.bool)
        if self.go_backwards:
            sequences = tf.reverse(sequences, [1])
            mask = None if mask is None else tf.reverse(mask, [1])
        outputs, *states = self._sequence(sequences, states, mask)
        if mask is None:
            return states[0], outputs, states
        # The op's outputs are the states. Keras' are 0 before the first step that there is.
        shown = mask if self.zero_output_for_mask else tf.cumsum(tf.cast(mask, tf.int32), 1) > 0
        outputs = tf.where(shown[..., tf.newaxis], outputs, tf.zeros([], outputs.dtype))
        return outputs[:, -1], outputs, states


class GatedCell(keras.layers.Layer):
    """A cell of two gates, f and n, by Keras' own ops: a step. `keras.layers.RNN` runs it, too."""

    def __init__(
        self,
        units: int,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(units, bool) or not isinstance(units, int) or units < 1:
            raise ValueError(
                f"[{type(self).__name__}] units: expected an integer above 0, got {units!r}."
            )
        self.units = self.state_size = self.output_size = units
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: Any) -> None:
        width = 2 * self.units
        self.kernel = self.add_weight(
            shape=(input_shape[-1], width), initializer=self.kernel_initializer, name="kernel"
        )
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, width),
            initializer=self.recurrent_initializer,
            name="recurrent_kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(width,), initializer=self.bias_initializer, name="bias"
            )
        self.built = True

    def _sums(self, inputs: Any) -> tuple[Any, Any]:
        sums = keras.ops.matmul(inputs, self.kernel)
        if self.bias is not None:
            sums = sums + self.bias
        return sums[:, : self.units], sums[:, self.units :]

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        return [keras.ops.zeros((batch_size, self.state_size), dtype=self.compute_dtype)]

    def arguments(self) -> dict[str, Any]:
        """The layer's configuration, beside that of Keras' RNN."""
        return {
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


class GatedLayer(Recurrent, keras.layers.RNN):
    """A layer of such cells."""

    def __init__(
        self, cell: GatedCell, layer_norm: bool, layer_norm_epsilon: float, **kwargs: Any
    ) -> None:
        super().__init__(cell, **kwargs)
        self._require(type(self).__name__, layer_norm, layer_norm_epsilon)
        self.input_spec = keras.layers.InputSpec(ndim=3)

    @property
    def units(self) -> int:
        return self.cell.units

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["cell"]
        return {**config, **self.cell.arguments()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**config)
