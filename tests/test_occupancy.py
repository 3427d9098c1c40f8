"""OccupancyGrid: finds matter, forgets vanished matter, never goes blind."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.oracles import march

pytestmark = pytest.mark.ops

AABB = np.array([-1.0, -0.5, 0.0, 1.0, 1.5, 2.0], np.float32)


def ball(points):
    return tf.cast(tf.norm(points - [0.0, 0.5, 1.0], axis=1) < 0.6, tf.float32)


def test_grid_learns_where_the_density_is():
    grid = metal_ops.OccupancyGrid(AABB, resolution=16, n_levels=2, threshold=0.5)
    assert grid.occupied_fraction() == 1.0
    update = tf.function(grid.update)
    for i in range(16):
        update(ball, tf.constant([7, i]), every_cell=True)
    centres = grid.points_in(tf.range(2 * 16**3))
    distance = np.linalg.norm(centres.numpy() - [0.0, 0.5, 1.0], axis=1)
    occupied = grid.occupied().numpy().reshape(-1)
    half_diagonal = np.where(np.arange(2 * 16**3) < 16**3, 1, 2) * np.sqrt(3) / 16
    assert np.all(occupied[distance + half_diagonal < 0.6])
    assert not np.any(occupied[distance - half_diagonal > 0.6])
    before = occupied.sum()
    for i in range(8):
        update(ball, tf.constant([8, i]))
    assert abs(grid.occupied().numpy().sum() - before) < 0.1 * before


def test_forgets_what_has_gone_when_something_is_left():
    """Vanished cells fade below the mean of the others; if all go, the mean fades with them and the cells stay."""

    def after(density, updates):
        grid = metal_ops.OccupancyGrid(AABB, resolution=16, threshold=0.5)
        grid.update(ball, (7, 0), every_cell=True)
        was = grid.occupied().numpy()[0]
        for i in range(updates):
            grid.update(density, (9, i), every_cell=True)
        return was, grid.occupied().numpy()[0]

    def corner(points):
        return tf.cast(tf.reduce_all(points > [0.5, 1.0, 1.5], axis=1), tf.float32)

    there = corner(metal_ops.OccupancyGrid(AABB, resolution=16).points_in(tf.range(16**3))).numpy()
    assert there.sum() == 64  # of 4096: the mean is 1/64, and 0.95^80 < 1/64 < 0.95^82 / 0.999
    was, now = after(corner, 70)
    assert np.all(now[was]) and np.all(now[there > 0])
    was, now = after(corner, 90)
    np.testing.assert_array_equal(now, there > 0)
    was, now = after(lambda x: tf.zeros(tf.shape(x)[:1]), 90)
    assert 0 < was.mean() < 0.5
    np.testing.assert_array_equal(now, was)


def test_points_lie_in_their_cells():
    grid = metal_ops.OccupancyGrid(AABB, resolution=8, n_levels=3)
    cells = tf.range(3 * 8**3)
    place = tf.random.stateless_uniform([3 * 8**3, 3], (1, 2), 0.01, 0.99)
    points = grid.points_in(cells, place).numpy()
    # The cell that ray_march would look up: of the smallest level that holds the point.
    occupied = np.zeros((3, 8**3), bool)
    inner = np.max(np.abs((points - AABB[:3]) / (AABB[3:] - AABB[:3]) - 0.5), axis=1)
    own = inner > np.where(
        np.arange(len(points)) < 512, -1, 2.0 ** (np.arange(len(points)) // 512 - 2)
    )
    for cell in np.flatnonzero(own)[::37]:
        occupied[:] = False
        occupied.reshape(-1)[cell] = True
        assert march.look_up(points[cell : cell + 1], occupied, AABB, 8)[0]


def test_thin_fog_is_kept_and_forbidden_cells_stay_empty():
    grid = metal_ops.OccupancyGrid(AABB, resolution=4, threshold=10.0)
    density = np.zeros((1, 64), np.float32)
    density[0, :5] = -1
    grid.density.assign(density)
    grid.update(lambda x: tf.ones([tf.shape(x)[0], 1]), (0, 0), every_cell=True)
    expected = np.ones((1, 64), bool)
    expected[0, :5] = False
    np.testing.assert_array_equal(grid.occupied(), expected)


def test_packed_bits_are_numpys():
    for cells in (1, 7, 8, 27, 1000):
        density = np.random.default_rng(cells).uniform(size=(3, cells)).astype(np.float32)
        density[0, 0] = np.nan  # compares with nothing
        bits = metal_ops.raw_ops.pack_occupancy(density, 0.5)
        np.testing.assert_array_equal(bits, np.packbits(density > 0.5, axis=1, bitorder="little"))


def test_grid_is_saved_in_checkpoints(tmp_path):
    grid = metal_ops.OccupancyGrid(AABB, resolution=8, threshold=0.5)
    grid.update(ball, (0, 0), every_cell=True)
    path = tf.train.Checkpoint(grid=grid).save(str(tmp_path / "grid"))
    other = metal_ops.OccupancyGrid(AABB, resolution=8, threshold=0.5)
    tf.train.Checkpoint(grid=other).restore(path).assert_consumed()
    np.testing.assert_array_equal(other.bits, grid.bits)
    np.testing.assert_array_equal(other.density, grid.density)


def test_a_single_miss_does_not_clear_a_cell():
    """Densities fade slowly: thin things that a random point missed stay."""
    grid = metal_ops.OccupancyGrid(AABB, resolution=16, threshold=0.5)
    grid.update(ball, (0, 0), every_cell=True)
    before = grid.occupied().numpy()
    grid.update(lambda x: tf.zeros([tf.shape(x)[0]]), (1, 1), every_cell=True)
    assert before.any() and grid.occupied().numpy()[before].all()


def test_finds_what_appears_later():
    """Random looks at empty cells: an object that comes back is seen again."""
    grid = metal_ops.OccupancyGrid(AABB, resolution=8, threshold=0.5)
    for i in range(100):
        grid.update(lambda x: tf.cast(x[:, 0] > 0.5, tf.float32), (0, i))
    assert 0.2 < grid.occupied_fraction() < 0.3
    for i in range(40):
        grid.update(lambda x: tf.ones([tf.shape(x)[0]]), (1, i))
    assert grid.occupied_fraction() > 0.98


def test_forbidden_cells_stay_empty_and_are_not_looked_at():
    allowed = np.zeros([8] * 3, bool)
    allowed[2:4] = True
    grid = metal_ops.OccupancyGrid(AABB, resolution=8, threshold=0.5, allowed=allowed)
    looks: list[tuple[dict, int]] = [({"every_cell": True}, 128), ({}, 256), ({"n_looks": 50}, 50)]
    for i, (options, n_points) in enumerate(looks):
        seen = []

        def density(points, seen=seen):
            seen.append(points.numpy())
            return tf.ones([len(points)])

        grid.update(density, (0, i), **options)
        np.testing.assert_array_equal(grid.occupied(), allowed.reshape(1, -1))
        (points,) = seen
        assert len(points) == n_points
        x = (points[:, 0] - AABB[0]) / (AABB[3] - AABB[0]) * 8
        assert x.min() >= 2 - 1e-5 and x.max() <= 4 + 1e-5


def test_never_goes_blind():
    """A density that is zero everywhere would end all learning; the grid starts over instead."""
    allowed = np.zeros(64, bool)
    allowed[5:9] = True
    grid = metal_ops.OccupancyGrid(AABB, resolution=4, allowed=allowed)
    for i in range(3):
        grid.update(lambda x: tf.zeros([tf.shape(x)[0]]), (0, i), every_cell=True)
    np.testing.assert_array_equal(grid.occupied()[0], allowed)


def test_updates_follow_the_seed():
    grids = [metal_ops.OccupancyGrid(AABB, resolution=8) for _ in range(3)]
    for grid, seed in zip(grids, (4, 4, 5), strict=True):
        for i in range(3):
            grid.update(lambda x: x[:, 0] ** 2, (seed, i), n_looks=100)
    np.testing.assert_array_equal(grids[0].density, grids[1].density)
    assert np.any(grids[0].density.numpy() != grids[2].density.numpy())


@pytest.mark.parametrize(
    "change, sentence",
    [
        (dict(aabb=[0, 0, 0, 1, 1]), "aabb: expected"),
        (dict(aabb=[0, 0, 0, 1, 0, 1]), "aabb: expected"),
        (dict(n_levels=0), "n_levels: expected 1 to 16"),
        (dict(resolution=6, n_levels=2), "a multiple of 4"),
        (dict(decay=1.5), "decay: expected 0 to 1"),
        (dict(aabb=[0, 0, 0, 1, np.inf, 1]), "aabb: expected"),
        (dict(threshold=np.nan), "threshold: expected 0 or more, got nan"),
        # Cells are counted in int32.
        (
            dict(resolution=1024, n_levels=2),
            r"resolution: expected less than 2\^31 cells .* got 2 levels of 1024",
        ),
        (dict(allowed=np.ones(5, bool)), r"allowed: expected bool \[1, 2097152\], got bool \[5\]"),
        (dict(allowed=np.ones(512), resolution=8), "allowed: expected bool .* got float64"),
    ],
)
def test_bad_grids(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        metal_ops.OccupancyGrid(**{"aabb": AABB, **change})


@pytest.mark.parametrize("name", ["resolution", "n_levels", "threshold", "decay"])
@pytest.mark.parametrize("value", ["8", None, [8]])
def test_what_is_no_number(name, value):
    with pytest.raises(TypeError, match=rf"\[OccupancyGrid\] {name}: expected an? "):
        metal_ops.OccupancyGrid(**{"aabb": AABB, name: value})


def test_densities_of_another_number():
    grid = metal_ops.OccupancyGrid(AABB, resolution=4)
    for density_fn in (lambda x: x, lambda x: x[:3, 0]):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="density_fn: expected one density a point"
        ):
            grid.update(density_fn, (0, 0), every_cell=True)
    with pytest.raises(
        TypeError, match=r"\[OccupancyGrid.update\] density_fn: expected a tensor.* got NoneType"
    ):
        grid.update(lambda x: None, (0, 0), every_cell=True)


def test_a_number_of_looks():
    with pytest.raises(ValueError, match="n_looks: expected 2 or more, got 1"):
        metal_ops.OccupancyGrid(AABB, resolution=4).update(ball, (0, 0), n_looks=1)
