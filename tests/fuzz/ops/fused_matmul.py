"""Right calls of the ops of kernels/fused_matmul."""

import numpy as np

from tests.fuzz.values import F4, POINTS, N

PUBLIC = {
    "fused_matmul": dict(
        a=POINTS,
        b=np.ones((3, 5), F4),
        bias=np.ones(5, F4),
        residual=np.ones((N, 5), F4),
        activation="relu",
        transpose_a=False,
        transpose_b=False,
    ),
}
RAW = {
    "metal_fused_mat_mul": dict(
        a=POINTS,
        b=np.ones((3, 5), F4),
        args=[np.ones(5, F4)],
        fused_ops=["BiasAdd"],
        transpose_a=False,
        transpose_b=False,
    ),
}
