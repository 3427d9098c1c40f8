"""A pass that goes on from caches, with little around it."""

from __future__ import annotations

import tensorflow as tf

from metal_ops import KVCache

from .model import Transformer


class Pass:
    """`Transformer.extend` of some tokens, compiled.

    Args:
      model: The model of the pass.
      caches: The caches it goes on from, and extends.
      n: Tokens of a call.
    """

    def __init__(self, model: Transformer, caches: list[KVCache], n: int) -> None:
        extend = tf.function(lambda tokens: model.extend(tokens, caches), autograph=False)
        self._function = extend.get_concrete_function(tf.TensorSpec([1, n], tf.int32))
        self._captured = list(self._function.captured_inputs)
        # Ops of a token follow each other, and products by quantized weights share themselves out: threads for
        # several ops at once are woken for nothing, which was a seventh of a token's time. TensorFlow's products
        # of one row by floats share nothing, and three at once are faster.
        self._in_order = n == 1 and model.n_quantized() > 0 and "CPU" in caches[0].k.device

    def __call__(self, tokens: tf.Tensor) -> tf.Tensor:
        """Logits [1, vocabulary] behind the last of [1, n] int32."""
        if not self._in_order:
            return self._function(tokens)
        (logits,) = tf.raw_ops.StatefulPartitionedCall(
            args=[tokens, *self._captured],
            Tout=[tf.float32],
            f=self._function,
            executor_type="SINGLE_THREADED_EXECUTOR",
        )
        return logits
