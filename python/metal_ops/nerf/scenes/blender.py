"""Blender / NeRF-synthetic folders: transforms_train.json, transforms_test.json, RGBA images.

The format of Mildenhall et al. 2020: `camera_angle_x`, and for each frame `file_path` and a 4x4
camera-to-world `transform_matrix`.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from metal_ops.programs.errors import printable
from metal_ops.programs.reading import kind_of

from ..cameras import pinhole_cameras
from ..errors import SceneError
from ..space import Space
from .common import (
    Scene,
    Views,
    angle,
    check_images,
    check_pose,
    frames_of,
    read_images,
    read_json,
    unknown_keys,
    with_suffix,
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
    if not kind_of(test_file, SceneError):
        test_file = folder / "transforms_val.json"
    if not kind_of(test_file, SceneError):
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
        notes.append(
            f"{printable(str(folder))}: images have no alpha; the background is taken to be white."
        )
    return Scene(
        name=printable(folder.resolve().name),
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
    field_of_view = angle(content, "camera_angle_x", str(path))
    files, names, poses = [], [], []
    for position, frame in enumerate(frames_of(content, 1, str(path))):
        notes += unknown_keys(frame, _KNOWN_IN_FRAME, f"{path}: frames")
        name = frame["file_path"]
        poses.append(
            check_pose(
                frame.get("transform_matrix"),
                f"{path}: frames[{position}].transform_matrix ({name})",
            )
        )
        file = path.parent / name
        files.append(file if file.suffix else with_suffix(file, ".png"))
        names.append(printable(name))
    height, width, alpha = check_images(files, names, downscale, str(path))
    pixels = read_images(files, downscale, height, width)
    focal = 0.5 * width / math.tan(0.5 * field_of_view)
    cameras = pinhole_cameras(np.stack(poses), focal, width, height)
    return Views(tuple(names), pixels, cameras), alpha, notes
