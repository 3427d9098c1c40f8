"""Shared by Keras' layers whose weights are codes."""

from __future__ import annotations

from typing import Any, Self

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.ops._formats import Format
from metal_ops.ops.lookup_weights import LookupWeights
from metal_ops.ops.quantized_matmul import QuantizedWeights, dequantize, quantize

_keras.require_tensorflow_backend()

# Keras' arguments about weights that are trained.
TRAINED = (
    *("kernel_regularizer", "kernel_constraint", "embeddings_regularizer"),
    *("embeddings_constraint", "weights", "lora_rank", "lora_alpha", "quantization_config"),
)


class Quantized(keras.layers.Layer):
    """Goes before the class of Keras' layer, whose arguments, bias and shapes stay."""

    def __init__(
        self,
        *args: Any,
        bits: int = 4,
        block: int | None = 32,
        symmetric: bool = False,
        per_tensor: bool = False,
        scales: Any = None,
        lookup: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        op = type(self).__name__
        self.format = Format.checked(op, bits, block, symmetric, per_tensor, scales, lookup)
        for argument in TRAINED:
            given = kwargs if argument == "weights" else vars(self)
            if given.get(argument) is not None:
                raise ValueError(
                    f"[{op}] {argument}: expected None, as quantized weights are not trained. "
                    f"{op}.from_layer takes the weights of a float layer."
                )
        _keras.require_float_policy(op, self)
        self.supports_jit = False
        self._given: QuantizedWeights | LookupWeights | None = None

    @classmethod
    def from_layer(
        cls,
        layer: keras.layers.Layer,
        bits: int = 4,
        block: int | None = 32,
        symmetric: bool = False,
        per_tensor: bool = False,
        scales: Any = None,
        lookup: int | None = None,
        **kwargs: Any,
    ) -> Self:
        """See the classes."""
        op, original = f"{cls.__name__}.from_layer", cls._original()
        # A subclass that computes otherwise would be mistaken for the class itself.
        if (
            not isinstance(layer, original)
            or isinstance(layer, Quantized)
            or type(layer).call is not original.call
        ):
            raise TypeError(
                f"[{op}] layer: expected a keras.layers.{original.__name__} with Keras' own call, got "
                f"{type(layer).__name__}."
            )
        if not layer.built:
            raise ValueError(
                f"[{op}] layer: expected one that has weights, got {layer.name}, which is not built. Call it once."
            )
        if getattr(layer, "quantization_mode", None):
            raise ValueError(
                f"[{op}] layer: expected float weights, got {layer.name}, which Keras has quantized to "
                f"{layer.quantization_mode}."
            )
        form = Format.checked(op, bits, block, symmetric, per_tensor, scales, lookup)
        with tf.init_scope():
            weights = quantize(cls._matrix(layer), **form._asdict())
        return cls._with(layer, form, weights, **kwargs)

    @classmethod
    def _with(
        cls, layer: Any, form: Format, weights: QuantizedWeights | LookupWeights, **kwargs: Any
    ) -> Self:
        """Keras' layer with those weights."""
        same = {key: value for key, value in layer.get_config().items() if key not in TRAINED}
        new = cls.from_config({**same, **form._asdict(), **kwargs})
        new._given = weights
        new.build(new._built_for(layer))
        if getattr(new, "bias", None) is not None:
            new.bias.assign(layer.bias)
        return new

    @classmethod
    def _original(cls) -> type[keras.layers.Layer]:
        """Keras' class."""
        return next(base for base in cls.__mro__ if base.__module__.startswith("keras."))

    @staticmethod
    def _matrix(layer: Any) -> tf.Tensor:
        """Weights of Keras' layer as [inputs, outputs]."""
        raise NotImplementedError

    def _built_for(self, layer: Any) -> tuple[int | None, ...]:
        """The shape of inputs that Keras' layer is built for."""
        raise NotImplementedError

    @property
    def quantized(self) -> QuantizedWeights | LookupWeights:
        """The weights [inputs, outputs] as they are."""
        if self.format.lookup is not None:
            return LookupWeights(
                self.codes.value,
                self.tables.value,
                inputs=self._n_inputs,
                bits=self.format.bits,
                group=self.format.lookup,
            )
        minima = tf.zeros([0], self.format.scales) if self.minima is None else self.minima.value
        return QuantizedWeights(
            self.codes.value,
            self.scales.value,
            minima,
            inputs=self._n_inputs,
            bits=self.format.bits,
            block=self.format.block or 0,
        )

    def _unpacked(self) -> tf.Tensor:
        """[inputs, outputs] of the compute dtype. Functions ask for gradients of all floats that they take."""
        return tf.stop_gradient(dequantize(self.quantized, self.compute_dtype))

    def _add_quantized(self, inputs: int, outputs: int, initial: Any) -> None:
        """Adds the variables; `initial` makes the floats [inputs, outputs] of a layer that is not given its weights."""
        self._n_inputs, form = inputs, self.format

        def part(name: str) -> tf.Tensor:
            with tf.init_scope():
                if self._given is None:
                    self._given = quantize(initial(), **form._asdict())
                return getattr(self._given, name)

        def variable(name: str, shape: tuple[int, ...], dtype: str) -> Any:
            return self.add_weight(
                name=name,
                shape=shape,
                dtype=dtype,
                initializer=lambda *_, **__: part(name),
                trainable=False,
                autocast=False,
            )

        self.scales: Any = None
        self.minima: Any = None
        self.tables: Any = None
        self.codes = variable("codes", (outputs, -(-inputs * form.bits // 8)), "uint8")
        if form.lookup is not None:
            n_tables = -(-outputs // form.lookup) if form.lookup else min(outputs, 1)
            self.tables = variable("tables", (n_tables, 2**form.bits), form.scales)
        else:
            blocks = (
                1 if form.per_tensor else outputs,
                -(-inputs // form.block) if form.block else 1,
            )
            self.scales = variable("scales", blocks, form.scales)
            self.minima = None if form.symmetric else variable("minima", blocks, form.scales)
        self._given = None

    def _add_bias(self, size: int) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(size,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        config = {key: value for key, value in super().get_config().items() if key not in TRAINED}
        return {**config, **self.format._asdict()}

    # Keras' layers save their kernels in ways of their own, which there is none of here.

    def save_own_variables(self, store: Any) -> None:
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store: Any) -> None:
        keras.layers.Layer.load_own_variables(self, store)

    def enable_lora(self, *_: Any, **__: Any) -> None:
        raise ValueError(
            f"[{type(self).__name__}] enable_lora: Keras adds to float weights, and these are codes."
        )

    def quantize(self, *_: Any, **__: Any) -> None:
        raise ValueError(
            f"[{type(self).__name__}] quantize: it is quantized to {self.format.bits} bits."
        )
