"""tiny_nerf_data.npz: arrays `images`, `poses` and `focal`, as in the original NeRF's notebook."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np

from ..cameras import pinhole_cameras
from ..errors import SceneError
from ..space import Space
from .common import Scene, Views, check_pose, hold_out, shrink, unknown_keys

_FIELDS = ("images", "poses", "focal")
_HALF_SIZE = 1.5  # the pictures are of a NeRF-synthetic object


def load_tiny(path: Path, downscale: int = 1) -> Scene:
    """Reads an .npz of pictures [N, H, W, 3 or 4], poses [N, 4, 4] and one focal length in pixels.

    Every 8th view is held out. Pictures are floats in [0, 1] or uint8; without alpha the background is
    taken to be black, as it is in the original file.

    Raises:
        SceneError: With the file and the field that is wrong.
    """
    arrays, notes = _read(path)
    images, poses = arrays["images"], arrays["poses"]
    focal = arrays["focal"]
    if images.ndim != 4 or images.shape[-1] not in (3, 4) or 0 in images.shape:
        raise SceneError(
            f"{path}: field 'images' must have shape [N, H, W, 3] or [N, H, W, 4], got {list(images.shape)}."
        )
    if poses.ndim != 3 or len(poses) != len(images):
        raise SceneError(
            f"{path}: field 'poses' must have shape [{len(images)}, 4, 4], one for each image, got "
            f"{list(poses.shape)}."
        )
    if len(images) < 2:
        raise SceneError(f"{path}: field 'images' has {len(images)} view, at least 2 are needed.")
    if (
        focal.size != 1
        or not math.isfinite(float(focal.reshape(-1)[0]))
        or focal.reshape(-1)[0] <= 0
    ):
        raise SceneError(
            f"{path}: field 'focal' must be one positive number, got {focal.tolist()}."
        )
    poses = np.stack([check_pose(pose, f"{path}: poses[{i}]") for i, pose in enumerate(poses)])
    pixels = _to_bytes(images, path)
    if downscale > 1:
        pixels = np.stack([shrink(image, downscale, str(path)) for image in pixels])
    height, width = pixels.shape[1:3]
    cameras = pinhole_cameras(poses, float(focal.reshape(-1)[0]) / downscale, width, height)
    has_alpha = images.shape[-1] == 4
    if not has_alpha:
        notes.append(f"{path}: images have no alpha; the background is taken to be black.")

    def split(indices: np.ndarray) -> Views:
        return Views(
            tuple(f"view_{i:03d}" for i in indices), pixels[indices], cameras.select(indices)
        )

    train, test = hold_out(len(pixels))
    return Scene(
        name=path.stem,
        train=split(train),
        test=split(test),
        space=Space(np.array([[-_HALF_SIZE] * 3, [_HALF_SIZE] * 3], np.float32)),
        up=np.array([0.0, 0.0, 1.0]),
        background=(1.0, 1.0, 1.0) if has_alpha else (0.0, 0.0, 0.0),
        has_alpha=has_alpha,
        notes=tuple(notes),
    )


def _read(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            for field in _FIELDS:
                if field not in file:
                    raise SceneError(
                        f"{path}: array '{field}' is missing (found: {', '.join(file)})."
                    )
            notes = unknown_keys(dict.fromkeys(file), set(_FIELDS), str(path))
            arrays = {field: file[field] for field in _FIELDS}
    except FileNotFoundError:
        raise SceneError(f"{path}: no such file.") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise SceneError(f"{path}: not a readable .npz file: {error}.") from None
    for field, array in arrays.items():
        if array.dtype.kind not in "fiu":
            raise SceneError(f"{path}: array '{field}' must hold numbers, got {array.dtype}.")
    return arrays, notes


def _to_bytes(images: np.ndarray, path: Path) -> np.ndarray:
    """uint8 [N, H, W, 4] of pictures in [0, 1] or bytes, opaque where there is no alpha."""
    if images.dtype != np.uint8:
        if not np.isfinite(images).all():
            raise SceneError(f"{path}: array 'images' holds a value that is not finite.")
        if images.min() < -1e-3 or images.max() > 1 + 1e-3:
            raise SceneError(
                f"{path}: array 'images' must be uint8 or lie in [0, 1], got values from {images.min():g} to "
                f"{images.max():g}."
            )
        images = (np.clip(images, 0, 1) * 255).round().astype(np.uint8)
    if images.shape[-1] == 4:
        return images
    return np.concatenate([images, np.full_like(images[..., :1], 255)], axis=-1)
