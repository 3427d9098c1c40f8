"""Where a scene lives: its box, the map from world to unit cube, and the steps along a ray."""

from __future__ import annotations

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
        extent: 1 for a plain box. Above 1 the volume is `extent` times as large in each direction, and what
            lies outside the box is squeezed into the outer half of the unit cube, as in Barron et al.
            2022, "Mip-NeRF 360", equation 10 (with the maximum norm, so that the box stays a box).
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
    def centre(self) -> np.ndarray:
        """Middle of the box, float32 [3]."""
        return (self.aabb[0] + self.aabb[1]) / 2

    def to_unit(self, points: tf.Tensor) -> tf.Tensor:
        """World points float32 [..., 3] in the unit cube (clamped to it)."""
        if not self.contracted:
            unit = (points - self.aabb[0]) / (self.aabb[1] - self.aabb[0])
            return tf.clip_by_value(unit, 0.0, 1.0)
        normalised = (points - self.centre) / ((self.aabb[1] - self.aabb[0]) / 2)
        norm = tf.maximum(tf.reduce_max(tf.abs(normalised), axis=-1, keepdims=True), 1.0)
        squeezed = (2.0 - 1.0 / norm) / norm * normalised  # the identity inside the box
        # The farthest point has norm 2 - 1 / extent: spend the whole cube on what exists.
        return tf.clip_by_value(squeezed / (2.0 * (2.0 - 1.0 / self.extent)) + 0.5, 0.0, 1.0)

    def outer_box(self) -> np.ndarray:
        """Corners float32 [2, 3] of all that is modelled."""
        return (self.centre + (self.aabb - self.centre) * self.extent).astype(np.float32)

    def bin_start(self, number: tf.Tensor, near: tf.Tensor, step: float) -> tf.Tensor:
        """Distance at which a ray's bin `number` (float, fractions inside the bin) starts.

        Bins are `step` long; in an unbounded scene they grow in proportion to the distance once that
        makes them longer than `step`.
        """
        if not self.contracted:
            return near + number * step
        knee = step / _CONE  # distance where the cone is as wide as a step
        linear_bins = tf.maximum((knee - near) / step, 0.0)
        beyond = tf.maximum(number - linear_bins, 0.0)
        start = near + tf.minimum(number, linear_bins) * step
        return start * tf.exp(beyond * _CONE)

    def bin_count(self, near: tf.Tensor, far: tf.Tensor, step: float) -> tf.Tensor:
        """How many bins the longest of the rays needs: int32 scalar."""
        if not self.contracted:
            return tf.cast(tf.math.ceil(tf.reduce_max(far - near) / step), tf.int32)
        knee = step / _CONE
        linear = tf.maximum(tf.minimum(far, knee) - near, 0.0) / step
        start = tf.maximum(near, knee)
        cone = tf.math.log(tf.maximum(far, start) / start) / _CONE
        return tf.cast(tf.math.ceil(tf.reduce_max(linear + cone)), tf.int32)


def intersect_box(
    origins: tf.Tensor, directions: tf.Tensor, box: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Where rays enter and leave a box (the slab method of Kay and Kajiya 1986).

    Args:
        origins: float32 [R, 3].
        directions: float32 [R, 3].
        box: float32 [2, 3].

    Returns:
        near and far float32 [R], near at least 0; far <= near where the ray misses.
    """
    # A direction of exactly zero would make 0 * inf = NaN on a face: nudge it.
    safe = tf.where(tf.abs(directions) < 1e-9, 1e-9, directions)
    first = (box[0] - origins) / safe
    second = (box[1] - origins) / safe
    near = tf.reduce_max(tf.minimum(first, second), axis=1)
    far = tf.reduce_min(tf.maximum(first, second), axis=1)
    return tf.maximum(near, 0.0), far
