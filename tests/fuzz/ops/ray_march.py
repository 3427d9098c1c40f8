"""Right calls of the ops of kernels/ray_march."""

import numpy as np

from tests.fuzz.values import F4, POINTS

MARCH = dict(
    origins=POINTS - 1,
    directions=POINTS + 0.1,
    occupancy=np.full((1, 64), 255, np.uint8),
    aabb=np.array([0, 0, 0, 1, 1, 1], F4),
    step=0.1,
    resolution=8,
)
PUBLIC = {
    "ray_march": dict(
        **MARCH,
        near=F4(0),
        far=F4(9),
        cone_angle=0.0,
        max_samples_per_ray=32,
        seed=np.array([1, 2], np.int32),
    ),
}
RAW = {
    "pack_occupancy": dict(densities=np.ones((1, 64), F4), threshold=F4(0.5)),
    "ray_march": dict(
        **MARCH,
        t_min=F4(0),
        t_max=F4(9),
        seed=np.array([1, 2], np.int32),
        cone_angle=0.0,
        max_samples_per_ray=32,
        stratified=True,
    ),
}
