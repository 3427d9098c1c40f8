"""The transformer of `metal_ops lm` out of stock TensorFlow ops; each call hands keys and values to the next."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.lm.model import Transformer

Caches = list[tuple[tf.Tensor, tf.Tensor]]


def norm(x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    square = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
    return x * tf.math.rsqrt(square + 1e-6) * scale


def rope(x: tf.Tensor, position: tf.Tensor, base: float) -> tf.Tensor:
    half = x.shape[-1] // 2
    powers = -2 * tf.range(half, dtype=tf.float32) / x.shape[-1]
    angles = tf.cast(position, tf.float32) * base**powers
    sines, cosines = tf.sin(angles), tf.cos(angles)
    a, b = x[..., :half], x[..., half:]
    return tf.concat([a * cosines - b * sines, a * sines + b * cosines], -1)


def extend(model: Transformer, token: tf.Tensor, caches: Caches) -> tuple[tf.Tensor, Caches]:
    """One byte more, [1, 1]: its logits, and the caches with it."""
    config: Any = model.config
    size, group = config.width // config.heads, config.heads // config.kv_heads
    x, new = tf.gather(model.embedding, token), []
    for matrices, norms, (keys, values) in zip(model.matrices, model.norms, caches, strict=True):
        both = tf.matmul(norm(x, norms["attention"]), matrices["qkv"][None])
        heads = tf.transpose(tf.reshape(both, [1, 1, -1, size]), [0, 2, 1, 3])
        q, k, v = tf.split(heads, [config.heads, config.kv_heads, config.kv_heads], 1)
        position = tf.shape(keys)[2]
        keys = tf.concat([keys, rope(k, position, config.rope_base)], 2)
        values = tf.concat([values, v], 2)
        new.append((keys, values))
        scores = tf.matmul(
            rope(q, position, config.rope_base), tf.repeat(keys, group, axis=1), transpose_b=True
        )
        weights = tf.nn.softmax(scores * size**-0.5)
        joined = tf.transpose(tf.matmul(weights, tf.repeat(values, group, axis=1)), [0, 2, 1, 3])
        x += tf.matmul(tf.reshape(joined, [1, 1, -1]), matrices["out"][None])
        gate, up = tf.split(
            tf.matmul(norm(x, norms["feed_forward"]), matrices["gate_up"][None]), 2, -1
        )
        x += tf.matmul(tf.nn.silu(gate) * up, matrices["down"][None])
    logits = tf.matmul(norm(x, model.last_norm)[0], model.embedding, transpose_b=True)
    return logits, new
