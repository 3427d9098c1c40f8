"""Rows that are written into a cache: they are moved as they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import metal_ops
from tools.reference.error_cases import DTYPES, Case, rounded, wide


def cases() -> Iterator[Case]:
    random = np.random.default_rng(9)
    for dtype in DTYPES:
        rows = rounded(random.normal(size=(2, 3, 5, 16)), dtype)

        def run(rows=rows) -> tf.Tensor:
            cache = tf.Variable(tf.zeros([2, 3, 8, 16], rows.dtype))
            metal_ops.cache_rows(cache, tf.constant(rows), starts=[2, 6], ring=True)
            return cache.read_value()

        right = np.zeros((2, 3, 8, 16))
        right[0, :, 2:7] = wide(rows)[0]
        right[1, :, [6, 7, 0, 1, 2]] = np.swapaxes(wide(rows)[1], 0, 1)
        yield "ResourceCacheRows", dtype, run, right
