"""Stratified samples along rays, packed: only those that lie in occupied cells."""

from __future__ import annotations

import tensorflow as tf

from .occupancy import OccupancyGrid
from .render import PackedSamples
from .space import Space, intersect_box


def sample_rays(
    origins: tf.Tensor,
    directions: tf.Tensor,
    space: Space,
    occupancy: OccupancyGrid | None,
    step: float,
    jitter: tf.Tensor | None = None,
) -> PackedSamples:
    """Cuts rays into bins of equal length and keeps one sample of each bin that may hold something.

    The place of the sample within the bin is uniform and the same for all bins of a ray: stratified,
    and evenly spaced, which is the better quadrature of the two usual choices.

    Args:
        origins: float32 [R, 3], world.
        directions: float32 [R, 3], unit length.
        space: The modelled volume.
        occupancy: What is empty; None keeps every sample.
        step: Length of a bin, world units.
        jitter: float32 [R] in [0, 1), place within the bin; the middle if None.

    Returns:
        The samples, ray after ray, front to back.
    """
    aabb = tf.constant(space.aabb)
    if space.contracted:
        box = tf.constant(space.outer_box())
    elif occupancy is not None:
        box = aabb[0] + occupancy.bounds * (aabb[1] - aabb[0])
    else:
        box = aabb
    near, far = intersect_box(origins, directions, box)
    near = tf.maximum(near, space.near)
    place = tf.fill(tf.shape(near), 0.5) if jitter is None else jitter
    bins = tf.maximum(space.bin_count(near, far, step), 0)
    number = tf.range(tf.cast(bins, tf.float32)) + place[:, None]  # [R, bins]
    t = space.bin_start(number, near[:, None], step)
    keep = t < far[:, None]
    if occupancy is not None:
        resolution = occupancy.resolution
        if space.contracted:
            unit = space.to_unit(origins[:, None] + t[:, :, None] * directions[:, None])
            keep = keep & occupancy.lookup(unit)
        else:
            # The same lookup a coordinate at a time: a third of the memory traffic.
            scale = resolution / (aabb[1] - aabb[0])
            start, slope = (origins - aabb[0]) * scale, directions * scale
            index = tf.zeros_like(t, tf.int32)
            for axis in range(3):
                cell = tf.cast(start[:, axis, None] + t * slope[:, axis, None], tf.int32)
                index = index * resolution + tf.clip_by_value(cell, 0, resolution - 1)
            keep = keep & tf.gather(occupancy.occupied, index)
    flat = tf.cast(tf.where(tf.reshape(keep, [-1]))[:, 0], tf.int32)
    ray_indices = flat // tf.maximum(bins, 1)
    number = tf.cast(flat - ray_indices * bins, tf.float32)
    per_ray = tf.gather(
        tf.concat([origins, directions, near[:, None], place[:, None]], axis=1), ray_indices
    )
    near, place = per_ray[:, 6], per_ray[:, 7]
    t = space.bin_start(number + place, near, step)
    if space.contracted:
        delta = space.bin_start(number + 1.0, near, step) - space.bin_start(number, near, step)
    else:
        delta = tf.fill(tf.shape(t), step)
    return PackedSamples(
        points=space.to_unit(per_ray[:, :3] + t[:, None] * per_ray[:, 3:6]),
        ray_indices=ray_indices,
        t=t,
        delta=delta,
        counts=tf.reduce_sum(tf.cast(keep, tf.int32), axis=1),
    )
