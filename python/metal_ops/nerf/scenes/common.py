"""What all scene formats share: the records, reading images, and checking poses."""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..cameras import Cameras
from ..errors import SceneError
from ..space import Space

# Poses travel through text and float32: more than this is not rounding.
_ROTATION_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Views:
    """Pictures and the cameras that took them.

    Attributes:
        names: A name for each view.
        images: uint8 [N, H, W, 4], sRGB with straight (not premultiplied) alpha.
        cameras: N cameras.
    """

    names: tuple[str, ...]
    images: np.ndarray
    cameras: Cameras

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Scene:
    """A scene to train on.

    Attributes:
        name: Short, fit for a folder name.
        train: The views to learn from.
        test: Held-out views to judge by.
        space: The volume that is modelled.
        up: float [3], unit length, which way is up (for the turntable).
        background: The colour behind the pictures when they are judged, RGB in [0, 1].
        has_alpha: Whether the pictures say what is background.
        notes: Sentences for the user about what was assumed.
    """

    name: str
    train: Views
    test: Views
    space: Space
    up: np.ndarray
    background: tuple[float, float, float]
    has_alpha: bool
    notes: tuple[str, ...] = field(default_factory=tuple)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or a SceneError that says where it breaks."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SceneError(f"{path}: no such file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SceneError(f"{path}: cannot be read: {error}.") from None
    except json.JSONDecodeError as error:
        raise SceneError(f"{path}: not valid JSON at line {error.lineno}: {error.msg}.") from None
    if not isinstance(content, dict):
        raise SceneError(f"{path}: expected a JSON object, got {type(content).__name__}.")
    return content


def number(content: dict[str, Any], key: str, where: str, default: float | None = None) -> float:
    """A finite number from a JSON object, or a SceneError that names file and field."""
    value = content.get(key, default)
    if value is None:
        raise SceneError(f"{where}: field '{key}' is missing.")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SceneError(f"{where}: field '{key}' must be a finite number, got {value!r}.")
    return float(value)


def unknown_keys(content: dict[str, Any], known: set[str], where: str) -> list[str]:
    """A note on the keys that this program does not read, so that no setting is lost in silence.

    Raises:
        SceneError: A key looks like a known one that is not there: a typing error, and not another program's setting.
    """
    names = sorted(set(content) - known)
    for name in names:
        meant = difflib.get_close_matches(name.lower(), sorted(known - set(content)), 1, 0.85)
        if meant:
            raise SceneError(f"{where}: unknown field '{name}'; is '{meant[0]}' meant?")
    return (
        [f"{where}: ignoring unknown field{'s' if len(names) > 1 else ''} {', '.join(names)}."]
        if names
        else []
    )


def check_pose(matrix: Any, where: str) -> np.ndarray:
    """A camera-to-world matrix as float32 [3, 4].

    Raises:
        SceneError: If it is not 3x4 or 4x4, has a value that is not finite, or its rotation is not one.
    """
    try:
        pose = np.asarray(matrix, np.float64)
    except (TypeError, ValueError):
        raise SceneError(f"{where}: expected a 4x4 matrix of numbers.") from None
    if pose.shape not in ((3, 4), (4, 4)):
        raise SceneError(f"{where}: expected a 4x4 matrix, got shape {list(pose.shape)}.")
    if not np.isfinite(pose).all():
        raise SceneError(f"{where}: holds a value that is not finite (NaN or infinity).")
    if pose.shape == (4, 4) and np.abs(pose[3] - [0, 0, 0, 1]).max() > _ROTATION_TOLERANCE:
        raise SceneError(f"{where}: the last row must be 0 0 0 1, got {pose[3].tolist()}.")
    rotation = pose[:3, :3]
    error = np.abs(rotation.T @ rotation - np.eye(3)).max()
    if error > _ROTATION_TOLERANCE:
        raise SceneError(
            f"{where}: the 3x3 part is not a rotation (R^T R differs from the identity by "
            f"{error:.2g}); scaled or sheared poses are not supported."
        )
    if np.linalg.det(rotation) < 0:
        raise SceneError(f"{where}: the 3x3 part is a reflection, not a rotation (determinant -1).")
    return pose[:3].astype(np.float32)


def read_image(path: Path, downscale: int = 1) -> tuple[np.ndarray, bool]:
    """An image file as uint8 [H, W, 4] with straight alpha, and whether the file has alpha.

    Args:
        path: PNG, JPEG, or whatever else Pillow reads.
        downscale: Whole factor to shrink by, box-filtered with premultiplied alpha.

    Raises:
        SceneError: If the file is missing, unreadable, or not a multiple of `downscale`.
    """
    try:
        with Image.open(path) as file:
            if file.mode.startswith("I;16") or file.mode in ("I", "F"):
                raise SceneError(
                    f"{path}: {file.mode} pixels are not supported, save it with 8 bits."
                )
            has_alpha = "A" in file.getbands() or "transparency" in file.info
            pixels = np.asarray(file.convert("RGBA"))
    except FileNotFoundError:
        raise SceneError(f"{path}: no such image file.") from None
    except SceneError:
        raise
    except Exception as error:  # Pillow raises whatever its decoders raise, SyntaxError included
        raise SceneError(f"{path}: not a readable image: {error}.") from None
    if downscale > 1:
        pixels = shrink(pixels, downscale, str(path))
    return pixels, has_alpha


def shrink(pixels: np.ndarray, factor: int, where: str) -> np.ndarray:
    """Box-filters uint8 [H, W, 4] by a whole factor, weighting colours with their alpha."""
    height, width = pixels.shape[:2]
    if height % factor or width % factor:
        raise SceneError(
            f"{where}: {width}x{height} pixels are not a multiple of the downscale factor {factor}."
        )
    blocks = pixels.reshape(height // factor, factor, width // factor, factor, 4).astype(np.float32)
    alpha = blocks[..., 3:]
    total = alpha.sum(axis=(1, 3))
    colour = (blocks[..., :3] * alpha).sum(axis=(1, 3)) / np.maximum(total, 1e-6)
    return np.concatenate([colour, total / factor**2], axis=-1).round().astype(np.uint8)


def stack_images(images: list[np.ndarray], names: list[str], where: str) -> np.ndarray:
    """uint8 [N, H, W, 4] of images that must all have one size."""
    for image, name in zip(images, names, strict=True):
        if image.shape != images[0].shape:
            raise SceneError(
                f"{where}: all images must have one size, but {names[0]} has "
                f"{images[0].shape[1]}x{images[0].shape[0]} pixels and {name} has "
                f"{image.shape[1]}x{image.shape[0]}."
            )
    return np.stack(images)


def hold_out(count: int, every: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and held-out views where a format has no split: every 8th is held out.

    The rule is that of the LLFF captures (Mildenhall et al. 2019).
    """
    index = np.arange(count)
    return index[index % every != 0], index[index % every == 0]
