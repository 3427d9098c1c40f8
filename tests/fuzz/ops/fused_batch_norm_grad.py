"""Right calls of the op of kernels/fused_batch_norm_grad, which the fusion pass makes."""

import numpy as np

from tests.fuzz.values import F4, POINTS

CHANNELS = np.ones(3, F4)
PUBLIC: dict[str, dict] = {}
RAW = {
    "metal_fused_batch_norm_grad": dict(
        gradients=POINTS,
        features=POINTS,
        x=POINTS,
        scale=CHANNELS,
        mean=CHANNELS,
        variance=CHANNELS,
        activation="Relu6",
        epsilon=1e-3,
        is_training=False,
    )  # fmt: skip
}
