"""How good a picture is: PSNR and SSIM against the held-out truth."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf


def psnr(image: np.ndarray, truth: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of float [H, W, 3] pictures in [0, 1]; infinity if they are equal.

    Example:
      >>> import numpy as np
      >>> psnr(np.full([4, 4, 3], 0.5), np.full([4, 4, 3], 0.6))
      20.0
    """
    error = float(np.mean((np.asarray(image, np.float64) - truth) ** 2))
    return math.inf if error == 0 else round(-10.0 * math.log10(error), 6)


def ssim(image: np.ndarray, truth: np.ndarray) -> float:
    """Structural similarity (Wang et al. 2004) of float [H, W, 3] pictures in [0, 1].

    The window is the paper's 11x11 Gaussian; smaller pictures get a smaller (odd) window.
    """
    edge = min(image.shape[:2])
    window = min(11, edge - 1 + edge % 2)
    value = tf.image.ssim(
        tf.constant(image, tf.float32)[None],
        tf.constant(truth, tf.float32)[None],
        max_val=1.0,
        filter_size=window,
    )
    return float(value[0])


def on_background(rgba: np.ndarray, background: tuple[float, float, float]) -> np.ndarray:
    """uint8 [..., 4] with straight alpha over a colour: float32 [..., 3] in [0, 1]."""
    values = rgba.astype(np.float32) / 255
    alpha = values[..., 3:]
    return values[..., :3] * alpha + (1 - alpha) * np.asarray(background, np.float32)
