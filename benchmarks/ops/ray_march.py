"""Calls of the ops of kernels/ray_march that do not grow by themselves."""

from typing import Any

import numpy as np


def occupancy(n: int) -> dict[str, Any]:
    densities = np.random.default_rng(0).random((1, n), np.float32)
    return dict(densities=densities, threshold=np.float32(0.5))


CALLS = {"pack_occupancy": occupancy}
