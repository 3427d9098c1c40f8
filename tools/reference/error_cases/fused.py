"""The ops that the fusion pass makes: a product and what follows it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from tools.reference.error_cases import DTYPES, Case, rounded, wide


def cases() -> Iterator[Case]:
    random = np.random.default_rng(5)
    for dtype in DTYPES:
        shapes = ((2, 9, 10, 5), (3, 3, 5, 6), (6,), (2, 9, 10, 6))
        image, filters, bias, residual = (
            rounded(random.normal(size=shape), dtype) for shape in shapes
        )
        padded = np.pad(wide(image), ((0, 0), (1, 1), (1, 1), (0, 0)))
        product = sum(
            padded[:, i : i + 9, j : j + 10] @ wide(filters)[i, j]
            for i in range(3)
            for j in range(3)
        )
        yield (
            "MetalFusedConv2D",
            dtype,
            lambda a=(image, filters, bias, residual): raw_ops.metal_fused_conv2d(
                tf.constant(a[0]),
                tf.constant(a[1]),
                [tf.constant(a[2]), tf.constant(a[3])],
                strides=[1, 1, 1, 1],
                padding="SAME",
                fused_ops=["BiasAdd", "Add", "Relu"],
            ),
            np.maximum(product + wide(bias) + wide(residual), 0),
        )
        a, b, offset = (
            rounded(random.normal(size=shape), dtype) for shape in ((17, 33), (33, 21), (21,))
        )
        yield (
            "MetalFusedMatMul",
            dtype,
            lambda a=(a, b, offset): raw_ops.metal_fused_mat_mul(
                tf.constant(a[0]),
                tf.constant(a[1]),
                [tf.constant(a[2])],
                fused_ops=["BiasAdd", "Relu"],
            ),
            np.maximum(wide(a) @ wide(b) + wide(offset), 0),
        )
