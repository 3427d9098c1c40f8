"""How good a picture is: PSNR and SSIM against the held-out truth."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf


def psnr(image: np.ndarray, truth: np.ndarray, valid: np.ndarray | None = None) -> float:
    """Peak signal-to-noise ratio in dB of float [H, W, 3] pictures in [0, 1]; infinity if they are equal.

    Pixels count where `valid`, bool [H, W], says so; all if it is None. NaN if none do.

    Example:
      >>> import numpy as np
      >>> psnr(np.full([4, 4, 3], 0.5), np.full([4, 4, 3], 0.6))
      20.0
    """
    errors = (np.asarray(image, np.float64) - truth) ** 2
    if valid is not None:
        errors = errors[valid]
    error = float(np.mean(errors)) if errors.size else math.nan
    return math.inf if error == 0 else round(-10.0 * math.log10(error), 6)


def ssim(image: np.ndarray, truth: np.ndarray, valid: np.ndarray | None = None) -> float:
    """Structural similarity (Wang et al. 2004) of float [H, W, 3] pictures in [0, 1].

    The window is the paper's 11x11 Gaussian; smaller pictures get a smaller (odd) window. Windows count whose pixels
    are all `valid`, bool [H, W]; all if it is None. NaN if none do.
    """
    edge = min(image.shape[:2])
    window = min(11, edge - 1 + edge % 2)
    value = tf.image.ssim(
        tf.constant(image, tf.float32)[None],
        tf.constant(truth, tf.float32)[None],
        max_val=1.0,
        filter_size=window,
        return_index_map=valid is not None,
    )[0]
    if valid is None:
        return float(value)
    inside = np.lib.stride_tricks.sliding_window_view(valid, (window, window)).all(axis=(2, 3))
    return float(value.numpy()[inside].mean()) if inside.any() else math.nan


def on_background(rgba: np.ndarray, background: tuple[float, float, float]) -> np.ndarray:
    """uint8 [..., 4] with straight alpha over a colour: float32 [..., 3] in [0, 1]."""
    values = rgba.astype(np.float32) / 255
    alpha = values[..., 3:]
    return values[..., :3] * alpha + (1 - alpha) * np.asarray(background, np.float32)
