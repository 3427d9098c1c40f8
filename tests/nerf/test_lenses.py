"""Lenses: rays of fisheyes and panoramas against formulas, numbers of OpenCV and COLMAP, and places without a ray."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

import metal_ops
from metal_ops.nerf.cameras import Cameras, RayCaster, look_at, pinhole_cameras
from metal_ops.nerf.errors import SceneError
from metal_ops.nerf.evaluate import evaluate
from metal_ops.nerf.hull import covered_pixels, project, visual_hull
from metal_ops.nerf.lenses import Model, panorama
from metal_ops.nerf.metrics import psnr, ssim
from metal_ops.nerf.pictures import turntable_cameras
from metal_ops.nerf.scenes import Views, load_scene
from metal_ops.nerf.scenes.procedural import render_view, still_life
from metal_ops.nerf.space import Space

from . import scenes_on_disk as disk

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
    "barrel": camera(Model.PERSPECTIVE, (-0.2, 0.05, 0.01, -0.008)),
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
        terms = one.distortion[0].astype(float)
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


@pytest.mark.parametrize("name", [name for name in CAMERAS if name != "barrel"])
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
    """Cells that a camera of any model sees are in the pixels that its rays meet, near ones, too."""
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
    images = np.stack([render_view(still_life(), cameras, view, 1) for view in range(count)])
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
    """What a fisheye and a panorama show in a direction is what a pinhole shows there."""
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


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path, still_life) -> Path:
    views = still_life.train
    first = Views(views.names[:9], views.images[:9], views.cameras.select(range(9)))
    return disk.instant_ngp(tmp_path / "photos", first)


def change(path: Path, frame: bool = False, drop: tuple[str, ...] = (), **fields) -> None:
    content = json.loads(path.read_text())
    for target in content["frames"] if frame else [content]:
        target.update(fields)
        for key in drop:
            target.pop(key, None)
    path.write_text(json.dumps(content))


WHOLE = {"fl_x": 24, "fl_y": 48, "cx": 24, "cy": 24, "k1": 0, "k2": 0, "p1": 0, "p2": 0}
READ = {
    # Fields, the model that they are, and its terms.
    "opencv": ({"camera_model": "OPENCV", "k1": 0.1, "k3": 0, "k4": 0.0}, 0, [0.1, 0, 0, 0]),
    "pinhole in small letters": ({"camera_model": "pinhole"}, 0, [0, 0, 0, 0]),
    "fisheye": (
        {"camera_model": "OPENCV_FISHEYE", "k1": 0.05, "k2": 0.01, "k3": -0.002, "k4": 0.001},
        1,
        [0.05, 0.01, -0.002, 0.001],
    ),
    "fisheye of one term": (
        {"camera_model": "SIMPLE_RADIAL_FISHEYE", "k1": 0.05},
        1,
        [0.05, 0, 0, 0],
    ),
    "fisheye of two": (
        {"camera_model": "RADIAL_FISHEYE", "k1": 0.05, "k2": 0.1},
        1,
        [0.05, 0.1, 0, 0],
    ),
    "is_fisheye": ({"is_fisheye": True, "k4": 0.01, "p1": 0}, 1, [0, 0, 0, 0.01]),
    "both": ({"is_fisheye": True, "camera_model": "OPENCV_FISHEYE"}, 1, [0, 0, 0, 0]),
    "nerfstudio's panorama": ({"camera_model": "EQUIRECTANGULAR", **WHOLE}, 2, [0, 0, 0, 0]),
    "instant-ngp's latlong": ({"latlong": True}, 2, [0, 0, 0, 0]),
    "instant-ngp's equirectangular": ({"equirectangular": True}, 3, [0, 0, 0, 0]),
    "terms that are off": (
        {
            "is_fisheye": False,
            "skew": 0,
            "is_panorama": False,
            "ftheta_p0": 0,
            "s1": 0.0,
            "k5": None,
        },
        0,
        [0, 0, 0, 0],
    ),
}


@pytest.mark.parametrize("place", ["shared", "frames", "split files"])
@pytest.mark.parametrize("case", READ)
def test_models_that_are_read(case, place, photos, tmp_path, still_life):
    fields, model, terms = READ[case]
    if place == "split files":
        photos = disk.blender(tmp_path / "toy", still_life)
        for name in ("train", "test"):
            change(photos / f"transforms_{name}.json", **fields)
    else:
        change(photos / "transforms.json", place == "frames", **fields)
    for views in (load_scene(photos).train, load_scene(photos).test):
        assert (views.cameras.models == model).all()
        np.testing.assert_array_equal(
            views.cameras.distortion, np.tile(np.float32(terms), (len(views), 1))
        )
        if model > 1:
            np.testing.assert_allclose(views.cameras.intrinsics[0], panorama(Model(model), 48, 48))


REFUSED = {
    "camera_model": "ORTHOPHOTO",
    "k3": 0.1,
    "k4": 0.01,
    "k5": 1e-9,
    "k6": -1,
    "s1": 0.1,
    "sx1": 0.1,
    "p3": 0.1,
    "skew": 0.5,
    "b1": 3.0,
    "omega": 0.9,
    "ftheta_p1": 1e-3,
    "ftheta_lens": True,
    "is_panorama": True,
    "camera_type": "spherical",
    "distortion_params": [0, 0, 0.1],
    "fisheye_crop_radius": 300,
    "rolling_shutter": [0, 0, 0.1, 0],
    "lens_model": "fisheye",
}
NOT_FOR_MODEL = {
    "p1 of a fisheye": {"is_fisheye": True, "p1": 0.1},
    "k1 of a panorama": {"latlong": True, "k1": 0.1},
    "fl_x of half a panorama": {"camera_model": "EQUIRECTANGULAR", **WHOLE, "fl_x": 40},
    "cy of half a panorama": {"camera_model": "EQUIRECTANGULAR", **WHOLE, "cy": 10},
    "is_fisheye of a panorama": {"is_fisheye": True, "camera_model": "EQUIRECTANGULAR"},
    "latlong and another": {"latlong": True, "equirectangular": True},
    "camera_model of FISHEYE624": {"camera_model": "FISHEYE624"},
    "camera_model of three": {"camera_model": 3},
    "is_fisheye of text": {"is_fisheye": "yes"},
    "x_fov of half a turn": {"x_fov": 180},
}


@pytest.mark.parametrize("place", ["shared", "frames", "split files"])
@pytest.mark.parametrize("case", [*REFUSED, *NOT_FOR_MODEL])
def test_lens_terms_that_are_refused(case, place, photos, tmp_path, still_life):
    fields = NOT_FOR_MODEL.get(case) or {case: REFUSED[case]}
    if place == "split files":
        photos = disk.blender(tmp_path / "toy", still_life)
        change(photos / "transforms_test.json", **fields)
    else:
        change(photos / "transforms.json", place == "frames", **fields)
    with pytest.raises(SceneError) as caught:
        load_scene(photos)
    message = str(caught.value)
    assert f"'{case.split()[0]}'" in message and "transforms" in message and len(message) < 700


SETTINGS = {
    "white_transparent": True,
    "black_transparent": 1,
    "normal_mts_args": [],
    "envmap": "sky.png",
    "sharpen": 0.5,
    "n_frames": 5,
    "transform_matrix_start": np.eye(4).tolist(),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_change_pictures_are_refused(name, photos):
    change(photos / "transforms.json", name.startswith("transform"), **{name: SETTINGS[name]})
    with pytest.raises(SceneError, match=f"'{name}'"):
        load_scene(photos)


FOCAL = {
    "x_fov in degrees": ({"x_fov": 90}, ("fl_y",), (24, 24)),
    "x_fov before fl_x": ({"x_fov": 90, "fl_x": 1, "fl_y": 7}, (), (24, 7)),
    "y_fov alone": ({"y_fov": 90}, ("fl_x", "fl_y"), (24, 24)),
    "both": ({"x_fov": 90, "y_fov": 53.13010235415598}, (), (24, 48)),
    "camera_angle_y, too": (
        {"camera_angle_x": math.pi / 2, "camera_angle_y": 2 * math.atan(0.5)},
        ("fl_x", "fl_y"),
        (24, 48),
    ),
}


@pytest.mark.parametrize("case", FOCAL)
def test_focal_lengths_by_instant_ngps_order(case, photos):
    fields, drop, expected = FOCAL[case]
    change(photos / "transforms.json", drop=drop, **fields)
    got = load_scene(photos).train.cameras.intrinsics[0, :2]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_frames_focal_length_stands_for_both_axes(photos):
    change(photos / "transforms.json", x_fov=50)
    change(photos / "transforms.json", frame=True, fl_x=33)
    np.testing.assert_array_equal(load_scene(photos).train.cameras.intrinsics[:, :2], 33)


def test_split_files_with_a_whole_lens(tmp_path, still_life):
    folder = disk.blender(tmp_path / "toy", still_life)
    lens = {"fl_x": 60, "fl_y": 48, "cx": 44, "cy": 50, "w": 96, "h": 96, "k1": 0.2, "p2": 0.01}
    for name in ("train", "test"):
        change(folder / f"transforms_{name}.json", **lens, aabb_scale=2, scale=0.5, offset=0.25)
    change(folder / "transforms_train.json", frame=True, k1=0.3)
    scene = load_scene(folder)
    np.testing.assert_array_equal(scene.train.cameras.intrinsics[0], [30, 24, 22, 25])  # of 48x48
    np.testing.assert_array_equal(scene.train.cameras.distortion[0], np.float32([0.3, 0, 0, 0.01]))
    np.testing.assert_array_equal(scene.test.cameras.distortion[0], np.float32([0.2, 0, 0, 0.01]))
    np.testing.assert_allclose(scene.space.aabb, [[-0.5] * 3, [1.5] * 3])
    assert scene.space.extent == 2
    change(folder / "transforms_test.json", aabb_scale=4)
    with pytest.raises(SceneError, match="transforms_test.json: fields aabb"):
        load_scene(folder)


BOXES = {
    "scalar offset": ({"scale": 0.5, "offset": 0.25}, [[-0.5] * 3, [1.5] * 3]),
    "aabb": ({"aabb": [[-1, 0, 2], [3, 1, 4]], "scale": 9, "offset": 5}, [[-1, -1.5, 1], [3, 2.5, 5]]),
    "aabb upside down": ({"aabb": [[1, 1, 1], [-1, -1, -1]]}, [[-1] * 3, [1] * 3]),
}  # fmt: skip


@pytest.mark.parametrize("case", BOXES)
def test_boxes_as_instant_ngp_reads_them(case, photos):
    fields, expected = BOXES[case]
    change(photos / "transforms.json", **fields)
    np.testing.assert_allclose(load_scene(photos).space.aabb, expected, atol=1e-6)


def test_nerfstudios_files_get_a_box_around_what_the_cameras_look_at(photos):
    path = photos / "transforms.json"
    change(path, drop=("aabb_scale",), camera_model="OPENCV")
    space = load_scene(photos).space
    np.testing.assert_allclose(space.aabb.mean(axis=0), [0, 0, -0.12], atol=0.02)
    np.testing.assert_allclose(np.ptp(space.aabb, axis=0), 2 * 3.7 * 0.5 / 0.33 / 4, rtol=0.02)
    assert space.extent == 4
    change(path, camera_model="EQUIRECTANGULAR", **WHOLE)
    space = load_scene(photos).space
    eyes = np.concatenate(
        [
            part.cameras.poses[:, :, 3]
            for part in (load_scene(photos).train, load_scene(photos).test)
        ]
    )
    assert (eyes > space.aabb[0] - 1e-5).all() and (eyes < space.aabb[1] + 1e-5).all()
    assert space.extent == 32 and space.near < 0.3
    change(path, aabb_scale=2)  # what the file says is what is done
    np.testing.assert_allclose(load_scene(photos).space.aabb[1], 0.5 / 0.33)


BAD_BOXES = {
    "one corner": ({"aabb": [[0, 0, 0]]}, "'aabb' must be a list of two"),
    "flat corners": ({"aabb": [1, 2]}, "'aabb' must be a list of three"),
    "infinite": ({"aabb": [[0, 0, 0], [1, 1, 1e300]]}, "'aabb' must lie between"),
    "text": ({"offset": "here"}, "'offset' must be a list of three"),
    "far away": ({"aabb": [[1e6, 0, 0], [1e6, 0, 0]]}, "make a box of no size"),
}


@pytest.mark.parametrize("case", BAD_BOXES)
def test_bad_boxes(case, photos):
    fields, expected = BAD_BOXES[case]
    change(photos / "transforms.json", **fields)
    with pytest.raises(SceneError, match=expected):
        load_scene(photos)


def test_backslashes_in_paths(photos, tmp_path, still_life):
    for folder, name in ((photos, ""), (disk.blender(tmp_path / "toy", still_life), "_train")):
        path = folder / f"transforms{name}.json"
        content = json.loads(path.read_text())
        for frame in content["frames"]:
            frame["file_path"] = frame["file_path"].replace("/", "\\")
        path.write_text(json.dumps(content))
        assert len(load_scene(folder).train) > 3


def test_lists_of_files_decide_the_split(photos):
    path = photos / "transforms.json"
    names = [f"images/{i:03d}.png" for i in range(9)]
    change(path, train_filenames=names[:5], val_filenames=names[5:7], test_filenames=names[7:])
    scene = load_scene(photos)
    assert (scene.train.names, scene.test.names) == (tuple(names[:5]), tuple(names[7:]))
    change(path, drop=("test_filenames",))
    assert load_scene(photos).test.names == tuple(names[5:7])
    change(path, train_filenames=["images/nowhere.png"])
    with pytest.raises(SceneError, match="'train_filenames' lists 'images/nowhere.png'"):
        load_scene(photos)
    change(path, drop=("train_filenames",))
    with pytest.raises(SceneError, match="'train_filenames' must be a list"):
        load_scene(photos)


def test_masks(photos):
    path = photos / "transforms.json"
    mask = np.full([48, 48], 255, np.uint8)
    mask[:, :7] = 0
    disk.write_image(photos / "mask.png", mask)
    change(path, frame=True, mask_path="mask.png")
    masks = load_scene(photos).train.masks
    np.testing.assert_array_equal(masks, np.tile(mask > 0, (7, 1, 1)))
    half = load_scene(photos, 2).test.masks
    np.testing.assert_array_equal(half[0, :, 3:5], np.tile([False, True], (24, 1)))
    disk.write_image(photos / "mask.png", mask[:20])
    with pytest.raises(SceneError, match="mask of 48x20 pixels for an image of 48x48"):
        load_scene(photos)
    disk.write_image(photos / "mask.png", 0 * mask)
    with pytest.raises(SceneError, match="no pixel has a ray that counts; its mask excludes all"):
        load_scene(photos)
    content = json.loads(path.read_text())
    del content["frames"][3]["mask_path"]
    path.write_text(json.dumps(content))
    with pytest.raises(SceneError, match="'mask_path' is missing in 1 of 9 frames"):
        load_scene(photos)


def test_pixels_without_a_ray_are_counted_and_not_learnt(photos):
    from metal_ops.nerf.config import ModelConfig, TrainConfig
    from metal_ops.nerf.train import Trainer

    change(photos / "transforms.json", k1=-0.5, fl_x=30, fl_y=30)
    scene = load_scene(photos)
    shown = scene.train.cameras.shown(0)
    assert shown is not None
    (note,) = [note for note in scene.notes if "no undistorted place" in note]
    assert f"{9 * np.count_nonzero(~shown)} of {9 * 48 * 48} pixels" in note
    config = TrainConfig(seconds=None, steps=2, target_samples=512)
    trainer = Trainer(scene, ModelConfig(n_levels=4, log2_hashmap_size=8), config)
    _, useful = trainer._pixels(None)
    np.testing.assert_array_equal(useful, np.flatnonzero(np.tile(shown, (7, 1, 1))))
    assert math.isfinite(trainer.train_step().loss)
    picture = trainer.renderer()(scene.test.cameras, 0)
    assert not picture.opacity[~shown].any() and not picture.colour[~shown].any()
    assert picture.opacity[shown].any() and np.isfinite(picture.colour).all()


def test_pinholes_stay_pinholes():
    one = pinhole_cameras(EYE, 10.0, 8, 8)
    assert one.is_pinhole and one.lenses() is None and one.shown(0) is None
    assert not CAMERAS["fisheye without terms"].is_pinhole
    assert not CAMERAS["equirectangular"].select([0]).scaled(8, 4).is_pinhole
