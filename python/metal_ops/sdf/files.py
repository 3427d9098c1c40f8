"""Meshes in files: OBJ and PLY, ASCII or binary. What a file declares is held against its bytes first."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metal_ops.programs.errors import short
from metal_ops.programs.files import atomic
from metal_ops.programs.reading import check_memory, open_file

from .mesh import Mesh, MeshError

MOST_BYTES = 1 << 29
MOST_TRIANGLES = 1 << 23
_MOST_HEADER = 1 << 16
SUFFIXES = (".obj", ".ply")
_TYPES = {
    **{name: "<i1" for name in ("char", "int8")},
    **{name: "<u1" for name in ("uchar", "uint8")},
    **{name: "<i2" for name in ("short", "int16")},
    **{name: "<u2" for name in ("ushort", "uint16")},
    **{name: "<i4" for name in ("int", "int32")},
    **{name: "<u4" for name in ("uint", "uint32")},
    **{name: "<f4" for name in ("float", "float32")},
    **{name: "<f8" for name in ("double", "float64")},
}
_CODES = dict(
    zip(("<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<f4", "<f8"), "bBhHiIfd", strict=True)
)
_INDICES = ("vertex_indices", "vertex_index")
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


def read(path: Path) -> Mesh:
    """The triangles of an .obj or .ply file; polygons become fans.

    Raises:
      MeshError: With what is wrong, and where.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise MeshError(f"{path}: expected a file called .obj or .ply.")
    with open_file(path, MeshError, "mesh") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise MeshError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; give a coarser mesh.")
    # Python's objects for a number take some times its text.
    check_memory(12 * len(content), str(path), "give a coarser mesh", MeshError)
    vertices, faces = (_obj if path.suffix.lower() == ".obj" else _ply)(path, content)
    if not np.isfinite(vertices).all() or (np.abs(vertices) > 1e150).any():
        raise MeshError(f"{path}: has a vertex that is not finite, or too far away; repair it.")
    if len(faces) > MOST_TRIANGLES:
        raise MeshError(
            f"{path}: has {len(faces)} triangles, expected at most {MOST_TRIANGLES}; give a coarser mesh."
        )
    outside = (faces < 0) | (faces >= len(vertices))
    if outside.any():
        raise MeshError(
            f"{path}: triangle {int(np.argmax(outside.any(1)))} names vertex {int(faces[outside][0])}, and there are "
            f"{len(vertices)}; the file is damaged."
        )
    if not len(faces):
        raise MeshError(f"{path}: has no faces; give a mesh of triangles, not a cloud of points.")
    return Mesh(vertices, faces)


def _fans(polygons: list[list[int]]) -> np.ndarray:
    """int64 [T, 3]."""
    found = [(p[0], p[k], p[k + 1]) for p in polygons for k in range(1, len(p) - 1)]
    return np.array(found, np.int64).reshape(-1, 3)


# ---- OBJ ------------------------------------------------------------------------------------------------------------


def _obj(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    vertices: list[tuple[float, ...]] = []
    polygons: list[list[int]] = []
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split()
        if not words or words[0] not in (b"v", b"f"):
            continue
        try:
            if words[0] == b"v":
                x, y, z = (float(word) for word in words[1:4])
                vertices.append((x, y, z))
            else:
                named = [int(word.split(b"/", 1)[0]) for word in words[1:]]
                # From 1, or backwards from the last vertex so far.
                polygon = [i - 1 if i > 0 else len(vertices) + i for i in named]
                if (
                    len(polygon) < 3
                    or 0 in named
                    or min(polygon) < 0
                    or max(map(abs, named)) > 1 << 40
                ):
                    raise ValueError
                polygons.append(polygon)
        except ValueError:
            kind = "three numbers" if words[0] == b"v" else "at least three vertices, from 1"
            raise MeshError(
                f"{path}: line {number}: expected {kind}, got {short(line.decode('latin-1'))}."
            ) from None
    return np.array(vertices, np.float64).reshape(-1, 3), _fans(polygons)


# ---- PLY ------------------------------------------------------------------------------------------------------------


class _Property(NamedTuple):
    name: str
    dtype: str
    length: str | None  # the dtype of a list's length


class _Element(NamedTuple):
    name: str
    rows: int
    properties: list[_Property]


def _ply(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    order, elements, at = _header(path, content)
    body = _Binary(path, content, at, order) if order else _Ascii(path, content, at)
    vertices, polygons = None, None
    for element in elements:
        columns = body.read(element)
        if element.name == "vertex":
            if any(not isinstance(columns.get(axis), np.ndarray) for axis in "xyz"):
                raise MeshError(f"{path}: element 'vertex' has no numbers x, y and z.")
            vertices = np.stack([np.asarray(columns[axis], np.float64) for axis in "xyz"], 1)
        elif element.name == "face":
            name = next((name for name in _INDICES if isinstance(columns.get(name), list)), None)
            if name is None:
                raise MeshError(f"{path}: element 'face' has no list 'vertex_indices'.")
            polygons = columns[name]
    if vertices is None or polygons is None:
        raise MeshError(f"{path}: needs the elements 'vertex' and 'face', one is missing.")
    return vertices, _fans([polygon for polygon in polygons if len(polygon) >= 3])


def _header(path: Path, content: bytes) -> tuple[str, list[_Element], int]:
    """The order of bytes, "" for text, the elements, and where the body begins."""
    end = content.find(b"end_header", 0, _MOST_HEADER)
    line_end = content.find(b"\n", end, end + 16) + 1
    if not content.startswith(b"ply") or end < 0 or not line_end:
        raise MeshError(f"{path}: not a readable PLY file: expected 'ply' and a header.")
    form, elements = "", list[_Element]()
    for number, line in enumerate(content[:end].decode("latin-1").splitlines(), 1):
        words = line.split()
        try:
            if not words or words[0] in ("ply", "comment", "obj_info"):
                continue
            if words[0] == "format":
                form = words[1]
            elif words[0] == "element":
                count = int(words[2])
                if not 0 <= count <= len(content):
                    raise MeshError(
                        f"{path}: declares {short(count)} of {short(words[1])}, and has {len(content)} bytes; it is "
                        "damaged."
                    )
                elements.append(_Element(words[1], count, []))
            elif words[0] == "property" and words[1] == "list":
                length = _TYPES[words[2]]
                if length[1] == "f":
                    raise ValueError
                elements[-1].properties.append(_Property(words[4], _TYPES[words[3]], length))
            elif words[0] == "property":
                elements[-1].properties.append(_Property(words[2], _TYPES[words[1]], None))
            else:
                raise ValueError
        except (ValueError, KeyError, IndexError):
            raise MeshError(
                f"{path}: header line {number} is not understood: {short(line)}."
            ) from None
    if form not in _ORDERS:
        raise MeshError(
            f"{path}: has format {short(form)}, expected {', '.join(_ORDERS)}; save it so."
        )
    for element in elements:
        names = [p.name for p in element.properties]
        if len(set(names)) < len(names) or not names:
            raise MeshError(
                f"{path}: element {short(element.name)} has no properties, or one twice; it is damaged."
            )
    return _ORDERS[form], elements, line_end


_Columns = dict[str, "np.ndarray | list[list[int]]"]


class _Binary:
    """Reads element after element of a binary body, whose bytes have the order "<" or ">"."""

    def __init__(self, path: Path, content: bytes, at: int, order: str) -> None:
        self._path, self._content, self._at, self._order = path, content, at, order

    def read(self, element: _Element) -> _Columns:
        triangles = [p for p in element.properties if p.length is not None]
        if len(triangles) <= 1:  # most files: what has one size is read at once
            fields = [
                field
                for p in element.properties
                for field in (
                    [(p.name, self._order + p.dtype[1:])]
                    if p.length is None
                    else [
                        ("length " + p.name, self._order + p.length[1:]),
                        (p.name, self._order + p.dtype[1:], (3,)),
                    ]
                )
            ]
            dtype = np.dtype(fields)
            size = element.rows * dtype.itemsize
            if size <= len(self._content) - self._at:
                rows = np.frombuffer(self._content, dtype, element.rows, self._at)
                if all((rows["length " + p.name] == 3).all() for p in triangles):
                    self._at += size
                    return {
                        p.name: rows[p.name] if p.length is None else rows[p.name].tolist()
                        for p in element.properties
                    }
            elif not triangles:
                raise self._short(element)
        return self._one_by_one(element)

    def _one_by_one(self, element: _Element) -> _Columns:
        columns: dict[str, list] = {p.name: [] for p in element.properties}
        packed = [
            (
                columns[p.name],
                struct.Struct(self._order + _CODES[p.dtype]),
                p.length and struct.Struct(self._order + _CODES[p.length]),
            )
            for p in element.properties
        ]
        try:
            for _ in range(element.rows):
                for column, one, length in packed:
                    if not length:
                        column.append(one.unpack_from(self._content, self._at)[0])
                        self._at += one.size
                        continue
                    n = length.unpack_from(self._content, self._at)[0]
                    self._at += length.size
                    if not 0 <= n * one.size <= len(self._content) - self._at:
                        raise struct.error
                    several = f"{self._order}{n}{one.format[1:]}"
                    column.append(list(struct.unpack_from(several, self._content, self._at)))
                    self._at += n * one.size
        except struct.error:
            raise self._short(element) from None
        return _as_columns(element, columns)

    def _short(self, element: _Element) -> MeshError:
        return MeshError(
            f"{self._path}: ends before its {element.rows} of {short(element.name)}; it is damaged."
        )


class _Ascii:
    """Reads element after element of a text body."""

    def __init__(self, path: Path, content: bytes, at: int) -> None:
        self._path = path
        self._words: Iterator[bytes] = iter(content[at:].split())

    def read(self, element: _Element) -> _Columns:
        columns: dict[str, list] = {p.name: [] for p in element.properties}
        try:
            for _ in range(element.rows):
                for p in element.properties:
                    kind = float if p.dtype[1] == "f" else int
                    if p.length is None:
                        columns[p.name].append(kind(next(self._words)))
                        continue
                    n = int(next(self._words))
                    if n < 0:
                        raise ValueError
                    polygon = [kind(word) for _, word in zip(range(n), self._words, strict=False)]
                    if len(polygon) < n:
                        raise StopIteration
                    columns[p.name].append(polygon)
        except StopIteration:
            raise MeshError(
                f"{self._path}: ends before its {element.rows} of {short(element.name)}; it is damaged."
            ) from None
        except ValueError:
            raise MeshError(
                f"{self._path}: something in its {short(element.name)} is no number; it is damaged."
            ) from None
        return _as_columns(element, columns)


def _as_columns(element: _Element, columns: dict[str, list]) -> _Columns:
    """Numbers as arrays, lists as they are: of integers, as floats name no vertices."""
    return {
        p.name: np.array(columns[p.name], np.float64) if p.length is None else columns[p.name]
        for p in element.properties
        if p.length is None or p.dtype[1] != "f"
    }


# ---- writing --------------------------------------------------------------------------------------------------------


def write(path: Path, mesh: Mesh) -> None:
    """Writes .obj, or binary .ply with float32 vertices.

    Raises:
      MeshError: It is called otherwise.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise MeshError(f"{path}: a mesh is written as .obj or .ply.")
    with atomic(path) as temporary, open(temporary, "wb") as file:
        if path.suffix.lower() == ".obj":
            for x, y, z in mesh.vertices.tolist():
                file.write(f"v {x:.8g} {y:.8g} {z:.8g}\n".encode())
            for a, b, c in (mesh.triangles + 1).tolist():
                file.write(f"f {a} {b} {c}\n".encode())
            return
        lines = (
            "ply",
            "format binary_little_endian 1.0",
            f"element vertex {len(mesh.vertices)}",
            *(f"property float {axis}" for axis in "xyz"),
            f"element face {len(mesh.triangles)}",
            "property list uchar int vertex_indices",
            "end_header",
        )
        file.write(("\n".join(lines) + "\n").encode())
        file.write(mesh.vertices.astype("<f4").tobytes())
        faces = np.empty(len(mesh.triangles), [("n", "u1"), ("v", "<i4", (3,))])
        faces["n"], faces["v"] = 3, mesh.triangles
        file.write(faces.tobytes())
