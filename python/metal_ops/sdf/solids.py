"""Meshes that trimesh reads: STL, and the scenes of glTF, whose fields that trimesh leaves out are refused by name."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import re
import struct
import urllib.parse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs.errors import printable, short
from metal_ops.programs.reading import open_file, parse_json

from .mesh import MeshError
from .polygons import Polygons

MOST_BYTES = 1 << 29
_MOST_NODES = 1 << 16
_MOST_DEPTH = 1000
_MOST_JSON = 1 << 25
_MOST_ITEMS = 1 << 26
_UNSIGNED = (5121, 5123, 5125)


@contextmanager
def _trimesh(path: Path) -> Iterator[Any]:
    """The module; its errors become sentences."""
    try:
        import trimesh
    except ImportError:
        raise MeshError(
            f"{path}: 'trimesh' reads such files, and is missing; `pip install trimesh==5.2.0`."
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter(
                "error", DeprecationWarning
            )  # NumPy's, for text that is no number
            yield trimesh
    except Exception as why:  # its parsers raise all kinds of errors
        words = printable(str(why)).strip().rstrip(".")[:200] or type(why).__name__
        kind = path.suffix.lower()
        raise MeshError(f"{path}: not a readable {kind} file: {words}; it is damaged.") from None


def _as_polygons(vertices: list[np.ndarray], faces: list[np.ndarray]) -> Polygons:
    ends = np.cumsum([0, *(len(some) for some in vertices)])
    corners = [some + end for some, end in zip(faces, ends, strict=False)]
    every = np.concatenate([np.zeros((0, 3), np.int64), *corners])
    return Polygons(
        np.concatenate([np.zeros((0, 3)), *vertices]),
        np.full(len(every), 3),
        every.ravel(),
        "triangle",
        np.arange(len(every)),
    )


# ---- STL ------------------------------------------------------------------------------------------------------------


def read_stl(path: Path, content: bytes) -> Polygons:
    """The triangles of an STL file, ASCII or binary. Each has corners of its own."""
    binary = 84 + 50 * struct.unpack_from("<I", content, 80)[0] if len(content) >= 84 else -1
    if binary != len(content):
        if not content.lstrip()[:5].lower() == b"solid":
            if binary < 0:
                raise MeshError(
                    f"{path}: not a readable STL file: expected 'solid', or a header of 84 bytes."
                )
            raise MeshError(
                f"{path}: declares {(binary - 84) // 50} triangles, which are {binary} bytes, and has "
                f"{len(content)}; it is damaged."
            )
        content = _plain_text(path, content)
    with _trimesh(path) as trimesh:
        # Not `trimesh.load`: it joins vertices that are near.
        loaded = trimesh.exchange.stl.load_stl(io.BytesIO(content))
    solids = list(loaded.get("geometry", {"": loaded}).values())
    found = _as_polygons(
        [np.asarray(solid["vertices"], np.float64) for solid in solids],
        [np.asarray(solid["faces"], np.int64) for solid in solids],
    )
    if binary != len(content) and len(found.vertices) != content.count(b"vertex"):
        raise MeshError(f"{path}: a vertex has no three numbers; it is damaged.")
    return found


def _plain_text(path: Path, content: bytes) -> bytes:
    """An ASCII STL with numbers for names, in which trimesh looks for its words, and without normals."""
    text = content.lower().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    text = re.sub(rb"(?m)^[ \t]*facet\b.*$", b"facet", text).replace(b"normal", b"")
    count = itertools.count()
    text = re.sub(
        rb"(?m)^[ \t]*(end)?solid\b.*$",
        lambda line: b"%ssolid %d" % (line[1] or b"", next(count)),
        text,
    )
    starts, ends, corners, facets = (
        len(re.findall(rb"(?m)^[ \t]*" + word, text))
        for word in (rb"solid", rb"endsolid", rb"vertex\b", rb"endfacet\b")
    )
    if starts != ends:
        raise MeshError(f"{path}: ends before its 'endsolid'; it is damaged.")
    if corners != 3 * facets or corners != text.count(b"vertex"):
        raise MeshError(
            f"{path}: has {corners} vertices in {facets} facets, expected three in each; save it with triangles."
        )
    return text


# ---- glTF -----------------------------------------------------------------------------------------------------------

# Geometry that trimesh takes as it would be without them.
_REFUSED_EXTENSIONS = {
    "KHR_draco_mesh_compression": "compressed triangles",
    "EXT_meshopt_compression": "compressed buffers",
    "KHR_meshopt_compression": "compressed buffers",
    "EXT_mesh_gpu_instancing": "instances of a mesh",
}
_REMEDY = "save it without, as plain triangles"


def read_gltf(path: Path, content: bytes) -> Polygons:
    """The triangles of a glTF scene, .glb or .gltf, where its nodes put them."""
    kind = path.suffix.lower()[1:]
    text, rest = (content, b"") if kind == "gltf" else _chunks(path, content)
    if len(text) > _MOST_JSON:
        raise MeshError(
            f"{path}: its JSON is larger than {_MOST_JSON >> 20} MiB; give a coarser mesh."
        )
    try:
        tree = parse_json(text.decode("utf-8-sig"), str(path), MeshError)
    except UnicodeDecodeError as why:
        raise MeshError(
            f"{path}: byte {why.start} of its JSON is not UTF-8; it is damaged."
        ) from None
    try:
        _check(path, tree)
        buffers = [
            _buffer(path, k, buffer, rest) for k, buffer in enumerate(tree.get("buffers", []))
        ]
        plain = _glb(_geometry_alone(tree, buffers), b"".join(buffers))
        with _trimesh(path) as trimesh:
            scene = trimesh.load_scene(io.BytesIO(plain), file_type="glb", process=False)
        return _placed(path, scene)
    except (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError) as why:
        raise MeshError(
            f"{path}: its JSON is no glTF: {type(why).__name__}: {printable(str(why))[:200]}; it is damaged."
        ) from None


def _chunks(path: Path, content: bytes) -> tuple[bytes, bytes]:
    """The JSON and the binary chunk."""
    if len(content) < 20 or content[:4] != b"glTF":
        raise MeshError(f"{path}: not a readable .glb file: expected 'glTF' and a chunk of JSON.")
    version, whole, size, kind = struct.unpack_from("<4I", content, 4)
    if version != 2 or kind != 0x4E4F534A:
        raise MeshError(
            f"{path}: has version {version} of glTF, expected 2 with JSON first; save it as glTF 2.0."
        )
    if whole > len(content) or 20 + size > whole:
        raise MeshError(f"{path}: declares {whole} bytes, and has {len(content)}; it is damaged.")
    at, binary = 20 + size, b""
    while at + 8 <= whole:
        length, kind = struct.unpack_from("<2I", content, at)
        if at + 8 + length > whole:
            raise MeshError(
                f"{path}: a chunk declares {length} bytes, and {whole - at - 8} are left; it is damaged."
            )
        if kind == 0x004E4942 and not binary:
            binary = content[at + 8 : at + 8 + length]
        at += 8 + length
    return content[20 : 20 + size], binary


def _refuse(path: Path, where: str, what: str, remedy: str = _REMEDY) -> None:
    raise MeshError(f"{path}: {where}: {what} not read; {remedy}.")


def _check(path: Path, tree: Any) -> None:
    """Refuses fields that change where the surface is, and that trimesh does not look at."""
    for name in ("nodes", "meshes", "accessors", "bufferViews", "buffers", "scenes"):
        if not isinstance(tree.get(name, []), list):
            raise ValueError(f"field {name!r} is {short(tree[name])}, expected a list")
    version = str(tree.get("asset", {}).get("version"))
    if not version.startswith("2."):
        raise MeshError(
            f"{path}: field 'version' of 'asset' is {short(version)}, expected '2.0'; save it as glTF 2.0."
        )
    for name in tree.get("extensionsRequired", []):
        if name in _REFUSED_EXTENSIONS:
            _refuse(path, f"extension {name!r}", f"{_REFUSED_EXTENSIONS[name]} are")
    nodes, meshes = tree.get("nodes", []), tree.get("meshes", [])
    if len(nodes) > _MOST_NODES:
        raise MeshError(
            f"{path}: has {len(nodes)} nodes, expected at most {_MOST_NODES}; join them."
        )
    for k, node in enumerate(nodes):
        if "mesh" not in node:
            continue
        weights = node.get("weights", _entry(meshes, node["mesh"]).get("weights", []))
        if any(weights):
            _refuse(
                path,
                f"node {k}",
                f"field 'weights' is {short(weights)}, and shape keys are",
                "apply them",
            )
        if "skin" in node:
            _refuse(path, f"node {k}", "field 'skin', bones that move a mesh, is", "apply them")
        if "EXT_mesh_gpu_instancing" in node.get("extensions", {}):
            _refuse(
                path, f"node {k}", "extension 'EXT_mesh_gpu_instancing', instances of a mesh, is"
            )
    total = 0
    for k, mesh in enumerate(meshes):
        for primitive in mesh["primitives"]:
            if primitive.get("mode", 4) == 6:
                _refuse(path, f"mesh {k}", "field 'mode' is 6, and fans of triangles are")
            if _is_surface(primitive):
                total += _check_accessor(path, tree, primitive["attributes"]["POSITION"], "VEC3")
                if "indices" in primitive:
                    total += _check_accessor(path, tree, primitive["indices"], "SCALAR")
    if total > _MOST_ITEMS:
        raise MeshError(
            f"{path}: its meshes have {total} places and indices, expected at most {_MOST_ITEMS}; join those that "
            "share places, or give a coarser mesh."
        )


def _check_accessor(path: Path, tree: Any, number: int, kind: str) -> int:
    """The count of an accessor that a surface uses."""
    accessor = _entry(tree["accessors"], number)
    if "sparse" in accessor:
        _refuse(path, f"accessor {number}", "field 'sparse' is")
    if accessor.get("normalized"):
        _refuse(path, f"accessor {number}", "field 'normalized' of places is", "save floats")
    if "bufferView" not in accessor:
        _refuse(
            path, f"accessor {number}", "field 'bufferView' is missing, and data of extensions are"
        )
    _entry(tree["bufferViews"], accessor["bufferView"])
    if accessor["type"] != kind or (
        kind == "SCALAR" and accessor["componentType"] not in _UNSIGNED
    ):
        raise ValueError(
            f"accessor {number} has type {short(accessor['type'])} of {short(accessor['componentType'])}"
        )
    if not isinstance(accessor["count"], int) or accessor["count"] < 0:
        raise ValueError(f"accessor {number} has the count {short(accessor['count'])}")
    return accessor["count"]


def _entry(entries: list, number: Any) -> Any:
    if not isinstance(number, int) or not 0 <= number < len(entries):
        raise ValueError(f"entry {short(number)} of {len(entries)}")
    return entries[number]


def _is_surface(primitive: Any) -> bool:
    return primitive.get("mode", 4) in (4, 5) and "POSITION" in primitive["attributes"]


def _buffer(path: Path, number: int, buffer: Any, binary: bytes) -> bytes:
    """Padded to 4 bytes."""
    uri = buffer.get("uri")
    if uri is None:
        data = binary if number == 0 else b""
    elif uri.startswith("data:"):
        data = base64.b64decode(uri.partition("base64,")[2], validate=True)
    else:
        name = urllib.parse.unquote(uri)
        target = path.parent / name
        if (
            urllib.parse.urlparse(uri).scheme
            or Path(name).is_absolute()
            or ".." in Path(name).parts
        ):
            raise MeshError(
                f"{path}: buffer {number} lies at {short(uri)}, expected a file beside it; save it as .glb."
            )
        with open_file(target, MeshError, "buffer of a mesh") as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES or len(data) < buffer["byteLength"]:
        raise MeshError(
            f"{path}: buffer {number} declares {short(buffer['byteLength'])} bytes, and has {len(data)} (of at most "
            f"{MOST_BYTES}); it is damaged."
        )
    return data + bytes(-len(data) % 4)


def _geometry_alone(tree: Any, buffers: list[bytes]) -> dict:
    """The scene's nodes, surfaces and their data in one buffer; trimesh leaves out meshes of nodes with a camera."""
    starts = np.cumsum([0, *(len(buffer) for buffer in buffers)]).tolist()
    used: set[int] = set()
    meshes = []
    for mesh in tree.get("meshes", []):
        primitives = []
        for some in filter(_is_surface, mesh["primitives"]):
            kept = {
                "attributes": {"POSITION": some["attributes"]["POSITION"]},
                "mode": some.get("mode", 4),
            }
            used.add(some["attributes"]["POSITION"])
            if "indices" in some:
                kept["indices"] = some["indices"]
                used.add(some["indices"])
            primitives.append(kept)
        meshes.append({"primitives": primitives})
    accessors: list[dict] = []
    seen: set[int] = set()
    for k, accessor in enumerate(tree.get("accessors", [])):
        fields = ("bufferView", "byteOffset", "componentType", "count", "type")
        unused = {"componentType": 5121, "count": 1, "type": "SCALAR"}
        accessors.append({f: accessor[f] for f in fields if f in accessor} if k in used else unused)
        seen |= {accessor["bufferView"]} if k in used else set()
    views, total = list[dict](), 0
    for k, view in enumerate(tree.get("bufferViews", [])):
        if k not in seen:
            views.append({"buffer": 0, "byteLength": 0})
            continue
        start, length = view.get("byteOffset", 0), view["byteLength"]
        if not 0 <= start <= start + length <= len(_entry(buffers, view["buffer"])):
            raise ValueError(f"bufferView {k} is outside of its buffer")
        kept = {"buffer": 0, "byteOffset": starts[view["buffer"]] + start, "byteLength": length}
        views.append(kept | ({"byteStride": view["byteStride"]} if "byteStride" in view else {}))
        total += length
    if total > 2 * MOST_BYTES:  # each becomes a copy
        raise ValueError(f"its bufferViews cover {total} bytes")
    moves = ("mesh", "children", "matrix", "translation", "rotation", "scale")
    nodes = [{f: node[f] for f in moves if f in node} for node in tree.get("nodes", [])]
    _check_tree(nodes)
    children = {child for node in nodes for child in node.get("children", [])}
    roots = [k for k in range(len(nodes)) if k not in children]
    scenes = tree.get("scenes") or [{"nodes": roots}]
    return {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": scenes[tree.get("scene", 0)].get("nodes", [])}],
        "nodes": nodes,
        "meshes": meshes,
        "accessors": accessors,
        "bufferViews": views,
        "buffers": [{"byteLength": starts[-1]}],
    }


def _check_tree(nodes: list[dict]) -> None:
    """Each node has one parent at most, and none is above itself. trimesh walks up from each."""
    parent: dict[int, int] = {}
    for k, node in enumerate(nodes):
        for child in node.get("children", []):
            if not isinstance(child, int) or not 0 <= child < len(nodes) or child in parent:
                raise ValueError(
                    f"node {k} has the child {short(child)}, which is missing or has two parents"
                )
            parent[child] = k
    depth: dict[int, int] = {}
    for k in range(len(nodes)):
        walk = [k]
        while walk[-1] in parent and walk[-1] not in depth:
            if len(walk) > _MOST_DEPTH:
                raise ValueError(
                    f"node {k} is above itself, or more than {_MOST_DEPTH} are above it"
                )
            walk.append(parent[walk[-1]])
        for above, number in enumerate(reversed(walk), depth.get(walk[-1], 0)):
            depth[number] = above


def _glb(tree: dict, binary: bytes) -> bytes:
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    whole = 12 + 8 + len(text) + 8 + len(binary)
    head = struct.pack("<5I", 0x46546C67, 2, whole, len(text), 0x4E4F534A)
    return head + text + struct.pack("<2I", len(binary), 0x004E4942) + binary


def _placed(path: Path, scene: Any) -> Polygons:
    vertices, faces, total = [], [], 0
    for name in scene.graph.nodes_geometry:
        matrix, geometry = scene.graph[name]
        some = scene.geometry[geometry]
        total += len(some.faces)
        if total > MOST_BYTES // 64:
            raise MeshError(
                f"{path}: its nodes have more than {MOST_BYTES // 64} triangles; give a coarser mesh."
            )
        if not math.isfinite(float(np.abs(matrix).sum())):
            raise ValueError("a node's transform is not finite")
        if np.shape(some.vertices)[1:] != (3,):
            raise ValueError("a mesh's places have no three numbers")
        vertices.append(np.asarray(some.vertices, np.float64) @ matrix[:3, :3].T + matrix[:3, 3])
        turned = (
            np.linalg.slogdet(matrix[:3, :3])[0] < 0
        )  # a mirrored triangle is wound the other way
        faces.append(np.asarray(some.faces, np.int64)[:, :: -1 if turned else 1])
    return _as_polygons(vertices, faces)
