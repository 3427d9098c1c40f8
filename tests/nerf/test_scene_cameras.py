"""Cameras and boxes in transforms.json: every field is used as its own program uses it, or refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from metal_ops.nerf.errors import SceneError
from metal_ops.nerf.lenses import TERMS, Model, panorama
from metal_ops.nerf.scenes import Views, load_scene

from . import scenes_on_disk as disk


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
    "opencv as Metashape's": (
        {"camera_model": "OPENCV", "k1": 0.1, "k3": -0.02, "k4": 0.01, "p2": 0.001},
        0,
        [0.1, 0, 0, 0.001, -0.02, 0.01],
    ),
    "full opencv without a denominator": (
        {"camera_model": "FULL_OPENCV", "k3": -0.02, "k4": 0.0},
        0,
        [0, 0, 0, 0, -0.02],
    ),
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
            views.cameras.distortion,
            np.tile(np.float32(terms + [0] * (TERMS - len(terms))), (len(views), 1)),
        )
        if model > 1:
            np.testing.assert_allclose(views.cameras.intrinsics[0], panorama(Model(model), 48, 48))


REFUSED = {
    "camera_model": "ORTHOPHOTO",
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
    "k4 of a denominator": {"camera_model": "FULL_OPENCV", "k4": 0.01},
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


@pytest.mark.parametrize(
    "shared, own, words",
    [
        ({"fl_x": 60.0}, {"fl_x": 50.0}, "'fl_x' is 50.0, and 60.0 for all frames"),
        ({"k1": 0.1}, {"k2": 0.01}, "'k2' is 0.01, and 0 for all frames"),
        ({"k1": 0.1}, {"k1": 0.1, "k2": 0.0}, ""),
        ({}, {"fl_x": 50.0}, ""),
    ],
)
def test_what_a_file_of_nerfstudios_says_twice(shared, own, words, photos):
    """nerfstudio takes the file's, and instant-ngp the frame's."""
    names = ("fl_x", "fl_y", "k1", "k2", "p1", "p2", "k3", "k4")
    change(photos / "transforms.json", drop=names)
    change(photos / "transforms.json", camera_model="OPENCV", fl_y=60.0, **shared)
    change(photos / "transforms.json", True, **own)
    if words:
        with pytest.raises(SceneError, match=words):
            load_scene(photos)
    else:
        cameras = load_scene(photos).train.cameras
        assert cameras.intrinsics[0, 0] == own.get("fl_x", 60.0)
        assert cameras.distortion[0, 0] == np.float32(own.get("k1", 0))


def test_split_files_with_a_whole_lens(tmp_path, still_life):
    folder = disk.blender(tmp_path / "toy", still_life)
    lens = {"fl_x": 60, "fl_y": 48, "cx": 44, "cy": 50, "w": 96, "h": 96, "k1": 0.2, "p2": 0.01}
    for name in ("train", "test"):
        change(folder / f"transforms_{name}.json", **lens, aabb_scale=2, scale=0.5, offset=0.25)
    change(folder / "transforms_train.json", frame=True, k1=0.3)
    scene = load_scene(folder)
    np.testing.assert_array_equal(scene.train.cameras.intrinsics[0], [30, 24, 22, 25])  # of 48x48
    for views, k1 in ((scene.train, 0.3), (scene.test, 0.2)):
        expected = np.float32([k1, 0, 0, 0.01, 0, 0])
        np.testing.assert_array_equal(views.cameras.distortion[0], expected)
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
    change(path, aabb_scale=2)  # the file's choice is honoured
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
    change(path, train_filenames=[f"./{name}" for name in names[:5]])  # another spelling
    assert load_scene(photos).train.names == tuple(names[:5])
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
    from metal_ops.nerf.pixels import training_pixels
    from metal_ops.nerf.train import Trainer

    change(photos / "transforms.json", k1=-0.5, fl_x=30, fl_y=30)
    scene = load_scene(photos)
    shown = scene.train.cameras.shown(0)
    assert shown is not None
    (note,) = [note for note in scene.notes if "no undistorted place" in note]
    assert f"{9 * np.count_nonzero(~shown)} of {9 * 48 * 48} pixels" in note
    config = TrainConfig(seconds=None, steps=2, target_samples=512)
    trainer = Trainer(scene, ModelConfig(n_levels=4, log2_hashmap_size=8), config)
    _, useful = training_pixels(scene, None)
    np.testing.assert_array_equal(useful, np.flatnonzero(np.tile(shown, (7, 1, 1))))
    assert math.isfinite(trainer.train_step().loss)
    picture = trainer.renderer()(scene.test.cameras, 0)
    assert not picture.opacity[~shown].any() and not picture.colour[~shown].any()
    assert picture.opacity[shown].any() and np.isfinite(picture.colour).all()


def test_masks_of_instant_ngp(photos):
    """Beside an image, by its name: pixels that are drawn there move. The others have none."""
    moving = np.zeros([48, 48], np.uint8)
    moving[:, :7] = 9
    name = json.loads((photos / "transforms.json").read_text())["frames"][1]["file_path"]
    image = photos / name
    disk.write_image(image.with_name(f"dynamic_mask_{image.stem}.png"), moving)
    masks = load_scene(photos).train.masks
    assert masks is not None
    wanted = np.ones([7, 48, 48], bool)
    wanted[0] = moving == 0
    np.testing.assert_array_equal(masks, wanted)
    change(photos / "transforms.json", frame=True, mask_path=name)
    with pytest.raises(
        SceneError,
        match="dynamic_mask_.*png: instant-ngp reads this mask, and nerfstudio the field",
    ):
        load_scene(photos)


@pytest.mark.parametrize("name", ["{0}.png.alpha.png", "{0}.alpha.png", "rays_{0}.dat"])
def test_files_of_instant_ngp_beside_an_image(photos, name):
    image = next(iter(sorted((photos / "images").iterdir())))
    other = image.with_name(name.format(image.stem))
    other.write_bytes(b"")
    with pytest.raises(
        SceneError, match=f"{other}: instant-ngp reads this file beside {image.name}, which is not"
    ):
        load_scene(photos)


@pytest.mark.parametrize("colour", [(0, 0, 255, 255), (255, 255, 255, 0)])
def test_masks_with_colours_or_alpha(photos, colour):
    mask = np.full([48, 48, 4], 255, np.uint8)
    mask[3, 5] = colour
    disk.write_image(photos / "mask.png", mask)
    change(photos / "transforms.json", frame=True, mask_path="mask.png")
    with pytest.raises(SceneError, match="mask.png: a mask must be grey and without alpha"):
        load_scene(photos)
