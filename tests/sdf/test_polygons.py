"""Polygons that are not convex: areas, volumes and distances of prisms over them, by formulas."""

from __future__ import annotations

import re
import struct
from itertools import product

import numpy as np
import pytest

from metal_ops.sdf import files, mesh
from metal_ops.sdf.distance import Distances
from metal_ops.sdf.mesh import Mesh, MeshError

_T = np.linspace(0, 4 * np.pi, 40)
_SPIRAL = np.concatenate(
    [np.stack([(_T + r) * np.cos(_T), (_T + r) * np.sin(_T)], 1)[::s] for r, s in ((2, 1), (1, -1))]
)
# Counter-clockwise, with the area and the length of its rim.
OUTLINES = {
    "L": ([(2, 1), (1, 1), (1, 2), (0, 2), (0, 0), (2, 0)], 3, 8),
    "U": ([(0, 0), (3, 0), (3, 3), (2, 3), (2, 1), (1, 1), (1, 3), (0, 3)], 7, 16),
    "dart": ([(0, 0), (2, -1), (0.5, 0), (2, 1)], 0.5, 2 * 5**0.5 + 2 * 3.25**0.5),
    "corners on straight sides": (
        [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (1, 1.5), (1, 2), (0, 2), (0, 1)], 3, 8,
    ),
    "begins on a straight side": ([(1, 0), (2, 0), (2, 2), (0, 2), (0, 0)], 4, 8),
    "hole by a bridge": (
        [(0, 0), (4, 0), (4, 4), (0, 4), (0, 0), (1, 1), (1, 3), (3, 3), (3, 1), (1, 1)], 12, 24,
    ),
    "two holes by bridges, one of these straight on": (
        [(0, 0), (6, 0), (6, 4), (0, 4), (0, 0), (1, 1), (1, 3), (2, 3), (2, 1), (4, 1), (4, 3), (5, 3), (5, 1),
         (4, 1), (2, 1), (1, 1)], 20, 32,
    ),
    "corners twice": ([(2, 1), (2, 1), (1, 1), (1, 2), (0, 2), (0, 2), (0, 0), (2, 0)], 3, 8),
    "spiral": (_SPIRAL.tolist(), None, None),
}  # fmt: skip


def rim(outline):
    """Edges, without those that are gone there and back."""
    every = [(tuple(a), tuple(b)) for a, b in zip(outline, outline[1:] + outline[:1], strict=True)]
    return [(a, b) for a, b in every if a != b and (b, a) not in every]


def prism(outline, start=0, inside_out=False, tilted=False):
    """Vertices float64 [2 n, 3] and polygons of a prism of height 1."""
    n, turn = len(outline), np.eye(3)
    flat = np.array(outline, np.float64)
    if tilted:
        turn = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
        turn *= np.sign(np.linalg.det(turn))
    vertices = np.concatenate([np.c_[flat, np.zeros(n)], np.c_[flat, np.ones(n)]]) @ turn.T
    ring = [(start + k) % n for k in range(n)]
    number = {tuple(corner): k for k, corner in enumerate(outline)}
    sides = [[number[a], number[b], n + number[b], n + number[a]] for a, b in rim(outline)]
    polygons = [[n + k for k in ring], ring[::-1], *sides]
    return vertices, [p[::-1] for p in polygons] if inside_out else polygons, turn


def written(path, vertices, polygons):
    """OBJ, PLY in three forms, or OFF by the end of the name."""
    rows = [" ".join(map(repr, row)) for row in vertices.tolist()]
    kind = path.name.split(".", 1)[1]
    if kind == "obj":
        lines = ["v " + row for row in rows]
        lines += ["f " + " ".join(f"{k + 1}/1/1" for k in p) for p in polygons]
        text = "\n".join(lines).encode()
    elif kind == "off":
        faces = [f"{len(p)} {' '.join(map(str, p))} 0.5 0.5 0.5" for p in polygons]
        text = "\n".join(["OFF # made", f"{len(rows)} {len(faces)} 0", "", *rows, *faces]).encode()
    else:
        order = {"a": "", "l": "<", "b": ">"}[kind[0]]
        form = {"": "ascii", "<": "binary_little_endian", ">": "binary_big_endian"}[order]
        text = f"ply\nformat {form} 1.0\nelement vertex {len(rows)}\n"
        text += "".join(f"property double {axis}\n" for axis in "xyz")
        text += (
            f"element face {len(polygons)}\nproperty list uchar int64 vertex_indices\nend_header\n"
        )
        text = text.encode()
        if not order:
            faces = [f"{len(p)} {' '.join(map(str, p))}" for p in polygons]
            text += "\n".join([*rows, *faces]).encode()
        else:
            text += vertices.astype(order + "f8").tobytes()
            text += b"".join(struct.pack(f"{order}B{len(p)}q", len(p), *p) for p in polygons)
    path.write_bytes(text)
    return path


def measures(some: Mesh) -> tuple[float, float]:
    """Area and volume."""
    return float(np.linalg.norm(some.crosses(), axis=1).sum() / 2), some.volume()


def right_distance(points, outline):
    """float64 [N], by the outline's edges and the height."""
    a, b = (np.array(ends, np.float64) for ends in zip(*rim(outline), strict=True))
    flat = points[:, None, :2]
    along = b - a
    share = np.clip(((flat - a) * along).sum(2) / (along**2).sum(1), 0, 1)
    away = np.linalg.norm(a + share[..., None] * along - flat, axis=2).min(1)
    between = (a[:, 1] > flat[..., 1]) != (b[:, 1] > flat[..., 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        cut = a[:, 0] + (flat[..., 1] - a[:, 1]) * along[:, 0] / along[:, 1]
    inside = (between & (flat[..., 0] < cut)).sum(1) % 2 == 1
    beside = np.where(inside, -away, away)
    above = np.abs(points[:, 2] - 0.5) - 0.5
    return np.hypot(np.maximum(beside, 0), np.maximum(above, 0)) + np.minimum(
        np.maximum(beside, above), 0
    )


@pytest.mark.parametrize("name", OUTLINES)
def test_prisms(name, tmp_path):
    """Each first corner, both sides, flat and tilted: the area, the volume, the orientation."""
    outline, area, length = OUTLINES[name]
    if area is None:
        flat = np.array(outline)
        area = float(np.linalg.det(np.stack([flat, np.roll(flat, -1, 0)], 1)).sum() / 2)
        length = float(np.linalg.norm(np.roll(flat, -1, 0) - flat, axis=1).sum())
    starts = range(0, len(outline), max(len(outline) // 16, 1))
    for start, inside_out, tilted in product(starts, (False, True), (False, True)):
        vertices, polygons, _ = prism(outline, start, inside_out, tilted)
        found = files.read(written(tmp_path / "a.obj", vertices, polygons))
        assert np.sign(found.volume()) == (-1 if inside_out else 1)  # as it is wound
        solid = mesh.closed(found, "prism")
        assert measures(solid) == pytest.approx((2 * area + length, area), abs=1e-9)


@pytest.mark.parametrize("kind", ["obj", "off", "a.ply", "l.ply", "b.ply"])
def test_every_format_has_the_same_triangles(kind, tmp_path):
    vertices, polygons, _ = prism(OUTLINES["two holes by bridges, one of these straight on"][0])
    solid = mesh.closed(files.read(written(tmp_path / f"a.{kind}", vertices, polygons)), kind)
    assert measures(solid) == pytest.approx((72, 20), abs=1e-12)


@pytest.mark.parametrize("name", OUTLINES)
def test_distances(name, tmp_path):
    outline = [tuple(corner) for corner in OUTLINES[name][0]]
    low, size = np.min(outline, 0), np.ptp(outline, axis=0)
    points = np.random.default_rng(0).uniform(-0.3, 1.3, (400, 3)) * [*size, 1] + [*low, 0]
    for tilted in (False, True):
        vertices, polygons, turn = prism(outline, 1, False, tilted)
        solid = mesh.closed(files.read(written(tmp_path / "a.off", vertices, polygons)), name)
        found = Distances(solid)(points @ turn.T)
        np.testing.assert_allclose(found, right_distance(points, outline), atol=1e-10)
        assert (found < 0).sum() > 5


def test_a_neighbour_in_the_middle_of_a_side(tmp_path):
    """The top's corner (1, 0) is one of the front's halves: without it the mesh would be open."""
    outline = [(0, 0), (1, 0), (2, 0), (2, 2), (1, 1), (0, 2)]
    for start in range(6):
        vertices, polygons, _ = prism(outline, start)
        solid = mesh.closed(files.read(written(tmp_path / "a.obj", vertices, polygons)), "x")
        assert measures(solid)[1] == pytest.approx(3, abs=1e-12)


def test_polygons_that_are_not_flat(tmp_path):
    """A saddle's top, and a fan of the first corner where that is right: closed, between the two ways to cut it."""
    for lift in (0.2, 1.0, -0.5):
        vertices, polygons, _ = prism([(0, 0), (1, 0), (1, 1), (0, 1)])
        vertices[4::2, 2] += lift
        solid = mesh.closed(files.read(written(tmp_path / "a.obj", vertices, polygons)), "x")
        ways = sorted((1 + lift / 3, 1 + lift * 2 / 3))
        assert ways[0] - 1e-12 <= solid.volume() <= ways[1] + 1e-12
    vertices, polygons, _ = prism(OUTLINES["L"][0])
    vertices[6:, 2] += [0.1, 0, 0.2, 0, 0.1, 0]
    solid = mesh.closed(files.read(written(tmp_path / "a.obj", vertices, polygons)), "x")
    assert 3 < solid.volume() < 3.6


REFUSED = {
    "bow tie": [(0, 0), (1, 1), (1, 0), (0, 1)],
    "crosses itself": [(0, 0), (3, 0), (3, 3), (1, -1), (0, 3)],
    "star of five": [(np.cos(k * 0.8 * np.pi), np.sin(k * 0.8 * np.pi)) for k in range(5)],
    "covers itself": [(0, 0), (2, 0), (2, 2), (0, 2)] * 2,
}


@pytest.mark.parametrize("name", REFUSED)
def test_polygons_without_an_inside(name, tmp_path):
    outline = REFUSED[name]
    path = written(
        tmp_path / "a.obj", np.c_[outline, np.zeros(len(outline))], [[*range(len(outline))]]
    )
    with pytest.raises(MeshError, match=f"line {len(outline) + 1}: a polygon of {len(outline)} co"):
        files.read(path)


def test_polygons_without_an_area(tmp_path):
    """A gap is closed by a polygon on one line; one whose corners are at two places is nothing."""
    vertices = np.array(
        [[0, 0, 0], [1, 0, 0], [0.5, 1, 0], [0.5, 0.3, 0.15], [0.25, 0, 0], [0.75, 0, 0]]
    )
    polygons = [
        [0, 2, 1],
        [0, 4, 3],
        [4, 5, 3],
        [5, 1, 3],
        [1, 2, 3],
        [2, 0, 3],
        [0, 1, 5, 4],
        [0, 1, 0, 1],
    ]
    found = files.read(written(tmp_path / "a.obj", vertices, polygons))
    assert measures(found) == pytest.approx(measures(mesh.closed(found, "x")), abs=1e-12)


@pytest.mark.parametrize(
    "seed, dtype", [(None, "f8"), (5, "f8"), *((seed, "f4") for seed in range(4))]
)
def test_triangles_without_an_area(seed, dtype):
    """Where a flat one fills the gap at a sharp edge, the sign is that of the two faces behind it."""
    vertices = np.array(
        [
            [0, 0, 0],
            [1, 0, 0],
            [0.5, 1, 0],
            [0.5, 0.3, 0.15],
            [0.25, 0, 0],
            [0.5, 0, 0],
            [0.75, 0, 0],
        ]
    )
    whole = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]
    split = [[0, 2, 1], [0, 4, 3], [4, 5, 3], [5, 6, 3], [6, 1, 3], [1, 2, 3], [2, 0, 3]]
    turn = np.eye(3)
    if seed is not None:
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
        turn *= np.sign(np.linalg.det(turn))
    stored = (vertices @ turn.T).astype(dtype).astype(np.float64)
    points = np.random.default_rng(0).uniform(-0.3, 1.3, (2000, 3)) * [1, 1, 0.4]
    right = Distances(mesh.closed(Mesh(vertices, np.array(whole)), "wedge"))(points)
    for fillers in ([[0, 1, 6], [0, 6, 5], [0, 5, 4]], [[0, 1, 5], [5, 1, 6], [0, 5, 4]]):
        solid = mesh.closed(Mesh(stored, np.array(split + fillers)), "wedge")
        least = 1e-12 if dtype == "f8" else 3e-7
        np.testing.assert_allclose(Distances(solid)(points @ turn.T), right, atol=least)


def test_a_polygon_of_too_many_corners(tmp_path):
    n = 40001
    angle = np.arange(n) / n * 2 * np.pi
    radius = np.where(np.arange(n) % 2, 1.0, 0.9)
    outline = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle], 1)
    path = written(tmp_path / "a.obj", outline, [[*range(n)]])
    with pytest.raises(
        MeshError, match=re.escape(f"{path}: line {n + 1}: a polygon of 40001 corners that is not")
    ):
        files.read(path)
