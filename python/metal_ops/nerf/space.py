"""Where a scene lives: its box, the map from world to unit cube, and the marching through it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

# Steps of an unbounded scene grow with the distance: a pixel's footprint does too (instant-ngp's cone).
_CONE = 1.0 / 128.0


@dataclass(frozen=True)
class Space:
    """The volume that is modelled.

    Attributes:
      aabb: float32 [2, 3], corners of the box that the scene lies in (its foreground if contracted).
      extent: 1 for a plain box. Above 1 the volume is `extent` times as large in each direction, and points outside the
        box are squeezed into the outer half of the unit cube, as in Barron et al. 2022, "Mip-NeRF 360", equation 10
        (with the maximum norm, so that the box stays a box).
      near: Distance from the camera, world units, within which there is nothing.
    """

    aabb: np.ndarray
    extent: float = 1.0
    near: float = 0.0

    @property
    def diagonal(self) -> float:
        """Length of the box's diagonal, world units."""
        return float(np.linalg.norm(self.aabb[1] - self.aabb[0]))

    @property
    def contracted(self) -> bool:
        """Whether there is anything outside the box."""
        return self.extent > 1.0

    @property
    def n_levels(self) -> int:
        """Levels of an occupancy grid that covers it all, each twice as large as the one before."""
        return 1 + math.ceil(math.log2(self.extent))

    @property
    def cone_angle(self) -> float:
        """Growth of the marching steps with the distance."""
        return _CONE if self.contracted else 0.0

    @property
    def centre(self) -> np.ndarray:
        """Middle of the box, float32 [3]."""
        return (self.aabb[0] + self.aabb[1]) / 2

    def normalised(self, points: tf.Tensor) -> tf.Tensor:
        """World points float32 [..., 3] in units of the box: its corners are -1 and 1."""
        return (points - self.centre) / ((self.aabb[1] - self.aabb[0]) / 2)

    def to_unit(self, points: tf.Tensor) -> tf.Tensor:
        """World points float32 [..., 3] in the unit cube (clamped to it)."""
        if not self.contracted:
            unit = (points - self.aabb[0]) / (self.aabb[1] - self.aabb[0])
            return tf.clip_by_value(unit, 0.0, 1.0)
        normalised = self.normalised(points)
        norm = tf.maximum(tf.reduce_max(tf.abs(normalised), axis=-1, keepdims=True), 1.0)
        squeezed = (2.0 - 1.0 / norm) / norm * normalised  # the identity inside the box
        # The farthest point has norm 2 - 1 / 2^(n_levels - 1): spend the whole cube on existing points.
        farthest = 2.0 - 0.5 ** (self.n_levels - 1)
        return tf.clip_by_value(squeezed / (2.0 * farthest) + 0.5, 0.0, 1.0)

    def along(
        self, origins: tf.Tensor, directions: tf.Tensor, ray_indices: tf.Tensor, t: tf.Tensor
    ) -> tf.Tensor:
        """Points of the unit cube at distances along rays.

        Args:
          origins: float32 [R, 3], world.
          directions: float32 [R, 3].
          ray_indices: int32 [M], the ray of each point.
          t: float32 [M], in units of the directions.

        Returns:
          float32 [M, 3].
        """
        if not self.contracted:
            # A ray of the world is a ray of the cube: scale rays, not samples.
            size = self.aabb[1] - self.aabb[0]
            origins, directions = (origins - self.aabb[0]) / size, directions / size
        points = tf.gather(origins, ray_indices) + t[:, None] * tf.gather(directions, ray_indices)
        return self.to_unit(points) if self.contracted else points

    def thickening(self, points: tf.Tensor) -> tf.Tensor:
        """How much longer steps are where world points float32 [N, 3] lie than in the box: float32 [N].

        An occupancy grid's threshold is for the shortest step.
        """
        if not self.contracted:
            return tf.ones([tf.shape(points)[0]])
        return tf.maximum(tf.reduce_max(tf.abs(self.normalised(points)), axis=-1), 1.0)
