"""Right calls of the ops of kernels/row_norm."""

import numpy as np

from tests.fuzz.values import F4, POINTS, N

SCALE, ROWS = np.ones(3, F4), np.ones(N, F4)
PUBLIC = {
    "layer_norm": dict(x=POINTS, scale=SCALE, offset=SCALE, epsilon=1e-3),
    "rms_norm": dict(x=POINTS, scale=SCALE, epsilon=1e-6),
}
RAW = {
    "row_norm": dict(x=POINTS, scale=SCALE, offset=SCALE, epsilon=1e-3, center=True),
    "row_norm_grad": dict(
        gradients=POINTS, x=POINTS, scale=SCALE, mean=ROWS, factor=ROWS, epsilon=1e-3, center=True
    ),
}
