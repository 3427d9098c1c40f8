"""Frequency encoding (Mildenhall et al. 2020, "NeRF", equation 4), and its gradient."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _declared

__all__ = ["frequency_encode"]
__theme__ = "Encodings"


def frequency_encode(
    x: Any,
    n_frequencies: int = 10,
    *,
    include_input: bool = True,
    times_pi: bool = True,
    dtype: Any = tf.float32,
    name: str | None = None,
) -> tf.Tensor:
    """Sines and cosines of octaves: `(x, sin w_0 x, cos w_0 x, sin w_1 x, cos w_1 x, ...)`, each block [..., D].

    Mildenhall et al. 2020, equation 4, with `w_k = 2^k pi`; `times_pi=False` gives the `2^k` of that paper's code.
    Phases are reduced exactly, so high octaves are as precise as low ones. Differentiable any number of times.

    Args:
      x: [..., D] float32.
      n_frequencies: Number of octaves, 0 to 32.
      include_input: Whether x itself comes first.
      times_pi: Whether the lowest frequency is pi or 1.
      dtype: float32, float16 or bfloat16; computed in float32 in any case.
      name: Optional name of the op.

    Returns:
      [..., D (2 n_frequencies + include_input)] of the dtype. NaN and infinity give NaN.

    Raises:
      TypeError: x is not float32.
      ValueError: x is a scalar.
      tf.errors.InvalidArgumentError: n_frequencies is out of range.
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> metal_ops.frequency_encode([[0.125]], n_frequencies=2).numpy().round(4).tolist()
      [[0.125, 0.3827, 0.9239, 0.7071, 0.7071]]
    """
    op = "frequency_encode"
    with tf.name_scope(name or op):
        x = _arguments.as_floats(op, "x", x, [tf.float32])
        flat, restore = _arguments.flatten_points(op, "x", x)
        encoded = _declared.call(
            op,
            {"x": flat},
            None,
            T=_arguments.float_dtype(op, dtype),
            n_frequencies=n_frequencies,
            include_input=include_input,
            times_pi=times_pi,
        )
        return restore(encoded)


@tf.RegisterGradient("FrequencyEncode")
def _frequency_encode_gradient(op: tf.Operation, d_outputs: tf.Tensor) -> tf.Tensor:
    return raw_ops.frequency_encode_grad(d_outputs, op.inputs[0], **_declared.attributes(op))


@tf.RegisterGradient("FrequencyEncodeGrad")
def _frequency_encode_grad_gradient(
    op: tf.Operation, d_inputs_gradient: tf.Tensor
) -> list[tf.Tensor]:
    """The gradient of J(x)^T g: J u for g, and u times the second derivative for x, from the encoding itself."""
    g, x = op.inputs
    attributes = _declared.attributes(op)
    count, with_input = attributes["n_frequencies"], attributes["include_input"]
    blocks = tf.shape(x)[0], 2 * count, tf.shape(x)[1]
    waves = raw_ops.frequency_encode(x, **{**attributes, "include_input": False})
    sine, cosine = tf.unstack(tf.reshape(waves, [blocks[0], count, 2, blocks[2]]), axis=2)
    slopes = tf.constant(
        [[2.0**k * (math.pi if attributes["times_pi"] else 1.0)] for k in range(count)],
        tf.float32,
        [count, 1],
    )
    along = d_inputs_gradient[:, None, :]
    jvp = tf.reshape(tf.stack([slopes * cosine * along, -slopes * sine * along], axis=2), blocks)
    wide = tf.cast(g, tf.float32)
    if with_input:
        jvp = tf.concat([along, jvp], axis=1)
        wide = wide[:, tf.shape(x)[1] :]
    jvp = tf.reshape(jvp, tf.shape(g))
    g_sine, g_cosine = tf.unstack(tf.reshape(wide, [blocks[0], count, 2, blocks[2]]), axis=2)
    bend = -tf.reduce_sum(slopes**2 * (g_sine * sine + g_cosine * cosine), axis=1)
    return [tf.cast(jvp, g.dtype), d_inputs_gradient * bend]
