"""ray_march against every step looked up one by one in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import metal_ops
from tests.calls import Call, normal
from tests.oracles import march

pytestmark = [pytest.mark.ops, pytest.mark.instrumented]

# Steps whose middle is this close to a face (in cells) may fall on either side of it in float32.
NEAR_A_FACE = 2e-3
AABB = np.array([-1.0, -0.5, 0.0, 1.0, 1.5, 2.0], np.float32)


def bits_of(occupied: np.ndarray) -> np.ndarray:
    return np.packbits(occupied, axis=1, bitorder="little")


def random_rays(n, seed=0, aabb=AABB, spread=3.0):
    random = np.random.default_rng(seed)
    centre, extent = (aabb[:3] + aabb[3:]) / 2, aabb[3:] - aabb[:3]
    origins = centre + random.normal(size=(n, 3)) * extent * spread / 2
    target = centre + random.uniform(-0.5, 0.5, (n, 3)) * extent
    directions = target - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions[: n // 8, 0] = 0.0  # along a face
    directions[: n // 16, 1] = 0.0  # along an axis
    return origins.astype(np.float32), directions.astype(np.float32)


def check(
    samples,
    origins,
    directions,
    occupied,
    aabb,
    resolution,
    *,
    step,
    cone_angle=0.0,
    near=0.0,
    far=np.inf,
    shifts=None,
):
    """Each ray has all steps that are surely occupied, none that is surely empty, at the right places."""
    t_starts, t_ends, indices, info = (x.numpy() for x in samples)
    assert np.all(info[:, 0] == np.cumsum(info[:, 1]) - info[:, 1])
    assert info[:, 1].sum() == len(t_starts) == len(t_ends) == len(indices)
    np.testing.assert_array_equal(indices, np.repeat(np.arange(len(info)), info[:, 1]))
    certain = 0
    for r, (start, count) in enumerate(info):
        shift = 0.0 if shifts is None else shifts[r]
        lo, hi, end = march.steps(
            origins[r],
            directions[r],
            aabb,
            len(occupied),
            step,
            cone_angle,
            np.broadcast_to(near, len(info))[r],
            np.broadcast_to(far, len(info))[r],
            shift,
        )
        mine = slice(start, start + count)
        if len(lo) == 0:
            assert count <= 1  # a step may just fit in float32
            continue
        middle = (lo + hi) / 2
        points = origins[r].astype(np.float64) + middle[:, None] * directions[r].astype(np.float64)
        full, distance = march.look_up(points, occupied, aabb, resolution)
        unsure = (distance < NEAR_A_FACE) | (np.abs(middle - end) < 1e-4 * (1 + end))
        got = (t_starts[mine].astype(np.float64) + t_ends[mine]) / 2
        assert np.all(np.diff(got) > 0)
        which = np.searchsorted(lo, got) - 1
        beyond = which >= len(lo)
        assert not np.any(beyond) and np.all(which >= 0)
        np.testing.assert_allclose(t_starts[mine], lo[which], atol=2e-5 * (1 + hi[-1]))
        np.testing.assert_allclose(t_ends[mine], hi[which], atol=2e-5 * (1 + hi[-1]))
        taken = np.zeros(len(lo), bool)
        taken[which] = True
        assert len(set(which)) == len(which)
        wrong = (taken != full) & ~unsure
        assert not np.any(wrong), f"ray {r}: steps {np.flatnonzero(wrong)} of {len(lo)}"
        certain += np.count_nonzero(~unsure)
    return certain


@pytest.mark.parametrize("cone_angle", [0.0, 0.02])
@pytest.mark.parametrize("n_levels", [1, 3])
@pytest.mark.parametrize("filled", [0.0, 0.03, 0.5, 1.0])
def test_samples_are_the_steps_in_occupied_cells(n_levels, filled, cone_angle):
    resolution, step = 12, 0.031
    random = np.random.default_rng(1)
    occupied = random.uniform(size=(n_levels, resolution**3)) < filled
    origins, directions = random_rays(120, aabb=AABB)
    arguments = dict(step=step, cone_angle=cone_angle)
    samples = metal_ops.ray_march(
        origins,
        directions,
        bits_of(occupied),
        AABB,
        resolution=resolution,
        max_samples_per_ray=10_000,
        **arguments,
    )
    certain = check(samples, origins, directions, occupied, AABB, resolution, **arguments)
    assert certain > 1000
    assert (len(samples.t_starts) == 0) == (filled == 0)


@pytest.mark.parametrize("cone_angle", [0.0, 0.02])
@pytest.mark.parametrize("unit", [2.0**-7, 2.0**7])
def test_the_unit_of_length_does_not_matter(unit, cone_angle):
    """Powers of two, which scale without rounding: steps far above 1 and far below it find the same samples."""
    occupied = np.random.default_rng(4).uniform(size=(2, 12**3)) < 0.03
    origins, directions = random_rays(200)

    def run(unit):
        return metal_ops.ray_march(
            origins * np.float32(unit),
            directions,
            bits_of(occupied),
            AABB * np.float32(unit),
            resolution=12,
            step=0.031 * unit,
            cone_angle=cone_angle,
            max_samples_per_ray=10_000,
        )

    expected, got = run(1.0), run(unit)
    assert len(expected.t_starts) > 250
    np.testing.assert_array_equal(got.ray_indices, expected.ray_indices)
    np.testing.assert_array_equal(got.packed_info, expected.packed_info)
    np.testing.assert_array_equal(got.t_starts, expected.t_starts * np.float32(unit))
    np.testing.assert_array_equal(got.t_ends, expected.t_ends * np.float32(unit))


@pytest.mark.parametrize("n_levels, resolution", [(1, 16), (1, 24), (3, 32)])
@pytest.mark.parametrize("filled", [0.02, 0.1])
def test_blocks_of_empty_cells_are_skipped_unnoticed(n_levels, resolution, filled):
    """The CPU kernel looks for empty blocks where rays are many: the samples are those of a few rays at a time."""
    occupied = np.random.default_rng(2).uniform(size=(n_levels, resolution**3)) < filled
    origins, directions = random_rays(2000, spread=3.0 if n_levels == 1 else 6.0)
    for cone_angle in (0.0, 0.02):

        def run(rays, cone_angle=cone_angle):
            return metal_ops.ray_march(
                origins[rays],
                directions[rays],
                bits_of(occupied),
                AABB,
                resolution=resolution,
                step=0.013,
                cone_angle=cone_angle,
            )

        many = run(slice(None))
        few = [run(slice(r, r + 1)) for r in range(0, 2000, 10)]
        counts = many.packed_info.numpy()[::10]
        np.testing.assert_array_equal([len(f.t_starts) for f in few], counts[:, 1])
        kept = np.concatenate([np.arange(a, a + c) for a, c in counts])
        assert len(kept) > 20
        np.testing.assert_array_equal(
            many.t_starts.numpy()[kept], np.concatenate([f.t_starts for f in few])
        )


@settings(max_examples=60, deadline=None)
@given(
    resolution=st.sampled_from([1, 2, 3, 4, 8, 17, 32]),
    n_levels=st.integers(1, 4),
    n_rays=st.integers(0, 70),
    step=st.floats(0.01, 0.7),
    seed=st.integers(0, 1000),
)
def test_any_grid(resolution, n_levels, n_rays, step, seed):
    if resolution % 4:
        n_levels = 1
    occupied = np.random.default_rng(seed).uniform(size=(n_levels, resolution**3)) < 0.3
    origins, directions = random_rays(n_rays, seed)
    samples = metal_ops.ray_march(
        origins,
        directions,
        bits_of(occupied),
        AABB,
        resolution=resolution,
        step=step,
        max_samples_per_ray=10_000,
    )
    assert samples.packed_info.shape == (n_rays, 2)
    check(samples, origins, directions, occupied, AABB, resolution, step=step)


def test_near_and_far_a_number_or_a_ray():
    occupied = np.ones((1, 8**3), bool)
    origins, directions = random_rays(64, spread=0.3)
    random = np.random.default_rng(3)
    near = random.uniform(0, 1, 64).astype(np.float32)
    far = (near + random.uniform(-0.2, 1.5, 64)).astype(np.float32)
    for limits in (dict(near=near, far=far), dict(near=0.25, far=0.9), dict(near=-5.0, far=np.inf)):
        samples = metal_ops.ray_march(
            origins, directions, bits_of(occupied), AABB, resolution=8, step=0.05, **limits
        )
        check(samples, origins, directions, occupied, AABB, 8, step=0.05, **limits)
    assert np.all(samples.t_starts.numpy() >= 0)


def test_jitter_is_uniform_and_follows_the_seed():
    grid = metal_ops.OccupancyGrid(AABB, resolution=4)
    n = 4000
    origins = np.tile(np.float32([[0.0, 0.5, 1.0]]), (n, 1))
    directions = np.tile(np.float32([[1.0, 0.0, 0.0]]), (n, 1))

    def firsts(seed):
        samples = metal_ops.ray_march(origins, directions, grid, step=0.1, seed=seed)
        return samples, samples.t_starts.numpy()[samples.packed_info.numpy()[:, 0]] / 0.1

    samples, shifts = firsts((1, 2))
    assert np.all((shifts >= 0) & (shifts < 1))
    # Kolmogorov-Smirnov: the largest gap to the uniform distribution, at a level of 1e-4.
    gap = np.max(np.abs(np.sort(shifts) - (np.arange(n) + 0.5) / n))
    assert gap < 2.23 / np.sqrt(n)
    assert abs(np.corrcoef(shifts[1:], shifts[:-1])[0, 1]) < 4 / np.sqrt(n)
    check(samples, origins, directions, np.ones((1, 64), bool), AABB, 4, step=0.1, shifts=shifts)
    np.testing.assert_array_equal(firsts((1, 2))[1], shifts)
    for other in ((1, 3), (2, 2), (2, 1)):
        assert abs(np.corrcoef(firsts(other)[1], shifts)[0, 1]) < 4 / np.sqrt(n)


def test_limit_on_samples_a_ray_keeps_the_first():
    grid = metal_ops.OccupancyGrid(AABB, resolution=8)
    origins, directions = random_rays(50)
    for cone_angle in (0.0, 0.01):
        march_rays = dict(step=0.01, cone_angle=cone_angle)
        whole = metal_ops.ray_march(origins, directions, grid, **march_rays)
        some = metal_ops.ray_march(origins, directions, grid, **march_rays, max_samples_per_ray=7)
        counts = np.minimum(whole.packed_info.numpy()[:, 1], 7)
        np.testing.assert_array_equal(some.packed_info.numpy()[:, 1], counts)
        assert counts.max() == 7
        kept = np.concatenate(
            [
                np.arange(a, a + c)
                for (a, _), c in zip(whole.packed_info.numpy(), counts, strict=True)
            ]
        )
        np.testing.assert_array_equal(some.t_starts, whole.t_starts.numpy()[kept])
        np.testing.assert_array_equal(some.t_ends, whole.t_ends.numpy()[kept])


def test_a_hundred_thousand_samples_on_one_ray():
    grid = metal_ops.OccupancyGrid([0, 0, 0, 1, 1, 1], resolution=4)
    samples = metal_ops.ray_march(
        [[0.0, 0.5, 0.5]], [[1.0, 0.0, 0.0]], grid, step=1e-5, max_samples_per_ray=1 << 20
    )
    assert len(samples.t_starts) == 100_000
    middles = (np.arange(100_000) + 0.5) * 1e-5
    np.testing.assert_allclose((samples.t_starts + samples.t_ends) / 2, middles, atol=2.0**-23)


def test_rays_that_go_nowhere_have_no_samples():
    grid = metal_ops.OccupancyGrid(AABB, resolution=4)
    good = [[0.0, 0.5, 1.0]], [[1.0, 0.0, 0.0]]
    bad = [
        ([np.nan, 0.5, 1.0], [1, 0, 0]),
        ([0.0, 0.5, 1.0], [np.nan, 0, 0]),
        ([0.0, np.inf, 1.0], [1, 0, 0]),
        ([0.0, 0.5, 1.0], [np.inf, 0, 0]),
        ([0.0, 0.5, 1.0], [0, 0, 0]),
        ([5.0, 0.5, 1.0], [1, 0, 0]),
        ([0.0, 9.0, 1.0], [1, 0, 0]),
    ]
    origins = np.float32([good[0][0]] + [o for o, _ in bad] + [good[0][0]])
    directions = np.float32([good[1][0]] + [d for _, d in bad] + [good[1][0]])
    samples = metal_ops.ray_march(origins, directions, grid, step=0.25)
    np.testing.assert_array_equal(samples.packed_info.numpy()[:, 1], [4] + [0] * 7 + [4])
    empty = metal_ops.ray_march(np.zeros((0, 3)), np.zeros((0, 3)), grid, step=0.25)
    assert [x.shape.as_list() for x in empty] == [[0], [0], [0], [0, 2]]
    for limit in (dict(near=np.nan), dict(far=np.nan)):
        nothing = metal_ops.ray_march(*good, grid, step=0.25, **limit)
        assert len(nothing.t_starts) == 0


def test_int64_indices_and_graphs():
    grid = metal_ops.OccupancyGrid(AABB, resolution=4)
    origins, directions = random_rays(20)

    @tf.function
    def run(origins):
        samples = metal_ops.ray_march(
            origins, directions, grid, step=0.1, index_dtype=tf.int64, seed=(3, 4)
        )
        assert samples.packed_info.shape == (20, 2)
        return samples

    traced = run(tf.constant(origins))
    assert traced.ray_indices.dtype == traced.packed_info.dtype == tf.int64
    eager = metal_ops.ray_march(origins, directions, grid, step=0.1, seed=(3, 4))
    for a, b in zip(traced, eager, strict=True):
        np.testing.assert_array_equal(a, b)


BAD = {
    "origins": (dict(origins=[0.0, 0.0]), r"origins must have shape \[rays, 3\]"),
    "directions": (dict(directions=[[1.0, 0, 0]] * 2), r"directions must have .* rays = 1 as in"),
    "bytes": (dict(resolution=5), r"occupancy must have shape \[levels, 16\].*resolution is 5"),
    "levels": (dict(occupancy=np.zeros((2, 16), np.uint8), resolution=5), "multiple of 4"),
    "no levels": (dict(occupancy=np.zeros((0, 8), np.uint8)), "between 1 and 16 levels, got 0"),
    "aabb": (dict(aabb=[0.0, 0, 0, 1, 0, 1]), "aabb must reach from a smaller to a larger y"),
    "aabb size": (dict(aabb=[0.0, 1.0]), r"aabb must have shape \[6\]"),
    "step": (dict(step=0.0), "step must be a length above 0"),
    "step nan": (dict(step=float("nan")), "step must be a length above 0"),
    "short step": (dict(step=1e-9), "step must cut a ray into at most 4194304 steps"),
    "cone": (dict(cone_angle=-1.0), r"cone_angle must be in \[0, 1\)"),
    "limit": (dict(max_samples_per_ray=0), "max_samples_per_ray must be between 1"),
    "near": (dict(near=[0.0, 1.0]), r"near must have shape \[rays\]"),
    "seed": (dict(seed=[1, 2, 3]), r"seed must have shape \[2\]"),
    "resolution": (dict(resolution=0), "resolution must be between 1 and 1024"),
}


@pytest.mark.parametrize("change, sentence", BAD.values(), ids=BAD)
def test_bad_arguments(change, sentence):
    arguments = dict(
        origins=[[0.0, 0.5, 0.5]],
        directions=[[1.0, 0.0, 0.0]],
        occupancy=np.full((1, 8), 255, np.uint8),
        aabb=[0.0, 0, 0, 1, 1, 1],
        step=0.1,
        resolution=4,
    )
    metal_ops.ray_march(**arguments)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ray_march: .*" + sentence):
        metal_ops.ray_march(**{**arguments, **change})
    with pytest.raises(ValueError, match="expected both with occupancy bits"):
        metal_ops.ray_march(**{**arguments, "aabb": None})


# ---- what sweeps over all ops call ----------------------------------------------------------------------------------


def marched() -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    return {
        "origins": normal(900, 3) * np.float32(0.2),
        "directions": normal(900, 3, seed=1),
        "occupancy": random.integers(0, 256, (2, 16**3 // 8)).astype(np.uint8),
    }


CALLS = {
    "ray_march": Call(
        lambda **a: metal_ops.ray_march(
            **a, aabb=[-1, -1, -1, 1, 1, 1], resolution=16, step=0.05, seed=[1, 2]
        ),
        marched,
        (),
        open_ended=True,
    ),
}
