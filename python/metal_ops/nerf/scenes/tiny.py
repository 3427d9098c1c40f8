"""tiny_nerf_data.npz: arrays `images`, `poses` and `focal`, as in the original NeRF's notebook."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from metal_ops.programs.errors import printable, short
from metal_ops.programs.reading import check_memory, open_npz

from ..cameras import pinhole_cameras
from ..errors import SceneError
from ..space import Space
from .common import MOST, Scene, Views, check_pose, hold_out, shrink, unknown_keys

_FIELDS = ("images", "poses", "focal")
_LEAST_FOCAL = 1e-3
_HALF_SIZE = 1.5  # the pictures are of a NeRF-synthetic object


def load_tiny(path: Path, downscale: int = 1) -> Scene:
    """Reads an .npz of pictures [N, H, W, 3 or 4], poses [N, 4, 4] and one focal length in pixels.

    Every 8th view is held out. Pictures are floats in [0, 1] or uint8; without alpha the background is
    taken to be black, as it is in the original file.

    Raises:
      SceneError: With the file and the field that is wrong.
    """
    arrays, notes = _read(path)
    images, poses, focal = arrays["images"], arrays["poses"], float(arrays["focal"].reshape(-1)[0])
    if not _LEAST_FOCAL <= focal <= MOST:  # NaN lies nowhere
        raise SceneError(f"{path}: field 'focal' must be one positive number, got {focal:g}.")
    poses = np.stack([check_pose(pose, f"{path}: poses[{i}]") for i, pose in enumerate(poses)])
    pixels = _to_bytes(images, path)
    if downscale > 1:
        pixels = np.stack([shrink(image, downscale, str(path)) for image in pixels])
    height, width = pixels.shape[1:3]
    cameras = pinhole_cameras(poses, focal / downscale, width, height)
    has_alpha = images.shape[-1] == 4
    if not has_alpha:
        notes.append(
            f"{printable(str(path))}: images have no alpha; the background is taken to be black."
        )

    def split(indices: np.ndarray) -> Views:
        return Views(
            tuple(f"view_{i:03d}" for i in indices), pixels[indices], cameras.select(indices)
        )

    train, test = hold_out(len(pixels))
    return Scene(
        name=printable(path.stem),
        train=split(train),
        test=split(test),
        space=Space(np.array([[-_HALF_SIZE] * 3, [_HALF_SIZE] * 3], np.float32)),
        up=np.array([0.0, 0.0, 1.0]),
        background=(1.0, 1.0, 1.0) if has_alpha else (0.0, 0.0, 0.0),
        has_alpha=has_alpha,
        notes=tuple(notes),
    )


def _read(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    with open_npz(path, SceneError, ".npz file") as file:
        for field in _FIELDS:
            if field not in file.headers:
                found = ", ".join(map(short, file.headers))
                raise SceneError(f"{path}: array '{field}' is missing (found: {found}).")
            dtype = file.headers[field][1]
            if dtype.kind not in "fiu":
                raise SceneError(f"{path}: array '{field}' must hold numbers, got {dtype}.")
        notes = unknown_keys(dict.fromkeys(file.headers), set(_FIELDS), str(path))
        images, poses, focal = (file.headers[field][0] for field in _FIELDS)
        if len(images) != 4 or images[-1] not in (3, 4) or 0 in images:
            raise SceneError(
                f"{path}: field 'images' must have shape [N, H, W, 3] or [N, H, W, 4], got {list(images)}."
            )
        if images[0] < 2:
            raise SceneError(f"{path}: field 'images' has {images[0]} view, at least 2 are needed.")
        if poses not in ((images[0], 3, 4), (images[0], 4, 4)):
            raise SceneError(
                f"{path}: field 'poses' must have shape [{images[0]}, 4, 4], one for each image, got {list(poses)}."
            )
        if math.prod(focal) != 1:
            raise SceneError(
                f"{path}: field 'focal' must be one positive number, got shape {list(focal)}."
            )
        check_memory(
            file.bytes(*_FIELDS) + 12 * math.prod(images[:3]) + 64 * math.prod(images[1:3]),
            f"{path}: array 'images', {images[0]} of {images[2]}x{images[1]} pixels",
            "save fewer or smaller ones",
            SceneError,
        )
        return {field: file.read(field) for field in _FIELDS}, notes


def _to_bytes(images: np.ndarray, path: Path) -> np.ndarray:
    """uint8 [N, H, W, 4] of pictures in [0, 1] or bytes, opaque where there is no alpha."""
    pixels = np.full([*images.shape[:3], 4], 255, np.uint8)
    for place, image in enumerate(images):  # one at a time, as floats are large
        if image.dtype != np.uint8:
            if not np.isfinite(image).all():
                raise SceneError(f"{path}: array 'images' holds a value that is not finite.")
            if image.min() < -1e-3 or image.max() > 1 + 1e-3:
                raise SceneError(
                    f"{path}: array 'images' must be uint8 or lie in [0, 1], got values from {image.min():g} to "
                    f"{image.max():g}."
                )
            image = (np.clip(image, 0, 1) * 255).round()
        pixels[place, ..., : image.shape[-1]] = image
    return pixels
