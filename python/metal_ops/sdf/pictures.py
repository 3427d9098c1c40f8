"""Pictures of signed distances: the surface by sphere tracing (Hart 1996), and a slice with its level lines."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from metal_ops.programs.pictures import as_bytes

Function = Callable[[np.ndarray], np.ndarray]

_EYE = 2.0  # from the middle of the cube
_RADIUS = 0.87  # of a ball around the cube
_SLOPE = 0.29  # of the outermost ray
_STEPS = 64
_SURFACE = 1e-3
# A learnt distance may be longer than the true one.
_CAREFUL = 0.9
_LIGHT = np.array([0.45, -0.35, 0.82]) / np.linalg.norm([0.45, -0.35, 0.82])
_COLOUR, _SKY = np.array([0.93, 0.62, 0.32]), np.array([0.96, 0.97, 0.99])


def rays(size: int, turn: float) -> tuple[np.ndarray, np.ndarray]:
    """The eye float64 [3] and directions float64 [size * size, 3], after a turn (radians) around z."""
    height = 0.55
    flat = math.cos(height)
    ahead = -np.array([math.cos(turn) * flat, math.sin(turn) * flat, math.sin(height)])
    right = np.cross(ahead, [0, 0, 1])
    right /= np.linalg.norm(right)
    down = np.cross(ahead, right)
    steps = ((np.arange(size) + 0.5) / size * 2 - 1) * _SLOPE
    directions = ahead + steps[None, :, None] * right + steps[:, None, None] * down
    directions = directions.reshape(-1, 3)
    return 0.5 - _EYE * ahead, directions / np.linalg.norm(directions, axis=1, keepdims=True)


def in_cube(distance: Function) -> Function:
    """A function of the cube for points beyond it: they go to its border first."""

    def everywhere(points: np.ndarray) -> np.ndarray:
        nearest = np.clip(points, 0, 1)
        return distance(nearest) + np.linalg.norm(points - nearest, axis=1)

    return everywhere


def traced(distance: Function, gradient: Function, size: int, turn: float = 0.6) -> np.ndarray:
    """The surface as uint8 [size, size, 3].

    Args:
      distance: Signed distances [N] at points [N, 3] of the cube.
      gradient: Their gradients [N, 3], of any length.
      size: Pixels along an edge.
      turn: Turn of the camera around the cube, radians.
    """
    eye, directions = rays(size, turn)
    everywhere = in_cube(distance)
    along = np.full(len(directions), _EYE - _RADIUS)
    active, hit = np.arange(len(directions)), np.zeros(len(directions), bool)
    for _ in range(_STEPS):
        d = everywhere(eye + along[active, None] * directions[active])
        hit[active[d < _SURFACE]] = True
        along[active] += _CAREFUL * d
        active = active[(d >= _SURFACE) & (along[active] < _EYE + _RADIUS)]
        if not len(active):
            break
    shade = np.broadcast_to(_SKY, (len(directions), 3)).copy()
    where = np.flatnonzero(hit)
    if len(where):
        points = np.clip(eye + along[where, None] * directions[where], 0, 1)
        normals = gradient(points).astype(np.float64)
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
        light = np.clip(normals @ _LIGHT, 0, 1)[:, None]
        facing = np.clip(-np.einsum("ij,ij->i", normals, directions[where]), 0, 1)[:, None]
        shade[where] = _COLOUR * (0.18 + 0.2 * facing + 0.62 * light) + 0.25 * light**24
    return as_bytes(shade).reshape(size, size, 3)


def by_differences(distance: Function, step: float = 1e-4) -> Function:
    """Gradients of a function that has none of its own."""

    def gradient(points: np.ndarray) -> np.ndarray:
        points = np.asarray(points, np.float64)
        offsets = step * np.eye(3)
        return np.stack([distance(points + o) - distance(points - o) for o in offsets], -1) / (2 * step)  # fmt: skip

    return gradient


def slice_of(distance: Function, size: int, height: float = 0.5) -> np.ndarray:
    """Distances in the plane z = height as uint8 [size, size, 3]: blue inside, a line every 0.04, the surface white."""
    along = (np.arange(size) + 0.5) / size
    y, x = np.meshgrid(along[::-1], along, indexing="ij")
    d = distance(np.stack([x, y, np.full_like(x, height)], -1).reshape(-1, 3)).reshape(
        size, size, 1
    )
    colour = np.where(d > 0, np.array([0.9, 0.6, 0.3]), np.array([0.4, 0.65, 0.9]))
    colour = (
        colour * (1 - 0.85 * np.exp(-10 * np.abs(d))) * (0.82 + 0.18 * np.cos(2 * np.pi / 0.04 * d))
    )
    return as_bytes(np.where(np.abs(d) < 0.6 / size, 1.0, colour))
