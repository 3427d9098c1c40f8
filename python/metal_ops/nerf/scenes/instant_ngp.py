"""transforms.json of instant-ngp (colmap2nerf and friends): real photographs.

Intrinsics may be shared or stand in each frame; lenses follow OpenCV's k1, k2, p1, p2.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs.errors import printable, short
from metal_ops.programs.reading import kind_of

from ..cameras import Cameras
from ..errors import SceneError
from ..space import Space
from .common import (
    Scene,
    Views,
    angle,
    check_images,
    check_pose,
    frames_of,
    hold_out,
    number,
    read_images,
    read_json,
    unknown_keys,
    with_suffix,
)

# instant-ngp's map from the file's world to its unit cube, unless the file says otherwise.
_SCALE, _OFFSET = 0.33, 0.5
_NEAR = 0.1  # in unit cubes: nothing is that close to a photographer
# instant-ngp stops at 128; each doubling is another level of the occupancy grid.
_MOST_EXTENT = 1024.0
_MOST_SCALE = 1e6
_MOST_BEND = 1e3
_MOST_PIXELS = 1e6
_LEAST_FOCAL = 1e-3

_INTRINSICS = {
    "camera_angle_x",
    "camera_angle_y",
    "fl_x",
    "fl_y",
    "cx",
    "cy",
    "w",
    "h",
    "k1",
    "k2",
    "p1",
    "p2",
}
# Read, but only to refuse what they ask for: a lens that is ignored bends every ray wrongly.
_UNSUPPORTED = {"k3", "k4", "is_fisheye", "ftheta_lens", "rolling_shutter"}
_KNOWN = _INTRINSICS | _UNSUPPORTED | {"frames", "aabb_scale", "scale", "offset", "camera_model"}
_KNOWN_IN_FRAME = (
    _INTRINSICS | _UNSUPPORTED | {"file_path", "transform_matrix", "sharpness", "colmap_im_id"}
)


def load_instant_ngp(path: Path, downscale: int = 1) -> Scene:
    """Reads a transforms.json and the images that it names; every 8th view, by name, is held out.

    Args:
      path: The JSON file, or the folder that holds it.
      downscale: Whole factor to shrink the images by.

    Raises:
      SceneError: With the file and the field that is wrong.
    """
    if kind_of(path, SceneError) == "folder":
        path = path / "transforms.json"
    content = read_json(path)
    notes = unknown_keys(content, _KNOWN, str(path))
    frames = frames_of(content, 2, str(path))
    poses = []
    for position, frame in enumerate(frames):
        notes += unknown_keys(frame, _KNOWN_IN_FRAME, f"{path}: frames")
        where = f"{path}: frames[{position}] ({frame['file_path']})"
        poses.append(
            check_pose(frame.get("transform_matrix"), f"{where}: field 'transform_matrix'")
        )
    # Files list frames in any order; neighbours should be neighbours.
    order = sorted(range(len(frames)), key=lambda i: frames[i]["file_path"])
    files = [_image_file(path.parent / frames[i]["file_path"]) for i in order]
    names = [printable(frames[i]["file_path"]) for i in order]
    space = _space(content, path)
    height, width, has_alpha = check_images(files, names, downscale, str(path))
    lenses = [
        _lens(frames[i], content, width, height, f"{path}: frames[{i}] ({frames[i]['file_path']})")
        for i in order
    ]
    pixels = read_images(files, downscale, height, width)
    cameras = Cameras(
        np.stack([poses[i] for i in order]),
        np.array([intrinsics for intrinsics, _ in lenses], np.float32),
        np.array([distortion for _, distortion in lenses], np.float32),
        width,
        height,
    )

    def split(indices: np.ndarray) -> Views:
        return Views(tuple(names[i] for i in indices), pixels[indices], cameras.select(indices))

    if not has_alpha:
        notes.append(
            f"{printable(str(path))}: images have no alpha; what the box does not hold is taken to be black."
        )
    train, test = hold_out(len(names))
    return Scene(
        name=printable(path.resolve().parent.name),
        train=split(train),
        test=split(test),
        space=space,
        up=_mean_up(cameras.poses),
        background=(1.0, 1.0, 1.0) if has_alpha else (0.0, 0.0, 0.0),
        has_alpha=has_alpha,
        notes=tuple(dict.fromkeys(notes)),
    )


def _image_file(file: Path) -> Path:
    if file.suffix:
        return file
    found = [with_suffix(file, ending) for ending in (".png", ".jpg", ".jpeg")]
    return next((candidate for candidate in found if kind_of(candidate, SceneError)), found[0])


def _lens(
    frame: dict[str, Any], shared: dict[str, Any], width: int, height: int, where: str
) -> tuple[list[float], list[float]]:
    """(fl_x, fl_y, cx, cy), (k1, k2, p1, p2)."""
    settings = {key: value for key, value in shared.items() if key in _INTRINSICS | _UNSUPPORTED}
    settings |= {key: value for key, value in frame.items() if key in _INTRINSICS | _UNSUPPORTED}
    for key in sorted(_UNSUPPORTED & set(settings)):
        if not _is_zero(settings[key]):
            raise SceneError(
                f"{where}: field '{key}' = {short(settings[key])} is not supported; undistort the images to a pinhole "
                "or a k1, k2, p1, p2 lens first."
            )
    distortion = [
        number(settings, key, where, 0.0, -_MOST_BEND, _MOST_BEND)
        for key in ("k1", "k2", "p1", "p2")
    ]
    return _intrinsics(settings, width, height, where), distortion


def _is_zero(value: Any) -> bool:
    """Whether a lens term says that there is none: 0, false, or a list of such."""
    if isinstance(value, list):
        return len(value) <= 16 and all(not isinstance(x, list) and _is_zero(x) for x in value)
    return isinstance(value, int | float) and value == 0


def _intrinsics(settings: dict[str, Any], width: int, height: int, where: str) -> list[float]:
    """(fl_x, fl_y, cx, cy) for an image of that size; the file's numbers are for its own w and h."""
    stated_width = number(settings, "w", where, float(width), 1.0, _MOST_PIXELS)
    stated_height = number(settings, "h", where, float(height), 1.0, _MOST_PIXELS)
    scale = width / stated_width
    if abs(stated_height * scale - height) > 1.0:
        raise SceneError(
            f"{where}: fields 'w' and 'h' say {stated_width:g}x{stated_height:g}, but the image has the shape of "
            f"{width}x{height}."
        )
    focal = {}
    for axis, size in (("x", stated_width), ("y", stated_height)):
        if f"fl_{axis}" in settings:
            focal[axis] = number(settings, f"fl_{axis}", where, least=_LEAST_FOCAL)
        elif f"camera_angle_{axis}" in settings:
            focal[axis] = (
                0.5 * size / math.tan(0.5 * angle(settings, f"camera_angle_{axis}", where))
            )
    if not focal:
        raise SceneError(f"{where}: field 'fl_x' or 'camera_angle_x' is missing.")
    fl_x = focal.get("x", focal.get("y", 0.0))
    fl_y = focal.get("y", fl_x)
    cx = number(settings, "cx", where, stated_width / 2)
    cy = number(settings, "cy", where, stated_height / 2)
    return [fl_x * scale, fl_y * scale, cx * scale, cy * scale]


def _space(content: dict[str, Any], path: Path) -> Space:
    """instant-ngp's box: the unit cube in the file's world, `aabb_scale` times as large."""
    extent = number(content, "aabb_scale", str(path), 1.0, 1.0, _MOST_EXTENT)
    scale = number(content, "scale", str(path), _SCALE, 1 / _MOST_SCALE, _MOST_SCALE)
    offset = content.get("offset", [_OFFSET] * 3)
    if not isinstance(offset, list) or len(offset) != 3:
        raise SceneError(
            f"{path}: field 'offset' must be a list of three numbers, got {short(offset)}."
        )
    offsets = [
        number({"offset": value}, "offset", str(path), None, -_MOST_SCALE, _MOST_SCALE)
        for value in offset
    ]
    aabb = np.array([[-o / scale for o in offsets], [(1 - o) / scale for o in offsets]], np.float32)
    return Space(aabb, extent=extent, near=_NEAR / scale)


def _mean_up(poses: np.ndarray) -> np.ndarray:
    up = poses[:, :, 1].mean(axis=0).astype(np.float64)
    length = float(np.linalg.norm(up))
    return up / length if length > 1e-3 else np.array([0.0, 0.0, 1.0])
