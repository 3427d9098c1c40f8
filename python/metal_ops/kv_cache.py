"""KVCache: keys and values of attention, updated in place while text is generated."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.ops import _arguments, _checks
from metal_ops.ops.attention import MOST_SIZE, scaled_dot_product_attention
from metal_ops.ops.cache_rows import cache_rows

__theme__ = "Fused layers"


class KVCache(tf.Module):
    """Keys and values of one layer of attention, for sequences that grow by some tokens at a time.

    Each call of `attend` appends keys and values in place, slices of two variables, and gives the attention of the new
    queries to all tokens so far: the whole prompt at first, then a token at a time. Neither is copied, in a loop of a
    tf.function either; the unfilled part is not looked at. Sequences of a batch may have different lengths. Not
    differentiable: for training call `scaled_dot_product_attention`.

    With a window the cache is a ring that keeps the last `window` tokens, and a token attends to itself and the
    window - 1 before it, however long the sequence becomes. Positional encodings, where there are any, belong into q
    and k before they are given (`positions` says where the next tokens are).

    Args:
      batch: Sequences.
      kv_heads: Heads of keys and values; q has a multiple of them.
      capacity: The most tokens of a sequence. Not with a window.
      size: Elements of a key, 1 to 256.
      value_size: Elements of a value; None for as many.
      window: Tokens that a token attends to, itself included; None for all.
      dtype: float32, float16 or bfloat16.
      name: Name of the module.

    Attributes:
      k: Variable [batch, kv_heads, capacity or window, size].
      v: Variable [batch, kv_heads, capacity or window, value_size].
      lengths: Variable [batch] int32, tokens of each sequence so far.

    Raises:
      TypeError: An argument is of another kind.
      ValueError: An argument is out of range, or both or neither of capacity and window are given.

    Example:
      >>> cache = metal_ops.KVCache(batch=1, kv_heads=1, capacity=8, size=4)
      >>> prompt = tf.ones([1, 1, 3, 4])
      >>> _ = cache.attend(prompt, prompt, prompt)
      >>> token = tf.ones([1, 1, 1, 4])
      >>> cache.attend(token, token, 5 * token)[0, 0, 0, 0].numpy().tolist()
      2.0
      >>> cache.lengths.numpy().tolist()
      [4]
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        capacity: int | None = None,
        size: int = 64,
        value_size: int | None = None,
        *,
        window: int | None = None,
        dtype: Any = tf.float32,
        name: str = "kv_cache",
    ) -> None:
        super().__init__(name=name)
        op = "KVCache"
        if (capacity is None) == (window is None):
            got = "neither" if capacity is None else "both"
            raise ValueError(f"[{op}] capacity, window: expected one of them, got {got}.")
        rows = window if capacity is None else capacity
        value_size = size if value_size is None else value_size
        numbers: dict[str, Any] = dict(
            batch=batch, kv_heads=kv_heads, size=size, value_size=value_size
        )
        numbers["window" if capacity is None else "capacity"] = rows
        for argument, number in numbers.items():
            most = MOST_SIZE if "size" in argument else 2**31 - 1
            if not 1 <= _arguments.integer(op, argument, number) <= most:
                raise ValueError(f"[{op}] {argument}: expected 1 to {most}, got {number}.")
        self.window = window
        dtype = _arguments.float_dtype(op, dtype)
        self.k = tf.Variable(
            tf.zeros([batch, kv_heads, rows, size], dtype), trainable=False, name="k"
        )
        self.v = tf.Variable(
            tf.zeros([batch, kv_heads, rows, value_size], dtype), trainable=False, name="v"
        )
        with tf.device("CPU:0"):  # where rows go is the host's business
            self.lengths = tf.Variable(tf.zeros([batch], tf.int32), trainable=False, name="lengths")

    def attend(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        counts: Any = None,
        scale: float | None = None,
        soft_cap: float | None = None,
    ) -> tf.Tensor:
        """Appends the keys and values of some tokens, and attends from them to all so far, each up to itself.

        Args:
          q: Queries of the tokens, [batch, heads, n, size] of the cache's dtype.
          k: Their keys, [batch, kv_heads, n, size].
          v: Their values, [batch, kv_heads, n, value_size].
          counts: How many of the n tokens each sequence has, [batch] int32: those behind are padding, for which there
            has to be room, whose outputs mean nothing, and whose places the next call's take. None: all.
          scale: As in `scaled_dot_product_attention`.
          soft_cap: The same.

        Returns:
          [batch, heads, n, value_size].

        Raises:
          TypeError: A dtype does not fit.
          ValueError: q, k and v do not have the same number of tokens, or counts is not one for each sequence.
          tf.errors.InvalidArgumentError: The cache is full, a count is beyond n, or a shape does not fit.
        """
        op = "KVCache.attend"
        q, k, v = (
            _arguments.as_dtype(op, argument, value, self.k.dtype)
            for argument, value in (("q", q), ("k", k), ("v", v))
        )
        _check_tokens(op, q, k, v)
        options: dict[str, Any] = {"scale": scale, "soft_cap": soft_cap}
        n = tf.shape(k)[2] if k.shape.rank is None or k.shape[2] is None else k.shape[2]
        starts = self.lengths.read_value()
        with tf.device("CPU:0"):
            whole = tf.fill([self.k.shape[0]], n)
        new = whole if counts is None else _checked_counts(op, counts, whole)
        if self.window is not None and k.shape[2] != 1:
            outputs = self._attend_in_ring(q, k, v, starts, options)
            with tf.control_dependencies([outputs]):  # which has read the overwritten rows
                self._append(k, v, starts, new)
        else:
            # With padding, as if it belonged to the sequence: keys behind a query are not seen.
            self._append(k, v, starts, whole if self.window is None else new)
            length = starts + whole  # for which there is room
            if self.window is not None:
                length = tf.minimum(length, self.window)
            outputs = scaled_dot_product_attention(
                q, self.k, self.v, causal=self.window is None, key_lengths=length, **options
            )
        # The next call waits for the lengths: nothing reads the variables when they are written to.
        with tf.control_dependencies([outputs]):
            self.lengths.assign_add(new)
        return outputs

    def _append(self, k: tf.Tensor, v: tf.Tensor, starts: tf.Tensor, counts: tf.Tensor) -> None:
        for variable, rows in ((self.k, k), (self.v, v)):
            cache_rows(variable, rows, starts, counts, ring=self.window is not None)

    def _attend_in_ring(
        self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, starts: tf.Tensor, options: dict[str, Any]
    ) -> tf.Tensor:
        """Several tokens: the ring's contents, in order, and the new ones behind them."""
        slots = self.k.shape[2]
        at = (starts[:, None] + tf.range(slots)) % slots
        keys = tf.concat([_ordered(self.k, at), k], axis=2)
        values = tf.concat([_ordered(self.v, at), v], axis=2)
        # Slots that no token has been in yet come first.
        key = tf.range(tf.shape(keys)[2])
        filled = key[None] >= slots - starts[:, None]
        return scaled_dot_product_attention(
            q,
            keys,
            values,
            mask=filled[:, None, None],
            causal=True,
            window=(slots - 1, None),
            **options,
        )

    def positions(self, n: int = 1) -> tf.Tensor:
        """Where the next n tokens of each sequence are, [batch, n] int32."""
        return self.lengths.read_value()[:, None] + tf.range(n)

    def reset(self) -> None:
        """Forgets all tokens."""
        self.lengths.assign(tf.zeros_like(self.lengths))


def _check_tokens(op: str, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> None:
    """As many keys and values as queries, where that is known."""
    for argument, value in (("q", q), ("k", k), ("v", v)):
        if value.shape.rank not in (4, None):
            raise ValueError(
                f"[{op}] {argument}: expected shape [batch, heads, n, size], got {_checks.size_of(value)}."
            )
        if not value.shape[2:3].is_compatible_with(q.shape[2:3]):
            raise ValueError(
                f"[{op}] {argument}: expected {q.shape[2]} tokens as of q, got {value.shape[2]}."
            )


def _checked_counts(op: str, counts: Any, most: tf.Tensor) -> tf.Tensor:
    """int32 [batch], 0 to `most`: other ones would move the places of all later tokens."""
    counts = tf.cast(_arguments.as_indices(op, "counts", counts), tf.int32)
    if not counts.shape.is_compatible_with(most.shape):
        raise ValueError(
            f"[{op}] counts: expected one for each of {most.shape[0]} sequences, got shape {counts.shape}."
        )
    with tf.device("CPU:0"):
        words = f"[{op}] counts: expected 0 to the number of tokens that are given."
        fits = (
            tf.debugging.assert_non_negative(counts, words),
            tf.debugging.assert_less_equal(counts, most, words),
        )
        with tf.control_dependencies([one for one in fits if one is not None]):
            return tf.identity(counts)


def _ordered(cache: tf.Variable, at: tf.Tensor) -> tf.Tensor:
    """Rows of a cache in another order for each sequence."""
    heads = tf.broadcast_to(at[:, None], tf.concat([tf.shape(cache)[:2], tf.shape(at)[1:]], axis=0))
    return tf.gather(cache.read_value(), heads, axis=2, batch_dims=2)
