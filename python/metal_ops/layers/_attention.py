"""Calls of Keras' attention layers by the op: the keys that queries see, projections, seeds."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from metal_ops.ops.attention import scaled_dot_product_attention


def seen_keys(
    query: tf.Tensor,
    key: tf.Tensor,
    *,
    query_mask: Any,
    value_mask: Any,
    key_mask: Any,
    attention_mask: Any,
    causal: bool,
    beside: int | None,
) -> dict[str, Any]:
    """The arguments `mask`, `causal` and `window` of `scaled_dot_product_attention`.

    Args:
      query, key: [batch, queries, features] and [batch, keys, features].
      query_mask, value_mask, key_mask: [batch, length] or None.
      attention_mask: [batch, queries, keys], with heads or without, or None.
      causal: Keras' `use_causal_mask`.
      beside: Keras' `sliding_window`: only keys that are nearer than this are seen.
    """
    equal = key is query or (key.shape[1] == query.shape[1] is not None)
    mask = _and(
        None if query_mask is None else tf.cast(query_mask, tf.bool)[:, None, :, None],
        None if value_mask is None else tf.cast(value_mask, tf.bool)[:, None, None],
        None if key_mask is None else tf.cast(key_mask, tf.bool)[:, None, None],
        None if attention_mask is None else _with_heads(tf.cast(attention_mask, tf.bool)),
    )
    window = None
    if equal:
        if beside is not None:
            window = (beside - 1, beside - 1)
    elif causal or beside is not None:
        # Keras counts from the first key, the op from the last one.
        behind = tf.range(tf.shape(key)[1]) - tf.range(tf.shape(query)[1])[:, None]
        mask = _and(
            mask,
            behind <= 0 if causal else None,
            None if beside is None else tf.abs(behind) < beside,
        )
    return {"mask": mask, "causal": causal and equal, "window": window}


def attend(
    inputs: tuple[tf.Tensor, ...],
    projections: tuple[Any, ...],
    seen: dict[str, Any],
    dropout: float,
    dropping: Any,
) -> tf.Tensor:
    """[batch, queries, heads, size] of queries, keys and values behind their projections.

    Args:
      inputs: query, key and value, [batch, length, features].
      projections: Layers that make [batch, length, heads, size] of each.
      seen: The result of `seen_keys`.
      dropout: The part of the weights that is dropped, 0 outside of training.
      dropping: Keras' dropout layer, for its seeds.
    """
    q, k, v = (
        tf.transpose(project(x), [0, 2, 1, 3])
        for project, x in zip(projections, inputs, strict=True)
    )
    seed = next_seed(dropping.seed_generator) if dropout else None
    outputs = scaled_dot_product_attention(q, k, v, **seen, dropout=dropout, seed=seed)
    return tf.transpose(outputs, [0, 2, 1, 3])


def next_seed(generator: Any) -> tf.Tensor:
    """The next one of the generator that Keras' own dropout would take it from."""
    return tf.bitcast(tf.cast(generator.next(), tf.uint32), tf.int32)


def _with_heads(mask: tf.Tensor) -> tf.Tensor:
    """[batch, queries, keys], with heads or without, as [batch, heads, queries, keys]."""
    return mask[:, None] if mask.shape.rank == 3 else mask


def _and(*masks: tf.Tensor | None) -> tf.Tensor | None:
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    seen = given[0]
    for mask in given[1:]:
        seen = tf.logical_and(seen, mask)
    return seen
