"""transforms.json of instant-ngp (colmap2nerf and friends) and nerfstudio (ns-process-data): real photographs.

Cameras may be shared or stand in each frame (`lens.py`).
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs import reading
from metal_ops.programs.errors import printable, short
from metal_ops.programs.reading import is_number, kind_of

from ..errors import SceneError
from ..lenses import PANORAMAS
from ..space import Space
from . import lens
from .box import place_box
from .common import (
    Scene,
    Views,
    check_images,
    check_pose,
    check_views,
    frames_of,
    hold_out,
    image_file,
    number,
    read_images,
    read_json,
    say_background,
    unknown_keys,
)
from .masks import masks_of

# instant-ngp's map from the file's world to its unit cube, unless the file says otherwise.
_SCALE, _OFFSET = 0.33, 0.5
_NEAR = 0.1  # in unit cubes: nothing is that close to a photographer
# instant-ngp stops at 128; each doubling is another level of the occupancy grid.
_MOST_EXTENT = 1024.0
_MOST_SCALE = 1e6
_LEAST_EDGE = 1e-6
BLACK = "what the box does not hold is taken to be black"

SPACE = {"aabb_scale", "scale", "offset", "aabb"}
_SPLITS = ("train_filenames", "val_filenames", "test_filenames")
# Fields that change a picture in instant-ngp or nerfstudio and are not supported here: refused unless they are off.
REFUSED = {
    "white_transparent": "give the images alpha",
    "black_transparent": "give the images alpha",
    "fix_premult": "save the images with straight alpha",
    "normal_mts_args": "convert Mitsuba's poses to Blender's axes",
    "envmap": "give the images alpha",
    "sharpen": "sharpen the images",
    "n_frames": "leave frames out of the file",
    "sharpness_discard_threshold": "leave frames out of the file",
    "n_extra_learnable_dims": "set it to 0",
}
REFUSED_IN_FRAME = {
    "transform_matrix_start": "give one transform_matrix for each frame",
    "transform_matrix_end": "give one transform_matrix for each frame",
    "driver_parameters": "train without lights that move",
}
# Fields that nerfstudio's writers add: poses have them applied already, and depths and points are not used here.
_ADDED = {"applied_transform", "applied_scale", "ply_file_path", "orientation_override"}
_KNOWN = lens.KNOWN | SPACE | set(REFUSED) | {"frames", *_SPLITS} | _ADDED
_KNOWN_IN_FRAME = (
    lens.KNOWN
    | set(REFUSED_IN_FRAME)
    | {"file_path", "transform_matrix", "mask_path", "sharpness", "colmap_im_id", "depth_file_path"}
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
    refuse(content, REFUSED, str(path))
    notes = unknown_keys(content, _KNOWN | set(lens.lens_fields(content)), str(path))
    frames = frames_of(content, 2, str(path))
    poses = []
    for position, frame in enumerate(frames):
        where = f"{path}: frames[{position}] ({frame['file_path']})"
        refuse(frame, REFUSED_IN_FRAME, where)
        known = _KNOWN_IN_FRAME | set(lens.lens_fields(frame))
        notes += unknown_keys(frame, known, f"{path}: frames")
        poses.append(
            check_pose(frame.get("transform_matrix"), f"{where}: field 'transform_matrix'")
        )
    # Files list frames in any order; neighbours should be neighbours.
    order = sorted(range(len(frames)), key=lambda i: frames[i]["file_path"])
    files = [image_file(path.parent, frames[i]["file_path"]) for i in order]
    names = [printable(frames[i]["file_path"]) for i in order]
    space = space_of(content, str(path))
    train, test = _split(content, [frames[i]["file_path"] for i in order], str(path))
    height, width, has_alpha = check_images(files, names, downscale, str(path))
    shared = lens.lens_fields(content)
    lenses = [
        lens.lens_of(
            frames[i], shared, width, height, f"{path}: frames[{i}] ({frames[i]['file_path']})"
        )
        for i in order
    ]
    pixels = read_images(files, downscale, height, width)
    has_alpha, more = say_background(pixels, has_alpha, str(path), BLACK)
    notes += more
    if "camera_model" in content and not SPACE & set(content):
        # nerfstudio's files say nothing of a box: its readers put one around the cameras, too.
        inside = all(item.model in PANORAMAS for item in lenses)
        placed, space, more = place_box(
            np.stack(poses).astype(np.float64), np.zeros([0, 3]), has_alpha, inside, str(path)
        )
        poses, notes = list(placed), notes + more
    masks = masks_of([frames[i] for i in order], files, path, downscale, height, width)
    cameras = lens.cameras_of([poses[i] for i in order], lenses, width, height)
    views = Views(tuple(names), pixels, cameras, masks)
    notes += check_views(views, str(path))
    return Scene(
        name=printable(path.resolve().parent.name),
        train=views.select(train),
        test=views.select(test),
        space=space,
        up=mean_up(cameras.poses),
        background=(1.0, 1.0, 1.0) if has_alpha else (0.0, 0.0, 0.0),
        has_alpha=has_alpha,
        notes=tuple(dict.fromkeys(notes)),
    )


def refuse(content: dict[str, Any], fields: dict[str, str], where: str) -> None:
    """Raises for a field that asks for an unsupported feature; `fields` has the remedies."""
    for key, remedy in fields.items():
        value = content.get(key)
        if value is not None and value is not False and value != 0:
            raise SceneError(f"{where}: field '{key}' = {short(value)} is not supported; {remedy}.")


def _split(content: dict[str, Any], paths: list[str], where: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and held-out frames: nerfstudio's lists of file names, else every 8th is held out."""
    if not any(key in content for key in _SPLITS):
        return hold_out(len(paths))
    place = {_plain(path): i for i, path in enumerate(paths)}
    parts = []
    for keys in (_SPLITS[:1], _SPLITS[:0:-1]):  # test_filenames before val_filenames
        key = next((key for key in keys if content.get(key)), keys[0])
        listed = content.get(key)
        if not isinstance(listed, list) or not listed or len(listed) > reading.MOST_FRAMES:
            raise SceneError(
                f"{where}: field '{key}' must be a list of file names, as others of "
                f"{', '.join(_SPLITS)} are there; got {short(listed)}."
            )
        for name in listed:
            if not isinstance(name, str) or _plain(name) not in place:
                raise SceneError(
                    f"{where}: field '{key}' lists {short(name)}, and no frame has that 'file_path'."
                )
        parts.append(np.array(sorted({place[_plain(name)] for name in listed})))
    return parts[0], parts[1]


def _plain(name: str) -> str:
    """A path in one of its spellings: "./a.png" is "a.png"."""
    return posixpath.normpath(name.replace("\\", "/"))


def space_of(content: dict[str, Any], where: str) -> Space:
    """instant-ngp's box: the unit cube in the file's world, `aabb_scale` times as large."""
    extent = number(content, "aabb_scale", where, 1.0, 1.0, _MOST_EXTENT)
    scale = number(content, "scale", where, _SCALE, 1 / _MOST_SCALE, _MOST_SCALE)
    offset = content.get("offset", _OFFSET)
    if is_number(offset):
        offset = [offset] * 3
    offsets = np.array(_vector(offset, "offset", where))
    if "aabb" in content:  # a cube around its middle, as long as its longest edge
        corners = content["aabb"]
        if not isinstance(corners, list) or len(corners) != 2:
            raise SceneError(
                f"{where}: field 'aabb' must be a list of two corners, got {short(corners)}."
            )
        low, high = (np.array(_vector(corner, "aabb", where)) for corner in corners)
        scale = 1 / max(float(np.abs(high - low).max()), _LEAST_EDGE)
        offsets = 0.5 - scale * (low + high) / 2
    aabb = np.array([-offsets / scale, (1 - offsets) / scale], np.float32)
    if not (aabb[1] > aabb[0]).all():
        raise SceneError(
            f"{where}: field 'aabb', or 'scale' and 'offset', make a box of no size: it is "
            f"{1 / scale:g} long and {float(np.abs(offsets / scale).max()):g} away; move the scene to the origin."
        )
    return Space(aabb, extent=extent, near=_NEAR / scale)


def _vector(value: Any, key: str, where: str) -> list[float]:
    if not isinstance(value, list) or len(value) != 3:
        raise SceneError(
            f"{where}: field '{key}' must be a list of three numbers, got {short(value)}."
        )
    return [number({key: x}, key, where, None, -_MOST_SCALE, _MOST_SCALE) for x in value]


def mean_up(poses: np.ndarray) -> np.ndarray:
    """Unit vector float64 [3]: the mean of the cameras' upward axes."""
    up = poses[:, :, 1].mean(axis=0).astype(np.float64)
    length = float(np.linalg.norm(up))
    return up / length if length > 1e-3 else np.array([0.0, 0.0, 1.0])
