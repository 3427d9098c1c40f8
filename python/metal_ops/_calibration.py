"""Weights that are quantized for the inputs that their layers have on some data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from metal_ops._quantized_layers import batches, kind_of, listening
from metal_ops.layers import QuantizedEmbedding
from metal_ops.ops._formats import Format
from metal_ops.ops.lookup_weights import LookupWeights, with_tables
from metal_ops.ops.quantized_matmul import Blocks, QuantizedWeights

# How much of a block's extent is cut off at an end. Beyond that nothing was gained on trained weights.
_CUTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
_MOST_PATCHES = 1 << 24  # numbers at a time


def moments_of(
    op: str, model: Any, layers: list[Any], forms: Mapping[int, Format], data: Any
) -> dict[int, tf.Tensor]:
    """Sums of x x^T over the inputs x of layers, for each block of them, [groups, blocks, size, size].

    For lookup tables, which look at each weight alone, sums of squares, [groups, inputs].
    """
    sums: dict[int, tf.Tensor] = {}
    listened = [layer for layer in layers if kind_of(layer) is not QuantizedEmbedding]

    def heard(i: int, inputs: tf.Tensor, outputs: tf.Tensor) -> None:
        layer = listened[i]
        form = forms[id(layer)]
        for x in _rows(layer, tf.cast(inputs, tf.float32)):  # [rows, groups, inputs]
            if form.lookup is not None:
                product = tf.reduce_sum(x * x, 0)
            else:
                size = form.block or x.shape[-1]
                n_blocks = -(-x.shape[-1] // size)
                x = tf.pad(x, [[0, 0], [0, 0], [0, n_blocks * size - x.shape[-1]]])
                x = tf.transpose(tf.reshape(x, [-1, x.shape[1], n_blocks, size]), [1, 2, 0, 3])
                product = tf.matmul(x, x, transpose_a=True)
            sums[id(layer)] = sums[id(layer)] + product if id(layer) in sums else product

    with listening(listened, heard):
        for batch in batches(op, "calibrate", data):
            model(batch, training=False)
    for layer in listened:
        if id(layer) in sums and not tf.reduce_all(tf.math.is_finite(sums[id(layer)])):
            raise ValueError(
                f"[{op}] calibrate: expected data on which inputs of all layers are finite, got NaN or infinity, or "
                f"squares beyond float32, at {layer.name}. Leave such rows out, or scale them."
            )
    return sums


def _rows(layer: Any, x: tf.Tensor) -> Iterator[tf.Tensor]:
    """The inputs of a layer's product, [rows, groups, inputs], a part of the batch at a time."""
    if not isinstance(layer, keras.layers.Conv2D):
        yield tf.reshape(x, [-1, 1, x.shape[-1]])
        return
    if layer.data_format == "channels_first":
        x = tf.transpose(x, [0, 2, 3, 1])
    each = math.prod(x.shape[1:]) * math.prod(layer.kernel_size)
    at_once = max(1, _MOST_PATCHES // max(1, each))
    for first in range(0, x.shape[0], at_once):
        patches = tf.image.extract_patches(
            x[first : first + at_once],
            [1, *layer.kernel_size, 1],
            [1, *layer.strides, 1],
            [1, *layer.dilation_rate, 1],
            layer.padding.upper(),
        )
        groups, taps = layer.groups, math.prod(layer.kernel_size)
        patches = tf.reshape(patches, [-1, taps, groups, x.shape[-1] // groups])
        patches = tf.transpose(patches, [0, 2, 1, 3])
        yield tf.reshape(patches, [patches.shape[0], groups, -1])


def calibrated(
    op: str, weights: tf.Tensor, form: Format, moments: tf.Tensor | None
) -> QuantizedWeights | LookupWeights:
    """Weights rounded for the sums of `moments_of`; None: to be near themselves."""
    if form.lookup is None:
        return _clipped(weights, form, moments)
    if moments is None:
        return with_tables(op, weights, form)
    of_groups = moments.numpy()
    n_each = weights.shape[1] // len(of_groups)
    return with_tables(op, weights, form, np.repeat(of_groups, n_each, 0))


def _clipped(weights: tf.Tensor, form: Format, moments: tf.Tensor | None) -> QuantizedWeights:
    """Weights rounded to steps that reach as far as is best for sums of x x^T; None: for the weights themselves."""
    blocks = Blocks(weights, form)
    least, greatest = blocks.extent
    n_outputs, n_blocks, size = blocks.rows.shape
    # Not the padding of the last block, whose moments are zeros.
    there = tf.reshape(tf.range(n_blocks * size) < weights.shape[0], [n_blocks, size])
    there = tf.cast(there, tf.float32)

    def error(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        off = blocks.meant(*blocks.rounded(low, high)) - blocks.rows
        if moments is None:
            each = tf.reduce_sum(off * off * there, 2)
        else:
            # The groups' outputs of a block side by side, for a product of matrices.
            off = tf.reshape(off, [moments.shape[0], -1, n_blocks, size])
            off = tf.transpose(off, [0, 2, 1, 3])
            each = tf.reduce_sum(tf.matmul(off, moments) * off, 3)
            each = tf.reshape(tf.transpose(each, [0, 2, 1]), [n_outputs, n_blocks])
        return tf.reduce_sum(each, 0, keepdims=True) if form.per_tensor else each

    best_low, best_high, best = least, greatest, error(least, greatest)
    for below in (0.0,) if form.symmetric else _CUTS:
        for above in _CUTS:
            extent = greatest if form.symmetric else greatest - least
            low, high = least + below * extent, greatest - above * extent
            found = error(low, high)
            better = found < best
            best = tf.where(better, found, best)
            best_low = tf.where(better, low, best_low)
            best_high = tf.where(better, high, best_high)
    return blocks.packed(best_low, best_high)
