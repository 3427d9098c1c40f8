"""Ops that treat each element by itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tools.reference.error_cases import DTYPES, Case, incoming, rounded, wide

SIZE = 1003


def cases() -> Iterator[Case]:
    random = np.random.default_rng(1)
    for dtype in DTYPES:
        narrow = rounded(random.normal(size=SIZE), dtype)
        x, first = wide(narrow), np.zeros(SIZE)
        first[0] = x[0]
        yield "ZeroOut", dtype, lambda x=narrow: metal_ops.zero_out(tf.constant(x)), first
        yield "NullOp", dtype, lambda x=narrow: metal_ops.null_op(tf.constant(x), 0.75), 0.75 * x
        shrunk = np.where(x > 0.5, x - 0.5, np.where(x < -0.5, x + 0.5, 0))
        yield "Softshrink", dtype, lambda x=narrow: metal_ops.softshrink(tf.constant(x)), shrunk
        into = incoming(random, (SIZE,))
        narrow_into = rounded(into, dtype)
        yield (
            "SoftshrinkGrad",
            dtype,
            lambda x=narrow, g=narrow_into: raw_ops.softshrink_grad(tf.constant(g), tf.constant(x)),
            np.where(np.abs(x) > 0.5, into, 0),
        )
