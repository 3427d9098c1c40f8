"""The modelled space, and the samples that march through it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.nerf import fused
from metal_ops.nerf.rays import march, middles, select
from metal_ops.nerf.space import Space

BOX = Space(np.array([[-1.0] * 3, [1.0] * 3], np.float32))


def rays(count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """From outside, most of them towards the box [-1, 1]^3."""
    generator = np.random.default_rng(0)
    origins = generator.normal(size=(count, 3))
    origins *= 3 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = generator.uniform(-1.2, 1.2, (count, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return tf.constant(origins, tf.float32), tf.constant(directions, tf.float32)


@pytest.mark.parametrize("extent", [2.0, 16.0, 5.0])
def test_contraction_is_a_map_onto_the_cube(extent):
    space = Space(BOX.aabb, extent=extent)
    generator = np.random.default_rng(3)
    inside = generator.uniform(-1, 1, (100, 3)).astype(np.float32)
    reach = 2.0 ** (space.n_levels - 1)
    assert extent <= reach < 2 * extent
    scale = 2 * (2 - 1 / reach)
    np.testing.assert_allclose(space.to_unit(inside), inside / scale + 0.5, atol=1e-6)
    # Along a ray outwards the contracted points move outwards, and end at the cube's surface.
    direction = np.array([0.3, -1.0, 0.7], np.float32)
    t = np.linspace(0, reach, 200, dtype=np.float32)[:, None]
    unit = space.to_unit(t * direction).numpy()
    assert (np.diff(np.abs(unit[:, 1] - 0.5)) > 0).all()
    np.testing.assert_allclose(unit[-1, 1], 0.0, atol=1e-6)


def grid_of(space: Space, resolution: int = 16, filled: float = 0.3) -> metal_ops.OccupancyGrid:
    allowed = np.random.default_rng(5).random([space.n_levels, resolution**3]) < filled
    return metal_ops.OccupancyGrid(space.aabb, resolution, space.n_levels, allowed=allowed)


@pytest.mark.parametrize("extent", [1.0, 4.0])
def test_points_along_rays(extent):
    """The two ways to the same points: scaled rays for a plain box, mapped samples for a contracted one."""
    space = Space(np.array([[-1.0, -0.5, 0.0], [1.0, 1.0, 3.0]], np.float32), extent=extent)
    origins, directions = rays(100)
    samples = march(fused, origins, directions, space, grid_of(space), 0.1, seed=(1, 2))
    t, index = middles(samples), samples.ray_indices
    assert len(t) > 100
    world = origins.numpy()[index] + t.numpy()[:, None] * directions.numpy()[index]
    points = space.along(origins, directions, index, t)
    np.testing.assert_allclose(points, space.to_unit(world), atol=2e-6)
    assert points.numpy().min() > -1e-5 and points.numpy().max() < 1 + 1e-5


def test_contracted_steps_grow_and_reach_the_end():
    space = Space(BOX.aabb, extent=8.0, near=0.1)
    origins, directions = tf.zeros([1, 3]), tf.constant([[1.0, 0.0, 0.0]])
    samples = march(fused, origins, directions, space, grid_of(space, filled=2.0), step=0.02)
    t, delta = samples.t_starts.numpy(), (samples.t_ends - samples.t_starts).numpy()
    assert t[0] == np.float32(0.1) and abs(samples.t_ends.numpy()[-1] - 8.0) < delta[-1]
    np.testing.assert_allclose(delta[:20], 0.02, rtol=1e-3)
    assert delta[-1] > 2 * delta[0]
    np.testing.assert_allclose(t[1:], samples.t_ends[:-1], rtol=1e-6)  # no gaps


def test_thickening_follows_the_levels():
    space = Space(BOX.aabb, extent=8.0)
    points = tf.constant([[0.0, 0.0, 0.0], [0.9, -1.0, 0.0], [0.0, -4.0, 1.0], [8.0, 0.0, 0.0]])
    np.testing.assert_allclose(space.thickening(points), [1, 1, 4, 8])
    np.testing.assert_array_equal(BOX.thickening(points), [1, 1, 1, 1])


def test_select_renumbers():
    origins, directions = rays(50)
    samples = march(fused, origins, directions, BOX, grid_of(BOX), 0.1)
    keep = np.flatnonzero(np.random.default_rng(1).random(len(samples.t_starts)) < 0.4)
    chosen = select(fused, samples, tf.constant(keep))
    np.testing.assert_array_equal(chosen.t_ends, samples.t_ends.numpy()[keep])
    np.testing.assert_array_equal(chosen.ray_indices, samples.ray_indices.numpy()[keep])
    counts = np.bincount(chosen.ray_indices, minlength=50)
    np.testing.assert_array_equal(chosen.packed_info[:, 1], counts)
    np.testing.assert_array_equal(chosen.packed_info[:, 0], np.cumsum(counts) - counts)
