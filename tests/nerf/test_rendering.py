"""Volume rendering of packed samples against a float64 oracle that goes ray by ray."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops.nerf.occupancy import OccupancyGrid
from metal_ops.nerf.render import PackedSamples, composite, select_samples, transmittance
from metal_ops.nerf.sampling import sample_rays
from metal_ops.nerf.space import Space, intersect_box

# Samples a ray, among them none at the start, at the end and in a row.
COUNTS = {
    "mixed": [3, 0, 1, 7, 0, 0, 12, 2, 0],
    "one ray": [5],
    "one sample each": [1, 1, 1],
    "nothing at all": [0, 0, 0],
    "many": [40] * 100,
}


def random_samples(
    counts: list[int], seed: int = 0
) -> tuple[PackedSamples, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    total = sum(counts)
    t = np.concatenate([np.sort(generator.uniform(1, 5, n)) for n in counts] or [[]])
    samples = PackedSamples(
        points=tf.constant(generator.random((total, 3)), tf.float32),
        ray_indices=tf.constant(np.repeat(np.arange(len(counts)), counts), tf.int32),
        t=tf.constant(t, tf.float32),
        delta=tf.constant(generator.uniform(0.01, 0.3, total), tf.float32),
        counts=tf.constant(counts, tf.int32),
    )
    # From transparent to a wall.
    density = np.exp(generator.uniform(-4, 5, total)).astype(np.float32)
    return samples, density, generator.random((total, 3), np.float32)


def oracle(density, colour, samples: PackedSamples):
    """Equation 3 of Mildenhall et al. 2020, a ray at a time, float64."""
    n_rays = len(samples.counts)
    colours, opacity, depth = np.zeros([n_rays, 3]), np.zeros(n_rays), np.zeros(n_rays)
    reaching = np.zeros(len(density))
    for ray in range(n_rays):
        light = 1.0
        for i in np.flatnonzero(samples.ray_indices.numpy() == ray):
            reaching[i] = light
            alpha = 1 - np.exp(-float(density[i]) * float(samples.delta[i]))
            weight = light * alpha
            colours[ray] += weight * colour[i].astype(np.float64)
            opacity[ray] += weight
            depth[ray] += weight * float(samples.t[i])
            light *= 1 - alpha
    return colours, opacity, depth, reaching


@pytest.mark.parametrize("case", COUNTS)
def test_composite_against_the_oracle(case):
    samples, density, colour = random_samples(COUNTS[case])
    expected = oracle(density, colour, samples)
    got = composite(tf.constant(density), tf.constant(colour), samples)
    for value, truth in zip(got, expected[:3], strict=True):
        # float32 results of order one (depth: five), sums of at most 40 terms
        np.testing.assert_allclose(value, truth, rtol=3e-6, atol=3e-6)
    reaching = transmittance(tf.constant(density), samples)
    np.testing.assert_allclose(reaching, expected[3], rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("case", COUNTS)
def test_composite_gradient_against_differences(case):
    """The hand-written gradient against central differences of the float64 oracle."""
    samples, density, colour = random_samples(COUNTS[case][:9], seed=1)
    generator = np.random.default_rng(2)
    n_rays = len(samples.counts)
    ups = [
        generator.normal(size=[n_rays, 3]),
        generator.normal(size=n_rays),
        generator.normal(size=n_rays),
    ]

    def loss(density, colour):
        results = oracle(density, colour, samples)[:3]
        return sum(float((up * value).sum()) for up, value in zip(ups, results, strict=True))

    with tf.GradientTape() as tape:
        inputs = tf.constant(density), tf.constant(colour)
        tape.watch(inputs)
        results = composite(*inputs, samples)
        value = tf.add_n(
            [
                tf.reduce_sum(tf.constant(up, tf.float32) * r)
                for up, r in zip(ups, results, strict=True)
            ]
        )
    density_up, colour_up = (gradient.numpy() for gradient in tape.gradient(value, inputs))
    for i in generator.permutation(len(density))[:12]:
        step = 1e-5 * max(float(density[i]), 1.0)
        high, low = density.astype(np.float64), density.astype(np.float64)
        high[i] += step
        low[i] -= step
        truth = (loss(high, colour) - loss(low, colour)) / (2 * step)
        np.testing.assert_allclose(density_up[i], truth, rtol=1e-3, atol=2e-5)
        moved, channel = colour.astype(np.float64), int(generator.integers(3))
        moved[i, channel] += 1.0  # linear in colour: any step is exact
        truth = loss(density, moved) - loss(density, colour)
        np.testing.assert_allclose(colour_up[i, channel], truth, rtol=1e-4, atol=1e-5)
    if case == "mixed":
        assert np.abs(density_up).max() > 1e-2  # all zero would agree with itself


def test_walls_do_not_leak_into_the_next_ray():
    """One running sum serves all rays: after a thousand walls, float32 would have lost the last ray's thin fog."""
    counts = [50] * 2000 + [2]
    samples, _, colour = random_samples(counts)
    density = np.full(len(colour), 1e4, np.float32)
    density[-2:] = 0.1
    _, opacity, _ = composite(tf.constant(density), tf.constant(colour), samples)
    truth = 1 - np.exp(-0.1 * float(samples.delta[-2] + samples.delta[-1]))
    np.testing.assert_allclose(opacity[-1], truth, rtol=1e-4)


def test_select_samples_renumbers():
    samples, density, colour = random_samples([2, 0, 3, 1])
    chosen = select_samples(samples, tf.constant([0, 3, 4]))
    assert chosen.counts.numpy().tolist() == [1, 0, 2, 0]
    assert chosen.ray_indices.numpy().tolist() == [0, 2, 2]
    expected = oracle(density[[0, 3, 4]], colour[[0, 3, 4]], chosen)
    got = composite(tf.constant(density[[0, 3, 4]]), tf.constant(colour[[0, 3, 4]]), chosen)
    np.testing.assert_allclose(got[0], expected[0], atol=1e-6)


def rays(count: int, seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """From outside, most of them towards the box [-1, 1]^3."""
    generator = np.random.default_rng(seed)
    origins = generator.normal(size=(count, 3))
    origins *= 3 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = generator.uniform(-1.2, 1.2, (count, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return tf.constant(origins, tf.float32), tf.constant(directions, tf.float32)


BOX = Space(np.array([[-1.0] * 3, [1.0] * 3], np.float32))


def test_box_intersection_against_float64():
    origins, directions = rays(500)
    near, far = (part.numpy() for part in intersect_box(origins, directions, tf.constant(BOX.aabb)))
    o, d = origins.numpy().astype(np.float64), directions.numpy().astype(np.float64)
    first, second = (-1 - o) / d, (1 - o) / d
    truth_near = np.maximum(np.minimum(first, second).max(1), 0)
    truth_far = np.maximum(first, second).min(1)
    hit = truth_far > truth_near + 1e-3
    assert 100 < hit.sum() < 500
    np.testing.assert_allclose(near[hit], truth_near[hit], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(far[hit], truth_far[hit], rtol=1e-5, atol=1e-5)
    assert (far <= near + 1e-3)[~hit].all()


@pytest.mark.parametrize("axis", range(3))
def test_box_intersection_along_the_axes(axis):
    """Directions with exact zeros, on rays that run within a face, too."""
    direction = np.eye(3, dtype=np.float32)[[axis]]
    origins = np.array([[0.2, 0.3, 0.4], [1.0, 1.0, 1.0], [1.5, 1.5, 1.5]], np.float32)
    origins[:, axis] = -4
    near, far = intersect_box(origins, np.repeat(direction, 3, axis=0), tf.constant(BOX.aabb))
    assert not np.isnan(near).any() and not np.isnan(far).any()
    np.testing.assert_allclose([near[0], far[0]], [3, 5], rtol=1e-6)
    assert far[2] <= near[2]


@pytest.mark.parametrize("jittered", [False, True])
def test_packed_equals_dense_on_equal_samples(jittered):
    """Skipping empty cells changes nothing where the density there is zero."""
    resolution, step = 16, 0.07
    generator = np.random.default_rng(5)
    bits = generator.random(resolution**3) < 0.2
    occupancy = OccupancyGrid(resolution, 1.0, allowed=bits)
    origins, directions = rays(300)
    jitter = tf.constant(generator.random(300), tf.float32) if jittered else None

    def shade(samples):
        """A made-up field that is zero outside the occupied cells."""
        inside = occupancy.lookup(samples.points)
        density = tf.where(inside, 5 + 4 * tf.sin(20 * samples.points[:, 0]), 0.0)
        return composite(density, samples.points, samples)

    dense = sample_rays(origins, directions, BOX, None, step, jitter)
    # The same bins: the packed march starts at the occupied cells' bounds, which here are the box.
    np.testing.assert_array_equal(occupancy.bounds.numpy(), [[0] * 3, [1] * 3])
    packed = sample_rays(origins, directions, BOX, occupancy, step, jitter)
    assert 0.1 < len(packed.t) / len(dense.t) < 0.35
    for got, expected in zip(shade(packed), shade(dense), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("occupied", [True, False])
def test_samples_lie_where_they_should(occupied):
    bits = np.zeros([8] * 3, bool)
    bits[2:5, 3:6, 1:7] = True
    occupancy = OccupancyGrid(8, 1.0, allowed=bits.reshape(-1)) if occupied else None
    origins, directions = rays(400)
    samples = sample_rays(
        origins, directions, BOX, occupancy, 0.05, tf.random.stateless_uniform([400], [1, 2])
    )
    points = samples.points.numpy()
    assert len(points) > 400 and points.min() >= 0 and points.max() <= 1
    index, t = samples.ray_indices.numpy(), samples.t.numpy()
    assert (np.diff(index) >= 0).all()
    assert (t[1:] > t[:-1])[np.diff(index) == 0].all()
    np.testing.assert_array_equal(np.bincount(index, minlength=400), samples.counts)
    world = origins.numpy()[index] + t[:, None] * directions.numpy()[index]
    np.testing.assert_allclose(points * 2 - 1, world, atol=1e-5)
    if occupied:
        cell = np.minimum((points * 8 + 1e-5).astype(int), 7)
        neighbour = np.minimum((points * 8 - 1e-5).astype(int), 7)  # on a face either side will do
        assert (bits[tuple(cell.T)] | bits[tuple(neighbour.T)]).all()


def test_bins_cover_the_ray():
    """Without occupancy the samples' lengths add up to the chord, up to one bin."""
    origins, directions = rays(200)
    near, far = intersect_box(origins, directions, tf.constant(BOX.aabb))
    samples = sample_rays(origins, directions, BOX, None, 0.04)
    chord = np.maximum(far - near, 0)
    got = np.bincount(samples.ray_indices, samples.delta, minlength=200)
    assert np.abs(got - chord).max() <= 0.0201 + 1e-5  # the middle of the last bin decides


@pytest.mark.parametrize("extent", [2.0, 16.0])
def test_contraction_is_a_map_onto_the_cube(extent):
    space = Space(BOX.aabb, extent=extent)
    generator = np.random.default_rng(3)
    inside = generator.uniform(-1, 1, (100, 3)).astype(np.float32)
    scale = 2 * (2 - 1 / extent)
    np.testing.assert_allclose(space.to_unit(inside), inside / scale + 0.5, atol=1e-6)
    # Along a ray outwards the contracted points move outwards, and end at the cube's surface.
    direction = np.array([0.3, -1.0, 0.7], np.float32)
    t = np.linspace(0, extent, 200, dtype=np.float32)[:, None]
    unit = space.to_unit(t * direction).numpy()
    assert (np.diff(np.abs(unit[:, 1] - 0.5)) > 0).all()
    np.testing.assert_allclose(unit[-1, 1], 0.0, atol=1e-6)


def test_contracted_bins_grow_and_cover():
    space = Space(BOX.aabb, extent=8.0, near=0.1)
    origins = tf.zeros([1, 3])
    directions = tf.constant([[1.0, 0.0, 0.0]])
    samples = sample_rays(origins, directions, space, None, step=0.02)
    t, delta = samples.t.numpy(), samples.delta.numpy()
    assert t[0] >= 0.1 and t[-1] < 8.0 and t[-1] + delta[-1] > 8.0 - delta[-1]
    np.testing.assert_allclose(delta[:20], 0.02, rtol=1e-3)
    assert delta[-1] > 2 * delta[0]
    np.testing.assert_allclose(delta.sum(), 8.0 - 0.1, atol=delta[-1])
