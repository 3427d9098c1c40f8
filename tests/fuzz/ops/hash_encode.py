"""Right calls of the ops of kernels/hash_encode."""

import numpy as np

from tests.fuzz.values import F4, POINTS, N, Special

OFFSETS = np.array([0, 64, 128], np.int32)
TABLE = np.ones((128, 2), F4)
WIDE = np.ones((N, 2 * 2), F4)
HASH = dict(
    inputs=POINTS,
    embeddings=TABLE,
    hashmap_offsets=OFFSETS,
    log2_per_level_scale=1.0,
    resolution_coarsest=4,
    interpolation="linear",
    grid_kind="hash",
)
PUBLIC = {
    "hash_encode": dict(
        points=POINTS,
        table=TABLE,
        grid=Special("grid", dict(n_levels=2, log2_hashmap_size=6, base_resolution=4)),
    ),
}
RAW = {
    "hash_encode": HASH,
    "hash_encode_grad": dict(incoming_gradients=WIDE, **HASH),
    "hash_encode_jvp": dict(tangents=POINTS, **HASH),
    "hash_encode_jvp_grad": dict(tangents=POINTS, incoming_gradients=WIDE, **HASH),
    "hash_encode_jvp_point_grad": dict(tangents=POINTS, incoming_gradients=WIDE, **HASH),
    "hash_encode_point_grad": dict(incoming_gradients=WIDE, **HASH),
}
