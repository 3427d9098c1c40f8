"""Marching rays through an occupancy grid: samples only where there may be something."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops.ops import _arguments, _declared

__all__ = ["RaySamples", "ray_march"]
__theme__ = "Rays"


class RaySamples(NamedTuple):
    """The result of `ray_march`: samples packed ray after ray.

    Attributes:
      t_starts: Where each sample begins along its ray, in units of its direction, [samples] float32.
      t_ends: Where it ends.
      ray_indices: The ray of each sample, [samples], ascending.
      packed_info: First sample and number of samples of each ray, [rays, 2].
    """

    t_starts: tf.Tensor
    t_ends: tf.Tensor
    ray_indices: tf.Tensor
    packed_info: tf.Tensor


def ray_march(
    origins: Any,
    directions: Any,
    occupancy: Any,
    aabb: Any = None,
    *,
    step: float,
    cone_angle: float = 0.0,
    near: Any = 0.0,
    far: Any = np.inf,
    resolution: int | None = None,
    max_samples_per_ray: int = 1024,
    seed: Any = None,
    index_dtype: tf.DType = tf.int32,
    name: str | None = None,
) -> RaySamples:
    """Cuts rays into steps and keeps those whose middle lies in an occupied cell (as instant-ngp and nerfacc do).

    The steps of a ray are `t_0 = near or where it enters the grid, t_{n+1} = t_n + max(step, cone_angle t_n)`. They
    do not depend on the occupancy, which only says which of them count; empty cells are skipped as a whole. The
    number of samples is exact, and the result deterministic. Not differentiable.

    Args:
      origins: [rays, 3] float32.
      directions: [rays, 3] float32, of any length; t counts them. A ray with NaN, infinity or a zero direction gets
        no samples.
      occupancy: An `OccupancyGrid`; or its bits, [levels, ceil(resolution^3 / 8)] uint8, cell (i, j, k) along (x, y, z)
        in bit c % 8 of byte c // 8 with `c = (i * resolution + j) * resolution + k`.
      aabb: With bits: the box of level 0, [6] (x_min, y_min, z_min, x_max, y_max, z_max) or [2, 3]. Level l is 2^l
        times as large, around the same centre; a point belongs to the smallest level that holds it.
      step: Shortest step, in t.
      cone_angle: Growth of the steps with distance; 0 for equal ones, 1 / 256 is usual for large scenes.
      near: Where rays begin, a number or [rays] float32; at 0 if below.
      far: Where they end, likewise.
      resolution: With bits: cells along an edge of a level; a multiple of 4 where there are several levels.
      max_samples_per_ray: A ray ends at this many samples.
      seed: Two integers, as for `tf.random.stateless_uniform`: each ray's steps are shifted by a random part of one
        (stratified sampling). None for no shift.
      index_dtype: int32, or int64 for more than 2^31 samples.
      name: Optional name of the op.

    Returns:
      RaySamples(t_starts, t_ends, ray_indices, packed_info).

    Raises:
      TypeError: A dtype does not fit.
      ValueError: aabb or resolution are missing, or given beside an OccupancyGrid.
      tf.errors.InvalidArgumentError: A shape or a number does not fit, or a step is so short that a ray has more than
        2^22 of them.

    Example:
      >>> grid = metal_ops.OccupancyGrid(aabb=[-1, -1, -1, 1, 1, 1], resolution=4)
      >>> samples = metal_ops.ray_march([[-3.0, 0.1, 0.1]], [[1.0, 0.0, 0.0]], grid, step=0.5)
      >>> samples.t_starts.numpy().tolist(), samples.packed_info.numpy().tolist()
      ([2.0, 2.5, 3.0, 3.5], [[0, 4]])
    """
    op = "ray_march"
    if hasattr(occupancy, "bits"):
        if aabb is not None or resolution is not None:
            raise ValueError(
                f"[{op}] aabb, resolution: expected neither with an OccupancyGrid, which has them, got "
                f"{'aabb' if aabb is not None else 'resolution'}."
            )
        aabb, resolution, occupancy = occupancy.aabb, occupancy.resolution, occupancy.bits
    if aabb is None or resolution is None:
        raise ValueError(
            f"[{op}] aabb, resolution: expected both with occupancy bits, got aabb={aabb} and resolution={resolution}."
        )
    with tf.name_scope(name or op):
        if index_dtype not in _arguments.INDICES:
            raise TypeError(
                f"[{op}] index_dtype: expected tf.int32 or tf.int64, got {index_dtype!r}."
            )
        tensors = {
            "origins": origins,
            "directions": directions,
            "occupancy": occupancy,
            "aabb": tf.reshape(_arguments.as_floats(op, "aabb", aabb, [tf.float32]), [-1]),
            "near": near,
            "far": far,
            "seed": _seed(op, seed),
        }
        return RaySamples(
            *_declared.call(
                op,
                tensors,
                None,
                Tindices=tf.as_dtype(index_dtype),
                resolution=resolution,
                step=step,
                cone_angle=cone_angle,
                max_samples_per_ray=max_samples_per_ray,
                stratified=seed is not None,
            )
        )


def _seed(op: str, seed: Any) -> tf.Tensor:
    """[2] int32: of integers with more bits, the lower ones."""
    if seed is None:
        return tf.zeros([2], tf.int32)
    seed = _arguments.as_indices(
        op, "seed", np.asarray(seed) if isinstance(seed, tuple | list) else seed
    )
    return tf.cast(seed, tf.int32)


tf.no_gradient("RayMarch")
tf.no_gradient("PackOccupancy")
