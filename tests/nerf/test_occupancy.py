"""The occupancy grid finds what is there, forgets what is not, and never goes blind."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops.nerf.occupancy import OccupancyGrid

G = 16


def ball(points: tf.Tensor) -> tf.Tensor:
    """Density 50 within 0.25 of the middle of the cube, 0 elsewhere."""
    distance = tf.norm(points - 0.5, axis=1)
    return tf.where(distance < 0.25, 50.0, 0.0)


def cell_centres() -> np.ndarray:
    axis = (np.arange(G) + 0.5) / G
    return np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)


def updated(grid: OccupancyGrid, rounds: int, field=ball) -> OccupancyGrid:
    for k in range(rounds):
        grid.update(field, (0, k))
    return grid


def test_starts_full_and_ends_at_the_object():
    grid = OccupancyGrid(G, threshold=1.0)
    assert grid.fraction == 1.0
    updated(grid, 40)
    distance = np.linalg.norm(cell_centres() - 0.5, axis=1)
    half_diagonal = np.sqrt(3) / 2 / G
    occupied = grid.occupied.numpy()
    assert occupied[distance < 0.25 - half_diagonal].all()  # wholly inside
    assert not occupied[distance > 0.25 + half_diagonal].any()  # wholly outside
    np.testing.assert_allclose(grid.bounds, [[0.25] * 3, [0.75] * 3], atol=1.01 / G)


def test_finds_what_appears_later():
    """Random looks at empty cells: an object that grows back is seen again."""
    grid = updated(OccupancyGrid(G, threshold=1.0), 40, lambda p: tf.where(p[:, 0] < 0.2, 9.0, 0.0))
    assert not grid.lookup(tf.constant([[0.8, 0.5, 0.5]]))[0]
    updated(grid, 150, lambda p: tf.fill([tf.shape(p)[0]], 9.0))
    assert grid.fraction > 0.95


def test_a_single_miss_does_not_clear_a_cell():
    """The maximum decays slowly: thin things that one random point missed stay."""
    grid = updated(OccupancyGrid(G, threshold=1.0), 3)
    before = grid.occupied.numpy() & (grid.density.numpy() > 10)
    grid.update(lambda p: tf.zeros([tf.shape(p)[0]]), (9, 9))
    assert before.any() and grid.occupied.numpy()[before].all()


def test_forbidden_cells_stay_empty():
    allowed = np.zeros([G] * 3, bool)
    allowed[4:8] = True
    grid = OccupancyGrid(G, threshold=1.0, allowed=allowed.reshape(-1))
    np.testing.assert_array_equal(grid.occupied.numpy(), allowed.reshape(-1))
    updated(grid, 60, lambda p: tf.fill([tf.shape(p)[0]], 9.0))
    np.testing.assert_array_equal(grid.occupied.numpy(), allowed.reshape(-1))


def test_never_goes_blind():
    """A field that is zero everywhere would end training; the grid starts over instead."""
    grid = updated(OccupancyGrid(G, threshold=1.0), 80, lambda p: tf.zeros([tf.shape(p)[0]]))
    assert grid.fraction > 0


def test_thin_fog_is_not_skipped():
    """Density below the threshold everywhere: the mean takes the threshold's place."""
    fog = lambda p: 0.01 + 0.01 * p[:, 0]  # noqa: E731
    grid = updated(OccupancyGrid(G, threshold=1.0), 80, fog)
    assert grid.fraction > 0.2


def test_looks_at_most_at_so_many():
    seen = []

    def count(points):
        seen.append(len(points))
        return tf.zeros([len(points)])

    OccupancyGrid(G, threshold=1.0).update(count, (0, 0), most=100)
    assert seen == [100]


@pytest.mark.parametrize("point", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.999999, 0.0, 1.0)])
def test_lookup_on_the_border(point):
    assert bool(OccupancyGrid(G, threshold=1.0).lookup(tf.constant([point]))[0])


def test_updates_are_reproducible():
    first, second = (updated(OccupancyGrid(G, threshold=1.0), 5) for _ in range(2))
    np.testing.assert_array_equal(first.density.numpy(), second.density.numpy())
