"""The distance of the learnt surface from the mesh: Chamfer distance of the surfaces, and the overlap of the solids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from metal_ops.programs.errors import ProgramError

from .distance import Distances
from .mesh import MARGIN, Mesh, on_surface
from .pictures import Function
from .polygonise import surface


class Score(NamedTuple):
    """How near two solids are.

    Attributes:
      chamfer: Mean distance of points on either surface to the other one, in the mesh's longest side.
      iou: Volume that both have, over the volume that one of them has.
      triangles: Number of triangles of the extracted surface.
    """

    chamfer: float
    iou: float
    triangles: int


def polygons(distance: Function, resolution: int) -> Mesh:
    """The zero set as a closed mesh in the unit cube.

    Args:
      distance: Signed distances at points of the cube.
      resolution: Cells along an edge.

    Raises:
      ProgramError: Nothing is inside.
    """
    along = np.linspace(0, 1, resolution + 1, dtype=np.float32)
    values = np.empty((resolution + 1,) * 3, np.float32)
    for i, x in enumerate(along):
        y, z = np.meshgrid(along, along, indexing="ij")
        values[i] = distance(np.stack([np.full_like(y, x), y, z], -1).reshape(-1, 3)).reshape(
            y.shape
        )
    found = surface(values)
    if not len(found.triangles):
        raise ProgramError("what was learnt has no inside yet; train longer.")
    return found


def score(
    distance: Function, mesh: Mesh, exact: Distances, resolution: int, n: int, seed: int = 0
) -> Score:
    """Compares a field with the mesh that it should be of.

    Args:
      distance: The field.
      mesh: In the unit cube.
      exact: Distances to it.
      resolution: Cells along an edge for the field's surface.
      n: Points on each surface, and in the cube.
      seed: Seed of the points.
    """
    random = np.random.default_rng(seed)
    found = polygons(distance, resolution)
    there = np.abs(exact(on_surface(found, n, random))).mean()
    back = np.abs(Distances(found)(on_surface(mesh, n, random))).mean()
    points = random.uniform(mesh.vertices.min(0) - 0.05, mesh.vertices.max(0) + 0.05, (n, 3))
    points = np.clip(points, 0, 1)
    a, b = exact(points) < 0, distance(points) < 0
    iou = float((a & b).sum() / max((a | b).sum(), 1))
    return Score(float(there + back) / 2 / (1 - 2 * MARGIN), iou, len(found.triangles))
