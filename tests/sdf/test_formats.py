"""STL, glTF, OFF and the variants that writers of OBJ and PLY make; trimesh writes and reads as the oracle where it
knows a format."""

from __future__ import annotations

import base64
import io
import json
import struct
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import trimesh

from metal_ops.sdf import files, mesh
from metal_ops.sdf.mesh import MeshError

BOX = trimesh.creation.box((1, 2, 3))
CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float64)
QUADS = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
CORNERS = "".join(f"v {x} {y} {z}\n" for x, y, z in CUBE)


def read(tmp_path: Path, name: str, content: bytes | str) -> mesh.Mesh:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return files.read(path)


def solid(tmp_path: Path, name: str, content: bytes | str) -> mesh.Mesh:
    return mesh.closed(read(tmp_path, name, content), name)


def area(some: mesh.Mesh) -> float:
    return float(np.linalg.norm(some.crosses(), axis=1).sum() / 2)


# ---- STL, OFF: corners of each triangle of its own ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stl", "stl_ascii", "off", "glb", "ply", "obj"])
def test_written_by_trimesh(kind, tmp_path):
    """Vertices that a format splits are welded, so that there is an inside."""
    box = BOX.copy()
    box.unmerge_vertices()
    content = box.export(file_type=kind)
    found = solid(tmp_path, f"a.{kind.removesuffix('_ascii')}", content)
    assert len(found.vertices) == 8
    assert (found.volume(), area(found)) == pytest.approx((6, 22), abs=1e-12)


def facets(solids: list[str], corners: str = "vertex {} {} {}\n") -> str:
    text = ""
    for k, name in enumerate(solids):
        text += f"solid {name}\n"
        for triangle in BOX.triangles + [4.0 * k, 0, 0]:
            loop = "".join(corners.format(*corner) for corner in triangle)
            text += f"facet normal 0 0 0\nouter loop\n{loop}endloop\nendfacet\n"
        text += f"endsolid {name}\n"
    return text


@pytest.mark.parametrize(
    "names, change, volume",
    [
        (["vertex_of_a_solid"], lambda t: t, 6),
        (["a", "b"], lambda t: t, 12),
        (["", "", ""], lambda t: t, 18),
        ([""], lambda t: t.upper(), 6),
        (["a"], lambda t: t.replace("\n", "\r\n"), 6),
        (["a"], lambda t: "  " + t.replace("vertex", "\tvertex  "), 6),
    ],
    ids=["words in the name", "two solids", "solids without names", "upper case", "CRLF", "spaces"],
)
def test_stl_of_other_programs(names, change, volume, tmp_path):
    assert solid(tmp_path, "a.stl", change(facets(names))).volume() == pytest.approx(volume)


def test_binary_stl_that_begins_with_solid(tmp_path):
    content = bytearray(BOX.export(file_type="stl"))
    content[:5] = b"solid"
    assert solid(tmp_path, "a.stl", bytes(content)).volume() == pytest.approx(6)


OFF_BODY = "".join(f"{x} {y} {z}{{}}\n" for x, y, z in CUBE) + "".join(
    f"4 {' '.join(map(str, q))}\n" for q in QUADS
)


@pytest.mark.parametrize(
    "header, more",
    [
        ("OFF\n8 6 12\n", ""),
        ("OFF8 6 0\n", ""),  # ModelNet
        ("OFF 8 6\n", ""),
        ("COFF # colours\n# none\n\n8 6 0\n", " 255 0 0 255"),
        ("NOFF\n8 6 0\n", " 0 0 1"),
        ("STCNOFF\n8 6 0\n", " 0 0 1 255 0 0 255 0.5 0.5"),
        ("8 6 0\n", ""),  # Geomview: the word may be left out
    ],
)
def test_off_of_other_programs(header, more, tmp_path):
    found = solid(tmp_path, "a.off", header + OFF_BODY.replace("{}", more))
    assert (found.volume(), area(found)) == pytest.approx((1, 6))


# ---- OBJ, PLY -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faces",
    [
        "".join(f"f {' '.join(str(k + 1) for k in q)} # a face\n" for q in QUADS),
        "".join(f"f {q[0] + 1} {q[1] + 1} \\\n {q[2] + 1} \\\r\n{q[3] + 1}\n" for q in QUADS),
        "".join(f"f {' '.join(f'{k - 8}/1/-1' for k in q)}\n" for q in QUADS) + "v 9 9 9\n",
        "".join(f"f {' '.join(f'{k + 1}//1' for k in q)}\n" for q in QUADS),
        "".join(f"f {' '.join(f'{k + 1}/1' for k in q)}#x_1\r\n" for q in QUADS),
    ],
    ids=["comments", "joined lines", "from the end so far", "normals", "textures"],
)
def test_obj_lines(faces, tmp_path):
    text = "\ufeff" + CORNERS + "vt 0 0\nvn 0 0 1\n" + faces
    assert solid(tmp_path, "a.obj", text).volume() == pytest.approx(1)


def test_a_joined_line_is_named_by_its_first(tmp_path):
    with pytest.raises(MeshError, match="line 10: expected at least three vertices"):
        read(
            tmp_path,
            "a.obj",
            CORNERS + "# \\\nstill a comment\nf 1 \\\n2\n".replace("# \\\nstill", "#"),
        )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["q", "Q", "i", "H", "b"])
def test_ply_types_of_indices(order, kind, tmp_path):
    name = {"q": "int64", "Q": "uint64", "i": "int", "H": "ushort", "b": "char"}[kind]
    form = "binary_little_endian" if order == "<" else "binary_big_endian"
    header = f"ply\nformat {form} 1.0\nelement vertex 8\n" + "".join(
        f"property float {a}\n" for a in "xyz"
    )
    header += f"element face 6\nproperty list int64 {name} vertex_indices\nproperty float16 w\nend_header\n"
    body = CUBE.astype(order + "f4").tobytes()
    body += b"".join(struct.pack(f"{order}q4{kind}e", 4, *q, 0.5) for q in QUADS)
    assert solid(tmp_path, "a.ply", header.encode() + body).volume() == pytest.approx(1)


def test_ply_strips(tmp_path):
    """As scanners' files have them: -1 ends a strip, every other triangle is turned."""
    text = "ply\nformat ascii 1.0\nelement vertex 8\nproperty float x\nproperty float y\nproperty float z\n"
    text += "element tristrips 1\nproperty list int int vertex_indices\nend_header\n"
    text += "".join(f"{x} {y} {z}\n" for x, y, z in CUBE)
    strips = [[q[0], q[1], q[3], q[2]] for q in QUADS]
    values = [k for strip in strips for k in (*strip, -1)]
    found = solid(tmp_path, "a.ply", text + f"{len(values)} {' '.join(map(str, values))}\n")
    assert (found.volume(), area(found)) == pytest.approx((1, 6))


# ---- glTF -----------------------------------------------------------------------------------------------------------


def scene() -> trimesh.Scene:
    """Three nodes of two meshes, one under another and one mirrored."""
    ball = trimesh.creation.icosphere(subdivisions=1)
    found = trimesh.Scene()
    turn = trimesh.transformations.rotation_matrix(0.7, [1, 2, 3], [5, 0, 0])
    found.add_geometry(BOX, node_name="a", transform=turn)
    found.add_geometry(ball, node_name="b", parent_node_name="a", transform=np.diag([2, 1, 1, 1.0]))
    mirror = np.diag([-1.0, 1, 1, 1])
    mirror[:3, 3] = 30
    found.add_geometry(ball, node_name="c", transform=mirror)
    return found


def parts(content: bytes) -> tuple[dict, bytes]:
    length = struct.unpack_from("<I", content, 12)[0]
    return json.loads(content[20 : 20 + length]), content[28 + length :]


def glb(tree: dict, binary: bytes) -> bytes:
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<5I", 0x46546C67, 2, 28 + len(text) + len(binary), len(text), 0x4E4F534A)
    return head + text + struct.pack("<2I", len(binary), 0x004E4942) + binary


def test_nodes_of_a_scene(tmp_path):
    content = scene().export(file_type="glb")
    found = read(tmp_path, "a.glb", content)
    right = trimesh.load_scene(io.BytesIO(content), file_type="glb").to_mesh()
    assert area(found) == pytest.approx(right.area, rel=1e-6)
    assert mesh.closed(found, "x").volume() == pytest.approx(right.volume, rel=1e-6)
    np.testing.assert_allclose(
        [found.vertices.min(0), found.vertices.max(0)], right.bounds, atol=1e-5
    )


def test_gltf_beside_its_buffers(tmp_path):
    right = read(tmp_path, "a.glb", scene().export(file_type="glb")).volume()
    tree, binary = parts(scene().export(file_type="glb"))
    tree["buffers"][0]["uri"] = "a%20mesh.bin"
    (tmp_path / "a mesh.bin").write_bytes(binary)
    assert read(tmp_path, "a.gltf", json.dumps(tree)).volume() == pytest.approx(right)
    tree["buffers"][0]["uri"] = (
        "data:application/octet-stream;base64," + base64.b64encode(binary).decode()
    )
    assert read(tmp_path, "b.gltf", json.dumps(tree)).volume() == pytest.approx(right)
    for uri in ("../a.bin", "/etc/passwd", "http://example.org/a.bin", "%2e%2e/a.bin"):
        tree["buffers"][0]["uri"] = uri
        with pytest.raises(MeshError, match="expected a file beside it"):
            read(tmp_path, "c.gltf", json.dumps(tree))


def strip() -> tuple[dict, bytes]:
    """A box of six strips, interleaved places, a node with a camera, without a scene."""
    rows = np.zeros((8, 6), "<f4")
    rows[:, :3] = CUBE
    strips = np.array([[q[0], q[1], q[3], q[2]] for q in QUADS], "<u2")
    tree = {
        "asset": {"version": "2.0"},
        "cameras": [{"type": "perspective", "perspective": {"yfov": 1, "znear": 0.1}}],
        "nodes": [{"children": [1], "translation": [5, 0, 0], "camera": 0}, {"mesh": 0, "scale": [2, 1, 1]}],
        "meshes": [
            {"primitives": [{"attributes": {"POSITION": 0}, "indices": k + 1, "mode": 5} for k in range(6)]
             + [{"attributes": {"POSITION": 0}, "mode": 0}]}
        ],
        "accessors": [{"bufferView": 0, "componentType": 5126, "count": 8, "type": "VEC3"}]
        + [
            {"bufferView": 1, "byteOffset": 8 * k, "componentType": 5123, "count": 4, "type": "SCALAR"}
            for k in range(6)
        ],
        "bufferViews": [
            {"buffer": 0, "byteLength": 192, "byteStride": 24},
            {"buffer": 0, "byteOffset": 192, "byteLength": 48},
        ],
        "buffers": [{"byteLength": 240}],
    }  # fmt: skip
    return tree, rows.tobytes() + strips.tobytes()


def test_strips_of_a_scene(tmp_path):
    found = solid(tmp_path, "a.glb", glb(*strip()))
    assert (found.volume(), area(found)) == pytest.approx((2, 10))
    assert found.vertices.min(0).tolist() == [5, 0, 0]


def edited(change) -> bytes:
    tree, binary = strip()
    change(tree)
    return glb(tree, binary)


REFUSED = {
    "sparse": (lambda t: t["accessors"][0].update(sparse={}), "accessor 0: field 'sparse'"),
    "normalized": (lambda t: t["accessors"][0].update(normalized=True), "field 'normalized'"),
    "draco": (
        lambda t: t.update(extensionsRequired=["KHR_draco_mesh_compression"]),
        "extension 'KHR_draco_mesh_compression'",
    ),
    "no view": (lambda t: t["accessors"][0].pop("bufferView"), "field 'bufferView' is missing"),
    "skin": (lambda t: t["nodes"][1].update(skin=0), "node 1: field 'skin'"),
    "weights": (lambda t: t["meshes"][0].update(weights=[0, 0.5]), "node 1: field 'weights' is [0, 0.5]"),
    "instances": (
        lambda t: t["nodes"][1].update(extensions={"EXT_mesh_gpu_instancing": {}}),
        "node 1: extension 'EXT_mesh_gpu_instancing'",
    ),
    "fan": (lambda t: t["meshes"][0]["primitives"][0].update(mode=6), "field 'mode' is 6"),
    "version": (lambda t: t["asset"].update(version="1.0"), "field 'version' of 'asset' is '1.0'"),
    "count": (lambda t: t["accessors"][0].update(count=1 << 40), "meshes have 6597069766680 places and indices"),
    "beyond": (lambda t: t["accessors"][0].update(count=9), "not a readable .glb file"),
    "minus": (lambda t: t["accessors"][1].update(count=-4), "accessor 1 has the count -4"),
    "no accessor": (lambda t: t["meshes"][0]["primitives"][0].update(indices=77), "entry 77 of 7"),
    "floats": (lambda t: t["accessors"][1].update(componentType=5126), "accessor 1 has type"),
    "view": (lambda t: t["bufferViews"][0].update(byteLength=1 << 40), "bufferView 0 is outside"),
    "buffer": (lambda t: t["buffers"][0].update(byteLength=241), "buffer 0 declares 241 bytes, and has 240"),
    "circle": (lambda t: t["nodes"][1].update(children=[0]), "is above itself"),
    "two parents": (lambda t: t["nodes"][0].update(children=[1, 1]), "child 1, which is missing or has"),
    "text": (lambda t: t.update(nodes="abc"), "its JSON is no glTF"),
    "nothing": (lambda t: t.pop("meshes"), "its JSON is no glTF"),
    "nan": (lambda t: t["nodes"][1].update(scale=[1e308, 1e308, "a"]), "not a readable .glb file"),
    "far": (lambda t: t["nodes"][1].update(scale=[1e200, 1e200, 1]), "not finite, or too far away"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_fields_that_are_not_read(name, tmp_path):
    change, words = REFUSED[name]
    with pytest.raises(MeshError) as refused:
        read(tmp_path, "a.glb", edited(change))
    assert words in str(refused.value) and str(refused.value).startswith(str(tmp_path / "a.glb"))


# ---- damaged files --------------------------------------------------------------------------------------------------

STL = BOX.export(file_type="stl")
GLB = glb(*strip())
HOSTILE = {
    "empty.stl": (b"", "expected 'solid', or a header"),
    "short.stl": (STL[:-1], "declares 12 triangles, which are 684 bytes, and has 683"),
    "many.stl": (STL[:80] + b"\xff" * 4 + STL[84:], "declares 4294967295 triangles"),
    "cut.stl": (facets(["a"])[:-20], "ends before its 'endsolid'"),
    "quads.stl": (facets(["a"]).replace("endloop", "vertex 1 2 3\nendloop"), "48 vertices in 12 facets"),
    "words.stl": (facets(["a"], "vertex {} {} x\n"), "not a readable .stl file"),
    "two.stl": (facets(["a"], "vertex {} {}\n"), "has no three numbers"),
    "none.stl": (b"solid a\nendsolid a\n", "has no faces"),
    "infinite.stl": (STL[:96] + struct.pack("<f", np.inf) + STL[100:], "a vertex that is not finite"),
    "empty.off": (b"", "expected 'OFF' and the numbers of vertices and faces"),
    "many.off": (b"OFF\n99999999999 1 0\n", "line 2: expected 'OFF' and the numbers"),
    "minus.off": (b"OFF\n-1 1 0\n", "line 2: expected 'OFF' and the numbers"),
    "short.off": (b"OFF\n1 1 0\n0 0 0\n", "ends before its 1 faces"),
    "words.off": (b"OFF\n1 0 0\n0 0 x\n", "line 3: expected three numbers"),
    "beyond.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 3\n", "line 6 names vertex 3, and there are 3"),
    "before.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 -1\n", "line 6 names vertex -1"),
    "count.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n4 0 1 2\n", "line 6: expected a number of corners"),
    "four.off": (b"4OFF\n1 0 0\n0 0 0 1\n", "vertices of another dimension than 3"),
    "binary.off": (b"OFF BINARY\n\0\0\0\1", "is a binary OFF"),
    "empty.glb": (b"", "not a readable .glb file"),
    "short.glb": (GLB[:-4], "declares"),
    "chunk.glb": (GLB[:8] + struct.pack("<I", len(GLB)) + struct.pack("<I", 1 << 31) + GLB[16:], "declares"),
    "one.glb": (GLB[:4] + struct.pack("<I", 1) + GLB[8:], "has version 1 of glTF"),
    "json.glb": (GLB[:20] + b"]" + GLB[21:], "not valid JSON at line 1"),
    "empty.gltf": (b"{}", "field 'version' of 'asset' is 'None'"),
    "list.gltf": (b"[]", "its JSON is no glTF"),
    "gone.gltf": (
        b'{"asset": {"version": "2.0"}, "buffers": [{"uri": "b.bin", "byteLength": 4}]}',
        "no such buffer of a mesh",
    ),
    "surface.obj": (CORNERS + "surf 0 1 0 1 1\n", "line 9: 'surf' is a free-form surface"),
    "other.obj": ("call part.obj\n", "line 1: 'call' is another file's content"),
    "digits.obj": ("v 1_0 0 0\n", "line 1: expected three numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, tmp_path):
    content, words = HOSTILE[name]
    with pytest.raises(MeshError) as refused:
        read(tmp_path, name, content)
    said = str(refused.value)
    assert words in said and said.startswith(str(tmp_path)) and len(said) < 400


@pytest.mark.parametrize("name", ["a.stl", "t.stl", "a.glb", "a.off"])
def test_damaged_files_are_refused_or_read(name, tmp_path):
    """Bytes turned over: a sentence or triangles, nothing else."""
    whole = {"a.stl": STL, "t.stl": facets(["a"]).encode(), "a.glb": GLB}.get(name)
    whole = whole or ("OFF\n8 6 12\n" + OFF_BODY.replace("{}", "")).encode()
    random, ends = np.random.default_rng(7), set()
    for _ in range(120):
        data = bytearray(
            whole[: random.integers(1, len(whole) + 1)] if random.random() < 0.2 else whole
        )
        for _ in range(random.integers(1, 4)):
            data[random.integers(len(data))] = random.integers(256)
        try:
            found = read(tmp_path, name, bytes(data))
            assert found.triangles.max() < len(found.vertices) and np.isfinite(found.vertices).all()
            ends.add("read")
        except MeshError as error:
            assert str(error).startswith(str(tmp_path / name))
            ends.add("refused")
    assert ends == {"read", "refused"}


@pytest.mark.parametrize("module, name", [("trimesh", "a.stl"), ("mapbox_earcut", "a.obj")])
def test_a_library_that_is_missing_is_named(module, name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    content = STL if name == "a.stl" else "v 0 0 0\nv 2 -1 0\nv .5 0 0\nv 2 1 0\nf 2 3 4 1\n"
    with pytest.raises(MeshError, match=f"`pip install {module}=="):
        read(tmp_path, name, content)
    # Without it, meshes that do not need it are read.
    assert read(tmp_path, "b.obj", CORNERS + "f 1 2 4 3\n").triangles.tolist() == [
        [0, 1, 3],
        [0, 3, 2],
    ]


def test_the_pinned_releases_are_one():
    """In setup.py's extra, requirements-programs.txt and the sentences about missing packages."""
    root = Path(__file__).resolve().parents[2]
    pins = [f"trimesh=={trimesh.__version__}", f"mapbox_earcut=={version('mapbox_earcut')}"]
    for name in ("setup.py", "requirements-programs.txt"):
        text = (root / name).read_text()
        assert all(pin in text for pin in pins), name
