"""Reading files from untrusted sources: regular files of a bounded size, and one sentence where that fails.

The declared sizes in a file (pixels, shapes, members) are held against limits and its bytes before memory is taken for
it.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps

from .errors import ProgramError, printable, short

# 40,000 frames with a pose and a lens each; Python's objects take up to thirty times the text.
MOST_JSON = 32 << 20
MOST_FRAMES = 100_000
# Larger than any camera's; Pillow's own limit is a little above it.
MOST_PIXELS = 1 << 27
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
# A zip's table of contents is read at once, with an object for each of its entries.
_MOST_AT_ONCE = 1 << 20
_MOST_MEMBERS = 1000
_HEADER_VERSIONS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(needed: int, where: str, remedy: str, error: type[ProgramError]) -> None:
    """Raises `error` if reading takes more than half of the machine's memory."""
    if needed > memory() // 2:
        raise error(
            f"{where} would take {needed / 2**30:.1f} GiB, and this machine has {memory() / 2**30:.1f} GiB; {remedy}."
        )


def kind_of(path: Path, error: type[ProgramError]) -> str:
    """The kind of entry there: "file", "folder", "" for nothing.

    Raises:
      error: A device, a pipe or a socket, or a path that the system does not take.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as why:
        raise error(f"{path}: cannot be read: {_reason(why)}.") from None
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISREG(mode):
        return "file"
    name = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise error(f"{path}: is {name}; give a file.")


@contextmanager
def open_file(path: Path, error: type[ProgramError], what: str = "file") -> Iterator[BinaryIO]:
    """A regular file, open for reading. Nothing waits for the other end of a pipe.

    Raises:
      error: It is not there, is no regular file, or cannot be opened.
    """
    if kind_of(path, error) == "folder":
        raise error(f"{path}: is a folder; give a {what}.")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise error(f"{path}: no such {what}.") from None
    except (OSError, ValueError) as why:
        raise error(f"{path}: cannot be read: {_reason(why)}.") from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # another one than a moment ago
            raise error(f"{path}: is not a regular file; give a {what}.")
        yield file


def _reason(why: Exception) -> str:
    """In words: some errors have their path in the text, which is the sentence's beginning already."""
    if isinstance(why, OSError):
        if why.errno == errno.ELOOP:
            return "its symbolic links go in a circle"
        return why.strerror or str(why)
    return "a path cannot hold such characters" if isinstance(why, ValueError) else str(why)


# ---- JSON -----------------------------------------------------------------------------------------------------------


def read_json(path: Path, error: type[ProgramError]) -> Any:
    """The content of a JSON file of at most `MOST_JSON` bytes.

    Raises:
      error: With the line that is no JSON, the field that stands there twice, or another mistake.
    """
    with open_file(path, error) as file:
        data = file.read(MOST_JSON + 1)
    if len(data) > MOST_JSON:
        raise error(
            f"{path}: is larger than {MOST_JSON >> 20} MiB, which is no list of frames that can be trained on."
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as why:
        raise error(f"{path}: byte {why.start} is not UTF-8; save the file as UTF-8.") from None
    return parse_json(text, str(path), error)


def parse_json(text: str, where: str, error: type[ProgramError]) -> Any:
    """The value of a JSON text; integers of more than 18 digits become floats, and infinite above 1e308.

    Raises:
      error: As `read_json`.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise error(f"{where}: field {short(key)} stands there twice; remove one.")
                seen.add(key)
        return content

    try:
        return json.loads(
            text,
            object_pairs_hook=unique,
            parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits),
        )
    except json.JSONDecodeError as why:
        raise error(f"{where}: not valid JSON at line {why.lineno}: {why.msg}.") from None
    except RecursionError:
        raise error(
            f"{where}: not valid JSON: lists or objects lie too deep in one another."
        ) from None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number: neither true, nor text, nor beyond float64."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # math.isfinite() fails for larger integers
    )


# ---- images ---------------------------------------------------------------------------------------------------------


def image_header(path: Path, error: type[ProgramError]) -> tuple[int, int, bool]:
    """(height, width, whether it has alpha) of an image file, without decoding it.

    Raises:
      error: Missing, unreadable, more pixels than `MOST_PIXELS`, or pixels that are not of 8 bits.
    """
    with _image(path, error) as image:
        return image.height, image.width, _has_alpha(image)


def image_pixels(
    path: Path, error: type[ProgramError], upright: bool = False
) -> tuple[np.ndarray, bool]:
    """uint8 [H, W, 4] with straight alpha, and whether the file has alpha.

    Args:
      path: The file.
      error: The error to raise.
      upright: Whether it is turned as its EXIF data says, and not as the camera's sensor lay.

    Raises:
      error: As `image_header`.
    """
    with _image(path, error) as image:
        turned = ImageOps.exif_transpose(image) if upright else image
        return np.asarray(turned.convert("RGBA")), _has_alpha(image)


def _has_alpha(image: Image.Image) -> bool:
    return "A" in image.getbands() or "transparency" in image.info


@contextmanager
def _image(path: Path, error: type[ProgramError]) -> Iterator[Image.Image]:
    with open_file(path, error, "image file") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's remarks on files that it can read
        try:
            with Image.open(file, formats=_FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise Image.DecompressionBombError
                if image.mode.startswith("I;16") or image.mode in ("I", "F"):
                    raise error(
                        f"{path}: {image.mode} pixels are not supported, save it with 8 bits."
                    )
                yield image
        except ProgramError:
            raise
        except Image.DecompressionBombError:
            raise error(
                f"{path}: declares more than {MOST_PIXELS} pixels, which is no photograph; shrink it."
            ) from None
        except Image.UnidentifiedImageError:
            raise error(
                f"{path}: not a readable image; expected one of {', '.join(_FORMATS)}."
            ) from None
        except Exception as why:  # Pillow raises whatever its decoders raise, SyntaxError included
            raise error(f"{path}: not a readable image: {_words(why)}.") from None


def _words(why: Exception) -> str:
    text = printable(str(why)).strip().rstrip(".") or type(why).__name__
    return text if len(text) <= 200 else text[:200] + "..."


# ---- .npz -----------------------------------------------------------------------------------------------------------


class _Contents(io.BufferedReader):
    """Refuses to read much at once, as `zipfile` does with the table of contents, until `opened` is set."""

    opened = False

    def read(self, size: int | None = -1) -> bytes:  # type: ignore[override]
        if self.opened:
            return super().read(size)
        wanted = _MOST_AT_ONCE + 1 if size is None or size < 0 else size
        data = super().read(min(wanted, _MOST_AT_ONCE + 1))
        if len(data) > _MOST_AT_ONCE:
            raise ValueError(f"its table of contents is larger than {_MOST_AT_ONCE >> 20} MiB")
        return data


class Arrays:
    """The arrays of an .npz file: names, shapes and dtypes first, values only where they are asked for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, error: type[ProgramError]) -> None:
        self._path, self._archive, self._error = path, archive, error
        self._members: dict[str, zipfile.ZipInfo] = {}
        self.headers: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise error(f"{path}: holds {len(members)} arrays, expected at most {_MOST_MEMBERS}.")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in self._members:
                raise error(f"{path}: array {short(name)} is there twice; save the file anew.")
            self._members[name] = member
            self.headers[name] = self._header(name, member)

    def _header(self, name: str, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype]:
        where = f"{self._path}: array {short(name)}"
        if member.flag_bits & 1:
            raise self._error(f"{where} is encrypted; save the file without a password.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._error(f"{where} is packed in a way that NumPy does not write.")
        with self._archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            if version not in _HEADER_VERSIONS:
                raise self._error(f"{where} has format {version}, expected 1.0 or 2.0.")
            shape, _, dtype = _HEADER_VERSIONS[version](file)
            start = file.tell()
        if dtype.hasobject:
            raise self._error(
                f"{where} holds pickled Python objects, which are not read; save numbers."
            )
        if any(isinstance(size, bool) or size < 0 for size in shape):
            raise self._error(f"{where} declares the shape {short(shape)}.")
        size = math.prod(shape) * dtype.itemsize
        if start + size != member.file_size:
            raise self._error(
                f"{where} declares {size} bytes ({dtype} {short(list(shape))}), and the file has "
                f"{member.file_size - start} for it; it is damaged."
            )
        return shape, dtype

    def bytes(self, *names: str) -> int:
        """The bytes of the arrays in memory."""
        return sum(math.prod(self.headers[n][0]) * self.headers[n][1].itemsize for n in names)

    def read(self, name: str) -> np.ndarray:
        """The values of one array."""
        with self._archive.open(self._members[name]) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
            file.read(1)  # the checksum is looked at when there is nothing left
        return array


@contextmanager
def open_npz(path: Path, error: type[ProgramError], what: str) -> Iterator[Arrays]:
    """The arrays in an .npz file.

    Args:
      path: The file.
      error: The error to raise.
      what: The file's name in sentences: "not a readable ...".

    Raises:
      error: Missing, damaged, or made to take more memory than any machine has; also from reads inside of the block.
    """
    with open_file(path, error, what) as file:
        try:
            with (
                _Contents(file.raw) as contents,  # type: ignore[attr-defined]
                zipfile.ZipFile(contents) as archive,
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")  # NumPy's remarks on headers that it can read
                contents.opened = True
                yield Arrays(path, archive, error)
        except ProgramError:
            raise
        except Exception as why:  # zipfile, zlib and NumPy raise all errors of their parsers
            raise error(f"{path}: not a readable {what}: {_words(why)}.") from None
