"""Keras takes a GPU for NVIDIA's. Where the device is METAL it is not to ask for XLA by itself, and METAL does the work
that Keras asks cuDNN for, whole sequences of LSTM and GRU layers in one op, with any mask and in the dtypes that it
has.

On Macs Keras leaves XLA out by its own decision. tf_keras asks TensorFlow whether a device is a plugin.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable
from typing import Any

import wrapt  # TensorFlow needs it, too; calls back when a module is imported, be it before or after the device

_RNN = "keras.src.backend.tensorflow.rnn"
# Whether the layer that is called has zeros for masked steps, and not the values before.
_zeros_for_masked: contextvars.ContextVar[bool] = contextvars.ContextVar("zeros", default=False)
# The last arguments of ops that run sequences. A release of Keras that has others is left without it.
_LAST = ("mask", "time_major", "go_backwards", "return_sequences")


def teach_keras() -> None:
    """From now on, also where Keras is imported later."""
    wrapt.register_post_import_hook(_no_xla, "keras.src.trainers.trainer")
    wrapt.register_post_import_hook(_sequences, _RNN)
    for name in ("lstm", "gru"):
        wrapt.register_post_import_hook(_layer, f"keras.src.layers.rnn.{name}")


def _no(*args: Any, **kwargs: Any) -> bool:
    return False


def _no_xla(module: Any) -> None:
    """By compile(jit_compile="auto"), or True, which warns."""
    if hasattr(module, "model_supports_jit"):
        module.model_supports_jit = _no


def _sequences(module: Any) -> None:
    names = ("_cudnn_lstm", "_cudnn_gru")
    given = [inspect.signature(getattr(module, name, _no)).parameters for name in names]
    if any(tuple(parameters)[-len(_LAST) :] != _LAST for parameters in given):
        if hasattr(module, "cudnn_ok"):
            module.cudnn_ok = _no
        return
    for name in names:
        setattr(module, name, _on_metal(getattr(module, name)))
    # Here no mask is refused.
    module._assert_valid_mask = lambda mask: None


def _layer(module: Any) -> None:
    layer = next((found for name in ("LSTM", "GRU") if (found := vars(module).get(name))), None)
    run = getattr(layer, "inner_loop", None)
    if layer is None or run is None:
        return

    @functools.wraps(run)
    def inner_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _zeros_for_masked.set(bool(getattr(self, "zero_output_for_mask", False)))
        try:
            return run(self, *args, **kwargs)
        finally:
            _zeros_for_masked.reset(token)

    layer.inner_loop = inner_loop


def _on_metal(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, which takes sequences that are padded at their ends, for any mask; with the results of Keras' own loop."""

    @functools.wraps(run)
    def fused(inputs: Any, *states_and_weights: Any) -> Any:
        import tensorflow as tf

        *given, mask, time_major, go_backwards, return_sequences = states_and_weights
        # In Keras' words: do it otherwise.
        if inputs.dtype not in (tf.float32, tf.float16, tf.bfloat16) or _is_for_cpu():
            raise NotImplementedError
        if mask is None or time_major:
            return run(inputs, *states_and_weights)
        mask = _mask_of(run.__name__.rpartition("_")[2].upper(), mask, inputs)
        if go_backwards:
            inputs, mask = tf.reverse(inputs, [1]), tf.reverse(mask, [1])
        # Steps that are not masked move to the front. Floats, as whole numbers of 32 bits are the host's.
        masked = tf.where(mask, 0.0, 1.0)
        inputs = tf.gather(inputs, tf.argsort(masked, axis=1, stable=True), batch_dims=1)
        seen = tf.cumsum(1.0 - masked, axis=1)
        front = tf.sort(masked, axis=1) == 0
        last, outputs, states = run(inputs, *given, front, False, False, return_sequences)
        last = tf.where(seen[:, -1:] > 0, last, tf.zeros_like(last))
        if not return_sequences:
            return last, last[:, None], states
        outputs = tf.gather(outputs, tf.cast(tf.maximum(seen - 1, 0), tf.int32), batch_dims=1)
        there = mask if _zeros_for_masked.get() else seen > 0
        return last, tf.where(there[..., None], outputs, tf.zeros_like(outputs)), states

    return fused


def _mask_of(layer: str, mask: Any, inputs: Any) -> Any:
    """As bools [batch, steps]; of any other shape an error, which Keras' loop has in words of its operations."""
    import tensorflow as tf

    mask = tf.cast(mask, tf.bool)
    words = f"{layer}: mask must have the shape [batch, steps] of the sequences"
    if not mask.shape.is_compatible_with(inputs.shape[:2]):
        raise ValueError(f"{words}, {inputs.shape[:2]}, got {mask.shape}")
    if mask.shape.is_fully_defined() and inputs.shape[:2].is_fully_defined():
        return mask
    same = tf.debugging.assert_equal(tf.shape(mask), tf.shape(inputs)[:2], f"{words}")
    with tf.control_dependencies([] if same is None else [same]):
        return tf.identity(mask)


def _is_for_cpu() -> bool:
    """Whether ops are to be placed on the CPU here, which has no such op; a function goes where it is called."""
    import tensorflow as tf

    def device() -> str:
        return str(tf.raw_ops.Empty(shape=[0], dtype=tf.float32).device)

    here = device()
    if not here:
        with tf.init_scope():
            here = device()
    return "CPU" in here
