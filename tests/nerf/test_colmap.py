"""Folders of photos with a COLMAP model: pycolmap's values are read, or refused by name."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pycolmap
import pytest

from metal_ops import cli
from metal_ops.nerf.errors import SceneError
from metal_ops.nerf.lenses import Model
from metal_ops.nerf.metrics import on_background
from metal_ops.nerf.scenes import Views, colmap, load_scene

from . import scenes_on_disk as disk

SIZE = 48
LENSES = {
    "SIMPLE_PINHOLE": [70, 24, 23],
    "PINHOLE": [70, 68, 24, 23],
    "SIMPLE_RADIAL": [70, 24, 23, -0.1],
    "RADIAL": [70, 24, 23, -0.1, 0.02],
    "OPENCV": [70, 68, 24, 23, -0.1, 0.02, 0.003, -0.002],
    "FULL_OPENCV": [70, 68, 24, 23, -0.1, 0.02, 0.003, -0.002, 0.01, 0, 0, 0],
    "SIMPLE_RADIAL_FISHEYE": [70, 24, 23, 0.04],
    "RADIAL_FISHEYE": [70, 24, 23, 0.04, -0.01],
    "OPENCV_FISHEYE": [70, 68, 24, 23, 0.04, -0.01, 0.002, 0.001],
    "SIMPLE_FISHEYE": [70, 24, 23],
    "FISHEYE": [70, 68, 24, 23],
    "EQUIRECTANGULAR": [48, 48],
}
REFUSED = {
    "FULL_OPENCV": ([70, 68, 24, 23, -0.1, 0.02, 0, 0, 0.01, 0.02, 0, 0], "'k4' = 0.02"),
    "FOV": ([70, 68, 24, 23, 0.5], "'camera_model' = 'FOV'"),
    "THIN_PRISM_FISHEYE": ([70, 68, 24, 23, 0, 0, 0, 0, 0, 0, 0, 0], "'THIN_PRISM_FISHEYE'"),
    "RAD_TAN_THIN_PRISM_FISHEYE": ([70, 68, 24, 23, *[0.0] * 12], "'RAD_TAN_THIN_PRISM_FISHEYE'"),
    "SIMPLE_DIVISION": ([70, 24, 23, -0.1], "'SIMPLE_DIVISION'"),
    "DIVISION": ([70, 68, 24, 23, -0.1], "'DIVISION'"),
    "EUCM": ([70, 68, 24, 23, 0.5, 1.0], "'EUCM'"),
}


def rigid(pose: np.ndarray) -> pycolmap.Rigid3d:
    """COLMAP's pose of a camera-to-world matrix with OpenGL axes."""
    rotation = (pose[:, :3] * [1, -1, -1]).T.astype(float)
    return pycolmap.Rigid3d(pycolmap.Rotation3d(rotation), -rotation @ pose[:, 3].astype(float))


def write_photos(folder: Path, views: Views, alpha: bool = False) -> None:
    for i, image in enumerate(views.images):
        opaque = (on_background(image, (0.0, 0.0, 0.0)) * 255).round().astype(np.uint8)
        disk.write_image(folder / f"{i:03d}.png", image if alpha else opaque)


def reconstruction(views: Views, model: str = "OPENCV", params: list[float] | None = None):
    """A model of the views by one camera, and points on the plinth."""
    made = pycolmap.Reconstruction()
    camera = pycolmap.Camera(
        model=model, width=SIZE, height=SIZE, params=LENSES[model] if params is None else params
    )
    camera.camera_id = 1
    made.add_camera_with_trivial_rig(camera)
    for i, pose in enumerate(views.cameras.poses):
        image = pycolmap.Image(name=f"{i:03d}.png", camera_id=1, image_id=i + 1)
        made.add_image_with_trivial_frame(image, rigid(pose))
    for x, y in np.random.default_rng(0).uniform(-0.8, 0.8, [50, 2]):
        made.add_point3D(np.array([x, y, -0.5]), pycolmap.Track(), np.zeros(3, np.uint8))
    return made


@pytest.fixture
def views(still_life) -> Views:
    train = still_life.train
    return Views(train.names[:9], train.images[:9], train.cameras.select(range(9)))


def folder_of(
    tmp_path: Path, views: Views, made, text: bool = False, place: str = "sparse/0"
) -> Path:
    folder = tmp_path / "photos"
    write_photos(folder / "images", views)
    (folder / place).mkdir(parents=True, exist_ok=True)
    (made.write_text if text else made.write_binary)(folder / place)
    return folder


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("model", LENSES)
def test_cameras_as_pycolmap_has_them(model, text, tmp_path, views):
    folder = folder_of(tmp_path, views, reconstruction(views, model), text)
    scene = load_scene(folder)
    assert (scene.name, len(scene.train), len(scene.test)) == ("photos", 7, 2)
    made = pycolmap.Reconstruction(folder / "sparse" / "0")
    camera = made.cameras[1]
    row, column = (part.ravel() + 0.5 for part in np.mgrid[0:SIZE:5, 0:SIZE:5])
    for split in (scene.train, scene.test):
        for view, name in enumerate(split.names):
            image = made.find_image_with_name(name)
            np.testing.assert_allclose(
                split.cameras.poses[view, :, 3], image.projection_center(), atol=1e-5
            )
            world = split.cameras.rays(view, column, row)
            world_from_cam = image.cam_from_world().inverse().matrix()[:, :3]
            ahead = camera.cam_ray_from_img(np.stack([column, row], axis=1))
            np.testing.assert_allclose(world, ahead @ world_from_cam.T, atol=1e-5)
    kind = (
        Model.EQUIRECTANGULAR
        if model == "EQUIRECTANGULAR"
        else Model.FISHEYE
        if "FISHEYE" in model
        else Model.PERSPECTIVE
    )
    assert (scene.train.cameras.models == kind).all()


@pytest.mark.parametrize("model", REFUSED)
def test_models_that_are_refused(model, tmp_path, views):
    params, expected = REFUSED[model]
    folder = folder_of(tmp_path, views, reconstruction(views, model, params))
    with pytest.raises(SceneError) as caught:
        load_scene(folder)
    assert expected in str(caught.value) and "sparse/0: camera 1" in str(caught.value)


def test_every_model_of_pycolmap_is_named_above():
    ours = {*LENSES, *REFUSED}
    theirs = {name for name in pycolmap.CameraModelId.__members__ if name != "INVALID"}
    assert theirs == ours


def test_rigs_and_frames(tmp_path, views):
    """Two cameras with different lenses on a rig, one of them at an angle from the other."""
    made = pycolmap.Reconstruction()
    for number, model in ((1, "OPENCV"), (2, "OPENCV_FISHEYE")):
        camera = pycolmap.Camera(model=model, width=SIZE, height=SIZE, params=LENSES[model])
        camera.camera_id = number
        made.add_camera(camera)
    turn = pycolmap.Rigid3d(pycolmap.Rotation3d(np.array([0, 0.2, 0, 0.98])), np.array([0.1, 0, 0]))
    rig = pycolmap.Rig(rig_id=1)
    rig.add_ref_sensor(made.cameras[1].sensor_id)
    rig.add_sensor(made.cameras[2].sensor_id, turn)
    made.add_rig(rig)
    for place in range(4):
        frame = pycolmap.Frame(frame_id=place + 1, rig_id=1)
        frame.rig_from_world = rigid(views.cameras.poses[place])
        images = []
        for number in (1, 2):
            image = pycolmap.Image(
                name=f"cam{number}/{place}.png", camera_id=number, image_id=2 * place + number
            )
            image.frame_id = place + 1
            frame.add_data_id(image.data_id)
            images.append(image)
            disk.write_image(
                tmp_path / "photos" / "images" / image.name, views.images[place, ..., :3]
            )
        made.add_frame(frame)
        for image in images:
            made.add_image(image)
        made.register_frame(place + 1)
    (tmp_path / "photos" / "sparse" / "0").mkdir(parents=True)
    made.write_binary(tmp_path / "photos" / "sparse" / "0")
    assert (tmp_path / "photos" / "sparse" / "0" / "rigs.bin").stat().st_size > 50
    scene = load_scene(tmp_path / "photos")
    assert len(scene.train) + len(scene.test) == 8
    by_name = dict(zip(scene.train.names, range(len(scene.train)), strict=True))
    first, second = by_name["cam1/1.png"], by_name["cam2/1.png"]
    poses = scene.train.cameras.poses.astype(float)
    np.testing.assert_array_equal(scene.train.cameras.models[[first, second]], [0, 1])
    expected = (turn * rigid(views.cameras.poses[1])).inverse().matrix()
    np.testing.assert_allclose(poses[second] * [1, -1, -1, 1], expected, atol=1e-5)
    np.testing.assert_allclose(poses[first], views.cameras.poses[1], atol=1e-5)


@pytest.mark.parametrize("place", ["sparse", "colmap/sparse/0", "sparse/2", "."])
def test_places_of_models(place, tmp_path, views):
    folder = folder_of(tmp_path, views, reconstruction(views), place=place)
    assert len(load_scene(folder).train) == 7
    if place == "sparse/2":  # smaller ones beside it are not taken
        few = Views(views.names[:3], views.images[:3], views.cameras.select(range(3)))
        (folder / "sparse" / "0").mkdir()
        reconstruction(few).write_binary(folder / "sparse" / "0")
        assert len(load_scene(folder).train) == 7
    assert len(load_scene(folder / place).train) == 7 or place == "."


def test_photos_of_another_size_than_the_cameras(tmp_path, views):
    params = [2 * value for value in LENSES["PINHOLE"]]
    made = reconstruction(views, "PINHOLE", params)
    made.cameras[1].width = made.cameras[1].height = 2 * SIZE
    scene = load_scene(folder_of(tmp_path, views, made))
    np.testing.assert_allclose(scene.train.cameras.intrinsics[0], LENSES["PINHOLE"])


def test_the_box_is_around_the_thing(tmp_path, views, still_life):
    folder = folder_of(tmp_path, views, reconstruction(views))
    space = load_scene(folder).space
    middle = (space.aabb[0] + space.aabb[1]) / 2
    np.testing.assert_allclose(middle, [0, 0, -0.12], atol=0.02)  # all cameras look there
    np.testing.assert_allclose(space.aabb[1] - space.aabb[0], 2 * 3.7 * 0.5 / 0.33 / 4, rtol=0.02)
    assert space.extent == 4.0  # cameras are 3.7 away
    write_photos(folder / "images", views, alpha=True)
    space = load_scene(folder).space
    assert space.extent == 1 and (space.aabb[0] < -1.2).all() and (space.aabb[1] > 1.2).all()


@pytest.mark.parametrize("factor", [1e-3, 500.0])
def test_worlds_of_another_size_are_brought_to_the_usual_one(factor, tmp_path, views):
    made = reconstruction(views)
    shift = np.array([4e6, -2e6, 1e5])
    made.transform(pycolmap.Sim3d(factor, pycolmap.Rotation3d(), shift))
    scene = load_scene(folder_of(tmp_path, views, made))
    assert any("the world is moved by [-" in note for note in scene.notes)
    np.testing.assert_allclose(scene.space.aabb, [[-1.5] * 3, [1.5] * 3])
    eyes = np.concatenate([scene.test.cameras.poses, scene.train.cameras.poses])[:, :, 3]
    assert 3 < np.linalg.norm(eyes, axis=1).mean() < 5


def test_photos_that_found_no_place_are_counted(tmp_path, views):
    folder = folder_of(tmp_path, views, reconstruction(views))
    disk.write_image(folder / "images" / "zzz.png", views.images[0])
    assert any("a place for 9 of 10 photos" in note for note in load_scene(folder).notes)
    (folder / "images" / "003.png").unlink()
    with pytest.raises(SceneError, match=r"images/003.png: no such image file"):
        load_scene(folder)


def test_without_a_model_the_commands_are_named(tmp_path, views):
    for name in (".", "images"):
        folder = tmp_path / name.strip(".") / "photos"
        write_photos(folder / name, views)
        with pytest.raises(SceneError) as caught:
            load_scene(folder)
        message = str(caught.value)
        assert "neither transforms_train.json" in message and "of the 9 photos" in message
        where = folder if name == "." else folder / name
        assert (
            f"`colmap automatic_reconstructor --workspace_path {folder} --image_path {where}"
            in message
        )
        assert f"`colmap model_analyzer --path {folder}/sparse/0`" in message
        shutil.rmtree(folder)


def test_without_pycolmap(tmp_path, views, monkeypatch):
    folder = folder_of(tmp_path, views, reconstruction(views))
    monkeypatch.setattr(colmap.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SceneError, match=r"sparse/0: .* pip install pycolmap==4\.2\.1\.$"):
        load_scene(folder)


# ---- damaged models -------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGES = {
    "cameras of ones": ("cameras.bin", lambda p: p.write_bytes(b"\xff" * 96)),
    "half of the images": ("images.bin", truncate),
    "no images": ("images.bin", lambda p: p.write_bytes(struct.pack("<Q", 0))),
    "half of the frames": ("frames.bin", truncate),
    "no points at all": ("points3D.bin", lambda p: p.write_bytes(b"")),
    "2^40 points": ("points3D.bin", lambda p: p.write_bytes(struct.pack("<Q", 1 << 40))),
    "a point of long tracks": (
        "points3D.bin",
        lambda p: p.write_bytes(struct.pack("<Q", 1) + b"\x01" * 60),
    ),
    "points missing": ("points3D.bin", Path.unlink),
    "a pipe": ("images.bin", lambda p: (p.unlink(), os.mkfifo(p))),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_models(case, tmp_path, views, monkeypatch):
    monkeypatch.setattr(colmap, "_PATIENCE", 3.0)
    folder = folder_of(tmp_path, views, reconstruction(views))
    name, damage = DAMAGES[case]
    damage(folder / "sparse" / "0" / name)
    with pytest.raises(SceneError) as caught:
        load_scene(folder)
    message = str(caught.value)
    assert "sparse/0" in message and message.endswith(".") and len(message) < 600
    assert "\n" not in message


def test_a_reader_that_never_ends_or_dies(tmp_path, views, monkeypatch):
    folder = folder_of(tmp_path, views, reconstruction(views))
    monkeypatch.setattr(colmap, "_PATIENCE", 0.01)
    monkeypatch.setattr(colmap, "_RATE", 1e12)
    with pytest.raises(SceneError, match="pycolmap did not end within 0 s"):
        load_scene(folder)
    monkeypatch.undo()
    dead = subprocess.CompletedProcess([], -6, b"", b"")
    monkeypatch.setattr(colmap.subprocess, "run", lambda *_, **__: dead)
    with pytest.raises(SceneError, match="pycolmap ended with -6"):
        load_scene(folder)


def test_one_command_from_photos_to_pictures(tmp_path, views, capsys):
    folder = folder_of(tmp_path, views, reconstruction(views, "PINHOLE"))
    small = [
        "--steps",
        1,
        "--eval-views",
        1,
        "--levels",
        2,
        "--log2-hashmap-size",
        8,
        "--samples",
        256,
        "--frames",
        1,
    ]
    arguments = ["nerf", "train", "--data", folder, *small, "--runs", tmp_path / "runs"]
    assert cli.main(list(map(str, arguments))) == 0
    assert (tmp_path / "runs" / "photos" / "comparison.png").exists()
    assert "7 training and 2 held-out views" in capsys.readouterr().out
