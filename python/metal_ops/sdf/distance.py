"""Exact signed distances to a closed mesh.

A complete binary tree over the triangles, walked for many points at once, level by level: of each node the distance to
its box bounds its content from below, and the distance to one of its corners bounds the answer from above. The sign is
that of the pseudo-normal of the nearest face, edge or vertex (Baerentzen and Aanaes 2005), exact for closed meshes.
"""

from __future__ import annotations

import numpy as np

from .mesh import Mesh, directed_edges

_LEAF = 4  # triangles of a leaf
_AT_ONCE = 1 << 12  # points


class Distances:
    """Signed distances, negative inside, to a mesh that `mesh.closed` gave.

    Example:
      >>> from metal_ops.sdf.mesh import sphere
      >>> Distances(sphere(8))(np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])).round(1).tolist()
      [-1.0, 2.0]
    """

    def __init__(self, mesh: Mesh) -> None:
        n = len(mesh.triangles)
        self._depth = max(int(np.ceil(np.log2(n / _LEAF))), 0)
        order = np.arange(_LEAF << self._depth) * n // (_LEAF << self._depth)
        centres = mesh.corners.mean(1)
        order = order[None]
        for _ in range(self._depth):
            found = centres[order]
            axis = np.argmax(np.ptp(found, axis=1), axis=1)
            along = np.take_along_axis(found, axis[:, None, None], 2)[..., 0]
            order = np.take_along_axis(order, np.argsort(along, axis=1, kind="stable"), 1)
            order = order.reshape(2 * len(order), -1)
        self._triangles = order  # [leaves, _LEAF]; some stand there twice
        corners = mesh.corners[order].reshape(len(order), -1, 3)
        self._low: list[np.ndarray] = []
        self._high: list[np.ndarray] = []
        self._some: list[np.ndarray] = []  # a corner of each node
        for level in range(self._depth, -1, -1):
            if level < self._depth:
                corners = corners.reshape(1 << level, -1, 3)
            self._low.insert(0, corners.min(1))
            self._high.insert(0, corners.max(1))
            self._some.insert(0, corners[:, corners.shape[1] // 2])
        self._corners = mesh.corners
        self._normals = _pseudo_normals(mesh)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """float64 [N] at points float64 [N, 3]."""
        points = np.asarray(points, np.float64).reshape(-1, 3)
        parts = [self._of(points[i : i + _AT_ONCE]) for i in range(0, len(points), _AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _of(self, points: np.ndarray) -> np.ndarray:
        point = np.arange(len(points))
        node = np.zeros(len(points), np.int64)
        bound = np.full(len(points), np.inf)
        for level in range(self._depth + 1):
            if level:
                point = np.repeat(point, 2)
                node = (2 * node[:, None] + np.arange(2)).ravel()
            here = points[point]
            some = self._some[level][node] - here
            square = np.einsum("ij,ij->i", some, some)
            # Each point keeps a node at least, and they stand in order.
            first = np.flatnonzero(np.diff(point, prepend=-1))
            np.minimum(bound, np.minimum.reduceat(square, first), out=bound)
            away = np.maximum(self._low[level][node] - here, here - self._high[level][node])
            away = np.maximum(away, 0)
            # A hair more: the bound is of a point whose own box must stay.
            near = np.einsum("ij,ij->i", away, away) <= bound[point] * (1 + 1e-12)
            point, node = point[near], node[near]
        point = np.repeat(point, _LEAF)
        triangle = self._triangles[node].ravel()
        nearest, feature = closest(points[point], self._corners[triangle])
        away = points[point] - nearest
        square = np.einsum("ij,ij->i", away, away)
        first = np.flatnonzero(np.diff(point, prepend=-1))
        least = np.minimum.reduceat(square, first)
        hits = np.flatnonzero(square == least[point])
        best = hits[np.flatnonzero(np.diff(point[hits], prepend=-1))]
        normal = self._normals[triangle[best], feature[best]]
        side = np.einsum("ij,ij->i", away[best], normal)
        return np.where(side < 0, -1.0, 1.0) * np.sqrt(square[best])


def closest(points: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest points of triangles, and the triangles' parts they lie on.

    Ericson 2004, "Real-Time Collision Detection", section 5.1.5, for all regions at once.

    Args:
      points: float64 [N, 3].
      corners: float64 [N, 3, 3], a triangle for each.

    Returns:
      float64 [N, 3], and int64 [N]: 0 the face, 1 to 3 the edge from that corner to the next, 4 to 6 a corner.
    """
    a, b, c = corners.transpose(1, 0, 2)
    dot = lambda u, v: np.einsum("ij,ij->i", u, v)  # noqa: E731
    ab, ac, bc = b - a, c - a, c - b
    ap, bp, cp = points - a, points - b, points - c
    d1, d2, d3, d4, d5, d6 = (
        dot(*pair) for pair in ((ab, ap), (ac, ap), (ab, bp), (ac, bp), (ab, cp), (ac, cp))
    )
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    whole = va + vb + vc
    # By how far a point is along an edge; degenerate triangles have edges of some length, as corners differ.
    on_ab, on_bc, on_ca = (
        np.clip(dot(edge, away) / np.maximum(dot(edge, edge), 1e-300), 0, 1)
        for edge, away in ((ab, ap), (bc, bp), (-ac, cp))
    )
    candidates = np.stack(
        [a + on_ab[:, None] * ab, b + on_bc[:, None] * bc, c - on_ca[:, None] * ac], 1
    )
    away = candidates - points[:, None]
    square = np.einsum("ijk,ijk->ij", away, away)
    edge = np.argmin(square, 1)
    rows = np.arange(len(points))
    found = candidates[rows, edge]
    share = np.stack([on_ab, on_bc, on_ca], 1)[rows, edge]
    feature = 1 + edge
    feature = np.where(share <= 0, 4 + edge, feature)
    feature = np.where(share >= 1, 4 + (edge + 1) % 3, feature)
    inside = (va > 0) & (vb > 0) & (vc > 0)
    scale = 1 / np.where(inside, whole, 1)
    face = a + (vb * scale)[:, None] * ab + (vc * scale)[:, None] * ac
    return np.where(inside[:, None], face, found), np.where(inside, 0, feature)


def _pseudo_normals(mesh: Mesh) -> np.ndarray:
    """float64 [T, 7, 3]: of each triangle's face, its three edges and its three corners, by angles at these."""
    crosses = mesh.crosses()
    lengths = np.linalg.norm(crosses, axis=1, keepdims=True)
    faces = np.divide(crosses, lengths, out=np.zeros_like(crosses), where=lengths > 0)
    corners = mesh.corners
    ahead, behind = np.roll(corners, -1, 1) - corners, np.roll(corners, 1, 1) - corners
    sines = np.linalg.norm(np.cross(ahead, behind), axis=2)
    angles = np.arctan2(sines, np.einsum("ijk,ijk->ij", ahead, behind))
    at_vertices = np.zeros_like(mesh.vertices)
    np.add.at(
        at_vertices, mesh.triangles.ravel(), (angles[..., None] * faces[:, None]).reshape(-1, 3)
    )
    edges = np.sort(directed_edges(mesh.triangles), 1)
    _, number = np.unique(edges @ np.array([len(mesh.vertices), 1]), return_inverse=True)
    number = number.reshape(-1)
    at_edges = np.zeros((number.max() + 1, 3))
    np.add.at(at_edges, number, np.repeat(faces, 3, axis=0))
    return np.concatenate(
        [faces[:, None], at_edges[number].reshape(-1, 3, 3), at_vertices[mesh.triangles]], axis=1
    )
