"""Folders of photos with a COLMAP model: sparse/0 of COLMAP 3 or 4, binary or text, rigs and frames included."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs import reading
from metal_ops.programs.errors import printable
from metal_ops.programs.reading import kind_of

from ..errors import SceneError
from ..lenses import PANORAMAS
from . import colmap_model, lens
from .box import place_box
from .common import (
    Scene,
    Views,
    check_images,
    check_pose,
    check_views,
    hold_out,
    read_images,
    say_background,
)
from .instant_ngp import BLACK, mean_up

PYCOLMAP = "pycolmap==4.2.1"
_MODELS = ("sparse", "colmap/sparse", ".")  # where mappers and ns-process-data leave models
_IMAGES = ("images", "input", ".")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
# Seconds for a model of any size, and bytes per second: pycolmap reads ten times as many.
_PATIENCE, _RATE = 20.0, 2e6
_LEAST_POINT = 51  # bytes of a point of points3D.bin


def find_model(folder: Path) -> Path | None:
    """The folder of the largest COLMAP model of a folder of photos; None if there is none."""
    for name in _MODELS:
        root = folder / name
        found = []
        for place in [*_numbered(root), root]:
            for ending in (".bin", ".txt"):
                cameras, images = place / f"cameras{ending}", place / f"images{ending}"
                if kind_of(cameras, SceneError) == "file" and kind_of(images, SceneError) == "file":
                    found.append((images.stat().st_size, place))
        if found:
            most = max(size for size, _ in found)
            return next(place for size, place in found if size == most)
    return None


def _numbered(root: Path) -> list[Path]:
    """The folders 0, 1, ... that a mapper makes."""
    if kind_of(root, SceneError) != "folder":
        return []
    numbers = [int(name) for name in os.listdir(root) if name.isascii() and name.isdigit()]
    return [
        root / str(number) for number in sorted(numbers)[:1000] if (root / str(number)).is_dir()
    ]


def photos_in(folder: Path) -> int:
    """How many images lie in a folder, not in those inside it."""
    if kind_of(folder, SceneError) != "folder":
        return 0
    return sum(name.lower().endswith(_SUFFIXES) for name in os.listdir(folder))


def how_to_make(folder: Path) -> str:
    """The commands for a folder of photos without a model; empty without photos."""
    for name in _IMAGES:
        count = photos_in(folder / name)
        if count:
            photos = folder if name == "." else folder / name
            model = folder / "sparse" / "0"
            return (
                f"; make one of the {count} photos by `colmap automatic_reconstructor --workspace_path {folder} "
                f"--image_path {photos} --dense 0`, and see how many of them found a place by "
                f"`colmap model_analyzer --path {model}`"
            )
    return ""


def load_colmap(folder: Path, model: Path, downscale: int = 1) -> Scene:
    """Reads a COLMAP model and its photos; every 8th view, by name, is held out.

    Poses keep COLMAP's world, unless it is so large or small that the box has to be brought to the usual size.

    Args:
      folder: Folder of the photos: they lie in images/, in input/, or in the folder itself.
      model: The result of `find_model`.
      downscale: Whole factor to shrink the images by.

    Raises:
      SceneError: With the file, the camera or the image that is wrong, or if pycolmap is missing.
    """
    content = _read(model)
    images = sorted(content["images"], key=lambda image: image["name"])
    where = str(model)
    if len(images) < 2:
        raise SceneError(
            f"{where}: {len(images)} images have a pose, at least 2 are needed; take photos that overlap more."
        )
    if len(images) > reading.MOST_FRAMES:
        raise SceneError(
            f"{where}: {len(images)} images, at most {reading.MOST_FRAMES} are read; leave some out."
        )
    names = [printable(image["name"]) for image in images]
    root = _root(folder, model, images[0]["name"])
    files = [root / image["name"] for image in images]
    height, width, has_alpha = check_images(files, names, downscale, where)
    used = {str(image["camera"]) for image in images}
    lenses = {
        number: lens.lens_of({}, _fields(camera), width, height, f"{where}: camera {number}")
        for number, camera in content["cameras"].items()
        if number in used
    }
    poses = np.stack([_pose(image, where) for image in images])
    points = np.asarray(content["points"], np.float64).reshape(-1, 3)
    points = points[np.isfinite(points).all(axis=1)]
    pixels = read_images(files, downscale, height, width)
    has_alpha, notes = say_background(pixels, has_alpha, where, BLACK)
    inside = all(item.model in PANORAMAS for item in lenses.values())
    poses, space, more = place_box(poses, points, has_alpha, inside, where)
    notes += more + _what_is_left_out(root, len(images))
    checked = [
        check_pose(pose, f"{where}: pose of {name}")
        for pose, name in zip(poses, names, strict=True)
    ]
    cameras = lens.cameras_of(
        checked, [lenses[str(image["camera"])] for image in images], width, height
    )
    views = Views(tuple(names), pixels, cameras)
    notes += check_views(views, where)
    train, test = hold_out(len(names))
    return Scene(
        name=printable(folder.resolve().name),
        train=views.select(train),
        test=views.select(test),
        space=space,
        up=mean_up(cameras.poses),
        background=(1.0, 1.0, 1.0) if has_alpha else (0.0, 0.0, 0.0),
        has_alpha=has_alpha,
        notes=tuple(notes),
    )


def _read(model: Path) -> dict[str, Any]:
    """The output of `colmap_model.py` for a model."""
    if importlib.util.find_spec("pycolmap") is None:
        raise SceneError(f"{model}: a COLMAP model is read by pycolmap; pip install {PYCOLMAP}.")
    points = model / "points3D.bin"
    if kind_of(points, SceneError) == "file" and kind_of(model / "cameras.bin", SceneError):
        with reading.open_file(points, SceneError) as file:
            head, size = file.read(8), os.fstat(file.fileno()).st_size
        if len(head) < 8 or struct.unpack("<Q", head)[0] > (size - 8) // _LEAST_POINT:
            raise SceneError(
                f"{points}: {size} bytes are too few for the number of points that it declares; it is damaged."
            )
    size = sum(file.stat().st_size for file in model.glob("*.[bt][ix][nt]") if file.is_file())
    command = [sys.executable, colmap_model.__file__, str(model), str(reading.memory() // 2)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PATIENCE + size / _RATE, check=False
        )
    except subprocess.TimeoutExpired as why:
        raise SceneError(
            f"{model}: not a readable COLMAP model: pycolmap did not end within {why.timeout:.0f} s."
        ) from None
    try:
        content = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = words[-1][:200] if words else f"pycolmap ended with {done.returncode}"
        raise SceneError(f"{model}: not a readable COLMAP model: {reason.rstrip('.')}.") from None
    if "error" in content:
        reason = " ".join(content["error"].split())[:200].rstrip(".")
        raise SceneError(f"{model}: not a readable COLMAP model: {reason}.")
    return content


def _fields(camera: dict[str, Any]) -> dict[str, Any]:
    """A camera as the fields that `lens_of` reads; k of models with one term is k1."""
    named = {"f": "fl_x", "fx": "fl_x", "fy": "fl_y", "k": "k1"}
    fields = {named.get(name, name): value for name, value in camera["params"].items()}
    fields |= {"w": camera["width"], "h": camera["height"], "camera_model": camera["model"]}
    return fields


def _pose(image: dict[str, Any], where: str) -> np.ndarray:
    """Camera-to-world float64 [3, 4] with OpenGL axes."""
    cam_from_world = np.asarray(image["cam_from_world"], np.float64)
    if not np.isfinite(cam_from_world).all():
        name = printable(image["name"])
        raise SceneError(f"{where}: pose of {name}: holds a value that is not finite.")
    rotation = cam_from_world[:, :3].T
    pose = np.column_stack([rotation, -rotation @ cam_from_world[:, 3]])
    pose[:, 1:3] *= -1  # COLMAP's y goes down, and its camera looks along z
    return pose


def _root(folder: Path, model: Path, first: str) -> Path:
    """Where the photos lie."""
    places = [folder / name for name in _IMAGES]
    places += [place / "images" for place in list(model.resolve().parents)[:3]]
    for place in places:
        if kind_of(place / first, SceneError):
            return place
    return places[0]  # the error says where they should be


def _what_is_left_out(root: Path, count: int) -> list[str]:
    photos = photos_in(root)
    if photos <= count:
        return []
    return [f"{printable(str(root))}: COLMAP found a place for {count} of {photos} photos."]
