"""Right calls of the ops of kernels/fused_conv2d."""

import numpy as np

from tests.fuzz.values import F4

PUBLIC = {
    "fused_conv2d": dict(
        input=np.ones((1, 4, 4, 2), F4),
        filters=np.ones((3, 3, 2, 2), F4),
        bias=np.ones(2, F4),
        strides=1,
        padding="SAME",
        dilations=1,
        activation="relu",
    ),
}
RAW = {
    "metal_fused_conv2d": dict(
        input=np.ones((1, 4, 4, 2), F4),
        filter=np.ones((3, 3, 2, 2), F4),
        args=[np.ones(2, F4)],
        strides=[1, 1, 1, 1],
        padding="SAME",
        fused_ops=["BiasAdd"],
        explicit_paddings=[],
        data_format="NHWC",
        dilations=[1, 1, 1, 1],
        epsilon=1e-4,
    ),
}
