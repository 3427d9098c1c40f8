"""Right calls of the functions of max_pool, which are made of TensorFlow's ops."""

import numpy as np

from tests.fuzz.values import F4, N

PICTURES = np.linspace(0, 1, N * 4 * 4 * 2, dtype=F4).reshape(N, 4, 4, 2)
PUBLIC = {
    "max_pool_with_global_indices": dict(x=PICTURES, size=2, strides=1, padding="SAME"),
    "max_unpool": dict(
        values=PICTURES[:, 0, 0], indices=np.arange(2 * N).reshape(N, 2), shape=[N, 4]
    ),
}
RAW = {}
