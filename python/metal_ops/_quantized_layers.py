"""Layers that can be quantized, and their inputs when the model is called."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers import QuantizedConv2D, QuantizedDense, QuantizedEmbedding
from metal_ops.layers._quantized import Quantized

_KINDS = (QuantizedDense, QuantizedConv2D, QuantizedEmbedding)


def kind_of(layer: Any) -> Any:
    """The class of quantized layer that a layer can become."""
    for kind in _KINDS:
        original = kind._original()
        if isinstance(layer, original) and type(layer).call is original.call and layer.built:
            other = getattr(layer, "quantization_mode", None) or layer.lora_enabled
            return None if other or isinstance(layer, Quantized) else kind
    return None


def named(layer: Any) -> str:
    return f"{type(layer).__name__} {_keras.path(layer)!r}"


def check(op: str, argument: str, model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise TypeError(f"[{op}] {argument}: expected a keras.Model, got {type(model).__name__}.")
    if not model.built:
        raise ValueError(
            f"[{op}] {argument}: expected one that is built, got {model.name}. Call it once."
        )


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    try:
        tf.config.run_functions_eagerly(True)
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def batches(op: str, argument: str, data: Any) -> Iterator[Any]:
    """The inputs of each batch; at least one."""
    if isinstance(data, tf.Tensor | dict) or hasattr(data, "__array_interface__"):
        data = tf.data.Dataset.from_tensor_slices(data).batch(32)
    elif not isinstance(data, tf.data.Dataset) and not hasattr(data, "__iter__"):
        raise TypeError(
            f"[{op}] {argument}: expected a tf.data.Dataset, batches or an array, got {type(data).__name__}."
        )
    empty = True
    for batch in data:
        empty = False
        yield batch[0] if isinstance(batch, tuple) else batch
    if empty:
        raise ValueError(f"[{op}] {argument}: expected one batch or more, got none.")


@contextlib.contextmanager
def listening(layers: list[Any], heard: Callable[[int, tf.Tensor, tf.Tensor], None]) -> Iterator[None]:  # fmt: skip
    """Tells of each call of some layers: which one, its inputs and its outputs, which are never symbolic."""

    def wrapped(i: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def listens(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = call(inputs, *args, **kwargs)
            heard(i, inputs, outputs)
            return outputs

        return listens

    own = [vars(layer).get("call") for layer in layers]
    try:
        for i, layer in enumerate(layers):
            layer.call = wrapped(i, layer.call)
        with eagerly():
            yield
    finally:
        for layer, call in zip(layers, own, strict=True):
            if call is not None:
                layer.call = call
            elif "call" in vars(layer):
                del layer.call
