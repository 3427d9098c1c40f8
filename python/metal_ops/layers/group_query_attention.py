"""GroupQueryAttention: Keras' layer on one op, without the matrix of scores and without repeated keys."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers._attention import attend, seen_keys
from metal_ops.ops.attention import MOST_SIZE

_keras.require_tensorflow_backend()


@keras.saving.register_keras_serializable(package="metal_ops")
class GroupQueryAttention(keras.layers.GroupQueryAttention):
    """`keras.layers.GroupQueryAttention` by `metal_ops.scaled_dot_product_attention`.

    Ainslie et al. 2023, "GQA: Training generalized multi-query transformer models",
    [arXiv:2305.13245](https://arxiv.org/abs/2305.13245): groups of neighbouring query heads share a head of keys and
    values. One of them for all is multi-query attention.

    Arguments, weights, their names and the call are Keras'; weights of one load into the other. Memory grows with the
    lengths and not with their product, keys and values are not repeated for each query head, `use_causal_mask` and
    `sliding_window` skip keys that no query sees where both lengths are known to be equal, and dropout drops other
    weights than Keras' does. `return_attention_scores=True`, which asks for the matrix, is computed by Keras itself.

    A query that sees no key, as one that its own mask hides, gets 0 before the output projection, and has no gradients:
    nothing of a masked value reaches any result.

    XLA cannot compile the layer: `compile(jit_compile="auto")` sees that and does without.

    Args:
      *args: Keras' arguments: head_dim, num_query_heads, num_key_value_heads, dropout and so on. Sizes of heads are 1
        to 256.
      **kwargs: The others, by name. `flash_attention` changes nothing.

    Input: query [batch, queries, features], value and key [batch, keys, features].
    Output: [batch, queries, features], of the layer's compute dtype.

    Raises:
      TypeError: The dtype policy computes in float64.
      ValueError: A head is larger than 256, or Keras refuses an argument.

    Example:
      >>> layer = metal_ops.layers.GroupQueryAttention(head_dim=16, num_query_heads=4, num_key_value_heads=2)
      >>> x = tf.zeros([2, 50, 32])
      >>> layer(x, x, use_causal_mask=True).shape
      TensorShape([2, 50, 32])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.head_dim > MOST_SIZE:
            raise ValueError(
                f"[GroupQueryAttention] head_dim: expected at most {MOST_SIZE}, got {self.head_dim}."
            )
        _keras.require_float_policy("GroupQueryAttention", self)
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
        masks: dict[str, Any] = dict(
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
        )
        if return_attention_scores:
            return super().call(
                query,
                value,
                key,
                **masks,
                return_attention_scores=True,
                training=training,
                use_causal_mask=use_causal_mask,
            )
        key = value if key is None else key
        # Not in Keras before 3.14.
        beside, use_gate = (getattr(self, name, None) for name in ("sliding_window", "use_gate"))
        seen = seen_keys(query, key, **masks, causal=use_causal_mask, beside=beside)
        gate = self._gate_dense(query) if use_gate else None
        outputs = attend(
            (query, key, value),
            (self._query_dense, self._key_dense, self._value_dense),
            seen,
            self.dropout if training else 0.0,
            self._dropout_layer,
        )
        return self._output_dense(outputs if gate is None else outputs * gate)
