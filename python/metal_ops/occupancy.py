"""OccupancyGrid: which cells of space hold anything, learnt from a density, so that `ray_march` can skip the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from metal_ops.ops import _arguments

__theme__ = "Rays"
MAX_LEVELS = 16


class OccupancyGrid(tf.Module):
    """Levels of cells with a decaying maximum of the density seen in each, and the bits that `ray_march` reads.

    Mueller et al. 2022, "Instant Neural Graphics Primitives", appendix C. Level 0 covers `aabb`; level l is 2^l times
    as large around the same centre, with as many cells. At first every cell counts as occupied. All methods work in
    tf.function, and the variables are saved in checkpoints of whatever holds the grid.

    Args:
      aabb: Box of level 0: [6] (x_min, y_min, z_min, x_max, y_max, z_max) or [2, 3].
      resolution: Cells along an edge of a level; a multiple of 4 where there are several levels.
      n_levels: Number of levels, 1 to 16.
      threshold: A cell is occupied if its density is above this, or above the mean of all cells where that is less (a
        scene of thin fog would vanish otherwise). In the unit of `update`'s densities: instant-ngp takes 0.01 for the
        density times the step's length. So vanished matter is forgotten once it has faded below the mean of the rest;
        if nothing is left anywhere, the mean fades too, and the cells stay as they were.
      decay: The factor of a cell's density at each update.
      allowed: Cells that may ever be occupied, [n_levels, resolution^3] or [resolution^3] bool (a visual hull, or the
        cells that any camera sees); None for all.
      name: Name of the module.

    Attributes:
      density: Variable [n_levels, resolution^3] float32, x slowest. -1 marks cells that are never occupied.
      bits: Variable [n_levels, ceil(resolution^3 / 8)] uint8.
      aabb: [6] float32.

    Raises:
      TypeError: A number is none, or resolution or n_levels are no integers.
      ValueError: An argument is out of range.

    Example:
      >>> grid = metal_ops.OccupancyGrid(aabb=[0, 0, 0, 1, 1, 1], resolution=16, threshold=0.5)
      >>> for step in range(2):
      ...     grid.update(lambda x: tf.cast(x[:, 0] > 0.5, tf.float32), seed=(0, step), every_cell=True)
      >>> round(grid.occupied_fraction(), 2)
      0.5
    """

    def __init__(
        self,
        aabb: Any,
        resolution: int = 128,
        n_levels: int = 1,
        threshold: float = 0.01,
        decay: float = 0.95,
        allowed: Any = None,
        name: str = "occupancy_grid",
    ) -> None:
        super().__init__(name=name)
        self.aabb = np.asarray(aabb, np.float32).reshape(-1)
        finite = np.all(np.isfinite(self.aabb))
        if not finite or self.aabb.shape != (6,) or not np.all(self.aabb[:3] < self.aabb[3:]):
            raise ValueError(
                f"[OccupancyGrid] aabb: expected (x_min, y_min, z_min, x_max, y_max, z_max), got {aabb}."
            )
        resolution = _arguments.integer("OccupancyGrid", "resolution", resolution)
        n_levels = _arguments.integer("OccupancyGrid", "n_levels", n_levels)
        threshold = _arguments.number("OccupancyGrid", "threshold", threshold)
        decay = _arguments.number("OccupancyGrid", "decay", decay)
        if not 1 <= n_levels <= MAX_LEVELS:
            raise ValueError(
                f"[OccupancyGrid] n_levels: expected 1 to {MAX_LEVELS}, got {n_levels}."
            )
        if not 1 <= resolution <= 1024 or (n_levels > 1 and resolution % 4):
            raise ValueError(
                "[OccupancyGrid] resolution: expected 1 to 1024, a multiple of 4 with several levels, "
                f"got {resolution}."
            )
        if n_levels * resolution**3 >= 2**31:
            raise ValueError(
                f"[OccupancyGrid] resolution: expected less than 2^31 cells on all levels, got {n_levels} levels of "
                f"{resolution}^3. Halve the resolution, or take fewer levels."
            )
        if not threshold >= 0:
            raise ValueError(f"[OccupancyGrid] threshold: expected 0 or more, got {threshold}.")
        if not 0 <= decay <= 1:
            raise ValueError(f"[OccupancyGrid] decay: expected 0 to 1, got {decay}.")
        self.resolution = resolution
        self.n_levels = n_levels
        self.n_cells = resolution**3
        self.threshold = threshold
        self.decay = decay
        if allowed is None:
            allowed = np.ones([n_levels, self.n_cells], bool)
        allowed = np.asarray(allowed)
        if allowed.dtype != bool or allowed.size != n_levels * self.n_cells:
            raise ValueError(
                f"[OccupancyGrid] allowed: expected bool [{n_levels}, {self.n_cells}], got {allowed.dtype} "
                f"{list(allowed.shape)}."
            )
        allowed = allowed.reshape(n_levels, self.n_cells)
        self.density = tf.Variable(
            np.where(allowed, np.float32(0), np.float32(-1)), trainable=False, name="density"
        )
        self.bits = tf.Variable(
            np.packbits(allowed, axis=1, bitorder="little"), trainable=False, name="bits"
        )

    def update(
        self,
        density_fn: Callable[[tf.Tensor], tf.Tensor],
        seed: Any,
        *,
        every_cell: bool = False,
        n_looks: int | None = None,
    ) -> None:
        """Lets all cells decay, looks at some at a random point each, and sets the bits anew.

        instant-ngp does so every 16 steps: at every cell for the first 256 steps, then at a quarter of them at random
        and at as many of the occupied ones. Cells that are never occupied are not looked at.

        Args:
          density_fn: [n, 3] float32 points of the world -> [n] or [n, 1] densities, in the threshold's unit.
          seed: Two integers, as for `tf.random.stateless_uniform`; another pair at each update.
          every_cell: Whether to look at all cells.
          n_looks: How many looks, half of them anywhere and half of them at occupied cells; half the number of cells if
            None. With few of them a cell must be dense to outlast the updates from one look to the next.

        Raises:
          ValueError: n_looks is below 2.
        """
        if n_looks is not None and n_looks < 2:
            raise ValueError(f"[OccupancyGrid] n_looks: expected 2 or more, got {n_looks}.")
        seeds = tf.random.experimental.stateless_split(tf.cast(seed, tf.int32), 3)
        old = tf.reshape(self.density, [-1])
        possible = tf.cast(tf.where(old >= 0)[:, 0], tf.int32)
        if every_cell:
            cells = possible
        else:
            half = (self.density.shape.num_elements() // 2 if n_looks is None else n_looks) // 2
            occupied = tf.cast(tf.where(tf.reshape(self.occupied(), [-1]))[:, 0], tf.int32)
            cells = tf.concat(
                [_choose(possible, half, seeds[0]), _choose(occupied, half, seeds[1])], axis=0
            )
        points = self.points_in(
            cells, tf.random.stateless_uniform([tf.shape(cells)[0], 3], seeds[2])
        )
        densities = _arguments.convert("OccupancyGrid.update", "density_fn", density_fn(points))
        seen = tf.reshape(tf.cast(densities, tf.float32), [-1])
        tf.debugging.assert_equal(
            tf.size(seen),
            tf.size(cells),
            "[OccupancyGrid.update] density_fn: expected one density a point, [n] or [n, 1], got another number.",
        )
        faded = tf.where(old < 0, old, old * self.decay)
        new = tf.tensor_scatter_nd_max(faded, cells[:, None], seen)
        self.density.assign(tf.reshape(new, self.density.shape))
        self.set_bits()

    def set_bits(self) -> None:
        """Sets the bits from the density as it is: for densities that were assigned."""
        possible = self.density >= 0
        mean = tf.math.divide_no_nan(
            tf.reduce_sum(tf.where(possible, self.density, 0.0)),
            tf.reduce_sum(tf.cast(possible, tf.float32)),
        )
        # A little below the mean, or even fog would be on neither side of it.
        threshold = tf.minimum(tf.constant(self.threshold, tf.float32), 0.999 * mean)
        # With nothing left nothing would ever be learnt again: start over.
        # Counted, as devices have no logical reductions: the comparison would go to the host.
        left = tf.reduce_sum(tf.cast(self.density > threshold, tf.float32))
        threshold = tf.where(left > 0.0, threshold, -0.5)
        self.bits.assign(raw_ops.pack_occupancy(self.density, threshold))

    def points_in(self, cells: tf.Tensor, place: Any = 0.5) -> tf.Tensor:
        """Points of the world in cells.

        Args:
          cells: [n] int32, counted through all levels: level * resolution^3 + cell.
          place: Where in the cell, [n, 3] or a number in [0, 1].

        Returns:
          [n, 3] float32.
        """
        level, cell = cells // self.n_cells, cells % self.n_cells
        index = tf.stack(
            [
                cell // self.resolution**2,
                cell // self.resolution % self.resolution,
                cell % self.resolution,
            ],
            axis=-1,
        )
        inside = (tf.cast(index, tf.float32) + place) / self.resolution
        size = tf.pow(2.0, tf.cast(level, tf.float32))[:, None]
        return self.aabb[:3] + ((inside - 0.5) * size + 0.5) * (self.aabb[3:] - self.aabb[:3])

    def occupied(self) -> tf.Tensor:
        """The bits one by one, [n_levels, resolution^3] bool."""
        masks = tf.constant([1, 2, 4, 8, 16, 32, 64, 128], tf.uint8)
        ones = tf.bitwise.bitwise_and(self.bits[:, :, None], masks) > 0
        return tf.reshape(ones, [self.n_levels, -1])[:, : self.n_cells]

    def occupied_fraction(self) -> float:
        """The part of all cells that are occupied."""
        return float(np.unpackbits(self.bits.numpy()).sum() / self.density.shape.num_elements())


def _choose(cells: tf.Tensor, count: int, seed: tf.Tensor) -> tf.Tensor:
    """At most `count` of the cells, drawn with replacement."""
    size = tf.shape(cells)[0]
    index = tf.random.stateless_uniform(
        [tf.minimum(count, size)], seed, 0, tf.maximum(size, 1), tf.int32
    )
    return tf.gather(cells, index)
