"""transforms.json of instant-ngp (colmap2nerf and friends): real photographs.

Intrinsics may be shared or stand in each frame; lenses follow OpenCV's k1, k2, p1, p2.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ..cameras import Cameras
from ..errors import SceneError
from ..space import Space
from .common import (
    Scene,
    Views,
    check_pose,
    hold_out,
    number,
    read_image,
    read_json,
    stack_images,
    unknown_keys,
)

# instant-ngp's map from the file's world to its unit cube, unless the file says otherwise.
_SCALE, _OFFSET = 0.33, 0.5
_NEAR = 0.1  # in unit cubes: nothing is that close to a photographer

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
    path = path / "transforms.json" if path.is_dir() else path
    content = read_json(path)
    notes = unknown_keys(content, _KNOWN, str(path))
    frames = content.get("frames")
    if not isinstance(frames, list) or len(frames) < 2:
        raise SceneError(f"{path}: field 'frames' must be a list with at least two frames.")
    loaded = []
    for position, frame in enumerate(frames):
        where = f"{path}: frames[{position}]"
        if not isinstance(frame, dict):
            raise SceneError(f"{where}: expected an object, got {type(frame).__name__}.")
        notes += unknown_keys(frame, _KNOWN_IN_FRAME, f"{path}: frames")
        loaded.append(_load_frame(path, frame, content, where, downscale))
    loaded.sort(
        key=lambda item: item[0]
    )  # files list frames in any order; neighbours should be neighbours
    names = [item[0] for item in loaded]
    alphas = [item[2] for item in loaded]
    if len(set(alphas)) > 1:
        raise SceneError(
            f"{path}: some images have alpha and some, such as {names[alphas.index(False)]}, have none."
        )
    pixels = stack_images([item[1] for item in loaded], names, str(path))
    cameras = Cameras(
        np.stack([item[3] for item in loaded]),
        np.stack([item[4] for item in loaded]).astype(np.float32),
        np.stack([item[5] for item in loaded]).astype(np.float32),
        pixels.shape[2],
        pixels.shape[1],
    )

    def split(indices: np.ndarray) -> Views:
        return Views(tuple(names[i] for i in indices), pixels[indices], cameras.select(indices))

    if not alphas[0]:
        notes.append(
            f"{path}: images have no alpha; what the box does not hold is taken to be black."
        )
    train, test = hold_out(len(names))
    return Scene(
        name=path.resolve().parent.name,
        train=split(train),
        test=split(test),
        space=_space(content, path),
        up=_mean_up(cameras.poses),
        background=(1.0, 1.0, 1.0) if alphas[0] else (0.0, 0.0, 0.0),
        has_alpha=alphas[0],
        notes=tuple(dict.fromkeys(notes)),
    )


def _load_frame(
    path: Path, frame: dict[str, Any], shared: dict[str, Any], where: str, downscale: int
) -> tuple[str, np.ndarray, bool, np.ndarray, list[float], list[float]]:
    """Name, pixels, whether it has alpha, pose, (fl_x, fl_y, cx, cy), (k1, k2, p1, p2)."""
    name = frame.get("file_path")
    if not isinstance(name, str):
        raise SceneError(f"{where}: field 'file_path' must be a string, got {name!r}.")
    where = f"{where} ({name})"
    file = path.parent / name
    if not file.suffix:
        found = [file.with_suffix(ending) for ending in (".png", ".jpg", ".jpeg")]
        file = next((candidate for candidate in found if candidate.exists()), found[0])
    pose = check_pose(frame.get("transform_matrix"), f"{where}: field 'transform_matrix'")
    settings = {key: value for key, value in shared.items() if key in _INTRINSICS | _UNSUPPORTED}
    settings |= {key: value for key, value in frame.items() if key in _INTRINSICS | _UNSUPPORTED}
    for key in sorted(_UNSUPPORTED & set(settings)):
        if np.any(np.asarray(settings[key]) != 0):
            raise SceneError(
                f"{where}: field '{key}' = {settings[key]!r} is not supported; undistort the images to a pinhole or "
                "a k1, k2, p1, p2 lens first."
            )
    pixels, has_alpha = read_image(file, downscale)
    height, width = pixels.shape[:2]
    intrinsics = _intrinsics(settings, width, height, where)
    return name, pixels, has_alpha, pose, intrinsics, [
        number(settings, key, where, 0.0) for key in ("k1", "k2", "p1", "p2")
    ]  # fmt: skip


def _intrinsics(settings: dict[str, Any], width: int, height: int, where: str) -> list[float]:
    """(fl_x, fl_y, cx, cy) for an image of that size; the file's numbers are for its own w and h."""
    stated_width = number(settings, "w", where, float(width))
    stated_height = number(settings, "h", where, float(height))
    if stated_width <= 0 or stated_height <= 0:
        raise SceneError(f"{where}: fields 'w' and 'h' must be positive.")
    scale = width / stated_width
    if abs(stated_height * scale - height) > 1.0:
        raise SceneError(
            f"{where}: fields 'w' and 'h' say {stated_width:g}x{stated_height:g}, but the image has the shape of "
            f"{width}x{height}."
        )
    focal = {}
    for axis, size in (("x", stated_width), ("y", stated_height)):
        if f"fl_{axis}" in settings:
            focal[axis] = number(settings, f"fl_{axis}", where)
        elif f"camera_angle_{axis}" in settings:
            angle = number(settings, f"camera_angle_{axis}", where)
            if not 0 < angle < math.pi:
                raise SceneError(
                    f"{where}: field 'camera_angle_{axis}' must lie between 0 and pi, got {angle:g}."
                )
            focal[axis] = 0.5 * size / math.tan(0.5 * angle)
    if not focal:
        raise SceneError(f"{where}: field 'fl_x' or 'camera_angle_x' is missing.")
    fl_x = focal.get("x", focal.get("y", 0.0))
    fl_y = focal.get("y", fl_x)
    if fl_x <= 0 or fl_y <= 0:
        raise SceneError(
            f"{where}: fields 'fl_x' and 'fl_y' must be positive, got {fl_x:g} and {fl_y:g}."
        )
    cx = number(settings, "cx", where, stated_width / 2)
    cy = number(settings, "cy", where, stated_height / 2)
    return [fl_x * scale, fl_y * scale, cx * scale, cy * scale]


def _space(content: dict[str, Any], path: Path) -> Space:
    """instant-ngp's box: the unit cube in the file's world, `aabb_scale` times as large."""
    extent = number(content, "aabb_scale", str(path), 1.0)
    if extent < 1:
        raise SceneError(f"{path}: field 'aabb_scale' must be at least 1, got {extent:g}.")
    scale = number(content, "scale", str(path), _SCALE)
    if scale <= 0:
        raise SceneError(f"{path}: field 'scale' must be positive, got {scale:g}.")
    offset = content.get("offset", [_OFFSET] * 3)
    if not isinstance(offset, list) or len(offset) != 3:
        raise SceneError(f"{path}: field 'offset' must be a list of three numbers, got {offset!r}.")
    offsets = [number({"offset": value}, "offset", str(path)) for value in offset]
    aabb = np.array([[-o / scale for o in offsets], [(1 - o) / scale for o in offsets]], np.float32)
    return Space(aabb, extent=extent, near=_NEAR / scale)


def _mean_up(poses: np.ndarray) -> np.ndarray:
    up = poses[:, :, 1].mean(axis=0).astype(np.float64)
    length = float(np.linalg.norm(up))
    return up / length if length > 1e-3 else np.array([0.0, 0.0, 1.0])
