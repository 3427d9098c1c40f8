"""Blender / NeRF-synthetic folders: transforms_train.json, transforms_test.json, RGBA images.

The format of Mildenhall et al. 2020: `camera_angle_x`, and for each frame `file_path` and a 4x4
camera-to-world `transform_matrix`.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ..cameras import pinhole_cameras
from ..errors import SceneError
from ..space import Space
from .common import (
    Scene,
    Views,
    check_pose,
    number,
    read_image,
    read_json,
    stack_images,
    unknown_keys,
)

# The NeRF-synthetic objects lie within it; instant-ngp and nerfacc use the same box.
_HALF_SIZE = 1.5
_KNOWN = {"camera_angle_x", "frames", "aabb"}
_KNOWN_IN_FRAME = {"file_path", "transform_matrix", "rotation"}


def load_blender(folder: Path, downscale: int = 1) -> Scene:
    """Reads a folder with transforms_train.json and transforms_test.json (or _val).

    Args:
        folder: The scene.
        downscale: Whole factor to shrink the images by.

    Raises:
        SceneError: With the file and the field that is wrong.
    """
    train, alpha, notes = _load_split(folder / "transforms_train.json", downscale)
    test_file = folder / "transforms_test.json"
    if not test_file.exists():
        test_file = folder / "transforms_val.json"
    if not test_file.exists():
        raise SceneError(
            f"{folder}: neither transforms_test.json nor transforms_val.json is there."
        )
    test, test_alpha, more = _load_split(test_file, downscale)
    if train.images.shape[1:] != test.images.shape[1:]:
        raise SceneError(
            f"{test_file}: images have {test.images.shape[2]}x{test.images.shape[1]} pixels, those of "
            f"transforms_train.json {train.images.shape[2]}x{train.images.shape[1]}."
        )
    notes = [*notes, *more]
    if alpha != test_alpha:
        raise SceneError(f"{test_file}: training and held-out images disagree on having alpha.")
    if not alpha:
        notes.append(f"{folder}: images have no alpha; the background is taken to be white.")
    return Scene(
        name=folder.resolve().name,
        train=train,
        test=test,
        space=Space(np.array([[-_HALF_SIZE] * 3, [_HALF_SIZE] * 3], np.float32)),
        up=np.array([0.0, 0.0, 1.0]),
        background=(1.0, 1.0, 1.0),
        has_alpha=alpha,
        notes=tuple(dict.fromkeys(notes)),
    )


def _load_split(path: Path, downscale: int) -> tuple[Views, bool, list[str]]:
    content = read_json(path)
    notes = unknown_keys(content, _KNOWN, str(path))
    angle = number(content, "camera_angle_x", str(path))
    if not 0 < angle < math.pi:
        raise SceneError(
            f"{path}: field 'camera_angle_x' must lie between 0 and pi, got {angle:g}."
        )
    frames = content.get("frames")
    if not isinstance(frames, list) or not frames:
        raise SceneError(f"{path}: field 'frames' must be a list with at least one frame.")
    images, names, poses, alphas = [], [], [], []
    for position, frame in enumerate(frames):
        where = f"{path}: frames[{position}]"
        if not isinstance(frame, dict):
            raise SceneError(f"{where}: expected an object, got {type(frame).__name__}.")
        notes += unknown_keys(frame, _KNOWN_IN_FRAME, f"{path}: frames")
        name = frame.get("file_path")
        if not isinstance(name, str):
            raise SceneError(f"{where}: field 'file_path' must be a string, got {name!r}.")
        poses.append(
            check_pose(frame.get("transform_matrix"), f"{where}.transform_matrix ({name})")
        )
        file = path.parent / name
        if not file.suffix:
            file = file.with_suffix(".png")
        image, has_alpha = read_image(file, downscale)
        images.append(image)
        names.append(name)
        alphas.append(has_alpha)
    if len(set(alphas)) > 1:
        without = names[alphas.index(False)]
        raise SceneError(f"{path}: some images have alpha and some, such as {without}, have none.")
    pixels = stack_images(images, names, str(path))
    height, width = pixels.shape[1:3]
    focal = 0.5 * width / math.tan(0.5 * angle)
    cameras = pinhole_cameras(np.stack(poses), focal, width, height)
    return Views(tuple(names), pixels, cameras), alphas[0], notes
