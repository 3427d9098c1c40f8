"""The picture to fit: decoded to bytes, or mapped from a file that is larger than memory, or drawn here."""

from __future__ import annotations

import math
import mmap
import os
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metal_ops.programs.errors import ProgramError, short
from metal_ops.programs.reading import (
    check_memory,
    image_header,
    image_pixels,
    kind_of,
    open_file,
)

MOST_EDGE = 1 << 17  # float32 places pixels of such an edge to 1/128 of one
_ROWS = 64
_SIZE = (768, 512)
_MOST_TURNS = 160
# Binary PPM: magic, width, height, largest value, one white space; comments in between.
_GAP = rb"(?:\s|#[^\n]*\n)+"
_PPM = re.compile(
    rb"P6" + _GAP + rb"(\d{1,9})" + _GAP + rb"(\d{1,9})" + _GAP + rb"(\d{1,5})\s", re.S
)


class PictureError(ProgramError):
    """A picture that cannot be read."""


class Picture(NamedTuple):
    """The picture that is fitted.

    Attributes:
      name: Name of the run.
      pixels: uint8 [H, W, 3] sRGB; a map of the file where that is larger than memory may be.
      note: A sentence on assumptions, or "".
    """

    name: str
    pixels: np.ndarray
    note: str = ""

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        return int(self.pixels.shape[0])

    @property
    def longest(self) -> int:
        return max(self.width, self.height)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, top, width and height, in points' units."""
        return 0.0, 0.0, self.width / self.longest, self.height / self.longest

    def points(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """float32 [N, 2] in [0, 1]: the middles of pixels; the longer edge has length 1."""
        return np.stack([(x + 0.5) / self.longest, (y + 0.5) / self.longest], 1).astype(np.float32)


def load(data: str | None) -> Picture:
    """The picture in a file, or the one that is drawn here.

    PNG, JPEG, WebP, BMP and TIFF files are decoded, 3 bytes per pixel, up to 2^27 pixels. Binary PPM (P6) and .npy
    files of uint8 [H, W, 3] are mapped: only the pixels that are drawn are read.

    Args:
      data: The file, or None.

    Raises:
      PictureError: It cannot be read, or an edge is longer than 2^17.
    """
    if data is None:
        return Picture("julia", drawn(*_SIZE))
    path = Path(data)
    kind = kind_of(path, PictureError)
    if kind != "file":
        wrong = "is a folder" if kind else "no such picture"
        raise PictureError(f"{path}: {wrong}; give a PNG, JPEG, PPM or .npy file.")
    with open_file(path, PictureError) as file:
        head = file.read(4096)
    name, note = path.stem or "picture", ""
    if head.startswith(b"\x93NUMPY"):
        pixels = _npy(path)
    elif head.startswith(b"P6"):
        pixels = _ppm(path, head)
    else:
        pixels, note = _decoded(path)
    _check_edges(path, *pixels.shape[:2])
    return Picture(re.sub(r"[^\w.+-]", "_", name).lstrip(".")[:60] or "picture", pixels, note)


def _check_edges(path: Path, height: int, width: int) -> None:
    if not (1 <= height <= MOST_EDGE and 1 <= width <= MOST_EDGE):
        raise PictureError(
            f"{path}: has {width} x {height} pixels, expected 1 to {MOST_EDGE} along each edge; give a part of it."
        )


def _decoded(path: Path) -> tuple[np.ndarray, str]:
    height, width, _ = image_header(path, PictureError)
    check_memory(
        9 * height * width,
        f"{path}: decoding {width} x {height} pixels",
        "save it as binary PPM (P6), which is mapped, or shrink it",
        PictureError,
    )
    rgba, has_alpha = image_pixels(path, PictureError, upright=True)
    pixels = np.empty((*rgba.shape[:2], 3), np.uint8)
    for top in range(0, len(rgba), _ROWS):  # float pixels of some rows at a time
        rows = rgba[top : top + _ROWS]
        if has_alpha:
            alpha = rows[..., 3:].astype(np.float32) / 255
            blended = rows[..., :3] * alpha + 255 * (1 - alpha)
            pixels[top : top + _ROWS] = blended.round().astype(np.uint8)
        else:
            pixels[top : top + _ROWS] = rows[..., :3]
    return pixels, "transparent pixels are put over white." if has_alpha else ""


def _npy(path: Path) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's remarks on headers that it can read
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as why:  # NumPy raises all errors of its parsers
        reason = str(why).splitlines()[0] if str(why) else type(why).__name__
        raise PictureError(f"{path}: not a readable .npy file: {reason[:200]}.") from None
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise PictureError(
            f"{path}: expected uint8 of shape [height, width, 3], got {array.dtype} of {short(list(array.shape))}; "
            "convert it."
        )
    return _at_random(array)


def _at_random(array: np.ndarray) -> np.ndarray:
    """Tells the system not to read ahead of a pixel: its neighbours are not wanted."""
    if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        array.base.madvise(mmap.MADV_RANDOM)
    return array


def _ppm(path: Path, head: bytes) -> np.ndarray:
    found = _PPM.match(head)
    if found is None:
        raise PictureError(
            f"{path}: not a readable PPM file: expected 'P6', width, height and 255."
        )
    width, height, largest = (int(digits) for digits in found.groups())
    if largest != 255:
        raise PictureError(
            f"{path}: has values up to {largest}, expected 255; save it with 8 bits."
        )
    _check_edges(path, height, width)
    size = os.path.getsize(path)
    if size < found.end() + 3 * height * width:
        raise PictureError(
            f"{path}: declares {width} x {height} pixels, {3 * height * width} bytes, and has {size - found.end()} for "
            "them; it is damaged."
        )
    return _at_random(np.memmap(path, np.uint8, "r", found.end(), (height, width, 3)))


def drawn(width: int, height: int) -> np.ndarray:
    """A Julia set, z -> z^2 + c, coloured by how fast a point escapes: uint8 [height, width, 3].

    Example:
      >>> drawn(30, 20).shape
      (20, 30, 3)
    """
    fine = 2  # points a pixel along each axis, whose colours are averaged
    y, x = np.mgrid[: fine * height, : fine * width] + 0.5
    z = (x / fine - width / 2 + 1j * (y / fine - height / 2)).ravel()
    z *= 3.0 / width * np.exp(0.35j)
    escape = np.full(z.size, float(_MOST_TURNS))
    orbit, alive = np.full(z.size, math.inf), np.arange(z.size)
    for turn in range(_MOST_TURNS):
        z = z * z + (-0.7269 + 0.1889j)
        size = np.abs(z)
        orbit[alive] = np.minimum(orbit[alive], np.abs(z.real) + 0.3 * size)
        gone = size > 8
        # Smooth: without the steps of whole turns.
        escape[alive[gone]] = turn + 1 - np.log2(np.log(size[gone]) / math.log(8))
        z, alive = z[~gone], alive[~gone]
    phase = 0.6 * np.log1p(escape)[:, None] + np.array([0.55, 0.65, 0.8])
    colour = (0.5 + 0.5 * np.cos(2 * np.pi * phase)) * (
        0.35 + 0.65 * np.clip(3 * orbit, 0, 1) ** 0.5
    )[:, None]
    colour = colour.reshape(height, fine, width, fine, 3).mean((1, 3))
    return (255 * np.clip(colour, 0, 1)).round().astype(np.uint8)
