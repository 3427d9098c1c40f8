"""A variable after five steps of the fused optimizers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import metal_ops
from tests.oracles import optimizers
from tools.reference.error_cases import DTYPES, Case, rounded, wide

SHAPE, STEPS = (65, 3), 5


def cases() -> Iterator[Case]:
    random = np.random.default_rng(4)
    for dtype in DTYPES:
        # One step in half precision: from the second on, the rounded result is the next one's input.
        steps = STEPS if dtype == "float32" else 1
        x = rounded(random.normal(size=SHAPE), dtype)
        slopes = rounded(random.normal(size=(steps, *SHAPE)), dtype)

        def adam(x=x, slopes=slopes) -> tf.Tensor:
            variable, (m, v) = tf.Variable(x), (tf.Variable(tf.zeros(SHAPE)) for _ in range(2))
            for step, slope in enumerate(slopes, start=1):
                metal_ops.fused_adam(
                    variable, m, v, tf.constant(slope), step=step, learning_rate=0.01
                )
            return variable.read_value()

        def sgd(x=x, slopes=slopes) -> tf.Tensor:
            variable, m = tf.Variable(x), tf.Variable(tf.zeros(SHAPE))
            for slope in slopes:
                metal_ops.fused_sgd(
                    variable, tf.constant(slope), m=m, learning_rate=0.01, momentum=0.9
                )
            return variable.read_value()

        yield "ResourceFusedAdam", dtype, adam, optimizers.adam(wide(x), wide(slopes), 0.01)[0]
        yield "ResourceFusedSgd", dtype, sgd, optimizers.sgd(wide(x), wide(slopes), 0.01, 0.9)[0]
