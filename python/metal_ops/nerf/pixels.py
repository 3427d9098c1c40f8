"""The source of training's draws: the pixels whose rays can teach something, and the colours behind them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from metal_ops.programs.errors import ProgramError

from .config import TrainConfig
from .hull import covered_pixels
from .scenes import Scene


def training_pixels(scene: Scene, hull: np.ndarray | None) -> tuple[tf.Tensor, tf.Tensor | None]:
    """All training pixels uint8 [N, 4], and those that are drawn int64 [U]; None for all.

    Args:
      scene: The scene.
      hull: bool [n_levels, G^3], what may be solid; None without alpha.

    Raises:
      ProgramError: There are too many, or none is left.
    """
    views = scene.train
    count, height, width = views.images.shape[:3]
    if count * height * width >= 1 << 31:
        raise ProgramError("the scene has more than 2^31 training pixels; use --downscale.")
    pixels = tf.constant(views.images.reshape(-1, 4))
    # Rays that miss the hull have no samples and no gradient: draw from the others only.
    useful = None
    if hull is not None and not scene.space.contracted:
        useful = covered_pixels(views.cameras, scene.space, hull[0])
    if useful is not None and not useful.any():  # all is empty: then all can be learnt from
        useful = None
    for view in range(count):
        valid = views.valid(view)
        if valid is None:
            continue
        if useful is None:
            useful = np.ones([count, height, width], bool)
        useful[view] &= valid
    if useful is None:
        return pixels, None
    index = np.flatnonzero(useful)
    if not index.size:
        raise ProgramError(
            "no training pixel can be learnt from: those whose rays meet something are masked, or the lens shows "
            "nothing there."
        )
    return pixels, tf.constant(index)  # int64, which devices calculate in


def background_of(scene: Scene, config: TrainConfig) -> tuple[float, float, float] | None:
    """The colour behind the training pixels; None for random colours."""
    background = config.background
    if background == "random" or (background == "auto" and scene.has_alpha):
        return None
    fixed = {"white": (1.0, 1.0, 1.0), "black": (0.0, 0.0, 0.0)}
    return fixed.get(background, scene.background)
