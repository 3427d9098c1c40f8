"""Where the box of a scene lies whose files say nothing of it: around the place that the cameras look at."""

from __future__ import annotations

import math

import numpy as np

from metal_ops.programs.errors import printable

from ..space import Space

# colmap2nerf.py's: cameras are 4 from the middle on average, and the box is 1 / 0.33 long.
_BOX = 0.5 / 0.33 / 4
_NEAR = 0.1  # of the box's length: nothing is that close to a photographer
_WITH_ALPHA = 0.6  # of the cameras' distance: silhouettes shrink the box to the thing
_LEAST_EXTENT, _MOST_EXTENT = 2.0, 32.0
# Half a box: others are brought to the usual one, as densities are per length and poses float32.
_LEAST_SIZE, _MOST_SIZE, _USUAL_SIZE = 0.15, 15.0, 1.5
_FARTHEST = 1e3
# nerfstudio's, of cameras that look everywhere: they lie within the box.
_NEAR_INSIDE = 0.025


def place_box(
    poses: np.ndarray, points: np.ndarray, has_alpha: bool, inside: bool, where: str
) -> tuple[np.ndarray, Space, list[str]]:
    """A box around the place that the cameras look at.

    Args:
      poses: float64 [N, 3, 4], camera-to-world, OpenGL axes.
      points: float64 [M, 3] of the scene; there may be none.
      has_alpha: Whether the pictures mark the background: then nothing outside the box is modelled.
      inside: Whether the cameras look everywhere, as panoramas do.
      where: The file, for notes.

    Returns:
      The poses, moved and scaled if the box is far from the usual size or place, the space, and notes.
    """
    centre, half, extent = _box(poses, points, has_alpha, inside)
    notes = []
    if not _LEAST_SIZE <= half <= _MOST_SIZE or np.abs(centre).max() > _FARTHEST * half:
        factor = _USUAL_SIZE / half
        poses = poses.copy()
        poses[:, :, 3] = (poses[:, :, 3] - centre) * factor
        notes.append(
            f"{printable(where)}: the world is moved by {np.round(-centre, 3).tolist()} and scaled by {factor:.4g}, "
            "as its box would be too large, too small or too far away."
        )
        centre, half = np.zeros(3), _USUAL_SIZE
    aabb = np.array([centre - half, centre + half], np.float32)
    near = (_NEAR_INSIDE if inside else _NEAR) * 2 * half
    return poses, Space(aabb, extent=extent, near=near), notes


def _box(
    poses: np.ndarray, points: np.ndarray, has_alpha: bool, inside: bool
) -> tuple[np.ndarray, float, float]:
    """Centre [3], half an edge and extent."""
    eyes, ahead = poses[:, :, 3], -poses[:, :, 2]
    if inside:
        centre = eyes.mean(axis=0)
        half = float(np.abs(eyes - centre).max()) or 1.0
        return centre, half, _MOST_EXTENT
    across = np.eye(3) - ahead[:, :, None] * ahead[:, None, :]
    total = across.sum(axis=0)
    centre = eyes.mean(axis=0) + ahead.mean(axis=0) * (np.ptp(eyes, axis=0).max() or 1.0)
    if len(points):
        centre = np.median(points, axis=0)
    # Axes that are almost parallel, or look away from each other, have no common point.
    if np.linalg.eigvalsh(total)[0] > 0.02 * len(eyes):
        meeting = np.linalg.solve(total, np.einsum("nij,nj->i", across, eyes))
        if np.mean(((meeting - eyes) * ahead).sum(axis=1) > 0) > 0.5:
            centre = meeting
    distance = float(np.linalg.norm(eyes - centre, axis=1).mean())
    half = (_WITH_ALPHA if has_alpha else _BOX) * distance or 1.0
    if has_alpha:
        return centre, half, 1.0
    reach = float(np.abs(eyes - centre).max())
    if len(points):
        reach = max(reach, float(np.percentile(np.abs(points - centre).max(axis=1), 95)))
    extent = 2.0 ** math.ceil(math.log2(max(reach / half, 1.0)))
    return centre, half, min(max(extent, _LEAST_EXTENT), _MOST_EXTENT)
