"""Rendering, scans, marching and distortion along rays as their users write them: part of formulas.py.

Dense samples are [rays, samples]. Packed ones are padded to the longest ray, `steps` = 0, 1, ... being its samples; or
they stay packed, `ray` being each sample's ray: then one running sum goes over all rays, in float64, as float32 is too
coarse for it, and colours are summed by segments.
"""

from __future__ import annotations

from typing import Any

AABB = (-1.0, -1.0, -1.0, 1.0, 1.0, 1.0)
RESOLUTION = 128
STEP = 3**0.5 / 512


def render(m: Any, sigmas: Any, rgbs: Any, t_starts: Any, t_ends: Any) -> Any:
    """Equation 3 of NeRF: colours [rays, 3]."""
    thickness = sigmas * (t_ends - t_starts)
    weights = m.exp(thickness - m.cumsum(thickness)) * -m.expm1(-thickness)
    return m.sum_axis_1(weights[..., None] * rgbs)


def render_padded(
    m: Any, sigmas: Any, rgbs: Any, t_starts: Any, t_ends: Any, info: Any, steps: Any, ray: Any
) -> Any:
    """The same for packed samples."""
    del ray
    inside = steps[None, :] < info[:, 1:]
    at = m.where(inside, info[:, :1] + steps[None, :], 0 * info[:, :1])
    length = m.where(inside, m.take(t_ends, at) - m.take(t_starts, at), 0.0)
    return render(m, m.take(sigmas, at), m.take(rgbs, at), 0.0 * length, length)


def render_segments(
    m: Any, sigmas: Any, rgbs: Any, t_starts: Any, t_ends: Any, info: Any, steps: Any, ray: Any
) -> Any:
    """Without padding."""
    del steps
    thickness = sigmas * (t_ends - t_starts)
    wide = m.to_wide(thickness)
    before = m.cumsum_0(wide) - wide
    # For a ray without samples the start may lie behind the last one; it is not used.
    start = m.minimum(info[:, 0], 0 * info[:, 0] + (sigmas.shape[0] - 1))
    along = m.to_float(before - m.take(m.take(before, start), ray))
    weights = m.exp(-along) * -m.expm1(-thickness)
    return m.segment_sum(weights[:, None] * rgbs, ray, info.shape[0])


def distortion(m: Any, weights: Any, t_starts: Any, t_ends: Any) -> Any:
    """Equation 15 of mip-NeRF 360 by running sums, as torch-ngp and DVGO do: [rays]."""
    middle = (t_starts + t_ends) / 2
    moment = weights * middle
    before = m.cumsum(weights) - weights
    pairs = weights * (middle * before - (m.cumsum(moment) - moment))
    return m.sum_axis_1(2 * pairs + weights * weights * (t_ends - t_starts) / 3)


def distortion_pairs(m: Any, weights: Any, t_starts: Any, t_ends: Any) -> Any:
    """The double sum as the paper and its own code have it."""
    middle = (t_starts + t_ends) / 2
    apart = m.abs(middle[:, :, None] - middle[:, None, :])
    inter = m.sum_axis_1(weights * m.sum_axis_1(weights[:, :, None] * apart))
    return inter + m.sum_axis_1(weights * weights * (t_ends - t_starts)) / 3


def running_sum(m: Any, x: Any) -> Any:
    return m.cumsum(x)


def running_product(m: Any, x: Any) -> Any:
    return m.cumprod(x)


def march(m: Any, origins: Any, directions: Any, occupied: Any, steps: Any) -> Any:
    """All steps of all rays, looked up one by one: starts [rays, steps], -1 where there is nothing.

    `occupied` is [cells] of 0 and 1: without compaction, and without unpacking bits.
    """
    low, high = (AABB[0] - origins) / directions, (AABB[3] - origins) / directions
    first, last = m.minimum(low, high), m.maximum(low, high)
    near = m.maximum(m.maximum(first[:, :1], first[:, 1:2]), first[:, 2:])
    near = m.maximum(near, 0.0 * near)
    far = m.minimum(m.minimum(last[:, :1], last[:, 1:2]), last[:, 2:])
    starts = near + steps[None, :] * STEP
    middle = near + (steps[None, :] + 0.5) * STEP
    scale = RESOLUTION / (AABB[3] - AABB[0])
    cell = None
    for axis in range(3):
        at = origins[:, axis : axis + 1] + middle * directions[:, axis : axis + 1]
        at = m.floor((at - AABB[axis]) * scale)
        at = m.to_int(m.minimum(m.maximum(at, 0.0 * at), 0.0 * at + (RESOLUTION - 1)))
        cell = at if cell is None else cell * RESOLUTION + at
    taken = (m.take(occupied, cell) > 0) & (middle < far)
    return m.where(taken, starts, 0.0 * starts - 1)


FORMULAS = {
    "render": render,
    "render_padded": render_padded,
    "render_segments": render_segments,
    "distortion": distortion,
    "distortion_pairs": distortion_pairs,
    "running_sum": running_sum,
    "running_product": running_product,
    "march": march,
}
