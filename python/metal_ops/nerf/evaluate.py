"""Rendering whole pictures, and scoring them against held-out views."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops import OccupancyGrid

from .cameras import Cameras, cast_rays
from .lenses import Lenses
from .metrics import on_background, psnr, ssim
from .model import RadianceField
from .packed import PackedField, PackedPictures
from .rays import march, middles, select
from .scenes import Views
from .space import Space

# Rays at once. Few while little is known to be empty: that bounds the memory that their samples take.
_CHUNK, _CHUNK_IN_EMPTY_SPACE = 4096, 16384
_DEVICE_FACTOR = 8  # a GPU wants more work at once
_PACKED_CHUNK = 1 << 19
_EMPTY_SPACE = 0.25  # the occupied part of the grid from which on it counts as known
# Samples that weigh less do not show in 8 bits, not even all of a ray's: a step is 4e-3, and 1.4e-3 were seen.
_INVISIBLE = 1e-4


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
      field: The field to render.
      occupancy: The grid of empty cells.
      space: Where it is.
      step: Length of a marching step, world units.
      packed: The field as it is trained on a GPU, if it is.
    """

    def __init__(
        self,
        field: RadianceField,
        occupancy: OccupancyGrid,
        space: Space,
        step: float,
        packed: PackedField | None = None,
    ) -> None:
        self._occupancy = occupancy
        self._packed = None if packed is None else PackedPictures(packed, occupancy, space, step)

        @tf.function(autograph=False)
        def cast(
            pose: tf.Tensor,
            intrinsics: tf.Tensor,
            lenses: Lenses | None,
            kinds: tuple[int, ...],
            first: tf.Tensor,
            end: tf.Tensor,
            width: tf.Tensor,
        ) -> tuple[tf.Tensor, tf.Tensor]:
            pixel = tf.range(first, end)
            return cast_rays(pose, intrinsics, lenses, kinds, pixel % width, pixel // width)

        @tf.function(autograph=False)
        def render(*pixels: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return self._shade(field, space, step, *cast(*pixels))

        self._render, self._cast = render, cast

    def _rays_at_once(self) -> int:
        if self._packed is not None:
            return _PACKED_CHUNK
        known = self._occupancy.occupied_fraction() < _EMPTY_SPACE
        chunk = _CHUNK_IN_EMPTY_SPACE if known else _CHUNK
        place = tf.DeviceSpec.from_string(self._occupancy.bits.device)
        return chunk * (_DEVICE_FACTOR if place.device_type == "GPU" else 1)

    def _shade(
        self,
        field: RadianceField,
        space: Space,
        step: float,
        origins: tf.Tensor,
        directions: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ops = field.ops
        n_rays = tf.shape(origins, tf.int64)[:1]
        samples = march(ops, origins, directions, space, self._occupancy, step)
        # Most rays of most pictures hit nothing: go on without them.
        hit = samples.packed_info[:, 1] > 0
        kept = tf.where(hit)
        origins, directions = tf.gather_nd(origins, kept), tf.gather_nd(directions, kept)
        number = tf.cumsum(tf.cast(hit, tf.int32), exclusive=True)
        samples = samples._replace(
            ray_indices=tf.gather(number, samples.ray_indices),
            packed_info=tf.gather_nd(samples.packed_info, kept),
        )
        points = space.along(origins, directions, samples.ray_indices, middles(samples))
        density, features = field.geometry(points)
        weights, _ = ops.render_weights(density, samples)
        visible = tf.where(weights > _INVISIBLE)[:, 0]
        samples = select(ops, samples, visible)
        encoded = tf.gather(field.encode_directions(directions), samples.ray_indices)
        colour = field.colour(tf.gather(features, visible), encoded)
        rendering = ops.volume_render(tf.gather(density, visible), colour, samples)
        return (
            tf.scatter_nd(kept, rendering.rgb, [n_rays[0], 3]),
            tf.scatter_nd(kept, rendering.opacity, n_rays),
            tf.scatter_nd(kept, rendering.depth, n_rays),
        )

    def __call__(self, cameras: Cameras, view: int) -> Picture:
        """The picture that camera number `view` sees."""
        height, width = cameras.height, cameras.width
        one = cameras.select([view])
        lenses = one.lenses()
        camera = (tf.constant(one.poses), tf.constant(one.intrinsics), lenses, one.kinds)
        chunk = self._rays_at_once()
        parts: list[Any] = []
        for first in range(0, height * width, chunk):
            end = min(first + chunk, height * width)
            numbers = (tf.constant(number) for number in (first, end, width))
            if self._packed is not None:
                parts.append(self._packed(*self._cast(*camera, *numbers)))
            else:
                parts.append([part.numpy() for part in self._render(*camera, *numbers)])
        colour, opacity, depth = (np.concatenate(part) for part in zip(*parts, strict=True))
        picture = Picture(
            colour.reshape(height, width, 3),
            opacity.reshape(height, width),
            depth.reshape(height, width),
        )
        shown = cameras.shown(view)
        if shown is not None:  # background, where the lens shows nothing
            for part in picture:
                part[~shown] = 0
        return picture


@dataclass(frozen=True)
class Score:
    """How well held-out views are met, where they have rays and their masks let them count.

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
        """Mean of the views' PSNR, as papers report it; views without a valid pixel do not count."""
        return _mean(self.psnr)

    @property
    def mean_ssim(self) -> float:
        """Mean of the views' SSIM; NaN if it was not asked for."""
        return _mean(self.ssim)


def _mean(values: tuple[float, ...]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


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
    step: Callable[[], None] = lambda: None,
) -> Score | None:
    """Scores at most `most` of the views; None if `stop` said so in between.

    Args:
      render: Renders the field.
      views: The truth.
      background: The colour that both are put over.
      most: How many views at most, evenly spread.
      with_ssim: Whether SSIM is wanted, too.
      stop: Asked before each view.
      step: Called after each view.
    """
    names, psnrs, ssims = [], [], []
    for view in spread(len(views), most):
        if stop():
            return None
        image = render(views.cameras, int(view)).over(background)
        truth = on_background(views.images[view], background)
        valid = views.valid(int(view))
        names.append(views.names[view])
        psnrs.append(psnr(image, truth, valid))
        if with_ssim:
            ssims.append(ssim(image, truth, valid))
        step()
    return Score(tuple(names), tuple(psnrs), tuple(ssims))
