"""Right calls of the op of kernels/hamming_distance."""

import numpy as np

from tests.fuzz.values import N

BITS = np.arange(4 * N, dtype=np.uint8).reshape(N, 4)
PUBLIC = {
    "hamming_distance": dict(a=BITS, b=BITS, elements=True),
    "hamming_top_k": dict(queries=BITS, rows=BITS, k=2, elements=False),
}
RAW = {"hamming_distance": dict(a=BITS, b=BITS, elements=True)}
