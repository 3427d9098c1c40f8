"""The zero set of a function as triangles, by marching tetrahedra: six in each cell, without tables of cases of a cube.

Doi and Koide 1991, "An efficient method of triangulating equi-valued surfaces by using tetrahedral cells". Neighbouring
cells cut their common face alike, so the surface is closed: parts that leave the grid are cut off at its border.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from .mesh import Mesh

# Corners of a cell as bits x, y, z; each tetrahedron goes from 0 to 7 along three edges in another order of the axes.
_TETRAHEDRA = np.array([[0, 1 << a, (1 << a) | (1 << b), 7] for a, b, _ in permutations(range(3))])
_CORNERS = np.array([[corner >> axis & 1 for axis in range(3)] for corner in range(8)])
_CELLS_AT_ONCE = 1 << 18


def surface(values: np.ndarray) -> Mesh:
    """Where values on a grid over the unit cube change from negative, the inside, to others.

    Args:
      values: float32 [n, n, n], at the points i / (n - 1).

    Returns:
      A closed mesh, triangles counter-clockwise seen from outside; empty where nothing is negative.

    Example:
      >>> grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 24)] * 3, indexing="ij"), -1)
      >>> mesh = surface(np.linalg.norm(grid - 0.5, axis=-1) - 0.4)
      >>> round(mesh.volume(), 3), round(4 / 3 * np.pi * 0.4**3, 3)
      (0.267, 0.268)
    """
    n = len(values)
    values = np.array(values, np.float64)
    for axis in range(3):
        for side in (0, -1):
            border = np.moveaxis(values, axis, 0)[side]
            np.maximum(border, 1e-9, out=border)
    inside = values < 0
    few = np.zeros((n - 1,) * 3, np.int8)
    for x, y, z in _CORNERS:
        few += inside[x : n - 1 + x, y : n - 1 + y, z : n - 1 + z]
    cells = np.argwhere((few > 0) & (few < 8))
    strides = np.array([n * n, n, 1])
    flat, negative = values.ravel(), inside.ravel()
    pieces = [np.zeros((0, 3, 2), np.int64)]
    for first in range(0, len(cells), _CELLS_AT_ONCE):
        corners = (cells[first : first + _CELLS_AT_ONCE] @ strides)[:, None] + _CORNERS @ strides
        pieces += _cut(corners[:, _TETRAHEDRA].reshape(-1, 4), negative, n)
    edges = np.sort(np.concatenate(pieces), -1).reshape(-1, 2)
    keys, index = np.unique(edges @ np.array([n**3, 1]), return_inverse=True)
    ends = np.stack([keys // n**3, keys % n**3], 1)
    a, b = flat[ends[:, :1]], flat[ends[:, 1:]]
    at = np.stack([ends // (n * n), ends // n % n, ends % n], -1).astype(np.float64)
    # Not at an end: two cut edges that meet there would become one vertex.
    share = np.clip(a / np.where(a == b, 1, a - b), 1e-6, 1 - 1e-6)
    vertices = (at[:, 0] + share * (at[:, 1] - at[:, 0])) / (n - 1)
    return Mesh(vertices, index.reshape(-1, 3))


def _cut(tetrahedra: np.ndarray, negative: np.ndarray, n: int) -> list[np.ndarray]:
    """int64 [T, 3, 2] pieces: triangles, each corner an edge of the grid by its two ends."""
    signs = negative[tetrahedra]
    count = signs.sum(1)
    pieces = []
    # Those that are inside first, the others behind; within each in their order.
    order = np.argsort(~signs, axis=1, kind="stable")
    ordered = np.take_along_axis(tetrahedra, order, 1)
    for inside, corners in (
        (1, [[(0, 1), (0, 2), (0, 3)]]),
        (3, [[(0, 3), (1, 3), (2, 3)]]),
        (2, [[(0, 2), (0, 3), (1, 3)], [(0, 2), (1, 3), (1, 2)]]),
    ):
        some = ordered[count == inside]
        for triangle in corners:
            pieces.append(
                _outwards(np.stack([some[:, pair] for pair in triangle], 1), some, inside, n)
            )
    return pieces


def _outwards(triangles: np.ndarray, tetrahedra: np.ndarray, inside: int, n: int) -> np.ndarray:
    """Turned round where they look inside, judged by the middles of the edges."""

    def places(index: np.ndarray) -> np.ndarray:
        return np.stack([index // (n * n), index // n % n, index % n], -1).astype(np.float64)

    a, b, c = places(triangles).mean(2).transpose(1, 0, 2)
    corners = places(tetrahedra)
    out = corners[:, inside:].mean(1) - corners[:, :inside].mean(1)
    wrong = np.einsum("ij,ij->i", np.cross(b - a, c - a), out) < 0
    triangles[wrong] = triangles[wrong][:, ::-1]
    return triangles
