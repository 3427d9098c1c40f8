"""The visual hull: the cells that the silhouettes of the training pictures rule out before training starts.

Source: Laurentini 1994, "The visual hull concept for silhouette-based image understanding".
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from .cameras import Cameras
from .lenses import PANORAMAS, Model, radial
from .scenes.common import Scene, Views
from .space import Space


class _Footprints(NamedTuple):
    """The pixels that the spheres around cells may cover in one view: half-open ranges, not clipped.

    `bounded` is false where a sphere may cover any pixel: it holds the camera, or lies where the lens shows nothing.
    """

    left: np.ndarray
    right: np.ndarray
    top: np.ndarray
    bottom: np.ndarray
    bounded: np.ndarray

    def clipped(self, width: int, height: int) -> tuple[np.ndarray, ...]:
        """(x0, x1, y0, y1), int32, within the frame."""
        x0, x1 = (np.clip(edge, 0, width).astype(np.int32) for edge in (self.left, self.right))
        y0, y1 = (np.clip(edge, 0, height).astype(np.int32) for edge in (self.top, self.bottom))
        return x0, x1, y0, y1


def _cells(space: Space, resolution: int, index: np.ndarray) -> tuple[np.ndarray, float]:
    """Centres float32 [M, 3] of cells, world, and the radius of the sphere around one."""
    unit = (np.stack(np.unravel_index(index, [resolution] * 3), axis=1) + 0.5) / resolution
    size = space.aabb[1] - space.aabb[0]
    return (space.aabb[0] + unit * size).astype(np.float32), float(
        np.linalg.norm(size)
    ) / resolution / 2


def _footprints(cameras: Cameras, view: int, centres: np.ndarray, radius: float) -> _Footprints:
    column, row, depth = project(cameras, view, centres)
    if cameras.select([view]).is_pinhole:
        bounded = depth > 1.01 * radius
        focal = float(cameras.intrinsics[view, :2].max())
        reach = radius * focal / np.maximum(depth - radius, 0.01 * radius)
        # Spheres beside the axis are seen as ellipses. One pixel more, for rounding, holds most of them.
        fl_x, fl_y, cx, cy = cameras.intrinsics[view]
        across = np.maximum(1 + reach, 0.01 + reach * np.hypot(1, (column - cx) / fl_x))
        along = np.maximum(1 + reach, 0.01 + reach * np.hypot(1, (row - cy) / fl_y))
    else:
        across, along, bounded = _reaches(cameras, view, centres, depth, radius)
    return _Footprints(
        np.floor(column - across),
        np.floor(column + across) + 1,
        np.floor(row - along),
        np.floor(row + along) + 1,
        bounded,
    )


def _reaches(
    cameras: Cameras, view: int, centres: np.ndarray, depth: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels from each sphere's middle to its ends, across and along columns, by any lens; whether these are bounds."""
    offset = centres - cameras.poses[view, :, 3]
    distance = np.linalg.norm(offset, axis=1)
    model, focal = int(cameras.models[view]), cameras.intrinsics[view, :2].astype(np.float64)
    if model == Model.PERSPECTIVE:
        bounded = depth > 1.01 * radius
        r = np.sqrt(np.maximum((distance / np.where(bounded, depth, np.inf)) ** 2 - 1, 0))
        size = radius * np.sqrt(1 + r * r) / np.maximum(depth - radius, 0.01 * radius)
    else:
        bounded = distance > 1.01 * radius
        size = np.arcsin(radius / np.where(bounded, distance, np.inf))
        r = np.arccos(np.clip(depth / np.maximum(distance, 1e-9), -1, 1))
    if model in PANORAMAS:
        # A circle of that size around latitude l reaches asin(sin(size) / cos(l)) to each side, or around the pole.
        up = np.abs(
            np.arcsin(
                np.clip(offset @ cameras.poses[view, :, 1] / np.maximum(distance, 1e-9), -1, 1)
            )
        )
        beside = np.where(up + size < np.pi / 2, np.sin(size) / np.cos(up), 1)
        aside = np.where(beside < 1, np.arcsin(np.minimum(beside, 1)), np.pi)
        # A cell that crosses the picture's edge goes on at the other one.
        x = np.abs((project(cameras, view, centres)[0] - cameras.width / 2) / focal[0])
        aside = np.where(x + aside < np.pi, aside, 2 * np.pi)
        return 1 + focal[0] * aside, 1 + focal[1] * size, bounded
    terms = tuple(map(float, cameras.distortion[view]))
    stretch = radial(model, terms, float(cameras.reach()[view])).stretch(r + size)
    bounded = bounded & np.isfinite(stretch)
    reach = 1 + focal.max() * size * np.where(bounded, stretch, 1)  # one more for rounding
    return reach, reach, bounded


def visual_hull(views: Views, space: Space, resolution: int) -> np.ndarray:
    """Cells that some picture shows as solid and no picture shows to be empty.

    A cell is ruled out when one picture has its centre in frame and every pixel of the frame that the cell may
    cover is fully transparent, or when no picture has a solid pixel where the cell may be: training rays
    could teach it little but to be empty.

    Args:
      views: Pictures with alpha.
      space: A plain (not contracted) box.
      resolution: Cells along an edge, G.

    Returns:
      bool [G^3], x slowest.
    """
    width, height = views.cameras.width, views.cameras.height
    alive = np.arange(resolution**3)
    centres, radius = _cells(space, resolution, alive)
    touched = np.zeros(resolution**3, bool)
    for view in range(len(views)):
        prints = _footprints(views.cameras, view, centres[alive], radius)
        # Most of a cell is in frame if its centre is.
        seen = (
            prints.bounded & (prints.left + prints.right >= 0) & (prints.top + prints.bottom >= 0)
        )
        seen &= prints.left + prints.right <= 2 * width
        seen &= prints.top + prints.bottom <= 2 * height
        # Solid pixels in each cell's rectangle, from a summed-area table.
        table = np.zeros([height + 1, width + 1], np.int32)
        table[1:, 1:] = (views.images[view, ..., 3] > 0).cumsum(axis=0).cumsum(axis=1)
        x0, x1, y0, y1 = prints.clipped(width, height)
        count = table[y1, x1] - table[y0, x1] - table[y1, x0] + table[y0, x0]
        touched[alive] |= (count > 0) | ~prints.bounded
        alive = alive[~(seen & (count == 0))]
    hull = np.zeros(resolution**3, bool)
    hull[alive] = touched[alive]
    return hull


def covered_pixels(cameras: Cameras, space: Space, cells: np.ndarray) -> np.ndarray:
    """Pixels whose rays may hit one of the cells; the others can be skipped, as they see nothing.

    Args:
      cameras: N cameras.
      space: A plain (not contracted) box.
      cells: bool [G^3], x slowest.

    Returns:
      bool [N, H, W], never False where a ray hits a cell.
    """
    resolution = round(len(cells) ** (1 / 3))
    centres, radius = _cells(space, resolution, np.flatnonzero(cells))
    covered = np.zeros([len(cameras), cameras.height, cameras.width], bool)
    for view in range(len(cameras)):
        prints = _footprints(cameras, view, centres, radius)
        if not prints.bounded.all():
            covered[view] = (
                True  # the camera is among the cells, or they lie where the lens shows nothing
            )
            continue
        x0, x1, y0, y1 = prints.clipped(cameras.width, cameras.height)
        # Each rectangle adds one between its corners once the corners are summed up.
        corners = np.zeros([cameras.height + 1, cameras.width + 1], np.int32)
        for y, x, sign in ((y0, x0, 1), (y0, x1, -1), (y1, x0, -1), (y1, x1, 1)):
            np.add.at(corners, (y, x), sign)
        covered[view] = corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1] > 0
    return covered


def project(
    cameras: Cameras, view: int, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixel coordinates (column, row) and depth in front of the camera, [M] each, of points [M, 3].

    They say nothing of points that the lens does not show.
    """
    rotation, origin = cameras.poses[view, :, :3], cameras.poses[view, :, 3]
    local = (points - origin) @ rotation
    depth = -local[:, 2]
    model = int(cameras.models[view])
    fl_x, fl_y, cx, cy = cameras.intrinsics[view]
    if model == Model.PERSPECTIVE:
        safe = np.where(np.abs(depth) < 1e-6, 1e-6, depth)
        x, y = local[:, 0] / safe, -local[:, 1] / safe
        k1, k2, p1, p2, k3, k4 = cameras.distortion[view]
        r2 = x * x + y * y
        factor = 1 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4)))
        x, y = (
            x * factor + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            y * factor + 2 * p2 * x * y + p1 * (r2 + 2 * y * y),
        )
    elif model == Model.FISHEYE:
        k1, k2, k3, k4 = cameras.distortion[view, :4]
        flat = np.hypot(local[:, 0], local[:, 1])
        angle = np.arctan2(flat, depth)
        s = angle * angle
        bent = angle * (1 + s * (k1 + s * (k2 + s * (k3 + s * k4))))
        factor = bent / np.maximum(flat, 1e-9)
        x, y = local[:, 0] * factor, -local[:, 1] * factor
    else:
        sine = -local[:, 1] / np.maximum(np.linalg.norm(local, axis=1), 1e-9)
        x = np.arctan2(local[:, 0], depth)
        y = sine if model == Model.EQUAL_AREA else np.arcsin(np.clip(sine, -1, 1))
    return x * fl_x + cx, y * fl_y + cy, depth


def level_hulls(views: Views, space: Space, resolution: int) -> np.ndarray:
    """The visual hull in the cells of an occupancy grid: bool [n_levels, G^3], x slowest.

    Args:
      views: Pictures with alpha.
      space: Any; each level of its grid is a box twice as long as the one before.
      resolution: Cells along an edge, G.
    """
    boxes = [_grown(space, 2.0**level) for level in range(space.n_levels)]
    return np.stack([visual_hull(views, box, resolution) for box in boxes])


def _grown(space: Space, factor: float) -> Space:
    """A plain box around the middle of a space, `factor` times as long as its box."""
    if factor == 1:
        return Space(space.aabb, near=space.near)
    half = (space.aabb[1] - space.aabb[0]) / 2 * factor
    return Space(
        np.stack([space.centre - half, space.centre + half]).astype(np.float32), near=space.near
    )


def fit_space(scene: Scene, resolution: int = 64) -> Scene:
    """Shrinks the box of a scene with alpha to a cube around its visual hull.

    The finest cells of the hash grid and the steps of the marcher are fractions of the box, so
    a tight box is resolution for free. An unbounded scene becomes a plain one if its hull fits into its box: all
    else is background. Scenes without alpha, and those whose hull is empty or does not fit, come back as they are.
    """
    space = scene.space
    if not scene.has_alpha:
        return scene
    box = _grown(space, 2.0 ** (space.n_levels - 1))
    for _ in range(space.n_levels):  # in large boxes cells are large
        hull = visual_hull(scene.train, box, resolution).reshape([resolution] * 3)
        if not hull.any():
            return scene
        bounds = np.empty([2, 3])
        for axis in range(3):
            along = np.flatnonzero(hull.any(axis=tuple({0, 1, 2} - {axis})))
            bounds[:, axis] = along[0], along[-1] + 1
        corners = box.aabb[0] + bounds / resolution * (box.aabb[1] - box.aabb[0])
        centre = corners.mean(axis=0)
        half = float((corners[1] - corners[0]).max()) / 2
        aabb = np.stack([centre - half, centre + half]).astype(np.float32)
        before, box = box, Space(aabb, near=space.near)
        if box.diagonal > 0.9 * before.diagonal:
            break
    if space.contracted and box.diagonal > space.diagonal:
        return scene
    return dataclasses.replace(scene, space=box)
