"""Triangle meshes: closed ones into the unit cube, points on their surface, and two that are made here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from metal_ops.programs.errors import ProgramError

MARGIN = 0.1  # the margin on each side of the unit cube


class MeshError(ProgramError):
    """A mesh that cannot be read, or has no inside."""


class Mesh(NamedTuple):
    """Triangles.

    Attributes:
      vertices: float64 [V, 3].
      triangles: int64 [T, 3], counter-clockwise seen from outside.
    """

    vertices: np.ndarray
    triangles: np.ndarray

    @property
    def corners(self) -> np.ndarray:
        """float64 [T, 3, 3]."""
        return self.vertices[self.triangles]

    def crosses(self) -> np.ndarray:
        """float64 [T, 3]: a triangle's normal, as long as twice its area."""
        a, b, c = self.corners.transpose(1, 0, 2)
        return np.cross(b - a, c - a)

    def volume(self) -> float:
        a, b, c = self.corners.transpose(1, 0, 2)
        return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


class Placement(NamedTuple):
    """How a mesh lies in the unit cube: vertex = (point - 0.5) / scale + centre.

    Attributes:
      centre: float64 [3] of the bounding box.
      scale: Cube lengths in one of the mesh's units.
    """

    centre: np.ndarray
    scale: float

    def outside(self, points: np.ndarray) -> np.ndarray:
        """Points of the cube in the mesh's own units."""
        return (points - 0.5) / self.scale + self.centre


def welded(mesh: Mesh) -> Mesh:
    """Vertices of the same place become one; triangles that are a line or a point by that are left out."""
    places, index = np.unique(mesh.vertices, axis=0, return_inverse=True)
    triangles = index.reshape(-1)[mesh.triangles]
    flat = (
        (triangles[:, 0] == triangles[:, 1])
        | (triangles[:, 1] == triangles[:, 2])
        | (triangles[:, 2] == triangles[:, 0])
    )
    return Mesh(places, triangles[~flat])


def directed_edges(triangles: np.ndarray) -> np.ndarray:
    """int64 [3 T, 2]: the edges of each triangle in its direction, edge k from corner k to the next one."""
    return np.stack([triangles, np.roll(triangles, -1, 1)], -1).reshape(-1, 2)


def without_flat(mesh: Mesh, where: str) -> Mesh:
    """A closed mesh without triangles whose corners are on a line, apart from the rounding of float32.

    They close the gap where a corner lies on another triangle's side. Their normals are none, or noise, and stand
    between the two faces whose edge that is: the sign of a distance comes from both. So the longest side is turned to
    the other diagonal of the two triangles that have it, which moves the surface by the rounding.

    Raises:
      MeshError: Triangles that are exactly flat lie on one another.
    """
    exactly = 2e-14 * np.abs(mesh.vertices).max()
    nearly = 2.5e-7 * np.ptp(mesh.vertices, axis=0).max()
    crosses, sides = mesh.crosses(), np.roll(mesh.corners, -1, 1) - mesh.corners
    flat = np.linalg.norm(crosses, axis=1) <= nearly * np.linalg.norm(sides, axis=2).max(1)
    if not flat.any():
        return mesh
    n, first = len(mesh.vertices), len(mesh.triangles)
    edges = directed_edges(mesh.triangles) @ np.array([n, 1])
    order = np.argsort(edges)
    ordered = edges[order]
    changed: dict[tuple[int, int], int] = {}  # triangles that are new, by their edges
    gone: set[int] = set()
    added: list[list[int]] = []

    def owner(a: int, b: int) -> tuple[int, list[int]] | None:
        number = changed.get((a, b), -1)
        if number < 0:
            at = int(np.searchsorted(ordered, a * n + b))
            number = int(order[at]) // 3 if at < len(ordered) and ordered[at] == a * n + b else -1
        if number < 0 or number in gone:
            return None
        return number, mesh.triangles[number].tolist() if number < first else added[number - first]

    def looked_at(triangle: list[int]) -> tuple[int, bool, bool]:
        """The corner opposite of the longest side; whether it is on that, and whether exactly so."""
        a, b, c = mesh.vertices[triangle]
        away = [c - b, a - c, b - a]
        lengths = [float(np.linalg.norm(side)) for side in away]
        k = int(np.argmax(lengths))
        height = float(np.linalg.norm(np.cross(away[0], away[1]))) / lengths[k]
        # Not a corner close to another one, whose turned triangles would be as flat.
        inside = min(lengths[k - 1], lengths[k - 2]) > 4 * nearly
        return k, height <= exactly or (height <= nearly and inside), height <= exactly

    waiting = [(int(k), mesh.triangles[k].tolist()) for k in np.flatnonzero(flat)]
    left = False
    for _ in range(4 * len(waiting)):
        if not waiting:
            break
        number, triangle = waiting.pop()
        k, remove, exact = looked_at(triangle)
        if number in gone or not remove:
            continue
        middle, a, b = triangle[k], triangle[k - 2], triangle[k - 1]
        found = owner(b, a)
        assert found is not None  # as the mesh is closed
        other, neighbour = found
        apex = next(corner for corner in neighbour if corner not in (a, b))
        if middle != apex and (owner(middle, apex) or owner(apex, middle)):
            left |= exact
            continue
        gone |= {number, other}
        if middle == apex:
            continue  # two triangles on one another, with the same corners
        for part in ([b, middle, apex], [middle, a, apex]):
            added_as = first + len(added)
            added.append(part)
            for p, q in zip(part, part[1:] + part[:1], strict=True):
                changed[p, q] = added_as
            waiting.append((added_as, part))
    if left or any(number not in gone and looked_at(some)[2] for number, some in waiting):
        raise MeshError(
            f"{where}: has triangles without an area that lie on one another; remove them in a program for meshes."
        )
    kept = np.ones(first, bool)
    kept[[number for number in gone if number < first]] = False
    new = [triangle for k, triangle in enumerate(added) if first + k not in gone]
    return Mesh(
        mesh.vertices,
        np.concatenate([mesh.triangles[kept], np.array(new, np.int64).reshape(-1, 3)]),
    )


def closed(mesh: Mesh, where: str) -> Mesh:
    """The mesh welded, with its outside outside.

    Raises:
      MeshError: An edge does not belong to two triangles, or these are wound against each other.
    """
    mesh = welded(mesh)
    if not len(mesh.triangles):
        raise MeshError(f"{where}: has no triangle with an area; give a mesh of a solid.")
    edges = directed_edges(mesh.triangles)
    n = len(mesh.vertices)
    keys = np.sort(edges, 1) @ np.array([n, 1])
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    if (counts != 2).any():
        wrong = int(np.argmax(counts != 2))
        a, b = mesh.vertices[edges[first[wrong]]]
        some = "is open" if counts[wrong] == 1 else "has edges of more than two triangles"
        raise MeshError(
            f"{where}: {some}: the edge from {_place(a)} to {_place(b)} belongs to {counts[wrong]} of its triangles, "
            f"and {int((counts != 2).sum())} such edges are there; close it in a program for meshes."
        )
    if len(np.unique(edges @ np.array([n, 1]))) < len(edges):
        raise MeshError(
            f"{where}: neighbouring triangles are wound against each other, so that no side is the inside; make the "
            "normals consistent in a program for meshes."
        )
    mesh = without_flat(mesh, where)
    volume = mesh.volume()
    if not np.isfinite(volume) or volume == 0:
        raise MeshError(f"{where}: has no volume; give a mesh of a solid.")
    return mesh if volume > 0 else Mesh(mesh.vertices, mesh.triangles[:, ::-1])


def _place(point: np.ndarray) -> str:
    return "(" + ", ".join(f"{x:.5g}" for x in point) + ")"


def in_cube(mesh: Mesh, where: str) -> tuple[Mesh, Placement]:
    """The mesh in the middle of the unit cube, its longest side 1 less two margins.

    Raises:
      MeshError: It is too large for its place to be told in float64.
    """
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    with np.errstate(over="ignore"):
        longest = float((high - low).max())
    if not 1e-150 < longest < 1e150:
        raise MeshError(f"{where}: is {longest:g} long; give a mesh of a usual size.")
    placement = Placement((low + high) / 2, (1 - 2 * MARGIN) / longest)
    vertices = (mesh.vertices - placement.centre) * placement.scale + 0.5
    return Mesh(vertices, mesh.triangles), placement


def on_surface(mesh: Mesh, n: int, random: np.random.Generator) -> np.ndarray:
    """float64 [n, 3]: points spread evenly over the area."""
    area = np.linalg.norm(mesh.crosses(), axis=1)
    ends = np.cumsum(area)
    chosen = np.searchsorted(ends, random.uniform(0, ends[-1], n), side="right")
    u, v = random.uniform(size=(2, n))
    beyond = u + v > 1
    u, v = np.where(beyond, 1 - u, u), np.where(beyond, 1 - v, v)
    a, b, c = mesh.corners[np.minimum(chosen, len(area) - 1)].transpose(1, 0, 2)
    return a + u[:, None] * (b - a) + v[:, None] * (c - a)


def tube(centre_line: np.ndarray, radius: float, around: int) -> Mesh:
    """A closed tube.

    Args:
      centre_line: float64 [n, 3], a closed curve.
      radius: Radius of the tube.
      around: Corners of its cross section.
    """
    n = len(centre_line)
    ahead = np.roll(centre_line, -1, 0) - np.roll(centre_line, 1, 0)
    ahead /= np.linalg.norm(ahead, axis=1, keepdims=True)
    side = np.cross(ahead, centre_line)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    up = np.cross(ahead, side)
    angle = np.arange(around) / around * 2 * np.pi
    ring = np.cos(angle)[:, None, None] * side + np.sin(angle)[:, None, None] * up
    vertices = (centre_line + radius * ring).transpose(1, 0, 2).reshape(-1, 3)
    i, j = (grid.ravel() for grid in np.mgrid[:n, :around])
    here, there = (i * around + (j + k) % around for k in (0, 1))
    here_on, there_on = ((i + 1) % n * around + (j + k) % around for k in (0, 1))
    triangles = np.concatenate(
        [np.stack([here, there_on, here_on], 1), np.stack([here, there, there_on], 1)]
    )
    return Mesh(vertices, triangles)


def knot(along: int = 240, around: int = 24) -> Mesh:
    """The trefoil, a torus knot, as a tube.

    Example:
      >>> closed(knot(60, 8), "knot").volume() > 0
      True
    """
    t = np.arange(along) / along * 2 * np.pi
    r = 2 + np.cos(3 * t)
    return tube(np.stack([r * np.cos(2 * t), r * np.sin(2 * t), np.sin(3 * t)], 1), 0.6, around)


def sphere(rows: int = 24) -> Mesh:
    """A ball of radius 1, from an octahedron's faces."""
    i, j = np.mgrid[: rows + 1, : rows + 1]
    inside = i + j <= rows
    number = np.cumsum(inside).reshape(inside.shape) - 1
    flat = np.stack([i, j, rows - i - j], -1)[inside].astype(np.float64)
    lower = i + j < rows
    a, b, c = number[:-1, :-1], number[1:, :-1], number[:-1, 1:]
    d = number[1:, 1:]
    faces = [np.stack([a, b, c], -1)[lower[:-1, :-1]]]
    faces.append(np.stack([b, d, c], -1)[(i + j < rows - 1)[:-1, :-1]])
    triangles = np.concatenate(faces)
    vertices: list[np.ndarray] = []
    every: list[np.ndarray] = []
    for signs in np.array(np.meshgrid(*[[1, -1]] * 3)).reshape(3, -1).T:
        every.append(
            (triangles if signs.prod() > 0 else triangles[:, ::-1]) + len(flat) * len(vertices)
        )
        vertices.append(flat * signs)
    points = np.concatenate(vertices)
    found = welded(Mesh(points, np.concatenate(every)))
    lengths = np.linalg.norm(found.vertices, axis=1, keepdims=True)
    return Mesh(found.vertices / lengths, found.triangles)
