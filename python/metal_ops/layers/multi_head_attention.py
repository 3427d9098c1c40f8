"""MultiHeadAttention: Keras' layer on one op, without the matrix of scores."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._attention import attend, seen_keys
from metal_ops.ops.attention import MOST_SIZE

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class MultiHeadAttention(keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` by `metal_ops.scaled_dot_product_attention`.

    Arguments, weights, their names and the call are Keras'; weights of one load into the other. Memory grows with the
    lengths and not with their product, `use_causal_mask` and `sliding_window` skip keys that no query sees where both
    lengths are known to be equal, and dropout drops other weights than Keras' does. `return_attention_scores=True`,
    which asks for the matrix, and inputs of more than one axis of attention are computed by Keras itself.

    A query that sees no key, as one that its own mask hides, gets 0 before the output projection, and has no gradients:
    nothing of a masked value reaches any result. So do Keras' layers with a dropout or with
    `return_attention_scores=True`; without both they give the mean of all values.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      *args: Keras' arguments: num_heads, key_dim, value_dim, dropout and so on. Sizes of heads are 1 to 256.
      **kwargs: The others, by name.

    Input: query [batch, queries, features], value and key [batch, keys, features].
    Output: [batch, queries, features], of the layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: A head is larger than 256, or Keras refuses an argument.

    Example:
      >>> layer = metal_ops.layers.MultiHeadAttention(num_heads=4, key_dim=16)
      >>> x = tf.zeros([2, 50, 32])
      >>> layer(x, x, use_causal_mask=True).shape
      TensorShape([2, 50, 32])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for argument in ("key_dim", "value_dim"):
            size = getattr(self, argument, None) or self.key_dim
            if size > MOST_SIZE:
                raise ValueError(
                    f"[MultiHeadAttention] {argument}: expected at most {MOST_SIZE}, got {size}."
                )
        _keras.require_float_policy("MultiHeadAttention", self)
        self.supports_jit = False

    def call(
        self,
        query: tf.Tensor,
        value: tf.Tensor,
        key: tf.Tensor | None = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        if return_attention_scores or len(query.shape) != 3:
            masks: dict[str, Any] = dict(
                query_mask=query_mask, value_mask=value_mask, key_mask=key_mask
            )
            return super().call(
                query,
                value,
                key,
                **masks,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                use_causal_mask=use_causal_mask,
            )
        key = value if key is None else key
        seen = seen_keys(
            query,
            key,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            causal=use_causal_mask,
            beside=getattr(self, "_sliding_window", None),  # not in Keras before 3.14
        )
        gate = self._gate_dense(query) if getattr(self, "_use_gate", False) else None
        outputs = attend(
            (query, key, value),
            (self.query_dense, self.key_dense, self.value_dense),
            seen,
            self.dropout if training else 0.0,
            self._dropout_layer,
        )
        return self.output_dense(outputs if gate is None else outputs * gate)
