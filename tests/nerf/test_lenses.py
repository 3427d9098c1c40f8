"""Lenses: rays of fisheyes and panoramas against formulas, numbers of OpenCV and COLMAP, and places without a ray."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import metal_ops
from metal_ops import cli
from metal_ops.nerf.cameras import Cameras, RayCaster, look_at, pinhole_cameras
from metal_ops.nerf.evaluate import evaluate
from metal_ops.nerf.hull import covered_pixels, project, visual_hull
from metal_ops.nerf.lenses import Model, panorama
from metal_ops.nerf.metrics import psnr, ssim
from metal_ops.nerf.pictures import turntable_cameras
from metal_ops.nerf.scenes import Views, load_scene, procedural
from metal_ops.nerf.scenes.procedural import HELD_OUT, render_view, ring_cameras
from metal_ops.nerf.scenes.procedural import still_life as solids
from metal_ops.nerf.space import Space

EYE = np.eye(4, dtype=np.float32)[None, :3]


def camera(model: Model, terms=(0, 0, 0, 0), focal=30.0, width=64, height=48, pose=EYE) -> Cameras:
    """One camera; panoramas are whole ones."""
    intrinsics = [focal, focal * 1.1, width / 2 + 1.5, height / 2 - 2]
    if model in (Model.EQUIRECTANGULAR, Model.EQUAL_AREA):
        intrinsics = panorama(model, width, height)
    return Cameras(
        pose, np.float32([intrinsics]), np.float32([terms]), width, height, np.array([model])
    )


CAMERAS = {
    "wide pinhole": camera(Model.PERSPECTIVE, focal=12),
    "barrel": camera(Model.PERSPECTIVE, (-0.2, 0.05, 0.01, -0.008)),
    "barrel of six terms": camera(Model.PERSPECTIVE, (-0.2, 0.05, 0.01, -0.008, 0.02, -0.004)),
    "fisheye": camera(Model.FISHEYE, (0.05, 0.01, -0.003, 0.001), focal=18),
    "fisheye without terms": camera(Model.FISHEYE, focal=18),
    "equirectangular": camera(Model.EQUIRECTANGULAR),
    "equal area": camera(Model.EQUAL_AREA),
}


def local_oracle(one: Cameras, column: float, row: float) -> np.ndarray:
    """The direction by its definition in float64, an angle by bisection."""
    fl_x, fl_y, cx, cy = one.intrinsics[0].astype(float)
    x, y = (column + 0.5 - cx) / fl_x, (row + 0.5 - cy) / fl_y
    if one.models[0] == Model.FISHEYE:
        radius, (low, high) = math.hypot(x, y), (0.0, math.pi)
        terms = one.distortion[0, :4].astype(float)
        for _ in range(60):
            middle = (low + high) / 2
            bent = middle * (1 + sum(k * middle ** (2 * i + 2) for i, k in enumerate(terms)))
            low, high = (middle, high) if bent < radius else (low, middle)
        across = math.sin(low) / radius
        return np.array([x * across, -y * across, -math.cos(low)])
    # From the top row down; -z is in the middle, and +x right of it.
    if one.models[0] == Model.EQUIRECTANGULAR:
        up = math.pi / 2 - math.pi * (row + 0.5) / one.height
    else:
        up = math.asin(1 - 2 * (row + 0.5) / one.height)
    right = 2 * math.pi * (column + 0.5) / one.width - math.pi
    return np.array([math.sin(right) * math.cos(up), math.sin(up), -math.cos(right) * math.cos(up)])


@pytest.mark.parametrize(
    "name", [name for name, one in CAMERAS.items() if one.models[0] != Model.PERSPECTIVE]
)
def test_rays_by_their_definition(name):
    one = CAMERAS[name]
    for column, row in ((0, 0), (63, 47), (31, 20), (5, 40)):
        expected = local_oracle(one, column, row)
        np.testing.assert_allclose(one.rays(0, [column + 0.5], [row + 0.5])[0], expected, atol=1e-7)
        _, got = RayCaster(one)([0], [column], [row])
        np.testing.assert_allclose(got[0], expected, atol=1e-6)  # float32


def test_a_fisheye_as_opencv_and_colmap_see_it():
    """Pixels of points by cv2.fisheye.projectPoints 5.0.0 and pycolmap 4.2.1's OPENCV_FISHEYE, which agree."""
    one = Cameras(
        EYE,
        np.float32([[210, 205, 322, 238]]),
        np.float32([[0.05, -0.01, 0.004, -0.001]]),
        640,
        480,
        np.array([Model.FISHEYE]),
    )
    pixels = np.array(
        [[382.81873647, 198.41955246], [117.68042295, 331.07891843], [516.02001488, 427.40049071]]
    )
    points = np.array([[0.3, -0.2, 1.0], [-1.5, 0.7, 1.0], [2.0, 2.0, 1.0]])  # y down, z ahead
    got = one.rays(0, pixels[:, 0], pixels[:, 1])
    expected = points * [1, -1, -1] / np.linalg.norm(points, axis=1, keepdims=True)
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_a_perspective_camera_of_six_terms():
    """k3 by pycolmap 4.2.1's FULL_OPENCV; k4 is one power more, as in nerfstudio 1.1.5, here in float64."""
    points = np.array([[0.3, -0.2, 1.0], [-0.7, 0.5, 1.0], [0.75, 0.55, 1.0]])  # y down, z ahead
    pixels = [
        [446.06418493, 156.40449529],
        [14.31529336, 455.6511958],
        [649.82972867, 477.64867211],
    ]
    intrinsics = np.float32([[410, 405, 322, 238]])
    k3 = [[0.11, -0.06, 0.004, -0.003, 0.03, 0]]
    k4 = [[0, 0, 0, 0, 0, 0.04]]
    radius = np.square(points[:, :2]).sum(1, keepdims=True)
    bent = points[:, :2] * (1 + 0.04 * radius**4) * [410, 405] + [322, 238]
    expected = points * [1, -1, -1] / np.linalg.norm(points, axis=1, keepdims=True)
    for terms, places in ((k3, np.array(pixels)), (k4, bent)):
        one = Cameras(EYE, intrinsics, np.float32(terms), 640, 480)
        got = one.rays(0, places[:, 0], places[:, 1])
        np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("name", CAMERAS)
def test_projection_inverts_rays(name):
    pose = look_at(np.array([2.0, 1.0, 0.5]), np.zeros(3), np.array([0, 0, 1.0]))
    one = dataclasses.replace(CAMERAS[name], poses=pose[None].astype(np.float32))
    column, row = (part.ravel() for part in np.meshgrid(np.arange(0, 64, 7), np.arange(0, 48, 5)))
    directions = one.rays(0, column + 0.5, row + 0.5)
    assert np.isfinite(directions).all()
    got = project(one, 0, one.poses[0, :, 3] + 2.5 * directions)
    np.testing.assert_allclose(got[0], column + 0.5, atol=1e-3)  # pixels, float32
    np.testing.assert_allclose(got[1], row + 0.5, atol=1e-3)


def test_pixels_beyond_the_turning_point_have_no_ray():
    """The radius of the picture is at most that of r (1 - r^2 / 4) at r^2 = 4 / 3; pycolmap says NaN for as many."""
    one = Cameras(
        EYE, np.float32([[500, 500, 500, 375]]), np.float32([[-0.25, 0, 0, 0]]), 1000, 750
    )
    shown = one.shown(0)
    assert shown is not None and np.count_nonzero(~shown) == 286_820
    row, column = np.mgrid[:750, :1000]
    radius = np.hypot(column - 499.5, row - 374.5) / 500
    np.testing.assert_array_equal(shown, radius < math.sqrt(4 / 3) * 2 / 3)
    back = np.array([np.count_nonzero(~shown), 0])
    _, directions = RayCaster(one)(
        np.zeros(1000, np.int32), np.arange(1000, dtype=np.int32), np.full(1000, 375, np.int32)
    )
    seen = shown[375]
    assert back[0] and (directions.numpy()[seen, 2] < 0).all()  # all of them ahead
    assert np.isfinite(directions).all()  # also of those without a ray
    mild = dataclasses.replace(one, distortion=np.float32([[-0.02, 0, 0, 0]]))
    assert mild.shown(0) is None and CAMERAS["barrel"].shown(0) is None


def test_a_fisheye_shows_no_more_than_all_around():
    one = Cameras(
        EYE, np.float32([[10, 10, 32, 32]]), np.zeros([1, 4], np.float32), 64, 64, np.array([1])
    )
    shown = one.shown(0)
    assert shown is not None
    row, column = np.mgrid[:64, :64]
    np.testing.assert_array_equal(shown, np.hypot(column - 31.5, row - 31.5) / 10 <= math.pi)


@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("distance", [0.4, 2.5])
def test_uncovered_pixels_have_no_samples(name, distance):
    """Cells that a camera of any model sees are in the pixels that its rays hit, near ones, too."""
    pose = look_at(np.array([distance, 0.3, 0.2]), np.zeros(3), np.array([0, 0, 1.0]))
    one = dataclasses.replace(CAMERAS[name], poses=pose[None].astype(np.float32))
    space = Space(np.array([[-1] * 3, [1] * 3], np.float32))
    cells = np.zeros([16] * 3, bool)
    cells[7:9, 6:9, 8:10] = True
    cells = cells.ravel()
    covered = covered_pixels(one, space, cells)
    occupancy = metal_ops.OccupancyGrid(space.aabb, 16, allowed=cells)
    view, row, column = (part.astype(np.int32) for part in np.nonzero(~covered))
    samples = metal_ops.ray_march(*RayCaster(one)(view, column, row), occupancy, step=0.02)
    assert len(samples.t_starts) == 0
    row, column = (part.ravel().astype(np.int32) for part in np.mgrid[:48, :64])
    samples = metal_ops.ray_march(*RayCaster(one)(0 * row, column, row), occupancy, step=0.02)
    assert len(samples.t_starts) > 0  # it does see the cells
    if distance > 1:
        assert covered.mean() < 0.5


def around(model: Model, count: int = 6) -> Views:
    """Pictures of the still life by cameras of a model around it."""
    angles = np.arange(count) * 2 * np.pi / count
    poses = np.stack(
        [
            look_at(
                np.array([2.5 * np.cos(a), 2.5 * np.sin(a), 1]), np.zeros(3), np.array([0, 0, 1.0])
            )
            for a in angles
        ]
    )
    one = camera(model, focal=40, width=128 if model in (2, 3) else 64, height=64)
    cameras = Cameras(
        poses.astype(np.float32),
        np.tile(one.intrinsics, (count, 1)),
        np.tile(one.distortion, (count, 1)),
        one.width,
        one.height,
        np.full(count, model),
    )
    images = np.stack([render_view(solids(), cameras, view, 1) for view in range(count)])
    return Views(tuple(map(str, range(count))), images, cameras)


@pytest.mark.parametrize("model", list(Model)[1:])
def test_hulls_by_all_models_hold_the_scene(model):
    views = around(model)
    assert 0.01 < (views.images[..., 3] > 0).mean() < 0.9
    space = Space(np.array([[-1.2] * 3, [1.2] * 3], np.float32))
    hull = visual_hull(views, space, 24)
    surface = np.array([[0.0, 0.9, -0.5], [-0.42, -0.45, 0.1], [0.42, -0.46, -0.2]], np.float32)
    cell = (space.to_unit(surface).numpy() * 24).astype(int)
    assert hull.reshape([24] * 3)[tuple(cell.T)].all()
    assert hull.mean() < 0.6


def test_pictures_of_two_models_are_of_one_scene():
    """A fisheye and a panorama show in a direction the same as a pinhole."""
    pinhole = around(Model.PERSPECTIVE, 2)
    for model in list(Model)[1:]:
        other = around(model, 2)
        row, column = (part.ravel() for part in np.mgrid[8:56:4, 8:56:4])
        directions = pinhole.cameras.rays(1, column + 0.5, row + 0.5)
        x, y, _ = project(other.cameras, 1, pinhole.cameras.poses[1, :, 3] + 5 * directions)
        there = other.images[1][y.astype(int), x.astype(int), 3] > 127
        here = pinhole.images[1][row, column, 3] > 127
        assert 0.1 < here.mean() < 0.9 and (there == here).mean() > 0.9


def test_the_turntable_of_a_panorama_is_a_pinholes(still_life):
    views = around(Model.EQUIRECTANGULAR)
    made = turntable_cameras(dataclasses.replace(still_life, train=views), 4, 40)
    assert made.is_pinhole and (made.width, made.height) == (40, 20)
    assert 35 < 2 * math.degrees(math.atan(20 / made.intrinsics[0, 0])) < 60


# ---- scores ---------------------------------------------------------------------------------------------------------


def test_scores_leave_out_what_is_not_valid():
    rng = np.random.default_rng(0)
    truth = rng.random([24, 24, 3]).astype(np.float32)
    image = truth + 0.01
    spoilt = image.copy()
    spoilt[:, :6] = 0
    valid = np.ones([24, 24], bool)
    valid[:, :6] = False
    assert psnr(spoilt, truth, valid) == pytest.approx(psnr(image, truth), abs=1e-3)
    assert psnr(spoilt, truth) < 20
    whole, part = ssim(image[:, 6:], truth[:, 6:]), ssim(spoilt, truth, valid)
    assert part == pytest.approx(whole, abs=1e-6) and ssim(spoilt, truth) < part - 0.05
    assert math.isnan(psnr(image, truth, np.zeros([24, 24], bool)))
    assert math.isnan(ssim(image, truth, np.zeros([24, 24], bool)))


class Black:
    """Renders nothing."""

    def __call__(self, cameras, view):
        from metal_ops.nerf.evaluate import Picture

        shape = cameras.height, cameras.width
        return Picture(np.zeros([*shape, 3], np.float32), np.zeros(shape), np.zeros(shape))


def test_evaluation_leaves_out_pixels_without_a_ray():
    one = Cameras(EYE, np.float32([[30, 30, 24, 24]]), np.float32([[-0.5, 0, 0, 0]]), 48, 48)
    shown = one.shown(0)
    assert shown is not None and 0.1 < shown.mean() < 0.9
    images = np.zeros([1, 48, 48, 4], np.uint8)
    images[..., 3] = 255
    images[0][shown] = 128, 128, 128, 255
    images[0][~shown] = 255
    score = evaluate(Black(), Views(("a",), images, one), (0.0, 0.0, 0.0), 1)
    assert score.mean_psnr == pytest.approx(-20 * math.log10(128 / 255), abs=1e-3)
    half = dataclasses.replace(one, distortion=np.zeros([1, 4], np.float32))
    masked = Views(("a",), images, half, masks=shown[None])
    assert evaluate(Black(), masked, (0.0, 0.0, 0.0), 1).psnr == score.psnr


def test_pinholes_stay_pinholes():
    one = pinhole_cameras(EYE, 10.0, 8, 8)
    assert one.is_pinhole and one.lenses() is None and one.shown(0) is None
    assert not CAMERAS["fisheye without terms"].is_pinhole
    assert not CAMERAS["equirectangular"].select([0]).scaled(8, 4).is_pinhole


# ---- made scenes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pinhole", "fisheye", "equirectangular"])
def test_made_scenes_are_read_as_they_were_made(kind, tmp_path, capsys):
    folder = tmp_path / "made"
    arguments = ["nerf", "make-scene", "--size", "24", "--camera", kind, "--train-views", "3"]
    arguments += ["--test-views", "2", "--out", str(folder)]
    assert cli.main(arguments) == 0
    assert f"Written: {folder}" in capsys.readouterr().out.replace("\n", "")
    scene = load_scene(folder)
    assert (len(scene.train), len(scene.test), scene.has_alpha, scene.notes) == (3, 2, True, ())
    for views, offset in ((scene.train, 0.0), (scene.test, HELD_OUT)):
        expected = ring_cameras(kind, len(views), offset, 24)
        np.testing.assert_allclose(views.cameras.poses, expected.poses, atol=1e-6)
        np.testing.assert_allclose(views.cameras.intrinsics, expected.intrinsics, rtol=1e-6)
        np.testing.assert_array_equal(views.cameras.distortion, expected.distortion)
        np.testing.assert_array_equal(views.cameras.models, expected.models)
        np.testing.assert_array_equal(views.images[1], render_view(solids(), expected, 1, 2))
        assert (views.images[..., 3] > 0).any()
    assert cli.main(arguments) == 2
    assert "is there already" in capsys.readouterr().err
    assert cli.main([*arguments, "--overwrite"]) == 0


def test_pictures_in_bands_are_the_same(monkeypatch):
    for kind in ("pinhole", "fisheye"):
        cameras = ring_cameras(kind, 2, 0.0, 20)
        whole = render_view(solids(), cameras, 1, 2)
        with monkeypatch.context() as patch:
            patch.setattr(procedural, "_RAYS_AT_ONCE", 7 * 20 * 4)
            bands = render_view(solids(), cameras, 1, 2)
        assert np.abs(whole.astype(int) - bands).max() <= 1  # BLAS sums in another order


def test_packed_steps_are_of_pinholes_alone(still_life):
    from metal_ops.nerf.config import ModelConfig, TrainConfig
    from metal_ops.nerf.train import Trainer
    from metal_ops.programs.errors import ProgramError

    model = ModelConfig(n_levels=4, log2_hashmap_size=8, finest_resolution=32)
    config = TrainConfig(seconds=None, steps=2, packed=True)
    assert Trainer(still_life, model, config).packed is not None
    cameras = ring_cameras("fisheye", 3, 0.0, 24)
    images = np.stack([render_view(solids(), cameras, view, 1) for view in range(3)])
    scene = dataclasses.replace(still_life, train=Views(("a", "b", "c"), images, cameras))
    with pytest.raises(ProgramError, match="a bounded scene by pinholes"):
        Trainer(scene, model, config)
    trainer = Trainer(scene, model, dataclasses.replace(config, packed=None))
    assert trainer.packed is None and math.isfinite(trainer.train_step().loss)


def test_grids_are_made_for_the_pixels_that_the_box_takes(still_life):
    assert still_life.pixels_across == 48
    cameras = ring_cameras("equirectangular", 3, 0.0, 200)
    views = Views(("a", "b", "c"), np.zeros([3, 200, 400, 4], np.uint8), cameras)
    wide = dataclasses.replace(still_life, train=views)
    assert 50 < wide.pixels_across < 100  # 64 a radian, and a box of 2.4 from 2.2 away
