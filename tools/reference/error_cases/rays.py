"""Ops along rays: rendering, scans, the distortion loss, marching; and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests.oracles import march, numeric, rays
from tools.reference.error_cases import DTYPES, Case, gradients, incoming, rounded, wide

COUNTS = [0, 1, 7, 64, 33, 200]
FEW = [0, 1, 7, 20]  # for central differences
CHANNELS = 3


class _Rays:
    """Packed samples along rays, and the ops' arguments for them."""

    def __init__(self, counts: list[int], random: np.random.Generator) -> None:
        self.packed, self.n = rays.pack(counts), sum(counts)
        gaps = random.uniform(0.001, 0.02, self.n)
        starts = [np.cumsum(gaps[s : s + c]) - gaps[s : s + c] for s, c in self.packed]
        self.starts = np.concatenate(starts).astype(np.float32)
        self.ends = (self.starts + 0.8 * gaps).astype(np.float32)

    @property
    def t(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return (
            tf.constant(self.starts),
            tf.constant(self.ends),
            tf.constant(self.packed.astype(np.int32)),
        )


def cases() -> Iterator[Case]:
    random = np.random.default_rng(3)
    many, few = _Rays(COUNTS, random), _Rays(FEW, random)
    for dtype in DTYPES:
        yield from _rendering(many, random, dtype)
        yield from _rendering_gradients(few, random, dtype)
        yield from _scans(many, few, random, dtype)
    yield from _distortion(many, random)
    yield from _marching(random)


def _rendering(along: _Rays, random: np.random.Generator, dtype: str) -> Iterator[Case]:
    sigmas = rounded(random.uniform(0, 60, along.n), dtype)
    colours = rounded(random.uniform(size=(along.n, CHANNELS)), dtype)
    expected = rays.volume_render(
        wide(sigmas), wide(colours), along.starts, along.ends, along.packed
    )

    def field(name: str, function: Callable[..., Any], *inputs: np.ndarray, **options: Any) -> Any:
        return getattr(function(*map(tf.constant, inputs), *along.t, **options), name)

    for name in ("rgb", "opacity", "depth"):
        yield (
            "VolumeRender",
            dtype,
            lambda n=name: field(
                n, metal_ops.volume_render, sigmas, colours, normalize_depth=False
            ),
            expected[name],
        )
    for name in ("weights", "transmittance"):
        yield (
            "RenderWeights",
            dtype,
            lambda n=name: field(n, metal_ops.render_weights, sigmas),
            expected[name],
        )


def _rendering_gradients(along: _Rays, random: np.random.Generator, dtype: str) -> Iterator[Case]:
    sigmas = rounded(random.uniform(0, 60, along.n), dtype)
    colours = rounded(random.uniform(size=(along.n, CHANNELS)), dtype)
    into_rgb = incoming(random, (len(along.packed), CHANNELS))
    into_weights = incoming(random, (along.n,))

    def oracle(name: str, weights: np.ndarray, s: np.ndarray, c: np.ndarray) -> float:
        result = rays.volume_render(s, c, along.starts, along.ends, along.packed)
        return float(np.sum(weights * result[name]))

    def rgb(s: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
        return metal_ops.volume_render(s, c, *along.t, normalize_depth=False).rgb

    expected = (
        numeric.gradient(lambda s: oracle("rgb", into_rgb, s, wide(colours)), wide(sigmas)),
        numeric.gradient(lambda c: oracle("rgb", into_rgb, wide(sigmas), c), wide(colours)),
    )
    for index, right in enumerate(expected):
        yield (
            "VolumeRenderGrad",
            dtype,
            lambda i=index: gradients(rgb, [sigmas, colours], [into_rgb])[i],
            right,
        )
    for name in ("weights", "transmittance"):
        yield (
            "RenderWeightsGrad",
            dtype,
            lambda n=name: gradients(
                lambda s: getattr(metal_ops.render_weights(s, *along.t), n),
                [sigmas],
                [into_weights],
            )[0],
            numeric.gradient(
                lambda s, n=name: oracle(n, into_weights, s, wide(colours)), wide(sigmas)
            ),
        )


def _scans(many: _Rays, few: _Rays, random: np.random.Generator, dtype: str) -> Iterator[Case]:
    info, few_info = many.t[2], few.t[2]
    x = rounded(random.uniform(0.9, 1.1, many.n), dtype)
    for reduction, function in (
        ("sum", metal_ops.inclusive_sum),
        ("prod", metal_ops.inclusive_prod),
    ):
        yield (
            "PackedScan",
            dtype,
            lambda f=function: f(tf.constant(x), info),
            rays.scan(wide(x), many.packed, reduction, False, False),
        )
    few_x, into = rounded(random.uniform(0.5, 1.5, few.n), dtype), incoming(random, (few.n,))
    few_x[3] = 0  # the gradient of a product may not divide by it
    yield (
        "PackedProdGrad",
        dtype,
        lambda: raw_ops.packed_prod_grad(
            tf.constant(rounded(into, dtype)), tf.constant(few_x), few_info
        ),
        numeric.gradient(
            lambda v: float(np.sum(into * rays.scan(v, few.packed, "prod", False, False))),
            wide(few_x),
        ),
    )


def _distortion(along: _Rays, random: np.random.Generator) -> Iterator[Case]:
    weights = random.uniform(0, 0.1, along.n).astype(np.float32)
    yield (
        "DistortionLoss",
        "float32",
        lambda: metal_ops.distortion_loss(tf.constant(weights), *along.t),
        rays.distortion(weights, along.starts, along.ends, along.packed),
    )
    slope, into = random.normal(size=along.n), random.normal(size=len(along.packed))
    slope, into = slope.astype(np.float32), into.astype(np.float32)
    yield (
        "ScaleRays",
        "float32",
        lambda: raw_ops.scale_rays(tf.constant(into), tf.constant(slope), along.t[2]),
        wide(slope) * np.repeat(wide(into), along.packed[:, 1]),
    )


def _marching(random: np.random.Generator) -> Iterator[Case]:
    """All cells are occupied, so that every step counts and none is in doubt."""
    aabb = np.array([-1, -1, -1, 1, 1, 1], np.float32)
    occupancy = np.full([1, 8**3 // 8], 255, np.uint8)
    origins = np.array([[-3.0, 0.1, 0.2], [0.3, 4.0, -0.2]], np.float32)
    directions = np.array([[1.0, 0.02, -0.03], [0.05, -1.0, 0.01]], np.float32)
    steps = [
        march.steps(o, d, aabb, 1, 0.013, 0.0, 0.0, np.inf)
        for o, d in zip(origins, directions, strict=True)
    ]
    for field, index in (("t_starts", 0), ("t_ends", 1)):
        yield (
            "RayMarch",
            "float32",
            lambda f=field: getattr(
                metal_ops.ray_march(
                    tf.constant(origins),
                    tf.constant(directions),
                    tf.constant(occupancy),
                    tf.constant(aabb),
                    step=0.013,
                    resolution=8,
                ),
                f,
            ),
            np.concatenate([each[index] for each in steps]),
        )
    densities = random.uniform(size=(2, 4**3)).astype(np.float32)
    yield (
        "PackOccupancy",
        "float32",
        lambda: raw_ops.pack_occupancy(tf.constant(densities), tf.constant(0.5)),
        np.packbits(densities > 0.5, axis=1, bitorder="little"),
    )
