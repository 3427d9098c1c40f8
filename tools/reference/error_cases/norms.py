"""Norms of rows and their gradients."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from metal_ops import raw_ops
from tests import test_row_norm
from tools.reference.error_cases import DTYPES, Case


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for center in (True, False):
            x, scale, offset, into = test_row_norm.make((300, 65), dtype)
            given = offset if center else None
            right = test_row_norm.right(x, scale, given, into, 1e-3, center)
            options = {"epsilon": 1e-3, "center": center}
            inputs = [tf.constant(x), tf.constant(scale)]
            last = tf.constant(offset) if center else tf.zeros([0], dtype)

            def forward(inputs=inputs, last=last, options=options):
                return raw_ops.row_norm(*inputs, last, **options)

            def backward(inputs=inputs, forward=forward, into=into, options=options):
                return raw_ops.row_norm_grad(tf.constant(into), *inputs, *forward()[1:], **options)

            yield "RowNorm", dtype, lambda f=forward: f()[0], right[0]
            for output in range(3):
                yield (
                    "RowNormGrad",
                    dtype,
                    lambda f=backward, i=output: f()[i],
                    right[1 + output],
                )
