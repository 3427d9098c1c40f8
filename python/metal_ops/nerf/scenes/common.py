"""Shared by all scene formats: the records, reading images, and checking poses."""

from __future__ import annotations

import difflib
import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs import reading
from metal_ops.programs.errors import printable, short
from metal_ops.programs.reading import kind_of

from ..cameras import Cameras
from ..errors import SceneError
from ..space import Space

# Poses travel through text and float32: more than this is not rounding.
_ROTATION_TOLERANCE = 1e-3
# Lengths, pixels and lens terms above it are no scene, and their squares overflow float32 soon.
MOST = 1e9
_LEAST_ANGLE = 1e-4
_MOST_NAMED = 20  # fields that a note lists, and characters of each
_MOST_PATH = 4096
_BAND_PIXELS = 1 << 20


@dataclass(frozen=True)
class Views:
    """Pictures and the cameras that took them.

    Attributes:
      names: A name for each view.
      images: uint8 [N, H, W, 4], sRGB with straight (not premultiplied) alpha.
      cameras: N cameras.
      masks: bool [N, H, W], false where a pixel is neither learnt nor judged; None without masks.
    """

    names: tuple[str, ...]
    images: np.ndarray
    cameras: Cameras
    masks: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.names)

    def valid(self, view: int) -> np.ndarray | None:
        """The pixels of a view that are learnt and judged: bool [H, W]; None for all.

        The mask excludes pixels, and so does a lens that shows nothing there.
        """
        shown = self.cameras.shown(view)
        if self.masks is None:
            return shown
        return self.masks[view] if shown is None else self.masks[view] & shown

    def select(self, indices: np.ndarray) -> Views:
        """The views at `indices`, in that order."""
        return Views(
            tuple(self.names[i] for i in indices),
            self.images[indices],
            self.cameras.select(indices),
            None if self.masks is None else self.masks[indices],
        )


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
      has_alpha: Whether the pictures mark the background.
      notes: Sentences for the user about assumptions.
    """

    name: str
    train: Views
    test: Views
    space: Space
    up: np.ndarray
    background: tuple[float, float, float]
    has_alpha: bool
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def pixels_across(self) -> int:
        """Pixels along the longer edge of the training pictures: grids are made to hold so many.

        Fisheyes and panoramas show more than the box: of theirs so many as the box takes, in the median view.
        """
        cameras = self.train.cameras
        longest = max(cameras.width, cameras.height)
        if not cameras.models.any():
            return longest
        distance = np.linalg.norm(cameras.poses[:, :, 3] - self.space.centre, axis=1)
        edge = self.space.diagonal / math.sqrt(3)
        across = cameras.intrinsics[:, 0] * edge / np.maximum(distance, edge / 2)
        return int(np.clip(np.median(across), 16, longest))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or a SceneError that says where it breaks."""
    content = reading.read_json(path, SceneError)
    if not isinstance(content, dict):
        raise SceneError(f"{path}: expected a JSON object, got {type(content).__name__}.")
    return content


def number(
    content: dict[str, Any],
    key: str,
    where: str,
    default: float | None = None,
    least: float = -MOST,
    most: float = MOST,
) -> float:
    """A number from a JSON object, or a SceneError that names file and field.

    Values outside of [least, most] make no scene, and overflow further on.
    """
    value = content.get(key, default)
    if value is None:
        raise SceneError(f"{where}: field '{key}' is missing.")
    if not reading.is_number(value):
        raise SceneError(f"{where}: field '{key}' must be a finite number, got {short(value)}.")
    if not least <= value <= most:
        raise SceneError(
            f"{where}: field '{key}' must lie between {least:g} and {most:g}, got {float(value):g}."
        )
    return float(value)


def angle(content: dict[str, Any], key: str, where: str) -> float:
    """A field of view in radians."""
    return number(content, key, where, least=_LEAST_ANGLE, most=math.pi - _LEAST_ANGLE)


def unknown_keys(content: dict[str, Any], known: set[str], where: str) -> list[str]:
    """A note on the keys that this program does not read, so that no setting is lost in silence.

    Raises:
      SceneError: A key looks like a known one that is not there: a typing error, and not another program's setting.
    """
    names = frozenset(content) - known
    return list(_unknown(names, frozenset(known - set(content)), where)) if names else []


# The same for most frames of a file.
@functools.lru_cache(maxsize=16)
def _unknown(names: frozenset[str], absent: frozenset[str], where: str) -> tuple[str, ...]:
    shown = sorted(names)[:_MOST_NAMED]
    for name in shown:
        meant = difflib.get_close_matches(name[:_MOST_NAMED].lower(), sorted(absent), 2, 0.85)
        if meant:  # of camera_angle_x and camera_angle_y, which are as close, the first
            raise SceneError(f"{where}: unknown field '{name}'; is '{min(meant)}' meant?")
    listed = ", ".join(printable(name[:_MOST_NAMED]) for name in shown)
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (f"{printable(where)}: ignoring unknown field{'s' * (len(names) > 1)} {listed}{more}.",)


def frames_of(content: dict[str, Any], least: int, where: str) -> list[dict[str, Any]]:
    """The list of frames, each an object with a `file_path`."""
    frames = content.get("frames")
    wanted = "two frames" if least == 2 else "one frame"
    if not isinstance(frames, list) or len(frames) < least:
        raise SceneError(f"{where}: field 'frames' must be a list with at least {wanted}.")
    if len(frames) > reading.MOST_FRAMES:
        raise SceneError(
            f"{where}: field 'frames' lists {len(frames)} frames, at most {reading.MOST_FRAMES} are read; "
            "leave some out."
        )
    for position, frame in enumerate(frames):
        place = f"{where}: frames[{position}]"
        if not isinstance(frame, dict):
            raise SceneError(f"{place}: expected an object, got {type(frame).__name__}.")
        name = frame.get("file_path")
        if not isinstance(name, str) or not 0 < len(name) <= _MOST_PATH:
            raise SceneError(f"{place}: field 'file_path' must be a string, got {short(name)}.")
    return frames


def check_pose(matrix: Any, where: str) -> np.ndarray:
    """A camera-to-world matrix as float32 [3, 4].

    Raises:
      SceneError: If it is not 3x4 or 4x4, has a value that is not finite, or its rotation is not one.
    """
    try:
        if not isinstance(matrix, np.ndarray) and not _holds_numbers(matrix):
            raise TypeError
        pose = np.asarray(matrix, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SceneError(f"{where}: expected a 4x4 matrix of numbers.") from None
    if pose.shape not in ((3, 4), (4, 4)):
        raise SceneError(f"{where}: expected a 4x4 matrix, got shape {list(pose.shape)}.")
    if not np.isfinite(pose).all():
        raise SceneError(f"{where}: holds a value that is not finite (NaN or infinity).")
    if np.abs(pose).max() > MOST:
        raise SceneError(f"{where}: holds a value above {MOST:g}; scale the scene.")
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


def _holds_numbers(matrix: Any) -> bool:
    """Whether it is a short list of short lists of numbers; NumPy would also take text, and true and false."""
    return (
        isinstance(matrix, list)
        and len(matrix) <= 4
        and all(isinstance(row, list) and len(row) <= 4 for row in matrix)
        and all(isinstance(x, int | float) and not isinstance(x, bool) for r in matrix for x in r)
    )


def with_suffix(file: Path, suffix: str) -> Path:
    """The file with an ending added; `Path.with_suffix` refuses names such as "." and "..", which have no image
    behind them."""
    return file.parent / (file.name + suffix)


def image_file(folder: Path, name: str) -> Path:
    """The image that `file_path` names, relative to the folder of its file.

    Exporters on Windows write backslashes, and Blender's leave the ending out.
    """
    file = folder / name
    if "\\" in name and not kind_of(file, SceneError):
        file = folder / name.replace("\\", "/")
    if file.suffix:
        return file
    found = [with_suffix(file, ending) for ending in (".png", ".jpg", ".jpeg")]
    return next((candidate for candidate in found if kind_of(candidate, SceneError)), found[0])


def check_views(views: Views, where: str) -> list[str]:
    """Notes on pixels that the lenses show nothing in.

    Raises:
      SceneError: A view has no pixel that could be learnt or judged.
    """
    without = 0
    for view, name in enumerate(views.names):
        shown, valid = views.cameras.shown(view), views.valid(view)
        if valid is not None and not valid.any():
            reason = (
                "its mask excludes all" if views.masks is not None else "the lens terms show none"
            )
            raise SceneError(f"{where}: {name}: no pixel has a ray that counts; {reason}.")
        without += 0 if shown is None else int(shown.size - np.count_nonzero(shown))
    if not without:
        return []
    pixels = len(views) * views.cameras.width * views.cameras.height
    return [
        f"{printable(where)}: {without} of {pixels} pixels have no undistorted place, as the lens polynomial turns "
        "back before them; they are neither learnt nor judged, and drawn as background."
    ]


def shrink_mask(mask: np.ndarray, factor: int) -> np.ndarray:
    """A mask bool [H, W], a whole factor smaller: true where all pixels of a block are."""
    height, width = mask.shape[0] // factor, mask.shape[1] // factor
    return mask.reshape(height, factor, width, factor).all(axis=(1, 3))


def read_image(path: Path, downscale: int = 1) -> tuple[np.ndarray, bool]:
    """An image file as uint8 [H, W, 4] with straight alpha, and whether the file has alpha.

    Args:
      path: PNG, JPEG, WebP, BMP or TIFF.
      downscale: Whole factor to shrink by, box-filtered with premultiplied alpha.

    Raises:
      SceneError: If the file is missing, unreadable, or not a multiple of `downscale`.
    """
    pixels, has_alpha = reading.image_pixels(path, SceneError)
    if downscale > 1:
        pixels = shrink(pixels, downscale, str(path))
    return pixels, has_alpha


def check_images(
    files: list[Path], names: list[str], downscale: int, where: str
) -> tuple[int, int, bool]:
    """(height, width, whether they have alpha) of a split's images once shrunk, from their headers alone.

    So that files that do not fit together, or not into memory, are reported before anything is decoded.

    Raises:
      SceneError: One is missing or unreadable, sizes differ, or only some have alpha.
    """
    headers = [reading.image_header(file, SceneError) for file in files]
    height, width, has_alpha = headers[0]
    for (h, w, _), name in zip(headers, names, strict=True):
        if (h, w) != (height, width):
            raise SceneError(
                f"{where}: all images must have one size, but {names[0]} has {width}x{height} pixels and {name} has "
                f"{w}x{h}; leave out those of the other size, such as photos turned on their side."
            )
    alphas = [alpha for _, _, alpha in headers]
    if len(set(alphas)) > 1:
        without = names[alphas.index(False)]
        raise SceneError(f"{where}: some images have alpha and some, such as {without}, have none.")
    if height % downscale or width % downscale:
        raise SceneError(
            f"{files[0]}: {width}x{height} pixels are not a multiple of the downscale factor {downscale}."
        )
    small = height // downscale, width // downscale
    # 4 bytes per pixel: read, split into training and held-out views, and as a tensor. One large image besides.
    reading.check_memory(
        12 * len(files) * math.prod(small) + 16 * height * width,
        f"{where}: field 'frames', {len(files)} images of {width}x{height} pixels",
        "use a larger --downscale, or fewer frames",
        SceneError,
    )
    return *small, has_alpha


def read_images(files: list[Path], downscale: int, height: int, width: int) -> np.ndarray:
    """uint8 [N, H, W, 4] of images that `check_images` has looked at."""
    images = np.empty([len(files), height, width, 4], np.uint8)
    for place, file in enumerate(files):
        pixels, _ = read_image(file, downscale)
        if pixels.shape != images.shape[1:]:
            raise SceneError(f"{file}: changed while it was read.")
        images[place] = pixels
    return images


def say_background(
    pixels: np.ndarray, has_alpha: bool, where: str, else_: str
) -> tuple[bool, list[str]]:
    """Whether images uint8 [N, H, W, 4] say what is background, and a note if they do not.

    Args:
      pixels: The images.
      has_alpha: Whether the files have alpha. Photographs saved as RGBA do, and all of it is 255.
      where: The file, for the note.
      else_: The assumption where images say nothing.
    """
    if has_alpha and int(pixels[..., 3].min()) < 255:
        return True, []
    words = "alpha of 255 everywhere" if has_alpha else "no alpha"
    return False, [f"{printable(where)}: images have {words}; {else_}."]


def shrink(pixels: np.ndarray, factor: int, where: str) -> np.ndarray:
    """Box-filters uint8 [H, W, 4] by a whole factor, weighting colours with their alpha."""
    height, width = pixels.shape[:2]
    if height % factor or width % factor:
        raise SceneError(
            f"{where}: {width}x{height} pixels are not a multiple of the downscale factor {factor}."
        )
    shape = (height // factor, width // factor, 4)
    small = np.empty(shape, np.uint8)
    # A band at a time, as the floats take ten times the memory of the image.
    band = max(_BAND_PIXELS // (width * factor), 1)
    for top in range(0, shape[0], band):
        rows = pixels[top * factor : (top + band) * factor]
        blocks = rows.reshape(-1, factor, shape[1], factor, 4).astype(np.float32)
        alpha = blocks[..., 3:]
        total = alpha.sum(axis=(1, 3))
        colour = (blocks[..., :3] * alpha).sum(axis=(1, 3)) / np.maximum(total, 1e-6)
        mean = np.concatenate([colour, total / factor**2], axis=-1)
        small[top : top + band] = mean.round().astype(np.uint8)
    return small


def hold_out(count: int, every: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and held-out views where a format has no split: every 8th is held out.

    The rule is that of the LLFF captures (Mildenhall et al. 2019).
    """
    index = np.arange(count)
    return index[index % every != 0], index[index % every == 0]
