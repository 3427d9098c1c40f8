"""From rays to the packed samples that the networks see, for either backend."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import tensorflow as tf

from metal_ops import OccupancyGrid
from metal_ops.ops.ray_march import RaySamples

from .space import Space


def march(
    ops: ModuleType,
    origins: tf.Tensor,
    directions: tf.Tensor,
    space: Space,
    occupancy: OccupancyGrid,
    step: float,
    seed: Any = None,
) -> RaySamples:
    """Samples of rays where the space may hold something.

    Args:
      ops: The backend's operations.
      origins: float32 [R, 3], world.
      directions: float32 [R, 3], unit length.
      space: The modelled volume.
      occupancy: The grid of empty cells.
      step: Length of a step, world units; in unbounded scenes steps grow with the distance.
      seed: Two integers, of the shift of each ray's steps; none if None.
    """
    return ops.ray_march(
        origins,
        directions,
        occupancy,
        step=step,
        cone_angle=space.cone_angle,
        near=space.near,
        seed=seed,
    )


def middles(samples: RaySamples) -> tf.Tensor:
    """Where the samples' colours and densities are looked up: float32 [M]."""
    return 0.5 * (samples.t_starts + samples.t_ends)


def select(ops: ModuleType, samples: RaySamples, index: tf.Tensor) -> RaySamples:
    """The samples at ascending positions `index` (int [K]); rays may be left without any."""
    ray_indices = tf.gather(samples.ray_indices, index)
    return RaySamples(
        tf.gather(samples.t_starts, index),
        tf.gather(samples.t_ends, index),
        ray_indices,
        ops.pack_ray_indices(ray_indices, tf.shape(samples.packed_info)[0]),
    )
