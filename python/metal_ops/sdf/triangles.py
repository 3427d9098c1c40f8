"""Polygons into triangles: a fan where that is right, mapbox_earcut where a polygon is not convex.

A cut is checked: its triangles are of one side and have the polygon's edges as their border, and no other ones. So they
have its area, and neighbours stay joined, at corners in the middle of a straight side, too.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from .mesh import MeshError
from .polygons import Polygons

# mapbox_earcut takes some seconds for as many points that cross themselves, and four times as long for twice as many.
_MOST_CORNERS = 1 << 14
_AT_ONCE = 1 << 16  # polygons
# The square of a height beside a polygon's size that is none: float64 has rounded a place by less.
_FLAT = 1e-24
_Triangle = tuple[int, int, int]


def cut(path: Path, polygons: Polygons) -> np.ndarray:
    """int64 [T, 3], in the order of the polygons, wound as they are.

    Raises:
      MeshError: A polygon crosses itself or is far from flat, or mapbox_earcut is needed and missing.
    """
    starts = np.cumsum(polygons.sizes) - polygons.sizes
    owners, found = [np.zeros(0, np.int64)], [np.zeros((0, 3), np.int64)]
    for size in np.unique(polygons.sizes).tolist():
        members = np.flatnonzero(polygons.sizes == size)
        step = max(_AT_ONCE // size, 1)
        for some in (members[i : i + step] for i in range(0, len(members), step)):
            corners = polygons.corners[starts[some, None] + np.arange(size)]
            simple = _fans_are_right(polygons.vertices[corners])
            fans = np.stack(
                np.broadcast_arrays(corners[:, :1], corners[:, 1:-1], corners[:, 2:]), 2
            )
            found.append(fans[simple].reshape(-1, 3))
            owners.append(np.repeat(some[simple], size - 2))
            for row in np.flatnonzero(~simple):
                where = f"{path}: {polygons.word} {int(polygons.numbers[some[row]])}"
                triangles = _cut_one(polygons.vertices[corners[row]], where)
                found.append(corners[row][triangles])
                owners.append(np.full(len(triangles), some[row]))
    order = np.argsort(np.concatenate(owners), kind="stable")
    return np.concatenate(found)[order]


def _fans_are_right(points: np.ndarray) -> np.ndarray:
    """bool [P] for float64 [P, n, 3]: whether the fan of the first corner has one side, and less than half a turn."""
    if points.shape[1] == 3:
        return np.ones(len(points), bool)
    away = points[:, 1:] - points[:, :1]
    away = np.ldexp(away, -_exponent(np.abs(away).max((1, 2)))[:, None, None])
    crosses = np.cross(away[:, :-1], away[:, 1:])
    normal = crosses.sum(1)
    length = np.linalg.norm(normal, axis=1)
    least = 1e-14 * np.square(away).sum(2).max(1) * length
    steps = np.einsum("pkx,px->pk", crosses, normal)
    turned = np.einsum("pkx,px->pk", np.cross(away[:, :1], away[:, 1:]), normal)
    return ((steps > least[:, None]) & (turned > least[:, None])).all(1)


def _exponent(size: np.ndarray) -> np.ndarray:
    """The power of two by which sizes are divided, so that products of four of them stay finite."""
    return np.frexp(size)[1]


def _cut_one(points: np.ndarray, where: str) -> np.ndarray:
    """int64 [T, 3], corners of float64 [n, 3]."""
    if len(points) > _MOST_CORNERS:
        raise MeshError(
            f"{where}: a polygon of {len(points)} corners that is not convex, expected at most {_MOST_CORNERS}; cut it "
            "into triangles in a program for meshes."
        )
    first: dict[tuple[float, ...], int] = {}
    places = [first.setdefault(tuple(point), k) for k, point in enumerate(points.tolist())]
    loop = [place for k, place in enumerate(places) if place != places[k - 1]]
    if len(loop) < 3:
        return np.zeros((0, 3), np.int64)
    away = points - points[loop[0]]
    away = np.ldexp(away, -_exponent(np.abs(away).max()))
    square = np.square(away).sum(1).max()
    far = away[int(np.argmax(np.square(away).sum(1)))]
    if (np.square(np.cross(away, far)).sum(1) <= _FLAT * square**2).all():  # all on one line
        return np.array([(loop[0], b, c) for b, c in zip(loop[1:-1], loop[2:], strict=True)])
    earcut = _earcut(where)
    normal = np.cross(away[loop], away[np.roll(loop, -1)]).sum(0)
    length = np.linalg.norm(normal)
    if length > 1e-12 * square:
        axis = int(np.argmax(np.abs(normal)))
        side = np.eye(3)[(axis + 1) % 3]
        across = np.cross(normal / length, side)
        across /= np.linalg.norm(across)
        sign = np.sign(normal[axis])
        # Coordinates as they are first: lines that are straight in the file stay straight.
        for flat in (
            np.stack([sign * away[:, (axis + 1) % 3], away[:, (axis + 2) % 3]], 1),
            np.stack([away @ np.cross(across, normal / length), away @ across], 1),
        ):
            for loops in (_loops(loop), [loop]):
                triangles = _ears(flat, loop, loops, earcut)
                if triangles is not None:
                    return np.array(triangles, np.int64)
    raise MeshError(
        f"{where}: a polygon of {len(points)} corners crosses or covers itself, or is far from flat; cut it into "
        "triangles in a program for meshes."
    )


def _loops(loop: list[int]) -> list[list[int]]:
    """The loop cut where it comes to a place again: its parts, and holes that a bridge joins to it."""
    found, walk, at = [], list[int](), dict[int, int]()
    for place in loop:
        if place in at:
            start = at[place]
            part, walk = walk[start:], walk[:start]
            for one in part:
                del at[one]
            if len(part) > 2:  # two are a bridge, there and back
                found.append(part)
        at[place] = len(walk)
        walk.append(place)
    if len(walk) > 2:
        found.append(walk)
    return found


def _ears(
    flat: np.ndarray, loop: list[int], loops: list[list[int]], earcut: Any
) -> list[_Triangle] | None:
    """Triangles of the places, counter-clockwise in float64 [n, 2]; None if they would not be right."""
    areas = [_area(flat[part]) for part in loops]
    outer = [part for part, area in zip(loops, areas, strict=True) if area > 0]
    holes: list[list[list[int]]] = [[] for _ in outer]
    for part, area in zip(loops, areas, strict=True):
        if area <= 0:
            around = [k for k, other in enumerate(outer) if _contains(flat[other], flat[part])]
            if not around:
                return None
            holes[min(around, key=lambda k: _area(flat[outer[k]]))].append(part)
    triangles: list[_Triangle] = []
    for rim, inner in zip(outer, holes, strict=True):
        rings = [rim, *inner]
        every = [place for ring in rings for place in ring]
        ends = np.cumsum([len(ring) for ring in rings]).astype(np.uint32)
        corners = earcut(np.ascontiguousarray(flat[every]), ends).reshape(-1, 3)
        triangles += [(every[a], every[b], every[c]) for a, b, c in corners.tolist()]
    doubled = _doubled(flat, triangles)
    triangles = [
        t if d >= 0 else (t[0], t[2], t[1]) for t, d in zip(triangles, doubled, strict=True)
    ]
    return _with_border(flat, triangles, loop)


def _with_border(
    flat: np.ndarray, triangles: list[_Triangle], loop: list[int]
) -> list[_Triangle] | None:
    """The triangles, split where the loop has corners on their sides; None if their border is another one."""
    wanted = _free(zip(loop, loop[1:] + loop[:1], strict=True))
    if max(wanted.values(), default=0) > 1:
        return None
    places = np.unique(loop)
    extent = float(np.square(np.ptp(flat, axis=0)).sum())
    found = list(triangles)
    at = {edge: k for k, triangle in enumerate(found) for edge in _edges(triangle)}
    for a, b in (_free(edge for t in found for edge in _edges(t)) - wanted).elements():
        along, there = flat[b] - flat[a], flat[places] - flat[a]
        share, height = there @ along, there @ (-along[1], along[0])
        square = float(along @ along)
        on = (np.square(height) <= _FLAT * extent * square) & (share > 0) & (share < square)
        chain = [a, *places[on][np.argsort(share[on])].tolist(), b]
        owner = at[a, b]
        apex = next(place for place in found[owner] if place not in (a, b))
        if apex in chain:
            return None
        for k, (p, q) in enumerate(zip(chain[:-1], chain[1:], strict=True)):
            part = (p, q, apex)
            at.update(dict.fromkeys(_edges(part), len(found) if k else owner))
            if k:
                found.append(part)
            else:
                found[owner] = part
    return found if _free(edge for t in found for edge in _edges(t)) == wanted else None


def _edges(triangle: _Triangle) -> tuple[tuple[int, int], ...]:
    a, b, c = triangle
    return (a, b), (b, c), (c, a)


def _free(edges) -> Counter:
    """Directed edges that none in the other direction cancels."""
    counts = Counter(edges)
    return Counter({(a, b): n - counts[b, a] for (a, b), n in counts.items() if n > counts[b, a]})


def _area(flat: np.ndarray) -> float:
    u, v = (flat - flat[:1]).T
    return float(u @ np.roll(v, -1) - v @ np.roll(u, -1)) / 2


def _doubled(flat: np.ndarray, triangles: list[_Triangle]) -> np.ndarray:
    """Twice the areas with sign."""
    a, b, c = flat[np.array(triangles, np.int64).reshape(-1, 3)].transpose(1, 0, 2)
    return (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]


def _contains(rim: np.ndarray, points: np.ndarray) -> bool:
    """Whether most points, float64 [M, 2], lie within the rim, float64 [N, 2]: a hole may touch it with a corner."""
    inside = np.zeros(len(points), bool)
    for a, b in zip(rim, np.roll(rim, -1, 0), strict=True):
        crosses = (a[1] > points[:, 1]) != (b[1] > points[:, 1])
        with np.errstate(divide="ignore", invalid="ignore"):
            u = a[0] + (points[:, 1] - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
        inside ^= crosses & (points[:, 0] < u)
    return bool(2 * inside.sum() >= len(points))


def _earcut(where: str) -> Any:
    try:
        from mapbox_earcut import triangulate_float64
    except ImportError:
        raise MeshError(
            f"{where}: a polygon is not convex, and 'mapbox_earcut', which cuts it, is missing; `pip install "
            "mapbox_earcut==2.1.0`."
        ) from None
    return triangulate_float64
