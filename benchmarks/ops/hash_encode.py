"""Calls of the ops of kernels/hash_encode: the small call's table of 128 rows would stay in the first cache."""

from functools import partial
from typing import Any

import numpy as np

from metal_ops.grid import HashGrid

GRID = HashGrid(n_levels=16, log2_hashmap_size=14, base_resolution=16)


def call(others: tuple[str, ...], n: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    floats = {
        "incoming_gradients": random.standard_normal((n, GRID.output_dim), np.float32),
        "tangents": random.standard_normal((n, GRID.n_dims), np.float32),
    }
    return {name: floats[name] for name in others} | dict(
        inputs=random.random((n, GRID.n_dims), np.float32),
        embeddings=random.uniform(-1, 1, GRID.table_shape).astype(np.float32),
        hashmap_offsets=GRID.offsets.astype(np.int32),
        log2_per_level_scale=float(GRID.log2_per_level_scale),
        resolution_coarsest=GRID.base_resolution,
    )


CALLS = {
    "hash_encode": partial(call, ()),
    "hash_encode_grad": partial(call, ("incoming_gradients",)),
    "hash_encode_jvp": partial(call, ("tangents",)),
    "hash_encode_jvp_grad": partial(call, ("tangents", "incoming_gradients")),
    "hash_encode_jvp_point_grad": partial(call, ("tangents", "incoming_gradients")),
    "hash_encode_point_grad": partial(call, ("incoming_gradients",)),
}
