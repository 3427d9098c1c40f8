"""Meshes: text and bytes of each format mutated, and the JSON of a glTF scene."""

from __future__ import annotations

import json
import random
import shutil
import struct
import tempfile
from pathlib import Path

import numpy as np

from metal_ops.sdf import files
from metal_ops.sdf.mesh import MeshError

from . import engine

# A prism over an L, whose top and bottom are not convex.
_L = ((2, 1), (1, 1), (1, 2), (0, 2), (0, 0), (2, 0))
_PLACES = [(x, y, z) for z in (0, 1) for x, y in _L]
_FACES = [
    [6, 7, 8, 9, 10, 11],
    [5, 4, 3, 2, 1, 0],
    *([k, (k + 1) % 6, 6 + (k + 1) % 6, 6 + k] for k in range(6)),
]
_ROWS = [f"{x} {y} {z}" for x, y, z in _PLACES]


def _obj() -> bytes:
    faces = [f"f {' '.join(str(k + 1) for k in face)}" for face in _FACES]
    return "\n".join(
        ["# L", *(f"v {row}" for row in _ROWS), *faces, "f -1 -2 \\", " -3/1/1 # end"]
    ).encode()


def _off() -> bytes:
    return "\n".join(
        ["OFF", "12 8 0", *_ROWS, *(f"{len(f)} {' '.join(map(str, f))}" for f in _FACES)]
    ).encode()


def _ply(order: str) -> bytes:
    form = {"": "ascii", "<": "binary_little_endian", ">": "binary_big_endian"}[order]
    head = f"ply\nformat {form} 1.0\nelement vertex 12\nproperty float x\nproperty float y\nproperty float z\n"
    head += "element face 8\nproperty list uchar int64 vertex_indices\nend_header\n"
    if not order:
        return (head + _off().decode().split("\n", 2)[2]).encode()
    body = np.array(_PLACES, order + "f4").tobytes()
    return (
        head.encode()
        + body
        + b"".join(struct.pack(f"{order}B{len(f)}q", len(f), *f) for f in _FACES)
    )


def _stl(text: bool) -> bytes:
    triangles = [
        [_PLACES[f[0]], _PLACES[f[k]], _PLACES[f[k + 1]]] for f in _FACES[2:] for k in (1, 2)
    ]
    if text:
        facets = "".join(
            "facet normal 0 0 0\nouter loop\n"
            + "".join(f"vertex {x} {y} {z}\n" for x, y, z in t)
            + "endloop\nendfacet\n"
            for t in triangles
        )
        return f"solid L\n{facets}endsolid L\n".encode()
    packed = b"".join(bytes(12) + np.array(t, "<f4").tobytes() + b"\0\0" for t in triangles)
    return bytes(80) + struct.pack("<I", len(triangles)) + packed


_TREE = {
    "asset": {"version": "2.0"},
    "scene": 0,
    "scenes": [{"nodes": [0]}],
    "nodes": [
        {"children": [1], "translation": [1, 0, 0]},
        {"mesh": 0, "rotation": [0, 0, 0, 1], "scale": [1, 2, 1]},
    ],
    "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1, "mode": 5}]}],
    "accessors": [
        {"bufferView": 0, "byteOffset": 0, "componentType": 5126, "count": 12, "type": "VEC3"},
        {"bufferView": 1, "componentType": 5123, "count": 12, "type": "SCALAR"},
    ],
    "bufferViews": [
        {"buffer": 0, "byteOffset": 0, "byteLength": 144, "byteStride": 12},
        {"buffer": 0, "byteOffset": 144, "byteLength": 24},
    ],
    "buffers": [{"byteLength": 168}],
}
_BINARY = np.array(_PLACES, "<f4").tobytes() + np.arange(12, dtype="<u2").tobytes()


def _glb(text: bytes) -> bytes:
    text += b" " * (-len(text) % 4)
    head = struct.pack("<5I", 0x46546C67, 2, 28 + len(text) + len(_BINARY), len(text), 0x4E4F534A)
    return head + text + struct.pack("<2I", len(_BINARY), 0x004E4942) + _BINARY


class MeshReader:
    """`files.read` gives triangles whose vertices are there, or a MeshError in one sentence."""

    name = "mesh"

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self._good = [
            (".obj", _obj()), (".off", _off()), (".stl", _stl(True)), (".stl", _stl(False)),
            *((".ply", _ply(order)) for order in ("", "<", ">")), (".glb", _glb(json.dumps(_TREE).encode())),
        ]  # fmt: skip
        for content in self._good:
            assert self.feed(content) == "accepted", content

    def make(self, rng: random.Random) -> tuple[str, bytes]:
        suffix, good = rng.choice(self._good)
        if suffix == ".glb" and rng.random() < 0.8:
            return suffix, _glb(
                engine.dump(engine.mutate_tree(_TREE, rng), rng).encode("utf-8", "surrogatepass")
            )
        if suffix in (".obj", ".off") and rng.random() < 0.5:
            words = good.split(b" ")
            for _ in range(rng.choice((1, 1, 2, 5))):
                words[rng.randrange(len(words))] = str(rng.choice(engine.NUMBERS)).encode()
            return suffix, b" ".join(words)
        return suffix, engine.mutate_bytes(good, rng)

    def feed(self, content: tuple[str, bytes]) -> str:
        path = self._root / f"a{content[0]}"
        path.write_bytes(content[1])
        try:
            found = files.read(path)
        except MeshError as error:
            engine.check_sentence(error, str(self._root))
            return "refused"
        if not np.isfinite(found.vertices).all() or found.vertices.shape[1:] != (3,):
            raise engine.Wrong(f"vertices: {found.vertices!r}")
        if (
            found.triangles.shape[1:] != (3,)
            or not ((found.triangles >= 0) & (found.triangles < len(found.vertices))).all()
        ):
            raise engine.Wrong(f"triangles: {found.triangles!r}")
        return "accepted"

    def files(self, content: tuple[str, bytes]) -> engine.Kept:
        return {f"a{content[0]}": content[1]}

    def close(self) -> None:
        shutil.rmtree(self._root)
