"""Volume rendering, distortion and scans along rays, sample by sample in float64: the tests' ground truth."""

from __future__ import annotations

import numpy as np


def pack(counts: list[int]) -> np.ndarray:
    """packed_info [rays, 2] of rays with so many samples, without gaps."""
    counts = np.asarray(counts, np.int64)
    return np.stack([np.cumsum(counts) - counts, counts], axis=-1)


def volume_render(
    sigmas, rgbs, t_starts, t_ends, packed_info, background=None, early_stop_eps=0.0
) -> dict[str, np.ndarray]:
    """rgb, opacity, depth (not normalised), depth_median, weights, transmittance: Max 1995, one term at a time."""
    sigmas, rgbs, t_starts, t_ends = (
        np.asarray(a, np.float64) for a in (sigmas, rgbs, t_starts, t_ends)
    )
    n_rays, channels = len(packed_info), rgbs.shape[-1]
    result = {
        "rgb": np.zeros((n_rays, channels)),
        "opacity": np.zeros(n_rays),
        "depth": np.zeros(n_rays),
        "depth_median": np.zeros(n_rays),
        "weights": np.zeros(len(sigmas)),
        "transmittance": np.zeros(len(sigmas)),
    }
    for r, (start, count) in enumerate(packed_info):
        light, stopped, found = 1.0, False, False
        for i in range(start, start + count):
            stopped = stopped or light < early_stop_eps
            result["transmittance"][i] = light
            middle = (t_starts[i] + t_ends[i]) / 2
            if not found:
                result["depth_median"][r] = middle
            with np.errstate(over="ignore", invalid="ignore"):
                pass_on = np.exp(-sigmas[i] * (t_ends[i] - t_starts[i]))
            if not stopped:
                weight = light * (1 - pass_on)
                result["weights"][i] = weight
                result["rgb"][r] += weight * rgbs[i]
                result["opacity"][r] += weight
                result["depth"][r] += weight * middle
                found = result["opacity"][r] >= 0.5
            light = light * pass_on
        if background is not None:
            behind = np.asarray(background, np.float64)
            behind = behind[r] if behind.ndim == 2 else behind
            result["rgb"][r] += (1 - result["opacity"][r]) * behind
    return result


def scan(inputs, packed_info, reduction: str, exclusive: bool, reverse: bool) -> np.ndarray:
    """Running sums or products along rays."""
    inputs = np.asarray(inputs, np.float64)
    result = np.zeros_like(inputs)
    for start, count in packed_info:
        value = 0.0 if reduction == "sum" else 1.0
        order = range(start, start + count)
        for i in reversed(order) if reverse else order:
            following = value + inputs[i] if reduction == "sum" else value * inputs[i]
            result[i] = value if exclusive else following
            value = following
    return result


def distortion(weights, t_starts, t_ends, packed_info) -> np.ndarray:
    """Equation 15 of mip-NeRF 360 as it is written: the double sum. [rays]"""
    weights, t_starts, t_ends = (np.asarray(a, np.float64) for a in (weights, t_starts, t_ends))
    result = np.zeros(len(packed_info))
    for r, (start, count) in enumerate(packed_info):
        ray = slice(start, start + count)
        w, middle = weights[ray], (t_starts[ray] + t_ends[ray]) / 2
        pairs = np.abs(middle[:, None] - middle[None, :])
        result[r] = w @ pairs @ w + np.sum(w**2 * (t_ends[ray] - t_starts[ray])) / 3
    return result
