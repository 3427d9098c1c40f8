"""Polygons as mesh files list them, and the formats of text that have them: OBJ and OFF.

trimesh 5.2.0 gives no polygons: it cuts them into fans, which is wrong where one is not convex. It also counts OBJ's
negative indices from the end of the file, and refuses a binary PLY of triangles and quads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metal_ops.programs.errors import short

from .mesh import MeshError

_MOST_INDEX = 1 << 40


class Polygons(NamedTuple):
    """Faces of any size.

    Attributes:
      vertices: float64 [V, 3].
      sizes: int64 [P], the corners of each face.
      corners: int64 [sum of sizes], the vertices of the faces, one face after the other.
      word: "line" or "face": the kind of `numbers`.
      numbers: int64 [P], the place of each face in its file, for sentences.
    """

    vertices: np.ndarray
    sizes: np.ndarray
    corners: np.ndarray
    word: str
    numbers: np.ndarray


def indices(values: Sequence[int]) -> np.ndarray:
    """int64 of Python integers; those that int64 does not hold become one that names no vertex."""
    try:
        return np.array(values, np.int64).reshape(-1)
    except OverflowError:
        return np.array([min(max(value, -1), _MOST_INDEX) for value in values], np.int64)


def as_points(rows: Sequence[tuple[float, ...]]) -> np.ndarray:
    """float64 [V, 3]."""
    return np.array(rows, np.float64).reshape(-1, 3)


# ---- OBJ ------------------------------------------------------------------------------------------------------------

# Surfaces that are no polygons, and other files' content: without them a solid is another one.
_OBJ_REFUSED = {
    b"surf": "a free-form surface",
    b"bzp": "a Bezier patch",
    b"bsp": "a B-spline patch",
    b"cdp": "a Cardinal patch",
    b"call": "another file's content",
}


def _joined(content: bytes) -> Iterator[tuple[int, bytes]]:
    r"""Lines with their numbers; "\" at the end of one joins the next."""
    held, first = b"", 0
    for number, line in enumerate(content.splitlines(), 1):
        first = first or number
        if line.endswith(b"\\"):
            held += line[:-1] + b" "
            continue
        yield first, held + line
        held, first = b"", 0
    if held:
        yield first, held


def read_obj(path: Path, content: bytes) -> Polygons:
    """The faces of an OBJ file: indices from 1, or backwards from the last vertex so far."""
    vertices: list[tuple[float, ...]] = []
    sizes, corners, numbers = list[int](), list[int](), list[int]()
    for number, line in _joined(content.removeprefix(b"\xef\xbb\xbf")):
        words = line.split(b"#", 1)[0].split()
        if not words or words[0] not in (b"v", b"f", b"fo", *_OBJ_REFUSED):
            continue
        if words[0] in _OBJ_REFUSED:
            raise MeshError(
                f"{path}: line {number}: {words[0].decode()!r} is {_OBJ_REFUSED[words[0]]}, which is not read; save "
                "the mesh as polygons, in one file."
            )
        try:
            if any(b"_" in word for word in words):  # Python takes 1_0 for 10
                raise ValueError
            if words[0] == b"v":
                x, y, z = (float(word) for word in words[1:4])
                vertices.append((x, y, z))
            else:
                named = [int(word.split(b"/", 1)[0]) for word in words[1:]]
                polygon = [i - 1 if i > 0 else len(vertices) + i for i in named]
                if (
                    len(polygon) < 3
                    or 0 in named
                    or min(polygon) < 0
                    or max(map(abs, named)) > _MOST_INDEX
                ):
                    raise ValueError
                sizes.append(len(polygon))
                corners += polygon
                numbers.append(number)
        except ValueError:
            kind = "three numbers" if words[0] == b"v" else "at least three vertices, from 1"
            raise MeshError(
                f"{path}: line {number}: expected {kind}, got {short(line.decode('latin-1'))}."
            ) from None
    return Polygons(as_points(vertices), indices(sizes), indices(corners), "line", indices(numbers))


# ---- OFF ------------------------------------------------------------------------------------------------------------

_OFF_HEADER = re.compile(rb"(ST)?(C)?(N)?(4)?(n)?OFF")


def read_off(path: Path, content: bytes) -> Polygons:
    """The faces of an OFF file, whose vertices may have normals, colours and texture coordinates behind their place."""
    lines = _off_lines(content.removeprefix(b"\xef\xbb\xbf"))
    number, words = next(lines, (1, []))
    header = _OFF_HEADER.match(words[0]) if words else None
    if header:
        if header[4] or header[5]:
            raise MeshError(
                f"{path}: line {number}: {short(words[0].decode('latin-1'))} has vertices of another dimension than 3; "
                "save it as OFF."
            )
        # Some files have the counts right behind the word.
        words = [word for word in (words[0][header.end() :], *words[1:]) if word]
        if words[:1] == [b"BINARY"]:
            raise MeshError(f"{path}: is a binary OFF, which is not read; save it as text.")
        if not words:
            number, words = next(lines, (number, []))
    try:
        count, faces = (int(word) for word in words[:2])
        if not (0 <= count <= len(content) and 0 <= faces <= len(content)):
            raise ValueError
    except ValueError:
        raise MeshError(
            f"{path}: line {number}: expected 'OFF' and the numbers of vertices and faces, got "
            f"{short(b' '.join(words).decode('latin-1'))}."
        ) from None
    vertices: list[tuple[float, ...]] = []
    sizes, corners, numbers = list[int](), list[int](), list[int]()
    for row in range(count + faces):
        number, words = next(lines, (0, []))
        if not words:
            some = "vertices" if row < count else "faces"
            raise MeshError(
                f"{path}: ends before its {count if row < count else faces} {some}; it is damaged."
            )
        try:
            if row < count:
                x, y, z = (float(word) for word in words[:3])
                vertices.append((x, y, z))
                continue
            n = int(words[0])
            polygon = [int(word) for word in words[1 : n + 1]]
            if n < 0 or len(polygon) < n:
                raise ValueError
            if n >= 3:  # fewer are points and lines
                sizes.append(n)
                corners += polygon
                numbers.append(number)
        except ValueError:
            kind = "three numbers" if row < count else "a number of corners, and as many vertices"
            raise MeshError(
                f"{path}: line {number}: expected {kind}, got {short(b' '.join(words).decode('latin-1'))}."
            ) from None
    return Polygons(as_points(vertices), indices(sizes), indices(corners), "line", indices(numbers))


def _off_lines(content: bytes) -> Iterator[tuple[int, list[bytes]]]:
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split(b"#", 1)[0].split()
        if words:
            yield number, words
