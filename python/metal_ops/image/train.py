"""Fitting: one compiled step on pixels that are drawn at random, and colours of whole pictures in tiles."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from metal_ops import optimizers
from metal_ops.programs.fitting import Fit
from metal_ops.programs.pictures import as_bytes

from .config import ModelConfig, TrainConfig
from .model import ImageField
from .picture import Picture

TILE = 1 << 16  # points at once
_MEASURED = 1 << 17  # pixels that are measured on while it trains
_SHOWN = 768  # the longer edge of the picture that is shown while it trains


def psnr_of(squared_error: float) -> float:
    """dB of a mean squared error of values in [0, 1]; the finite 100 for none.

    Example:
      >>> psnr_of(0.01), psnr_of(0.0)
      (20.0, 100.0)
    """
    return 100.0 if squared_error < 1e-10 else round(-10 * math.log10(squared_error), 6)


class ImageFit(Fit):
    """A picture's field and its training data.

    Args:
      picture: The picture that is fitted.
      model: The field.
      config: How it is fitted.
    """

    program, measure_name = "image", "psnr"

    def __init__(self, picture: Picture, model: ModelConfig, config: TrainConfig) -> None:
        self.field = ImageField(model, config.seed)
        self.picture_of = picture
        variables = list(self.field.trainable_variables)
        adam = optimizers.Adam(
            config.learning_rate, beta_2=0.99, epsilon=1e-15, skip_zero_rows=True
        )
        adam.build(variables)
        super().__init__(model, config, self.field.state(), adam)
        self._batch: int = config.batch
        self._seed: int = config.seed
        points, colours = self._drawn(_MEASURED, (self._seed, 1, 0))
        self._measured_on = points, colours
        spec = [tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([None, 3], tf.uint8)]
        self._learn = tf.function(self._learn_from, input_signature=spec, autograph=False)
        self.colours = compiled(self.field)

    def _drawn(self, n: int, seed: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Random pixels: points float32 [n, 2] and colours uint8 [n, 3]. From a mapped file, only these are read."""
        random, picture = np.random.default_rng(seed), self.picture_of
        x = random.integers(picture.width, size=n)
        y = random.integers(picture.height, size=n)
        return picture.points(x, y), picture.pixels[y, x]

    def _learn_from(self, points: tf.Tensor, colours: tf.Tensor) -> tf.Tensor:
        wanted = tf.cast(colours, tf.float32) / 255.0
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.field(points) - wanted))
        gradients = tape.gradient(loss, self.variables)
        self.optimizer.apply(gradients, self.variables)
        return loss

    def learn(self) -> tf.Tensor:
        points, colours = self._drawn(self._batch, (self._seed, 0, self.step))
        return self._learn(tf.constant(points), tf.constant(colours))

    def measure(self) -> float:
        """PSNR of pixels that are drawn once."""
        points, colours = self._measured_on
        errors = [
            np.mean((self.colours(points[i : i + TILE]) - colours[i : i + TILE] / 255.0) ** 2)
            for i in range(0, len(points), TILE)
        ]
        return psnr_of(float(np.mean(errors)))

    def words(self, value: float) -> str:
        return f"{value:.2f} dB"

    def picture(self) -> np.ndarray:
        zoom = min(1.0, _SHOWN / self.picture_of.longest)
        width, height = (
            max(round(n * zoom), 1) for n in (self.picture_of.width, self.picture_of.height)
        )
        return render(self.colours, width, height, self.picture_of.extent)


def compiled(field: ImageField) -> Callable[[np.ndarray], np.ndarray]:
    """Colours [N, 3] in [0, 1] at points [N, 2]."""
    function = tf.function(
        lambda points: tf.clip_by_value(field(points), 0.0, 1.0),
        input_signature=[tf.TensorSpec([None, 2], tf.float32)],
        autograph=False,
    )
    return lambda points: function(tf.constant(points, tf.float32)).numpy()


def render(
    colours: Callable[[np.ndarray], np.ndarray],
    width: int,
    height: int,
    part: tuple[float, float, float, float],
) -> np.ndarray:
    """uint8 [height, width, 3], a tile of rows at a time.

    Args:
      colours: Colours of the points.
      width: Width of the result.
      height: Height of the result.
      part: Left, top, width and height of the part that is shown, in points' units.
    """
    left, top, wide, high = part
    x = left + (np.arange(width) + 0.5) * (wide / width)
    pixels = np.empty((height, width, 3), np.uint8)
    rows = max(TILE // width, 1)
    for first in range(0, height, rows):
        n = min(rows, height - first)
        y = top + (np.arange(first, first + n) + 0.5) * (high / height)
        points = np.stack(np.broadcast_arrays(x[None, :], y[:, None]), -1).reshape(-1, 2)
        tile = [colours(points[i : i + TILE]) for i in range(0, len(points), TILE)]
        pixels[first : first + n] = as_bytes(np.concatenate(tile)).reshape(n, width, 3)
    return pixels


def every_pixel(fit: ImageFit, most: int | None = None) -> tuple[float, int]:
    """PSNR over the picture's rows, in tiles, and of how many pixels that is.

    Args:
      fit: Trained.
      most: Pixels at most: rows are left out evenly.
    """
    picture = fit.picture_of
    most_rows = picture.height if most is None else max(most // picture.width, 1)
    every = max(-(-picture.height // most_rows), 1)
    total, count = 0.0, 0
    rows, at_once = np.arange(0, picture.height, every), max(TILE // picture.width, 1)
    for first in range(0, len(rows), at_once):
        for left in range(0, picture.width, TILE):
            x = np.arange(left, min(left + TILE, picture.width))
            y, x = (a.ravel() for a in np.meshgrid(rows[first : first + at_once], x, indexing="ij"))
            truth = picture.pixels[y, x].astype(np.float64) / 255
            total += float(np.sum((fit.colours(picture.points(x, y)) - truth) ** 2))
            count += 3 * len(x)
    return psnr_of(total / count), count // 3
