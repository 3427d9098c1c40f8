"""Right calls of the ops of kernels/packed_scan."""

import numpy as np

from tests.fuzz.values import PACKED, T

PUBLIC = {
    **{
        name: dict(inputs=T, packed_info=PACKED, reverse=False)
        for name in ("inclusive_sum", "exclusive_sum", "inclusive_prod", "exclusive_prod")
    },
    "pack_ray_indices": dict(ray_indices=np.array([0, 0, 1], np.int32), n_rays=2),
}
RAW = {
    "pack_ray_indices": dict(ray_indices=np.array([0, 0, 1], np.int32), n_rays=np.int32(2)),
    "packed_prod_grad": dict(
        gradients=T, inputs=T, packed_info=PACKED, exclusive=False, reverse=False
    ),
    "packed_scan": dict(
        inputs=T, packed_info=PACKED, reduction="sum", exclusive=False, reverse=False
    ),
}
