"""The PLY format, ASCII or binary of either order of bytes. A header's numbers are held against the file's bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metal_ops.programs.errors import short

from .mesh import MeshError
from .polygons import Polygons, indices

_MOST_HEADER = 1 << 16
_TYPES = {
    **{name: "<i1" for name in ("char", "int8")},
    **{name: "<u1" for name in ("uchar", "uint8")},
    **{name: "<i2" for name in ("short", "int16")},
    **{name: "<u2" for name in ("ushort", "uint16")},
    **{name: "<i4" for name in ("int", "int32")},
    **{name: "<u4" for name in ("uint", "uint32")},
    "int64": "<i8",  # meshio and trimesh write these two
    "uint64": "<u8",
    "float16": "<f2",
    **{name: "<f4" for name in ("float", "float32")},
    **{name: "<f8" for name in ("double", "float64")},
}
_CODES = {
    **{
        "<i1": "b",
        "<u1": "B",
        "<i2": "h",
        "<u2": "H",
        "<i4": "i",
        "<u4": "I",
        "<i8": "q",
        "<u8": "Q",
    },
    **{"<f2": "e", "<f4": "f", "<f8": "d"},
}
_INDICES = ("vertex_indices", "vertex_index")
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


class _Property(NamedTuple):
    name: str
    dtype: str
    length: str | None  # the dtype of a list's length


class _Element(NamedTuple):
    name: str
    rows: int
    properties: list[_Property]


class _Lists(NamedTuple):
    sizes: np.ndarray  # int64 [rows]
    values: np.ndarray  # int64 [sum of sizes]


_Columns = dict[str, "np.ndarray | _Lists"]


def read_ply(path: Path, content: bytes) -> Polygons:
    """The faces of a PLY file; faces of fewer than three corners are left out, strips become triangles."""
    order, elements, at = _header(path, content)
    body = _Binary(path, content, at, order) if order else _Ascii(path, content, at)
    vertices, faces = None, []
    for element in elements:
        columns = body.read(element)
        if element.name == "vertex":
            if any(not isinstance(columns.get(axis), np.ndarray) for axis in "xyz"):
                raise MeshError(f"{path}: element 'vertex' has no numbers x, y and z.")
            vertices = np.stack([np.asarray(columns[axis], np.float64) for axis in "xyz"], 1)
        elif element.name in ("face", "tristrips"):
            found = [columns[name] for name in _INDICES if isinstance(columns.get(name), _Lists)]
            if not found:
                raise MeshError(f"{path}: element {element.name!r} has no list 'vertex_indices'.")
            assert isinstance(found[0], _Lists)
            faces.append(found[0] if element.name == "face" else _of_strips(found[0]))
    if vertices is None or not faces:
        raise MeshError(f"{path}: needs the elements 'vertex' and 'face', one is missing.")
    sizes = np.concatenate([some.sizes for some in faces])
    corners = np.concatenate([some.values for some in faces])
    numbers = np.arange(len(sizes))
    if (sizes < 3).any():
        corners = corners[np.repeat(sizes >= 3, sizes)]
        sizes, numbers = sizes[sizes >= 3], numbers[sizes >= 3]
    return Polygons(vertices, sizes, corners, "face", numbers)


def _of_strips(strips: _Lists) -> _Lists:
    """Triangles of strips; -1 ends one. Every other triangle is turned."""
    ends = np.zeros(len(strips.values) + 1, bool)
    ends[np.cumsum(strips.sizes)] = True
    found = []
    at = np.flatnonzero(strips.values == -1)
    for strip in np.split(strips.values, np.union1d(at, np.flatnonzero(ends[:-1]))):
        strip = strip[strip != -1]
        if len(strip) >= 3:
            triangles = np.stack([strip[:-2], strip[1:-1], strip[2:]], 1)
            triangles[1::2] = triangles[1::2, ::-1]
            found.append(triangles.ravel())
    values = np.concatenate(found) if found else np.zeros(0, np.int64)
    return _Lists(np.full(len(values) // 3, 3), values)


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


class _Binary:
    """Reads element after element of a binary body, whose bytes have the order "<" or ">"."""

    def __init__(self, path: Path, content: bytes, at: int, order: str) -> None:
        self._path, self._content, self._at, self._order = path, content, at, order

    def read(self, element: _Element) -> _Columns:
        lists = [p for p in element.properties if p.length is not None]
        if len(lists) <= 1 and element.rows:  # most files: rows of one size are read at once
            n = self._first_size(element)
            fields = [
                field
                for p in element.properties
                for field in (
                    [(p.name, self._order + p.dtype[1:])]
                    if p.length is None
                    else [
                        ("length " + p.name, self._order + p.length[1:]),
                        (p.name, self._order + p.dtype[1:], (n,)),
                    ]
                )
            ]
            dtype = np.dtype(fields)
            size = element.rows * dtype.itemsize
            if size <= len(self._content) - self._at:
                rows = np.frombuffer(self._content, dtype, element.rows, self._at)
                if all((rows["length " + p.name] == n).all() for p in lists):
                    self._at += size
                    return {
                        p.name: _lists(np.full(element.rows, n), rows[p.name])
                        if p.length
                        else rows[p.name]
                        for p in element.properties
                        if not (p.length and p.dtype[1] == "f")
                    }
            elif not lists:
                raise self._short(element)
        return self._one_by_one(element)

    def _first_size(self, element: _Element) -> int:
        """The length of the first row's list; 0 where there is none, or more than the bytes that are left."""
        at = self._at
        for p in element.properties:
            if p.length:
                code = self._order + _CODES[p.length]
                if at + struct.calcsize(code) > len(self._content):
                    return 0
                n = struct.unpack_from(code, self._content, at)[0]
                return n if 0 <= n * int(p.dtype[2:]) <= len(self._content) - at else 0
            at += int(p.dtype[2:])
        return 0

    def _one_by_one(self, element: _Element) -> _Columns:
        columns: dict[str, list] = {p.name: [] for p in element.properties}
        sizes: dict[str, list[int]] = {p.name: [] for p in element.properties}
        packed = [
            (
                columns[p.name],
                sizes[p.name],
                struct.Struct(self._order + _CODES[p.dtype]),
                p.length and struct.Struct(self._order + _CODES[p.length]),
            )
            for p in element.properties
        ]
        try:
            for _ in range(element.rows):
                for column, size, one, length in packed:
                    if not length:
                        column.append(one.unpack_from(self._content, self._at)[0])
                        self._at += one.size
                        continue
                    n = length.unpack_from(self._content, self._at)[0]
                    self._at += length.size
                    if not 0 <= n * one.size <= len(self._content) - self._at:
                        raise struct.error
                    several = f"{self._order}{n}{one.format[1:]}"
                    column += struct.unpack_from(several, self._content, self._at)
                    size.append(n)
                    self._at += n * one.size
        except struct.error:
            raise self._short(element) from None
        return _as_columns(element, columns, sizes)

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
        sizes: dict[str, list[int]] = {p.name: [] for p in element.properties}
        try:
            for _ in range(element.rows):
                for p in element.properties:
                    kind = float if p.dtype[1] == "f" else int
                    column = columns[p.name]
                    if p.length is None:
                        column.append(kind(next(self._words)))
                        continue
                    n, before = int(next(self._words)), len(column)
                    if n < 0:
                        raise ValueError
                    column += (kind(word) for word in islice(self._words, n))
                    if len(column) - before < n:
                        raise StopIteration
                    sizes[p.name].append(n)
        except StopIteration:
            raise MeshError(
                f"{self._path}: ends before its {element.rows} of {short(element.name)}; it is damaged."
            ) from None
        except ValueError:
            raise MeshError(
                f"{self._path}: something in its {short(element.name)} is no number; it is damaged."
            ) from None
        return _as_columns(element, columns, sizes)


def _lists(sizes: np.ndarray, values: np.ndarray) -> _Lists:
    values = values.ravel()
    return _Lists(
        sizes,
        (
            np.minimum(values, 1 << 62)
            if values.dtype.kind == "u" and values.dtype.itemsize == 8
            else values
        ).astype(np.int64),
    )


def _as_columns(
    element: _Element, columns: dict[str, list], sizes: dict[str, list[int]]
) -> _Columns:
    """Numbers as arrays, and lists of integers, as floats name no vertices."""
    return {
        p.name: _Lists(indices(sizes[p.name]), indices(columns[p.name]))
        if p.length
        else np.array(columns[p.name], np.float64)
        for p in element.properties
        if p.length is None or p.dtype[1] != "f"
    }
