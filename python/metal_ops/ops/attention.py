"""Scaled dot-product attention without the matrix of scores (Dao 2023, "FlashAttention-2"), and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments, _checks, _declared, _losses

__all__ = ["scaled_dot_product_attention"]
__theme__ = "Fused layers"

MOST_SIZE = 256


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    bias: Any = None,
    dropout: float = 0.0,
    *,
    seed: Any = None,
    window: Sequence[int | None] | None = None,
    soft_cap: float | None = None,
    key_lengths: Any = None,
    name: str | None = None,
) -> tf.Tensor:
    """Attention, softmax(scale q k^T + bias) v, one block after the other: the matrix of scores is never in memory.

    The online softmax of Dao 2023, "FlashAttention-2: Faster attention with better parallelism and work partitioning",
    [arXiv:2307.08691](https://arxiv.org/abs/2307.08691), algorithm 1. Memory grows with the lengths and not with their
    product. The gradients compute the weights again from the scores and their log-sum-exp, which is all that is kept.
    Scores, weights and sums are float32 whatever the dtype.

    Dimensions are PyTorch's: heads before lengths. Query i has the own key i + keys - queries: the last query's own key
    is the last key, as while text is generated. `causal` and `window` count from there, as FlashAttention's do;
    PyTorch's `is_causal` counts from the first key, which is the same for equal lengths. A query that sees no key
    gives 0, as in PyTorch, and has no gradients.

    Deterministic. Dropped weights are those for which Philox4x32-10 (Salmon et al. 2011) with the key `seed` and the
    counter (key / 4, query, batch * heads + head, 0) gives a number below 2^32 dropout: the same ones in the gradient,
    and on every device.

    Args:
      q: Queries, [batch, heads, queries, size] float32, float16 or bfloat16. Sizes of 1 to 256.
      k: Keys, [batch, kv_heads, keys, size] of that dtype. Where kv_heads is less than heads, and divides it,
        neighbouring heads of q share one (grouped or, with a single one, multi-query attention).
      v: Values, [batch, kv_heads, keys, value_size] of that dtype. Value sizes of 1 to 256.
      mask: bool, which keys a query sees; or of q's dtype, and then it is added to the scores as `bias` is.
        [batch, heads, queries, keys], or whatever is broadcast to that. None: all.
      causal: Whether a query sees no keys behind its own.
      scale: The factor of the products. None for 1 / sqrt(size).
      bias: The addend of the scores, of q's dtype, shaped as `mask`.
      dropout: The part of the weights that is dropped, in [0, 1). The others are multiplied by 1 / (1 - dropout).
      seed: Two integers that choose which, or a tensor of them, [2] int32. None: drawn in each call, as
        `tf.random.set_seed` says.
      window: How many keys before and behind its own a query sees, (before, behind); None in place of a number: all.
      soft_cap: c of c tanh(score / c), to which scores are limited before mask and bias. None: they are not.
      key_lengths: How many keys each sequence has, [batch] int32; those behind are not looked at. The own key of the
        last query is the last of them.
      name: Optional name of the op.

    Returns:
      [batch, heads, queries, value_size] of q's dtype.

    Raises:
      TypeError: A dtype does not fit.
      ValueError: A number is out of its range, or a rank is not 4.
      tf.errors.InvalidArgumentError: A shape does not fit (ValueError where that is known when a graph is built).
      tf.errors.UnimplementedError: Inside a function that XLA compiles.

    Example:
      >>> q = tf.ones([1, 1, 2, 4])
      >>> v = tf.constant([[[[1.0], [2.0], [6.0]]]])
      >>> metal_ops.scaled_dot_product_attention(q, tf.ones([1, 1, 3, 4]), v, causal=True)[0, 0].numpy().tolist()
      [[1.5], [3.0]]
    """
    op = "scaled_dot_product_attention"
    causal = _arguments.flag(op, "causal", causal)
    with tf.name_scope(name or op):
        q = _arguments.as_floats(op, "q", q)
        tensors = {"q": q}
        for argument, value in (("k", k), ("v", v)):
            tensors[argument] = _arguments.as_dtype_of(op, argument, value, q=q)
        for argument, value in tensors.items():
            if value.shape.rank not in (4, None):
                raise ValueError(
                    f"[{op}] {argument}: expected shape [batch, heads, length, size], got {_checks.size_of(value)}."
                )
        if mask is not None:
            mask = _as_mask(op, mask, q)
            if mask.dtype != tf.bool:
                bias = (
                    mask if bias is None else mask + _arguments.as_dtype_of(op, "bias", bias, q=q)
                )
                mask = None
        if bias is not None:
            bias = _with_rank_4(op, "bias", _arguments.as_dtype_of(op, "bias", bias, q=q))
        rate = _arguments.number(op, "dropout", dropout)
        if not 0 <= rate < 1:
            raise ValueError(f"[{op}] dropout: expected a number in [0, 1), got {rate}.")
        left, right = _window(op, window)
        lengths = tf.zeros([0], tf.int32)
        if key_lengths is not None:
            lengths = tf.cast(_arguments.as_indices(op, "key_lengths", key_lengths), tf.int32)
            if (
                lengths.shape.rank not in (1, None)
                or lengths.shape.num_elements() == 0 != q.shape[0]
            ):
                raise ValueError(
                    f"[{op}] key_lengths: expected shape [batch], got {_checks.size_of(lengths)}."
                )
        outputs, _ = _declared.call(
            op,
            {
                **tensors,
                "mask": tf.zeros([0], tf.bool) if mask is None else mask,
                "bias": tf.zeros([0], q.dtype) if bias is None else bias,
                "key_lengths": lengths,
                "seed": _seed(op, seed, rate),
            },
            None,
            scale=0.0 if scale is None else _other_than_0(op, "scale", scale),
            soft_cap=0.0 if soft_cap is None else _other_than_0(op, "soft_cap", soft_cap),
            window_left=left,
            window_right=0 if causal else right,
            dropout=rate,
            use_mask=mask is not None,
            use_bias=bias is not None,
        )
        return outputs


def _as_mask(op: str, mask: Any, q: tf.Tensor) -> tf.Tensor:
    mask = _arguments.convert(op, "mask", mask)
    _checks.check_dtype(op, "mask", mask, [tf.bool, q.dtype])
    return _with_rank_4(op, "mask", mask)


def _with_rank_4(op: str, argument: str, value: tf.Tensor) -> tf.Tensor:
    """The same with sizes of 1 in front."""
    rank = value.shape.rank
    if rank == 4:
        return value
    if rank is None or rank > 4:
        raise ValueError(
            f"[{op}] {argument}: expected a rank of at most 4, [batch, heads, queries, keys] or a shape broadcast to "
            f"that, got {_checks.size_of(value)}."
        )
    return value[(tf.newaxis,) * (4 - rank)]


def _other_than_0(op: str, argument: str, value: Any) -> float:
    number = _arguments.number(op, argument, value)
    if number == 0:
        raise ValueError(f"[{op}] {argument}: expected a number other than 0, or None, got 0.")
    return number


def _window(op: str, window: Any) -> tuple[int, int]:
    """The op's attributes: -1 is all."""
    if window is None:
        return -1, -1
    if not isinstance(window, list | tuple) or len(window) != 2:
        raise TypeError(
            f"[{op}] window: expected (before, behind), two numbers of keys or None, got {window!r}."
        )
    sizes = [-1 if size is None else _arguments.integer(op, "window", size) for size in window]
    for size, given in zip(sizes, window, strict=True):
        if given is not None and size < 0:
            raise ValueError(f"[{op}] window: expected 0 or more keys, got {size}.")
    return sizes[0], sizes[1]


def _seed(op: str, seed: Any, rate: float) -> tf.Tensor:
    if seed is None:
        if rate == 0:
            return tf.zeros([2], tf.int32)
        # All of their bits count.
        return tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
    return tf.cast(_arguments.as_indices(op, "seed", seed), tf.int32)


@tf.RegisterGradient("ScaledDotProductAttention")
def _gradient(
    op: tf.Operation, d_outputs: tf.Tensor, _: tf.Tensor | None
) -> list[tf.Tensor | None]:
    """Gradients of q, k and v by one op, and of the bias by another, which a graph prunes where it is unused."""
    inputs = [*op.inputs, *op.outputs, d_outputs]
    attributes = _declared.attributes(op)
    gradients: list[tf.Tensor | None] = [None] * len(op.inputs)
    if any(_losses.is_wanted(op, index) for index in range(3)):
        gradients[:3] = raw_ops.scaled_dot_product_attention_grad(*inputs, **attributes)
    if op.get_attr("use_bias") and _losses.is_wanted(op, 4):
        gradients[4] = raw_ops.scaled_dot_product_attention_bias_grad(*inputs, **attributes)
    return gradients
