"""Meshes and distances to them, marching tetrahedra, OBJ and PLY."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from metal_ops.sdf import files, mesh, polygonise
from metal_ops.sdf.distance import Distances, closest
from metal_ops.sdf.mesh import Mesh, MeshError

CUBE = Mesh(
    np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float64),
    np.array(
        [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
         [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]
    ),
)  # fmt: skip

# Flat: beside its sharp edges a face's own normal says that outside is inside.
WEDGE = Mesh(
    np.array([[0, 0, 0], [1, 0, 0], [0.5, 1, 0], [0.5, 0.3, 0.15]]),
    np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]),
)


def is_closed(some: Mesh) -> bool:
    edges = mesh.directed_edges(some.triangles).tolist()
    every = {tuple(edge) for edge in edges}
    return len(every) == len(edges) and all((b, a) in every for a, b in every)


def winding(points: np.ndarray, some: Mesh) -> np.ndarray:
    """How often the surface goes around each point (van Oosterom and Strackee 1983)."""
    a, b, c = (some.corners[None, :, k] - points[:, None] for k in range(3))
    la, lb, lc = (np.linalg.norm(x, axis=2) for x in (a, b, c))

    def dot(u, v):
        return np.einsum("ijk,ijk->ij", u, v)

    below = la * lb * lc + dot(a, b) * lc + dot(b, c) * la + dot(c, a) * lb
    return np.arctan2(dot(a, np.cross(b, c)), below).sum(1) / (2 * np.pi)


@pytest.mark.parametrize(
    "some",
    [CUBE, WEDGE, mesh.knot(40, 6), mesh.sphere(5)],
    ids=["cube", "wedge", "knot", "sphere"],
)
def test_distances_are_those_to_every_triangle(some):
    some, _ = mesh.in_cube(mesh.closed(some, "some"), "some")
    random = np.random.default_rng(0)
    near = mesh.on_surface(some, 150, random) + random.normal(scale=0.02, size=(150, 3))
    points = np.concatenate([random.uniform(-0.5, 1.5, (150, 3)), near])
    found = Distances(some)(points)
    right = np.full(len(points), np.inf)
    for triangle in some.corners:
        nearest, _ = closest(points, np.repeat(triangle[None], len(points), 0))
        right = np.minimum(right, np.linalg.norm(points - nearest, axis=1))
    np.testing.assert_allclose(np.abs(found), right, atol=1e-12)
    assert ((found < 0) == (winding(points, some) > 0.5)).all() and (found < 0).sum() > 20


def test_distances_to_a_cube():
    """In all regions of its faces, edges and corners, by the formula."""
    points = np.random.default_rng(1).uniform(-1, 2, (400, 3))
    q = np.abs(points - 0.5) - 0.5
    right = np.linalg.norm(np.maximum(q, 0), axis=1) + np.minimum(q.max(1), 0)
    np.testing.assert_allclose(Distances(mesh.closed(CUBE, "cube"))(points), right, atol=1e-12)


def test_closest_by_search():
    random = np.random.default_rng(2)
    triangle = random.normal(size=(3, 3))
    points = triangle.mean(0) + random.normal(size=(120, 3))
    u, v = random.uniform(size=(2, 20000))
    u, v = np.where(u + v > 1, [1 - u, 1 - v], [u, v])
    many = (
        triangle[0]
        + np.outer(u, triangle[1] - triangle[0])
        + np.outer(v, triangle[2] - triangle[0])
    )
    found, feature = closest(points, np.repeat(triangle[None], 120, 0))
    away = np.linalg.norm(points - found, axis=1)
    right = np.linalg.norm(points[:, None] - many, axis=2).min(1)
    assert (away <= right + 1e-9).all() and (right - away).max() < 0.05
    assert set(feature) == set(range(7))
    for point, kind in zip(found, feature, strict=True):
        if kind >= 4:
            np.testing.assert_allclose(point, triangle[kind - 4])


def test_points_on_the_surface():
    points = mesh.on_surface(CUBE, 6000, np.random.default_rng(3))
    np.testing.assert_allclose(Distances(mesh.closed(CUBE, "cube"))(points), 0, atol=1e-12)
    sides = [(np.abs(points[:, axis] - side) < 1e-12).sum() for axis in range(3) for side in (0, 1)]
    np.testing.assert_allclose(sides, 1000, atol=150)


def test_the_meshes_that_are_made_here():
    for some, volume in (
        (mesh.sphere(24), 4 / 3 * np.pi),
        (mesh.tube(np.stack([3 * np.cos(t := np.arange(90) / 45 * np.pi), 3 * np.sin(t), 0 * t], 1), 1.0, 48),
         2 * np.pi**2 * 3),
    ):  # fmt: skip
        assert is_closed(mesh.closed(some, "some"))
        assert some.volume() == pytest.approx(volume, rel=0.01)
    assert is_closed(mesh.closed(mesh.knot(), "knot"))


def test_inside_out_is_turned():
    turned = mesh.closed(Mesh(CUBE.vertices, CUBE.triangles[:, ::-1]), "cube")
    assert turned.volume() == pytest.approx(1) and is_closed(turned)


def test_into_the_cube_and_back():
    some = Mesh(CUBE.vertices * [4, 2, 1] + 7, CUBE.triangles)
    placed, placement = mesh.in_cube(some, "some")
    np.testing.assert_allclose(placed.vertices.min(0), [0.1, 0.3, 0.4])
    np.testing.assert_allclose(placed.vertices.max(0), [0.9, 0.7, 0.6])
    np.testing.assert_allclose(placement.outside(placed.vertices), some.vertices)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda t: t[1:], r"is open: the edge from \(.*\) to \(.*\) belongs to 1 of its triangles, and 3"),
        (lambda t: np.concatenate([t[:1, ::-1], t[1:]]), "wound against each other"),
        (lambda t: np.concatenate([t, t]), "edges of more than two triangles"),
        (lambda t: t[:, [0, 0, 1]], "has no triangle with an area"),
    ],
    ids=["open", "wound", "twice", "flat"],
)  # fmt: skip
def test_no_solid(change, words):
    with pytest.raises(MeshError, match=words):
        mesh.closed(Mesh(CUBE.vertices, change(CUBE.triangles)), "here")


@pytest.mark.parametrize("n", [2, 3, 9])
def test_noise_becomes_a_closed_surface(n):
    values = np.random.default_rng(n).normal(size=(n,) * 3)
    found = polygonise.surface(values)
    assert is_closed(found)
    assert (len(found.triangles) > 0) == (n > 2)  # of two points an edge, all are border
    if n > 2:
        assert 0 < found.volume() < 1


def test_the_surface_is_where_values_are_zero():
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 25)] * 3, indexing="ij"), -1)
    found = polygonise.surface(np.linalg.norm(grid - 0.5, axis=-1) - 0.35)
    np.testing.assert_allclose(np.linalg.norm(found.vertices - 0.5, axis=1), 0.35, atol=3e-3)
    assert is_closed(found) and found.volume() == pytest.approx(4 / 3 * np.pi * 0.35**3, rel=0.02)
    assert not len(polygonise.surface(np.ones((5, 5, 5))).triangles)


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.obj", "a.ply"])
def test_written_and_read(name, tmp_path):
    some = mesh.knot(30, 5)
    files.write(tmp_path / name, some)
    found = files.read(tmp_path / name)
    np.testing.assert_allclose(found.vertices, some.vertices, atol=1e-6)
    np.testing.assert_array_equal(found.triangles, some.triangles)


def test_obj_of_other_programs(tmp_path):
    """Polygons, textures and normals, indices from the end, things that are not read."""
    path = tmp_path / "a.OBJ"
    path.write_bytes(
        b"# made\nmtllib a.mtl\no thing\nv 0 0 0 1.0\nv 1 0 0\r\nv 1 1 0\nv 0 1 0\nvn 0 0 1\nvt 0 0\n"
        b"f 1/1/1 2//1 3/1 4\nf -4 -3 -2\n"
    )
    found = files.read(path)
    assert found.triangles.tolist() == [[0, 1, 2], [0, 2, 3], [0, 1, 2]]
    assert found.vertices[2].tolist() == [1, 1, 0]


HEADER = b"ply\nformat %s 1.0\ncomment hello\nelement vertex 4\nproperty double x\nproperty float y\nproperty short z\n"
HEADER += b"property uchar red\nelement face 2\nproperty list uchar uint vertex_index\nproperty char flag\nend_header\n"


def test_ply_of_other_programs(tmp_path):
    """Other types, colours, a quadrangle beside a triangle."""
    rows = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, -2)]
    text = "".join(f"{x} {y} {z} 255\n" for x, y, z in rows) + "4 0 1 2 3 1\n3 0 1 2 -1\n"
    (tmp_path / "a.ply").write_bytes(HEADER % b"ascii" + text.encode())
    # The third one's faces are triangles alone, which are read at once.
    triangles = HEADER.replace(b"face 2", b"face 3")
    for order, form in (("<", b"binary_little_endian"), (">", b"binary_big_endian")):
        packed = b"".join(struct.pack(f"{order}dfhB", *row, 255) for row in rows)
        faces = struct.pack(f"{order}B4Ib", 4, 0, 1, 2, 3, 1) + struct.pack(
            f"{order}B3Ib", 3, 0, 1, 2, -1
        )
        (tmp_path / f"{form[7:8].decode()}.ply").write_bytes(HEADER % form + packed + faces)
        faces = b"".join(
            struct.pack(f"{order}B3Ib", 3, *face, 1) for face in ((0, 1, 2), (0, 2, 3), (0, 1, 2))
        )
        (tmp_path / f"{form[7:8].decode()}3.ply").write_bytes(triangles % form + packed + faces)
    for name in ("a.ply", "l.ply", "b.ply", "l3.ply", "b3.ply"):
        found = files.read(tmp_path / name)
        assert found.vertices.tolist() == [list(map(float, row)) for row in rows]
        assert found.triangles.tolist() == [[0, 1, 2], [0, 2, 3], [0, 1, 2]]


V = b"v 0 0 0\nv 1 0 0\nv 0 1 0\n"
PLY = b"ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
FACE = b"element face %d\nproperty list uchar int vertex_indices\nend_header\n"
BIG = PLY.replace(b"ascii", b"binary_little_endian")
HOSTILE = {
    "a.dae": (b"", "expected a file called .obj, .ply, .off, .stl, .glb or .gltf"),
    "empty.obj": (b"", "has no faces"),
    "cloud.obj": (V, "has no faces"),
    "words.obj": (b"v one two three\n", "line 1: expected three numbers, got 'v one two three'"),
    "two.obj": (b"v 1 2\n", "line 1: expected three numbers"),
    "nan.obj": (b"v 0 0 nan\n" + V + b"f 1 2 3\n", "a vertex that is not finite"),
    "beyond.obj": (V + b"f 1 2 4\n", "line 4 names vertex 3, and there are 3"),
    "before.obj": (V + b"f -4 1 2\n", "line 4: expected at least three vertices, from 1"),
    "zero.obj": (V + b"f 0 1 2\n", "line 4: expected at least three"),
    "line.obj": (V + b"f 1 2\n", "line 4: expected at least three"),
    "digits.obj": (V + b"f 1 2 " + b"9" * 5000, "line 4: expected at least three"),
    "long.obj": (b"v " + b"x" * 100000, "line 1: expected three numbers, got 'v xxx"),
    "empty.ply": (b"", "not a readable PLY file"),
    "endless.ply": (b"ply\n" + b"comment\n" * 10000, "not a readable PLY file"),
    "form.ply": (PLY.replace(b"ascii", b"binary_middle") + FACE % 0, "has format 'binary_middle', expected ascii"),
    "many.ply": (PLY.replace(b"3", b"99999999999", 1) + FACE % 0, "declares 99999999999 of 'vertex'"),
    "minus.ply": (PLY.replace(b"vertex 3", b"vertex -3") + FACE % 0, "declares -3 of 'vertex'"),
    "odd.ply": (PLY.replace(b"float x", b"half x") + FACE % 0, "header line 4 is not understood: 'property half x'"),
    "twice.ply": (PLY.replace(b"float y", b"float x") + FACE % 0, "'vertex' has no properties, or one twice"),
    "axis.ply": (PLY.replace(b"float y", b"float w") + FACE % 0 + b"0 0 0\n" * 3, "has no numbers x, y and z"),
    "short.ply": (PLY + FACE % 1 + b"0 0 0\n1 0 0\n", "ends before its 3 of 'vertex'"),
    "text.ply": (PLY + FACE % 1 + b"0 0 0\n1 0 0\n0 1 a\n3 0 1 2\n", "something in its 'vertex' is no number"),
    "noface.ply": (PLY + b"end_header\n0 0 0 0 0 0 0 0 0", "needs the elements 'vertex' and 'face'"),
    "shortb.ply": (BIG + FACE % 1 + bytes(35), "ends before its 3 of 'vertex'"),
    "list.ply": (BIG + FACE % 1 + bytes(36) + b"\xff\0\0", "ends before its 1 of 'face'"),
    "minuslist.ply": (
        BIG + (FACE % 1).replace(b"uchar", b"char") + bytes(36) + b"\xff" + bytes(20),
        "ends before its 1 of 'face'",
    ),
    "floats.ply": (
        PLY + (FACE % 1).replace(b"uchar int", b"uchar float") + b"0 0 0\n" * 3 + b"3 0 1 2\n",
        "has no list 'vertex_indices'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, tmp_path):
    content, words = HOSTILE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MeshError) as refused:
        files.read(tmp_path / name)
    said = str(refused.value)
    assert words in said and said.startswith(str(tmp_path / name)) and len(said) < 400


def test_damaged_files_are_refused_or_read(tmp_path):
    """Bytes turned over: a sentence or triangles, nothing else."""
    random, ends = np.random.default_rng(5), set()
    for name in ("a.ply", "a.obj"):
        files.write(tmp_path / name, mesh.knot(6, 4))
        whole = (tmp_path / name).read_bytes()
        for _ in range(150):
            data = bytearray(
                whole[: random.integers(1, len(whole) + 1)] if random.random() < 0.3 else whole
            )
            for _ in range(random.integers(1, 4)):
                data[random.integers(len(data))] = random.integers(256)
            path = Path(tmp_path / f"damaged{name[1:]}")
            path.write_bytes(data)
            try:
                found = files.read(path)
                assert found.triangles.max() < len(found.vertices)
                ends.add("read")
            except MeshError as error:
                assert re.match(re.escape(str(path)), str(error))
                ends.add("refused")
    assert ends == {"read", "refused"}
