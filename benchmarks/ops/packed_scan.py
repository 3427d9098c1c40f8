"""Calls of the ops of kernels/packed_scan that do not grow by themselves."""

from typing import Any

import numpy as np

from benchmarks.op_calls import RAY


def indices(n: int) -> dict[str, Any]:
    return dict(ray_indices=np.arange(n, dtype=np.int32) // RAY, n_rays=np.int32(n // RAY))


CALLS = {"pack_ray_indices": indices}
