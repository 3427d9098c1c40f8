"""Right calls of the op of kernels/rope."""

import numpy as np

from tests.fuzz.values import F4, N

HEADS = np.linspace(-1, 1, N * 2 * 3 * 4, dtype=F4).reshape(N, 2, 3, 4)
POSITIONS = np.arange(3, dtype=np.int32)
PUBLIC = {
    "rope": dict(x=HEADS, positions=POSITIONS, base=100.0, rotary_size=2, interleaved=True),
}
RAW = {
    "rope": dict(
        x=HEADS, positions=POSITIONS[None], turns=np.full((2, 2), 0.25, F4), interleaved=True
    ),
}
