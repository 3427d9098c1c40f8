"""Attention: Keras' layer on one op, without the matrix of scores."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._attention import next_seed
from metal_ops.ops.attention import MOST_SIZE, scaled_dot_product_attention

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class Attention(keras.layers.Attention):
    """`keras.layers.Attention` by `metal_ops.scaled_dot_product_attention`.

    Arguments, weights and the call are Keras'. Memory grows with the lengths and not with their product, and dropout
    drops other weights than Keras' does. `return_attention_scores=True`, which asks for the matrix,
    `score_mode="concat"`, inputs of more than one axis of attention and sizes beyond 256 are computed by Keras itself.

    A query whose keys are all masked gets 0, and has no gradients: nothing of a masked value reaches any result. Keras
    gives the mean of all values.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      *args: Keras' arguments: use_scale, score_mode, dropout, seed.
      **kwargs: The others, by name.

    Input: [query, value] or [query, value, key]: [batch, queries, size], [batch, keys, value size] and
      [batch, keys, size].
    Output: [batch, queries, value size], of the layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: Keras refuses an argument.

    Example:
      >>> layer = metal_ops.layers.Attention(use_scale=True)
      >>> x = tf.zeros([2, 50, 32])
      >>> layer([x, x], use_causal_mask=True).shape
      TensorShape([2, 50, 32])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _keras.require_float_policy("Attention", self)
        self.supports_jit = False

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: bool | None = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        self._validate_inputs(inputs=inputs, mask=mask)
        query, value = inputs[:2]
        key = inputs[2] if len(inputs) > 2 else value
        fits = all(x.shape.rank == 3 and (x.shape[2] or MOST_SIZE + 1) <= MOST_SIZE for x in inputs)
        if return_attention_scores or self.score_mode != "dot" or not fits:
            return super().call(inputs, mask, training, return_attention_scores, use_causal_mask)
        query_mask, value_mask = mask[:2] if mask else (None, None)
        seen = None if value_mask is None else tf.cast(value_mask, tf.bool)[:, None, None]
        equal = key is query or (key.shape[1] == query.shape[1] is not None)
        if use_causal_mask and not equal:
            # Keras counts from the first key, the op from the last one.
            causal = tf.range(tf.shape(key)[1]) <= tf.range(tf.shape(query)[1])[:, None]
            seen = causal if seen is None else tf.logical_and(seen, causal)
        if self.scale is not None:
            query = query * tf.cast(self.scale, query.dtype)
        drops = bool(training) and self.dropout > 0
        outputs = scaled_dot_product_attention(
            query[:, None],
            key[:, None],
            value[:, None],
            mask=seen,
            causal=use_causal_mask and equal,
            scale=1.0,
            dropout=self.dropout if drops else 0.0,
            seed=next_seed(self.seed_generator) if drops else None,
        )[:, 0]
        if query_mask is None:
            return outputs
        return tf.where(
            tf.cast(query_mask, tf.bool)[..., None], outputs, tf.zeros([], outputs.dtype)
        )
