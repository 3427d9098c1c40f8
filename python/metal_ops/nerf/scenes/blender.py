"""Blender / NeRF-synthetic folders: transforms_train.json, transforms_test.json, RGBA images.

The format of Mildenhall et al. 2020: `camera_angle_x`, and for each frame `file_path` and a 4x4 camera-to-world
`transform_matrix`. Exporters of instant-ngp's fields write them in two files, too: their cameras and boxes are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs.errors import printable
from metal_ops.programs.reading import kind_of

from ..errors import SceneError
from ..space import Space
from . import lens
from .common import (
    Scene,
    Views,
    check_images,
    check_pose,
    check_views,
    frames_of,
    image_file,
    read_images,
    read_json,
    say_background,
    unknown_keys,
)
from .instant_ngp import REFUSED, REFUSED_IN_FRAME, SPACE, refuse, space_of
from .masks import beside

# The NeRF-synthetic objects lie within it; instant-ngp and nerfacc use the same box.
_HALF_SIZE = 1.5
_KNOWN = lens.KNOWN | SPACE | set(REFUSED) | {"frames"}
_KNOWN_IN_FRAME = lens.KNOWN | set(REFUSED_IN_FRAME) | {"file_path", "transform_matrix", "rotation"}
_MASKED = {"mask_path": "give the images alpha"}


def load_blender(folder: Path, downscale: int = 1) -> Scene:
    """Reads a folder with transforms_train.json and transforms_test.json (or _val).

    Args:
      folder: The scene.
      downscale: Whole factor to shrink the images by.

    Raises:
      SceneError: With the file and the field that is wrong.
    """
    train, alpha, notes, space = _load_split(folder / "transforms_train.json", downscale)
    test_file = folder / "transforms_test.json"
    if not kind_of(test_file, SceneError):
        test_file = folder / "transforms_val.json"
    if not kind_of(test_file, SceneError):
        raise SceneError(
            f"{folder}: neither transforms_test.json nor transforms_val.json is there."
        )
    test, test_alpha, more, test_space = _load_split(test_file, downscale)
    if train.images.shape[1:] != test.images.shape[1:]:
        raise SceneError(
            f"{test_file}: images have {test.images.shape[2]}x{test.images.shape[1]} pixels, those of "
            f"transforms_train.json {train.images.shape[2]}x{train.images.shape[1]}."
        )
    notes = [*notes, *more]
    if not np.array_equal(space.aabb, test_space.aabb) or space.extent != test_space.extent:
        raise SceneError(
            f"{test_file}: fields {', '.join(sorted(SPACE))} differ from those of transforms_train.json; give both "
            "files the same."
        )
    if alpha != test_alpha:
        raise SceneError(f"{test_file}: training and held-out images disagree on having alpha.")
    alpha, more = say_background(
        train.images, alpha, str(folder), "the background is taken to be white"
    )
    notes += more
    return Scene(
        name=printable(folder.resolve().name),
        train=train,
        test=test,
        space=space,
        up=np.array([0.0, 0.0, 1.0]),
        background=(1.0, 1.0, 1.0),
        has_alpha=alpha,
        notes=tuple(dict.fromkeys(notes)),
    )


def _load_split(path: Path, downscale: int) -> tuple[Views, bool, list[str], Space]:
    content = read_json(path)
    refuse(content, REFUSED, str(path))
    notes = unknown_keys(content, _KNOWN | set(lens.lens_fields(content)), str(path))
    files, names, poses, places = [], [], [], []
    frames = frames_of(content, 1, str(path))
    for position, frame in enumerate(frames):
        name = frame["file_path"]
        places.append(f"{path}: frames[{position}] ({name})")
        refuse(frame, {**REFUSED_IN_FRAME, **_MASKED}, places[-1])
        known = _KNOWN_IN_FRAME | set(lens.lens_fields(frame))
        notes += unknown_keys(frame, known, f"{path}: frames")
        poses.append(
            check_pose(
                frame.get("transform_matrix"),
                f"{path}: frames[{position}].transform_matrix ({name})",
            )
        )
        files.append(image_file(path.parent, name))
        names.append(printable(name))
    moving = next((mask for mask in beside(files) if mask is not None), None)
    if moving is not None:
        raise SceneError(
            f"{moving}: instant-ngp reads this mask, and masks of split files are not supported; give the images alpha."
        )
    space = _space(content, str(path))
    height, width, alpha = check_images(files, names, downscale, str(path))
    shared = lens.lens_fields(content)
    lenses = [
        lens.lens_of(frame, shared, width, height, where)
        for frame, where in zip(frames, places, strict=True)
    ]
    pixels = read_images(files, downscale, height, width)
    views = Views(tuple(names), pixels, lens.cameras_of(poses, lenses, width, height))
    return views, alpha, notes + check_views(views, str(path)), space


def _space(content: dict[str, Any], where: str) -> Space:
    """The box of the file, else that of the NeRF-synthetic objects."""
    if SPACE & set(content):
        return space_of(content, where)
    return Space(np.array([[-_HALF_SIZE] * 3, [_HALF_SIZE] * 3], np.float32))
