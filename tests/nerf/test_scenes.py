"""Scene files: the values read are those written, and every mistake is one sentence that names file and field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from metal_ops.nerf.cameras import Cameras
from metal_ops.nerf.errors import SceneError
from metal_ops.nerf.metrics import on_background
from metal_ops.nerf.scenes import Views, load_scene
from metal_ops.nerf.scenes.common import hold_out, read_image, shrink

from . import scenes_on_disk as disk


@pytest.fixture
def blender(tmp_path, still_life):
    return disk.blender(tmp_path / "toy", still_life)


@pytest.fixture
def photographs(tmp_path, still_life):
    views = still_life.train
    first = Views(views.names[:9], views.images[:9], views.cameras.select(range(9)))
    return disk.instant_ngp(tmp_path / "photos", first)


def test_blender_round_trip(blender, still_life):
    scene = load_scene(blender)
    assert (scene.name, len(scene.train), len(scene.test), scene.has_alpha) == ("toy", 4, 2, True)
    np.testing.assert_array_equal(scene.train.images, still_life.train.images[:4])
    np.testing.assert_array_equal(scene.test.images, still_life.test.images[:2])
    # The focal length travels through an angle: float32 rounding twice.
    np.testing.assert_allclose(
        scene.test.cameras.intrinsics, still_life.test.cameras.intrinsics[:2], rtol=1e-6
    )
    np.testing.assert_array_equal(scene.train.cameras.poses, still_life.train.cameras.poses[:4])
    assert scene.background == (1.0, 1.0, 1.0) and not scene.notes


def test_blender_without_a_test_split_takes_validation(blender):
    (blender / "transforms_test.json").rename(blender / "transforms_val.json")
    assert len(load_scene(blender).test) == 2


def test_blender_downscale_keeps_the_field_of_view(blender):
    full, half = load_scene(blender), load_scene(blender, downscale=2)
    assert half.train.images.shape[1:] == (24, 24, 4)
    np.testing.assert_allclose(half.train.cameras.intrinsics * 2, full.train.cameras.intrinsics)


def test_blender_without_alpha_says_what_it_assumes(blender):
    for file in blender.glob("*/*.png"):
        Image.open(file).convert("RGB").save(file)
    scene = load_scene(blender)
    assert not scene.has_alpha and scene.background == (1.0, 1.0, 1.0)
    assert any("no alpha" in note and "white" in note for note in scene.notes)


def test_alpha_of_255_is_no_alpha(tmp_path, blender, still_life):
    """Photographs saved as RGBA: silhouettes would cut away all that is behind the box."""
    for file in blender.glob("*/*.png"):
        Image.open(file).convert("RGB").convert("RGBA").save(file)
    views = still_life.train
    opaque = views.images.copy()
    opaque[..., 3] = 255
    photos = Views(views.names, opaque, views.cameras).select(range(9))
    ngp = disk.instant_ngp(tmp_path / "photos", photos, alpha=True, camera_model="OPENCV")
    (ngp / "transforms.json").write_text(
        (ngp / "transforms.json").read_text().replace('"aabb_scale": 1, ', "")
    )
    for folder in (blender, ngp):
        scene = load_scene(folder)
        assert not scene.has_alpha
        assert any("alpha of 255 everywhere" in note for note in scene.notes)
    assert scene.space.contracted


def test_tiny_round_trip(tmp_path, still_life):
    scene = load_scene(disk.tiny(tmp_path / "tiny.npz", still_life, count=9))
    assert scene.test.names == ("view_000", "view_008") and len(scene.train) == 7
    expected = on_background(still_life.train.images[8], (0.0, 0.0, 0.0))
    # Quantised to bytes: half a step of 1/255.
    np.testing.assert_allclose(scene.test.images[1, ..., :3] / 255, expected, atol=0.51 / 255)
    assert scene.background == (0.0, 0.0, 0.0) and not scene.has_alpha
    assert any("black" in note for note in scene.notes)


@pytest.mark.parametrize("per_frame", [False, True])
def test_instant_ngp_round_trip(tmp_path, still_life, per_frame):
    views = still_life.train
    cameras = views.cameras.select(range(9))
    intrinsics = cameras.intrinsics.copy()
    if per_frame:
        intrinsics[:, 0] *= np.linspace(0.9, 1.1, 9)
    intrinsics[:, 2:] += (1.5, -2.5)
    distortion = np.tile(np.array([0.05, -0.01, 0.002, -0.003], np.float32), (9, 1))
    lenses = Cameras(cameras.poses, intrinsics, distortion, cameras.width, cameras.height)
    folder = disk.instant_ngp(
        tmp_path / "fox",
        Views(views.names[:9], views.images[:9], lenses),
        per_frame=per_frame,
        aabb_scale=4,
    )
    scene = load_scene(folder)
    assert scene.name == "fox" and len(scene.test) == 2 and len(scene.train) == 7
    np.testing.assert_allclose(scene.test.cameras.intrinsics, intrinsics[[0, 8]], rtol=1e-6)
    np.testing.assert_allclose(scene.train.cameras.distortion[:, :4], distortion[:7], rtol=1e-6)
    assert scene.space.extent == 4 and scene.space.contracted
    # The unit cube of instant-ngp: 1 / 0.33 wide around the origin.
    np.testing.assert_allclose(scene.space.aabb, [[-0.5 / 0.33] * 3, [0.5 / 0.33] * 3], rtol=1e-6)


def test_instant_ngp_intrinsics_follow_the_image_size(photographs):
    """colmap2nerf's w, h, fl_x are for the original photographs, which people shrink afterwards."""
    full = load_scene(photographs)
    for file in (photographs / "images").iterdir():
        Image.open(file).resize((24, 24)).save(file)
    half = load_scene(photographs)
    np.testing.assert_allclose(
        half.train.cameras.intrinsics * 2, full.train.cameras.intrinsics, rtol=1e-6
    )


def test_instant_ngp_angle_instead_of_focal_length(photographs):
    expected = load_scene(photographs).train.cameras.intrinsics
    change(photographs / "transforms.json", lambda c: angles_for_focals(c))
    np.testing.assert_allclose(
        load_scene(photographs).train.cameras.intrinsics, expected, rtol=1e-6
    )


def angles_for_focals(content: dict[str, Any]) -> None:
    for axis, size in (("x", "w"), ("y", "h")):
        content[f"camera_angle_{axis}"] = 2 * np.arctan(
            0.5 * content[size] / content.pop(f"fl_{axis}")
        )


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def set_in_frame(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["frames"][1].__setitem__(key, value)


def set_pose(row: int, column: int, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["frames"][1]["transform_matrix"][row].__setitem__(column, value)


def scale_rotation(content: dict[str, Any]) -> None:
    pose = np.array(content["frames"][1]["transform_matrix"])
    pose[:3, :3] *= 1.1
    content["frames"][1]["transform_matrix"] = pose.tolist()


def mirror_rotation(content: dict[str, Any]) -> None:
    pose = np.array(content["frames"][1]["transform_matrix"])
    pose[:3, 0] *= -1
    content["frames"][1]["transform_matrix"] = pose.tolist()


# The change of the JSON, and words that the message must name besides the file.
BAD_BLENDER_JSON = {
    "no angle": (lambda c: c.pop("camera_angle_x"), "'camera_angle_x' is missing"),
    "angle of no lens": (
        lambda c: c.update(camera_angle_x=3.5),
        "'camera_angle_x' must lie between",
    ),
    "angle is text": (
        lambda c: c.update(camera_angle_x="wide"),
        "'camera_angle_x' must be a finite number",
    ),
    "NaN angle": (
        lambda c: c.update(camera_angle_x=float("nan")),
        "'camera_angle_x' must be a finite",
    ),
    "no frames": (lambda c: c.pop("frames"), "'frames'"),
    "empty frames": (lambda c: c.update(frames=[]), "'frames'"),
    "frame is no object": (lambda c: c["frames"].__setitem__(1, 5), "frames[1]"),
    "no file path": (lambda c: c["frames"][1].pop("file_path"), "'file_path'"),
    "no pose": (lambda c: c["frames"][1].pop("transform_matrix"), "frames[1].transform_matrix"),
    "3x3 pose": (set_in_frame("transform_matrix", np.eye(3).tolist()), "got shape [3, 3]"),
    "ragged pose": (set_in_frame("transform_matrix", [[1, 2], [3]]), "4x4 matrix of numbers"),
    "NaN pose": (
        set_pose(0, 3, float("nan")),
        "frames[1].transform_matrix (./train/r_1): holds a value that is not finite",
    ),
    "infinite pose": (set_pose(2, 2, float("inf")), "not finite"),
    "last row": (set_pose(3, 0, 1.0), "last row"),
    "scaled rotation": (scale_rotation, "not a rotation"),
    "reflection": (mirror_rotation, "reflection"),
    "missing image": (
        set_in_frame("file_path", "./train/nowhere"),
        "nowhere.png: no such image file",
    ),
}


@pytest.mark.parametrize("case", BAD_BLENDER_JSON)
def test_bad_blender_json(blender, case):
    edit, expected = BAD_BLENDER_JSON[case]
    change(blender / "transforms_train.json", edit)
    message = error_of(blender)
    assert expected in message
    if case != "missing image":
        assert str(blender / "transforms_train.json") in message


def error_of(path: Path, **options: Any) -> str:
    with pytest.raises(SceneError) as caught:
        load_scene(path, **options)
    message = str(caught.value)
    assert message.endswith((".", "?")) and "\n" not in message  # one sentence
    return message


def test_bad_json_says_which_line(blender):
    path = blender / "transforms_test.json"
    path.write_text('{\n "camera_angle_x": 0.7,\n "frames": [}')
    assert f"{path}: not valid JSON at line 3" in error_of(blender)


def test_json_that_is_a_list(blender):
    (blender / "transforms_train.json").write_text("[]")
    assert "expected a JSON object, got list" in error_of(blender)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:200]), "not a readable image"),
        (lambda file: file.write_bytes(b"hello"), "not a readable image"),
        (lambda file: file.write_bytes(b""), "not a readable image"),
        (
            lambda file: Image.new("RGBA", (20, 20)).save(file),
            "48x48 pixels and ./train/r_2 has 20x20",
        ),
        (lambda file: Image.new("RGB", (48, 48)).save(file), "r_2, have none"),
        (lambda file: Image.new("I;16", (48, 48)).save(file), "save it with 8 bits"),
        (lambda file: file.unlink(), "no such image file"),
    ],
)
def test_bad_images(blender, damage, expected):
    damage(blender / "train" / "r_2.png")
    message = error_of(blender)
    assert expected in message and ("r_2" in message)


def test_splits_of_different_size(blender):
    for file in (blender / "test").iterdir():
        Image.open(file).resize((32, 32)).save(file)
    assert "32x32" in error_of(blender) and "48x48" in error_of(blender)


def test_downscale_that_does_not_divide(blender):
    assert "not a multiple of the downscale factor 5" in error_of(blender, downscale=5)


def test_unknown_keys_are_said_not_swallowed(blender):
    # file_paths only looks like a typing error for those who forget that only frames have file_path.
    more = {"exposure": 2, "zoom": 3, "file_paths": 0.7}
    change(blender / "transforms_train.json", lambda c: c.update(more))
    change(blender / "transforms_train.json", set_in_frame("tilt", 1))
    notes = load_scene(blender).notes
    assert any(
        "transforms_train.json: ignoring unknown fields exposure, file_paths, zoom." in note
        for note in notes
    )
    assert any("frames: ignoring unknown field tilt" in note for note in notes)


BAD_NPZ = {
    "no poses": ({"poses": None}, "array 'poses' is missing"),
    "flat images": ({"images": np.zeros([9, 48, 48], np.float32)}, "'images' must have shape"),
    "two channels": ({"images": np.zeros([9, 48, 48, 2], np.float32)}, "'images' must have shape"),
    "fewer poses": ({"poses": np.tile(np.eye(4), (3, 1, 1))}, "'poses' must have shape [9, 4, 4]"),
    "NaN pose": (
        {"poses": np.full([9, 4, 4], np.nan)},
        "poses[0]: holds a value that is not finite",
    ),
    "sheared pose": (
        {"poses": np.tile(np.triu(np.ones([4, 4])), (9, 1, 1))},
        "poses[0]: the 3x3 part is not a rotation",
    ),
    "negative focal": ({"focal": -1.0}, "'focal' must be one positive number"),
    "two focals": ({"focal": np.array([50.0, 60.0])}, "'focal' must be one positive number"),
    "NaN image": (
        {"images": np.full([9, 8, 8, 3], np.nan)},
        "'images' holds a value that is not finite",
    ),
    "images up to 255": ({"images": np.full([9, 8, 8, 3], 255.0)}, "lie in [0, 1]"),
    "objects": ({"focal": np.array(["wide"])}, "must hold numbers"),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_bad_npz(tmp_path, still_life, case):
    changes, expected = BAD_NPZ[case]
    path = disk.tiny(tmp_path / "bad.npz", still_life, **changes)
    message = error_of(path)
    assert expected in message and str(path) in message


def test_npz_that_is_none(tmp_path):
    path = tmp_path / "bad.npz"
    path.write_bytes(b"PK\x03\x04 not really")
    assert "not a readable .npz" in error_of(path)


BAD_NGP = {
    "no focal length": (
        lambda c: (c.pop("fl_x"), c.pop("fl_y")),
        "'fl_x' or 'camera_angle_x' is missing",
    ),
    "negative focal length": (lambda c: c.update(fl_x=-2), "'fl_x' must lie between 0.001 and"),
    "typing error": (
        lambda c: c.update(aabb_Scales=c.pop("aabb_scale")),
        "unknown field 'aabb_Scales'; is 'aabb_scale' meant?",
    ),
    "fisheye with tangential terms": (lambda c: c.update(is_fisheye=True, p1=0.1), "'p1' = 0.1"),
    "fifth radial term": (lambda c: c.update(k5=0.1), "'k5'"),
    "text for k1": (lambda c: c.update(k1="none"), "'k1' must be a finite number"),
    "small box": (
        lambda c: c.update(aabb_scale=0.5),
        "'aabb_scale' must lie between 1 and 1024, got 0.5",
    ),
    "no scale": (lambda c: c.update(scale=0), "'scale' must lie between"),
    "short offset": (lambda c: c.update(offset=[0.5]), "'offset' must be a list of three"),
    "other aspect": (lambda c: c.update(h=96), "'w' and 'h' say 48x96"),
    "one frame": (
        lambda c: c.update(frames=c["frames"][:1]),
        "'frames' must be a list with at least two",
    ),
    "scaled rotation": (scale_rotation, "frames[1] (images/001.png): field 'transform_matrix'"),
}


@pytest.mark.parametrize("case", BAD_NGP)
def test_bad_instant_ngp(photographs, case):
    edit, expected = BAD_NGP[case]
    change(photographs / "transforms.json", edit)
    message = error_of(photographs)
    assert expected in message and "transforms.json" in message


def test_unsupported_lens_terms_that_are_zero_are_fine(photographs):
    change(photographs / "transforms.json", lambda c: c.update(k3=0, is_fisheye=False))
    assert len(load_scene(photographs).train) == 7


def test_paths_that_are_no_scene(tmp_path):
    assert "no such file or folder" in error_of(tmp_path / "nowhere")
    assert "neither transforms_train.json" in error_of(tmp_path)
    (tmp_path / "a.txt").write_text("")
    assert "expected a folder" in error_of(tmp_path / "a.txt")


def test_blender_without_held_out_views(blender):
    (blender / "transforms_test.json").unlink()
    shutil.rmtree(blender / "test")
    assert "neither transforms_test.json nor transforms_val.json" in error_of(blender)


def test_shrink_weights_colours_with_alpha():
    """A transparent black pixel beside an opaque red one must not make it darker."""
    pixels = np.zeros([2, 2, 4], np.uint8)
    pixels[0, 0] = (200, 40, 0, 255)
    np.testing.assert_array_equal(shrink(pixels, 2, "x")[0, 0], [200, 40, 0, 64])


def test_palette_images_with_transparency_have_alpha(tmp_path):
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0)).quantize()
    image.save(tmp_path / "p.png", transparency=0)
    pixels, has_alpha = read_image(tmp_path / "p.png")
    assert has_alpha and pixels[0, 0, 3] == 0


@pytest.mark.parametrize("count", [2, 8, 9, 20])
def test_hold_out_is_a_partition(count):
    train, test = hold_out(count)
    assert sorted([*train, *test]) == list(range(count)) and len(train) and len(test)
