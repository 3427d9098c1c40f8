"""The built-in scene: intersections against implicit equations, the renderer against itself at another resolution."""

from __future__ import annotations

import numpy as np
import pytest

from metal_ops.nerf.cameras import pinhole_cameras
from metal_ops.nerf.scenes.procedural import camera_ring, procedural_scene, render_view, still_life
from metal_ops.nerf.scenes.shapes import Box, Ellipsoid, Frustum, Torus


def plain(p):
    return np.ones_like(p)


AT = (0.2, -0.1, 0.3)
# A shape, and its implicit function in local coordinates: negative inside.
SHAPES = {
    "sphere": (Ellipsoid(AT, plain, radii=(0.5,) * 3), lambda p: (p**2).sum(1) - 0.25),
    "ellipsoid": (
        Ellipsoid(AT, plain, turn=0.7, radii=(0.5, 0.3, 0.2)),
        lambda p: ((p / [0.5, 0.3, 0.2]) ** 2).sum(1) - 1,
    ),
    "box": (
        Box(AT, plain, turn=0.4, half=(0.5, 0.3, 0.4)),
        lambda p: (np.abs(p) / [0.5, 0.3, 0.4]).max(1) - 1,
    ),
    "cylinder": (
        Frustum(AT, plain, bottom=0.4, top=0.4, height=0.6),
        lambda p: np.maximum(np.hypot(p[:, 0], p[:, 1]) - 0.4, np.abs(p[:, 2] - 0.3) - 0.3),
    ),
    "cone": (
        Frustum(AT, plain, bottom=0.5, top=0.05, height=0.7),
        lambda p: np.maximum(
            np.hypot(p[:, 0], p[:, 1]) - (0.5 - 0.45 / 0.7 * p[:, 2]), np.abs(p[:, 2] - 0.35) - 0.35
        ),
    ),
    "torus": (
        Torus(AT, plain, turn=0.9, axis=0, major=0.4, minor=0.12),
        lambda p: np.hypot(np.hypot(p[:, 1], p[:, 2]) - 0.4, p[:, 0]) - 0.12,
    ),
}


def aimed_rays(count: int, inside: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    origins = generator.normal(size=(count, 3))
    origins *= (0.1 if inside else 2.0) / np.linalg.norm(origins, axis=1, keepdims=True)
    origins += AT
    directions = AT + generator.uniform(-0.6, 0.6, (count, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return origins.astype(np.float32), directions.astype(np.float32)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_first_hit_is_on_the_surface_and_the_first(name, inside):
    """Against a walk of 2000 steps along each ray that looks for a change of sign of the implicit function."""
    shape, implicit = SHAPES[name]
    origins, directions = aimed_rays(300, inside)
    t = shape.hit(origins, directions)
    walk = np.linspace(2e-3, 4, 2000)
    signs = np.stack(
        [implicit(shape.to_local(origins + w * directions).astype(np.float64)) < 0 for w in walk]
    )
    changes = signs[1:] != signs[:-1]
    crossed = changes.any(axis=0)
    first = walk[changes.argmax(axis=0) + 1]
    assert crossed.sum() > 40
    # A walk misses grazing hits, so they may differ there; a hit must still lie on the surface.
    agree = np.abs(np.where(np.isfinite(t), t, 9) - np.where(crossed, first, 9)) < 2 * (
        walk[1] - walk[0]
    )
    assert agree.mean() > 0.97
    hit = np.isfinite(t)
    on_surface = implicit(
        shape.to_local(origins[hit] + t[hit, None] * directions[hit]).astype(np.float64)
    )
    assert np.abs(on_surface).max() < 2e-3  # float32 at a distance of 2, quartic for the torus


@pytest.mark.parametrize("name", SHAPES)
def test_normals_point_up_the_implicit_function(name):
    shape, implicit = SHAPES[name]
    origins, directions = aimed_rays(300, inside=False, seed=1)
    t = shape.hit(origins, directions)
    hit = np.isfinite(t)
    points = (origins[hit] + t[hit, None] * directions[hit]).astype(np.float64)
    normals = shape.normal(points.astype(np.float32))
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1, rtol=1e-5)
    step = 1e-5
    slope = np.stack(
        [
            implicit(shape.to_local(points + step * e))
            - implicit(shape.to_local(points - step * e))
            for e in np.eye(3)
        ],
        axis=1,
    )
    slope /= np.linalg.norm(slope, axis=1, keepdims=True)
    # Edges of box, cylinder and cone have no normal: a few points may lie on one.
    assert ((slope * normals).sum(1) > 0.999).mean() > 0.97
    assert ((normals * directions[hit]).sum(1) < 1e-3).mean() > 0.99  # towards the ray


def test_another_resolution_gives_the_same_picture():
    """64 pixels with 2x2 rays and 32 pixels with 4x4 rays trace the same rays: equal up to the rounding of bytes."""
    poses = camera_ring(2, 0.1)
    solids = still_life()
    fine = render_view(solids, pinhole_cameras(poses, 88.0, 64, 64), 1, supersample=2)
    coarse = render_view(solids, pinhole_cameras(poses, 44.0, 32, 32), 1, supersample=4)
    premultiplied = fine[..., :3] / 255.0 * (fine[..., 3:] / 255.0)
    blocks = np.concatenate([premultiplied, fine[..., 3:] / 255.0], -1).reshape(32, 2, 32, 2, 4)
    expected = blocks.mean(axis=(1, 3))
    got = np.concatenate(
        [coarse[..., :3] / 255.0 * (coarse[..., 3:] / 255.0), coarse[..., 3:] / 255.0], -1
    )
    # Alpha and colour are each rounded to bytes in both pictures: 4 half steps.
    np.testing.assert_allclose(got, expected, atol=2 / 255)
    assert got[..., 3].min() == 0 and got[..., 3].max() == 1 and 0 < np.std(got[..., :3])


def test_more_rays_converge():
    """Supersampling converges: 4x4 rays are nearer to 8x8 than 1x1 are."""
    cameras = pinhole_cameras(camera_ring(1, 0.2), 60.0, 40, 40)
    one, four, eight = (render_view(still_life(), cameras, 0, s).astype(float) for s in (1, 4, 8))
    error = [np.mean((picture[..., 3] - eight[..., 3]) ** 2) for picture in (one, four)]
    assert 0 < error[1] < 0.2 * error[0]


def test_scene_is_deterministic_and_splits_differ():
    first, second = (procedural_scene(16, 3, 2, 1) for _ in range(2))
    np.testing.assert_array_equal(first.train.images, second.train.images)
    np.testing.assert_array_equal(first.test.cameras.poses, second.test.cameras.poses)
    distance = np.linalg.norm(
        first.train.cameras.poses[:, None, :, 3] - first.test.cameras.poses[None, :, :, 3], axis=-1
    )
    assert distance.min() > 0.1


def test_the_view_changes_the_shading(still_life):
    """Highlights and reflections: the same surface point has another colour from another side."""
    from metal_ops.nerf.scenes import procedural

    solids = procedural.still_life()
    globe = np.array([-0.45, 0.4, 0.37], np.float32) + np.array([0.0, 0.0, 0.19], np.float32)
    # One eye where the sun is mirrored, one beside.
    eyes = globe + 3 * np.array([[-0.53, 0.43, 0.72], [0.53, 0.43, 0.72]], np.float32)
    directions = globe - eyes
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    colours, distance = procedural.trace(solids, eyes, directions)
    np.testing.assert_allclose(eyes + distance[:, None] * directions, [globe] * 2, atol=1e-3)
    assert np.abs(colours[0] - colours[1]).max() > 0.05


def test_light_falls_off_with_its_angle():
    """Lambert's law: points of a globe at one height differ by how far they are turned from the sun."""
    from metal_ops.nerf.scenes import procedural

    globe = [Ellipsoid((0.0, 0.0, 0.0), lambda p: np.full_like(p, 0.4), radii=(0.5,) * 3)]
    towards_sun = np.arctan2(-0.45, 0.55)
    turns = towards_sun + np.deg2rad([0, 30, 60, 150, 180])
    points = np.stack([np.cos(turns), np.sin(turns), np.zeros(5)], axis=1).astype(np.float32)
    colours, distance = procedural.trace(globe, 3 * points, -points)
    np.testing.assert_allclose(distance, 2.5, atol=1e-4)
    brightness = colours.mean(axis=1)
    assert brightness[0] > brightness[1] > brightness[2] > brightness[3]
    # The part of the sun falls with the cosine, to a half at 60 degrees; behind, there is none.
    sun = (brightness - brightness[4])[:3]
    np.testing.assert_allclose(sun / sun[0], np.cos(np.deg2rad([0, 30, 60])), atol=0.06)
    np.testing.assert_allclose(brightness[3], brightness[4], atol=1e-3)
