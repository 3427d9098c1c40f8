"""Which cells of the unit cube hold anything: what lets the marcher skip empty space.

Source: Mueller et al. 2022, "Instant Neural Graphics Primitives", appendix C: a decaying maximum of
the density in every cell, thresholded into bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf


class OccupancyGrid(tf.Module):
    """A cube of G^3 cells with the density seen in each, and the bits that the marcher reads.

    Args:
        resolution: G.
        threshold: Density above which a cell counts as occupied; less where the mean of the whole grid is less,
            so that a scene of thin fog is not skipped.
        decay: What is left of the old maximum at each look at a cell.
        allowed: bool [G^3], cells that may ever be occupied (a visual hull); all of them if None.

    Attributes:
        density: float32 [G^3] variable.
        occupied: bool [G^3] variable, x slowest.
        bounds: float32 [2, 3] variable, the box around the occupied cells in the unit cube.
    """

    def __init__(
        self,
        resolution: int,
        threshold: float,
        decay: float = 0.8,
        allowed: np.ndarray | None = None,
    ) -> None:
        super().__init__(name="occupancy")
        self.resolution = resolution
        self.threshold = threshold
        self.decay = decay
        cells = resolution**3
        allowed = np.ones([cells], bool) if allowed is None else allowed
        self.allowed = tf.Variable(allowed, trainable=False, name="allowed")
        # A few looks at an empty cell, not one, should clear it.
        self.density = tf.Variable(
            np.where(allowed, np.float32(2 * threshold), np.float32(0)),
            trainable=False,
            name="density",
        )
        self.occupied = tf.Variable(tf.zeros([cells], tf.bool), trainable=False, name="occupied")
        self.bounds = tf.Variable([[0.0] * 3, [1.0] * 3], trainable=False, name="bounds")
        self._set_occupied(allowed)

    def lookup(self, points: tf.Tensor) -> tf.Tensor:
        """Whether points float32 [..., 3] of the unit cube lie in occupied cells: bool [...]."""
        cell = tf.clip_by_value(tf.cast(points * self.resolution, tf.int32), 0, self.resolution - 1)
        x, y, z = tf.unstack(cell, axis=-1)
        return tf.gather(self.occupied, (x * self.resolution + y) * self.resolution + z)

    def update(
        self,
        density_at: Callable[[tf.Tensor], tf.Tensor],
        seed: tuple[int, int],
        most: int = 1 << 18,
    ) -> None:
        """Looks at the occupied cells and a random sixteenth of the grid, at one random point each.

        Args:
            density_at: float32 [M, 3] in the unit cube -> float32 [M]; a tf.function, M varies.
            seed: Of the random points and cells.
            most: Cells to look at, at most: a random choice if there are more.
        """
        cells = self.resolution**3
        looked_at = self.occupied.numpy()
        generator = np.random.default_rng(seed)
        looked_at[generator.integers(0, cells, cells // 16)] = True
        looked_at &= self.allowed.numpy()
        index = np.flatnonzero(looked_at)
        if len(index) > most:
            index = np.sort(generator.choice(index, most, replace=False))
        corner = np.stack(np.unravel_index(index, [self.resolution] * 3), axis=1)
        jitter = generator.random(corner.shape, np.float32)
        seen = np.asarray(density_at(((corner + jitter) / self.resolution).astype(np.float32)))
        density = self.density.numpy()
        density[index] = np.maximum(density[index] * self.decay, seen)
        self.density.assign(density)
        mean = float(density.sum() / max(self.allowed.numpy().sum(), 1))
        self._set_occupied(density > min(self.threshold, mean))

    def _set_occupied(self, occupied: np.ndarray) -> None:
        if not occupied.any():
            # With nothing left nothing would ever be learnt again: start over.
            occupied = self.allowed.numpy()
        self.occupied.assign(occupied)
        cube = occupied.reshape([self.resolution] * 3)
        bounds = np.empty([2, 3], np.float32)
        for axis in range(3):
            along = np.flatnonzero(cube.any(axis=tuple({0, 1, 2} - {axis})))
            bounds[:, axis] = along[0], along[-1] + 1
        self.bounds.assign(bounds / self.resolution)

    @property
    def fraction(self) -> float:
        """The occupied part of the unit cube."""
        return float(self.occupied.numpy().mean())
