"""Robust and focal losses, and the products that are their gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.oracles import losses
from tools.reference.error_cases import DTYPES, Case, rounded, wide

SHAPE = (67, 11)
ALPHAS = (2.0, 1.0, 0.0, -2.0, -np.inf, 0.5)


def cases() -> Iterator[Case]:
    random = np.random.default_rng(2)
    for dtype in DTYPES:
        x = rounded(random.normal(0, 3, SHAPE), dtype)
        y = rounded(random.uniform(size=SHAPE) > 0.7, dtype)
        for alpha in ALPHAS:
            yield (
                "RobustLoss",
                dtype,
                lambda x=x, alpha=alpha: metal_ops.robust_loss(tf.constant(x), alpha, 0.5),
                losses.robust(wide(x), alpha, 0.5),
            )
        yield (
            "SigmoidFocalLoss",
            dtype,
            lambda x=x, y=y: metal_ops.focal_loss(tf.constant(x), tf.constant(y)),
            losses.sigmoid_focal(wide(x), wide(y), 0.25),
        )
        yield (
            "SoftmaxFocalLoss",
            dtype,
            lambda x=x, y=y: metal_ops.focal_loss(tf.constant(x), tf.constant(y), "softmax"),
            losses.softmax_focal(wide(x), wide(y), 0.25),
        )
        slope = rounded(random.normal(size=SHAPE), dtype)
        incoming = rounded(random.normal(size=SHAPE), dtype)
        products = wide(slope) * wide(incoming)
        yield (
            "ScaleSlope",
            dtype,
            lambda a=(incoming, slope): raw_ops.scale_slope(*map(tf.constant, a)),
            products,
        )
        for parameter, sums in ((np.float32(0), products.sum()), (np.zeros(11), products.sum(0))):
            yield (
                "ScaleSlopeSum",
                dtype,
                lambda a=(incoming, slope), p=parameter: raw_ops.scale_slope_sum(
                    *map(tf.constant, a), tf.constant(p, tf.float32)
                ),
                sums,
            )
