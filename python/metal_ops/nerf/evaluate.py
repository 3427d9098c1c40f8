"""Rendering whole pictures, and scoring them against held-out views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .cameras import Cameras, RayCaster
from .metrics import on_background, psnr, ssim
from .model import RadianceField
from .occupancy import OccupancyGrid
from .render import composite, select_samples, transmittance
from .sampling import sample_rays
from .scenes import Views
from .space import Space

# Rays at once: bounds memory when nothing is known to be empty yet.
_CHUNK = 4096
# Behind surfaces that let through less, colours cannot be told apart in 8 bits.
_HIDDEN = 1e-4


class Picture(NamedTuple):
    """A rendered view.

    Attributes:
        colour: float32 [H, W, 3] on black.
        opacity: float32 [H, W].
        depth: float32 [H, W], mean distance where there is anything, world units.
    """

    colour: np.ndarray
    opacity: np.ndarray
    depth: np.ndarray

    def over(self, background: tuple[float, float, float]) -> np.ndarray:
        """float32 [H, W, 3] in [0, 1] over a colour."""
        behind = (1 - self.opacity[..., None]) * np.asarray(background, np.float32)
        return np.clip(self.colour + behind, 0, 1)


class Renderer:
    """Renders views of a radiance field.

    Args:
        field: What to render.
        occupancy: What is empty.
        space: Where it is.
        step: Length of a marching step, world units.
    """

    def __init__(
        self, field: RadianceField, occupancy: OccupancyGrid, space: Space, step: float
    ) -> None:
        @tf.function(input_signature=[tf.TensorSpec([None, 3])] * 2, autograph=False)
        def render(origins: tf.Tensor, directions: tf.Tensor):
            samples = sample_rays(origins, directions, space, occupancy, step)
            density, features = field.geometry(samples.points)
            visible = tf.where(transmittance(density, samples) > _HIDDEN)[:, 0]
            samples = select_samples(samples, visible)
            encoded = tf.gather(field.encode_directions(directions), samples.ray_indices)
            colour = field.colour(tf.gather(features, visible), encoded)
            return composite(tf.gather(density, visible), colour, samples)

        self._render = render

    def __call__(self, cameras: Cameras, view: int) -> Picture:
        """The picture that camera number `view` sees."""
        height, width = cameras.height, cameras.width
        caster = RayCaster(cameras.select([view]))
        parts = []
        for start in range(0, height * width, _CHUNK):
            pixel = tf.range(start, min(start + _CHUNK, height * width))
            origins, directions = caster(tf.zeros_like(pixel), pixel % width, pixel // width)
            parts.append([part.numpy() for part in self._render(origins, directions)])
        colour, opacity, depth = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Picture(
            colour.reshape(height, width, 3),
            opacity.reshape(height, width),
            (depth / np.maximum(opacity, 1e-6)).reshape(height, width),
        )


@dataclass(frozen=True)
class Score:
    """How well held-out views are met.

    Attributes:
        names: Names of the views.
        psnr: dB for each.
        ssim: For each; empty if it was not asked for.
    """

    names: tuple[str, ...]
    psnr: tuple[float, ...]
    ssim: tuple[float, ...]

    @property
    def mean_psnr(self) -> float:
        """Mean of the views' PSNR, as papers report it."""
        return float(np.mean(self.psnr))

    @property
    def mean_ssim(self) -> float:
        """Mean of the views' SSIM; NaN if it was not asked for."""
        return float(np.mean(self.ssim)) if self.ssim else float("nan")


def spread(count: int, most: int) -> np.ndarray:
    """At most `most` of the indices below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))


def evaluate(
    render: Renderer,
    views: Views,
    background: tuple[float, float, float],
    most: int,
    with_ssim: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> Score | None:
    """Scores at most `most` of the views; None if `stop` said so in between.

    Args:
        render: Renders the field.
        views: The truth.
        background: What both are put over.
        most: How many views at most, evenly spread.
        with_ssim: Whether SSIM is wanted, too.
        stop: Asked before each view.
    """
    names, psnrs, ssims = [], [], []
    for view in spread(len(views), most):
        if stop():
            return None
        image = render(views.cameras, int(view)).over(background)
        truth = on_background(views.images[view], background)
        names.append(views.names[view])
        psnrs.append(psnr(image, truth))
        if with_ssim:
            ssims.append(ssim(image, truth))
    return Score(tuple(names), tuple(psnrs), tuple(ssims))
