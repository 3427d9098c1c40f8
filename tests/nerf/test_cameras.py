"""Cameras: rays against a float64 oracle, lenses against their inverse, the hull against rays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.nerf.cameras import Cameras, RayCaster, look_at, orbit_poses, pinhole_cameras
from metal_ops.nerf.hull import covered_pixels, fit_space, project, visual_hull
from metal_ops.nerf.lenses import distort
from metal_ops.nerf.pictures import turntable_cameras
from metal_ops.nerf.space import Space

LENSES = {
    "pinhole": (0, 0, 0, 0),
    "barrel": (-0.2, 0.05, 0, 0),
    "cushion": (0.15, 0.02, 0, 0),
    "tilted": (-0.1, 0.03, 0.01, -0.008),
    "of six terms": (-0.1, 0.03, 0.01, -0.008, 0.05, -0.02),
}


def some_cameras(lens=(0, 0, 0, 0)) -> Cameras:
    eyes = np.array([[2.0, 1.0, 0.5], [-1.0, 3.0, 2.0]])
    poses = np.stack([look_at(eye, np.zeros(3), np.array([0, 0, 1.0])) for eye in eyes])
    intrinsics = np.array([[60, 62, 30.5, 21.0], [55, 55, 33.0, 26.0]], np.float32)
    return Cameras(poses.astype(np.float32), intrinsics, np.tile(np.float32(lens), (2, 1)), 64, 48)


def test_pinhole_rays_against_the_textbook():
    cameras = some_cameras()
    view, column, row = np.array([0, 1, 1]), np.array([0, 63, 20]), np.array([47, 0, 11])
    origins, directions = RayCaster(cameras)(view, column, row)
    for i in range(3):
        fl_x, fl_y, cx, cy = cameras.intrinsics[view[i]].astype(np.float64)
        pose = cameras.poses[view[i]].astype(np.float64)
        local = np.array([(column[i] + 0.5 - cx) / fl_x, -(row[i] + 0.5 - cy) / fl_y, -1.0])
        expected = pose[:, :3] @ local
        # float32 sums of three terms of order one
        np.testing.assert_allclose(directions[i], expected / np.linalg.norm(expected), atol=3e-7)
        np.testing.assert_array_equal(origins[i], cameras.poses[view[i], :, 3])


@pytest.mark.parametrize("lens", LENSES)
def test_rays_invert_distort(lens):
    grid = np.linspace(-0.55, 0.55, 21, dtype=np.float32)
    x, y = (part.reshape(-1) for part in np.meshgrid(grid, grid))
    eye = np.eye(4, dtype=np.float32)[None, :3]
    terms = np.float32([LENSES[lens]])
    camera = Cameras(eye, np.float32([[50, 50, 32, 32]]), terms, 64, 64)
    coefficients = tf.constant(np.tile(camera.distortion, (len(x), 1)))
    bent = [part.numpy() for part in distort(tf.constant(x), tf.constant(y), coefficients)]
    if lens != "pinhole":
        assert np.abs(bent[0] - x).max() > 1e-3  # else the test below proves nothing
    back = camera.rays(0, bent[0] * 50 + 32, bent[1] * 50 + 32)
    # Newton's method ends at the rounding of the float32 input.
    np.testing.assert_allclose(back[:, 0] / -back[:, 2], x, atol=1e-6)
    np.testing.assert_allclose(back[:, 1] / back[:, 2], y, atol=1e-6)


@pytest.mark.parametrize("lens", LENSES)
def test_projection_inverts_rays(lens):
    """A point along a pixel's ray is seen in the middle of that pixel, on every axis."""
    cameras = some_cameras(LENSES[lens])
    for view in range(2):
        column, row = np.meshgrid(np.arange(0, 64, 7), np.arange(0, 48, 5))
        column, row = column.reshape(-1), row.reshape(-1)
        origins, directions = RayCaster(cameras)(np.full_like(column, view), column, row)
        got = project(cameras, view, (origins + 2.5 * directions).numpy())
        np.testing.assert_allclose(got[0], column + 0.5, atol=1e-3)  # pixels, float32
        np.testing.assert_allclose(got[1], row + 0.5, atol=1e-3)
        assert (got[2] > 0).all()


def test_look_at_is_a_rotation_that_looks_there():
    pose = look_at(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.0, -1.0]), np.array([0, 0, 1.0]))
    np.testing.assert_allclose(pose[:, :3].T @ pose[:, :3], np.eye(3), atol=1e-12)
    assert np.linalg.det(pose[:, :3]) > 0
    towards = np.array([0.5, 0.0, -1.0]) - pose[:, 3]
    np.testing.assert_allclose(-pose[:, 2], towards / np.linalg.norm(towards), atol=1e-12)


def test_orbit_keeps_distance_and_goes_around():
    poses = orbit_poses(12, 3.0, 0.4, np.array([0.1, 0.2, 0.3]), np.array([0, 0, 1.0]))
    offsets = poses[:, :, 3] - [0.1, 0.2, 0.3]
    np.testing.assert_allclose(np.linalg.norm(offsets, axis=1), 3.0, rtol=1e-6)
    np.testing.assert_allclose(offsets.mean(axis=0)[:2], 0, atol=1e-6)


def test_scaled_cameras_see_the_same():
    small = some_cameras()
    large = small.scaled(128, 96)
    # The corner that four large pixels share is the middle of a small one.
    _, fine = RayCaster(large)([0, 0], [20, 21], [30, 31])
    _, coarse = RayCaster(small)([0], [10], [15])
    np.testing.assert_allclose(np.mean(fine, axis=0), coarse[0], atol=1e-4)


def test_hull_holds_the_scene_and_not_much_more(still_life):
    """Surface points lie in hull cells; most of the box is ruled out."""
    scene = fit_space(still_life)
    hull = visual_hull(scene.train, scene.space, 32)
    assert 0.05 < hull.mean() < 0.5
    surface = np.array(
        [[0.0, 0.9, -0.5], [-0.42, -0.45, 0.1], [0.42, -0.46, 0.2], [-0.45, 0.4, 0.55]]
    )
    cell = (scene.space.to_unit(surface.astype(np.float32)).numpy() * 32).astype(int)
    assert hull.reshape([32] * 3)[tuple(cell.T)].all()
    # A corner of the box is empty, and so is the inside of nothing: above the plinth's rim.
    assert not hull.reshape([32] * 3)[0, 0, -1]


def test_fit_space_shrinks_to_the_scene(still_life):
    box = fit_space(still_life).space.aabb
    # The plinth is 2.1 wide, the box around the scene was 2.4; cells of 0.04 and pixels of 0.05 blur the silhouettes.
    assert 2.1 < (box[1] - box[0])[0] < 2.35
    np.testing.assert_allclose(box[1] - box[0], (box[1] - box[0])[0], rtol=1e-6)  # a cube


def test_fit_space_leaves_scenes_without_alpha_alone(still_life):
    opaque = dataclasses.replace(still_life, has_alpha=False)
    assert fit_space(opaque) is opaque


def test_uncovered_pixels_have_no_samples(still_life):
    """The shortcut of training must be exact: a pixel that it leaves out has a ray without samples."""
    scene = fit_space(still_life)
    hull = visual_hull(scene.train, scene.space, 32)
    covered = covered_pixels(scene.train.cameras, scene.space, hull)
    assert 0.1 < covered.mean() < 0.95
    occupancy = metal_ops.OccupancyGrid(scene.space.aabb, 32, allowed=hull)
    caster = RayCaster(scene.train.cameras)
    view, row, column = (part.astype(np.int32) for part in np.nonzero(~covered))
    origins, directions = caster(view, column, row)
    samples = metal_ops.ray_march(origins, directions, occupancy, step=0.01)
    assert len(samples.t_starts) == 0
    view, row, column = (part.astype(np.int32)[:100] for part in np.nonzero(covered))
    assert len(metal_ops.ray_march(*caster(view, column, row), occupancy, step=0.01).t_starts) > 0


def test_a_camera_among_the_cells_covers_everything():
    cameras = pinhole_cameras(np.eye(4)[None], 10.0, 8, 8)
    space = Space(np.array([[-1] * 3, [1] * 3], np.float32))
    assert covered_pixels(cameras, space, np.ones(8**3, bool)).all()


@pytest.mark.parametrize("around", [True, False])
def test_turntable_stays_where_there_are_views(still_life, around):
    """A full turn if the training views go around, a swing within their angles if not."""
    cameras = still_life.train.cameras
    if not around:
        angles = np.arctan2(cameras.poses[:, 1, 3], cameras.poses[:, 0, 3])
        keep = np.flatnonzero(np.abs(angles) < 1.0)
        views = dataclasses.replace(still_life.train, cameras=cameras.select(keep))
        still_life = dataclasses.replace(still_life, train=views)
    made = turntable_cameras(still_life, 24, 40)
    angles = np.arctan2(made.poses[:, 1, 3], made.poses[:, 0, 3])
    assert (made.width, made.height) == (40, 40)
    assert np.ptp(angles) > 5.5 if around else np.abs(angles).max() < 1.02
