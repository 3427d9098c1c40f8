"""Ray marching without skipping, in float64: every step of a ray, and the certain facts about
it."""

from __future__ import annotations

import numpy as np


def steps(origin, direction, aabb, n_levels, step, cone_angle, near, far, shift=0.0):
    """Starts and ends of all steps of one ray through the largest level, in float64."""
    origin, direction, aabb = (np.asarray(a, np.float64) for a in (origin, direction, aabb))
    centre, reach = (aabb[:3] + aabb[3:]) / 2, (aabb[3:] - aabb[:3]) / 2 * 2.0 ** (n_levels - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        faces = np.stack([centre - reach - origin, centre + reach - origin]) / direction
    outside = (direction == 0) & (np.abs(origin - centre) > reach)
    faces = np.where(direction == 0, [[-np.inf], [np.inf]], faces)
    near = max(near, 0.0, np.max(np.min(faces, axis=0)))
    far = min(far, np.min(np.max(faces, axis=0)))
    starts, ends = [], []
    if not np.any(outside) and np.any(direction != 0):
        t = near + shift * max(step, cone_angle * near)
        while t + max(step, cone_angle * t) / 2 < far:
            starts.append(t)
            t = (
                near + shift * step + (len(starts) * step)
                if cone_angle == 0
                else t + max(step, cone_angle * t)
            )
            ends.append(t)
    return np.array(starts), np.array(ends), far


def look_up(points, occupied, aabb, resolution):
    """Whether points [n, 3] lie in occupied cells [levels, resolution^3], and how far from a face, in cells."""
    aabb = np.asarray(aabb, np.float64)
    u = (points - aabb[:3]) / (aabb[3:] - aabb[:3]) - 0.5
    n_levels = len(occupied)
    size = 1.0 * np.ones(len(u))
    level = np.zeros(len(u), int)
    for _ in range(n_levels - 1):
        beyond = np.max(np.abs(u), axis=1) > size / 2
        beyond &= level < n_levels - 1
        level[beyond] += 1
        size[beyond] *= 2
    v = (u / size[:, None] + 0.5) * resolution
    cell = np.clip(np.floor(v).astype(int), 0, resolution - 1)
    index = (cell[:, 0] * resolution + cell[:, 1]) * resolution + cell[:, 2]
    distance = np.min(np.abs(v - np.round(v)), axis=1)
    # In cells of the finest level, the border between levels is a face too.
    return occupied[level, index], distance
