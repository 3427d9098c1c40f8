"""Lenses: from pixels to directions in the camera's frame, and which pixels have one.

Directions have OpenGL axes: x right, y up, the camera looks along -z. A lens polynomial is followed up to its first
turning point only: beyond it one place of the picture would belong to several directions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# From the table's guess, which is right to 1e-4, Newton's method squares the error in each round.
_ROUNDS = 4
_CELLS = 128  # of the table
_FINE, _COARSE = 4096, 16  # steps that tables are made of, and of these one that is kept
# Tangential terms shift the turning point a little.
_TILT = 0.05


class Model(IntEnum):
    """How a camera maps directions to its picture; x and y are pixels from (cx, cy) over (fl_x, fl_y).

    - PERSPECTIVE: tangents of the angles, moved by k1, k2, p1, p2, k3 (OpenCV's model) and k4 (nerfstudio's).
    - FISHEYE: the angle from the axis is the radius, moved by k1, k2, k3, k4 (OpenCV's fisheye model).
    - EQUIRECTANGULAR: longitude and latitude (nerfstudio's EQUIRECTANGULAR, instant-ngp's `latlong`).
    - EQUAL_AREA: longitude and the sine of the latitude (instant-ngp's `equirectangular`).
    """

    PERSPECTIVE = 0
    FISHEYE = 1
    EQUIRECTANGULAR = 2
    EQUAL_AREA = 3


TERMS = 6  # of a camera: k1, k2, p1, p2, k3, k4; of a fisheye k1, k2, k3, k4, 0, 0
PANORAMAS = (Model.EQUIRECTANGULAR, Model.EQUAL_AREA)


def panorama(model: Model, width: int, height: int) -> list[float]:
    """(fl_x, fl_y, cx, cy) of a panorama of the whole sphere."""
    return [
        width / (2 * math.pi),
        height / (2 if model == Model.EQUAL_AREA else math.pi),
        width / 2,
        height / 2,
    ]


class Radial(NamedTuple):
    """The radius r (tangent of the angle, or the angle) behind a radius d of the picture, as far as it is unique.

    Attributes:
      limit: Largest r.
      most: Its d.
      table: float64 [_CELLS + 1], r of d = most (1 - u^2) for u from 0 to 1: smooth up to the turning point.
      stretches: float64 [M + 1], the most that the picture stretches within r = limit i / M.
    """

    limit: float
    most: float
    table: np.ndarray
    stretches: np.ndarray

    def stretch(self, r: np.ndarray) -> np.ndarray:
        """The most that the picture stretches within r, infinity beyond the limit."""
        place = np.ceil(np.minimum(r / self.limit, 1) * (len(self.stretches) - 1)).astype(int)
        return np.where(r <= self.limit, self.stretches[place], np.inf)


@functools.lru_cache(maxsize=4096)
def radial(model: int, terms: tuple[float, ...], reach: float) -> Radial:
    """The radial part of a lens.

    Args:
      model: PERSPECTIVE or FISHEYE.
      terms: The distortion terms.
      reach: Largest radius that is wanted in the picture.
    """
    fisheye = model == Model.FISHEYE
    k = np.array(terms[:4] if fisheye else [*terms[:2], *terms[4:]], np.float64)
    odd = np.array([3.0, 5.0, 7.0, 9.0])
    turns = np.roots([*(k * odd)[::-1], 1.0]) if k.any() else np.zeros(0)
    real = turns[(np.abs(turns.imag) < 1e-9 * (1 + np.abs(turns.real))) & (turns.real > 0)].real
    limit = math.sqrt(real.min()) if real.size else math.inf

    def bent(r: np.ndarray) -> np.ndarray:
        s = r * r
        return r * (1 + s * (k[0] + s * (k[1] + s * (k[2] + s * k[3]))))

    most = math.pi if fisheye else 1.0
    if not fisheye:
        while bent(np.asarray(most)) < 1.01 * reach and most < min(limit, 1e9):
            most *= 2
    limit = min(limit, most)
    r = limit * np.arange(_FINE + 1) / _FINE
    d = np.maximum.accumulate(bent(r))
    u = np.arange(_CELLS + 1) / _CELLS
    s = r * r
    slope = np.abs(1 + s * (3 * k[0] + s * (5 * k[1] + s * (7 * k[2] + s * 9 * k[3]))))
    with np.errstate(divide="ignore", invalid="ignore"):
        across = np.abs(d / (np.sin(r) if fisheye else r))
    across[0] = 1.0
    if not fisheye:  # each term's derivative is at most six times p r
        slope = slope + 6 * (abs(terms[2]) + abs(terms[3])) * r
    return Radial(
        float(limit),
        float(d[-1]),
        np.interp(d[-1] * (1 - u * u), d, r),
        np.maximum.accumulate(np.maximum(slope, across))[::_COARSE],
    )


class Lenses(NamedTuple):
    """Lenses of N cameras as tensors; `gathered` picks those of rays.

    Attributes:
      model: int32 [N].
      terms: float [N, TERMS], distortion.
      limits: float [N, 2], `limit` and `most` of the radial part.
      first: int32 [N], where its table begins.
      tables: float [L * (_CELLS + 1)].
    """

    model: tf.Tensor
    terms: tf.Tensor
    limits: tf.Tensor
    first: tf.Tensor
    tables: tf.Tensor

    def gathered(self, view: tf.Tensor) -> Lenses:
        """The lenses of views int [R]."""
        parts = (tf.gather(part, view) for part in self[:-1])
        return Lenses(*parts, self.tables)  # type: ignore[call-arg]


def lenses_of(
    models: np.ndarray, terms: np.ndarray, reach: np.ndarray, dtype: tf.DType = tf.float32
) -> Lenses:
    """The tensors of lenses: models [N], terms [N, TERMS], largest radii in their pictures [N]."""
    limits: list[tuple[float, float]] = []
    first: list[int] = []
    tables: list[np.ndarray] = []
    known: dict[tuple[Any, ...], int] = {}
    for model, row, far in zip(models, terms, reach, strict=True):
        if model in PANORAMAS:
            limits.append((1.0, 1.0))
            first.append(0)
            continue
        key = int(model), tuple(map(float, row)), float(far)
        part = radial(*key)
        limits.append((part.limit, part.most))
        place = known.setdefault(key, len(tables))
        if place == len(tables):
            tables.append(part.table)
        first.append(place * (_CELLS + 1))
    flat = np.concatenate(tables) if tables else np.zeros([_CELLS + 1])
    with tf.device("CPU:0" if dtype == tf.float64 else None):
        return Lenses(
            tf.constant(np.asarray(models, np.int32)),
            tf.constant(terms, dtype),
            tf.constant(np.asarray(limits), dtype),
            tf.constant(np.asarray(first, np.int32)),
            tf.constant(flat, dtype),
        )


def distort(x: tf.Tensor, y: tf.Tensor, coefficients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where the lens moves normalised image coordinates to (OpenCV's model, with nerfstudio's k4).

    Args:
      x: float [...], undistorted coordinate right of the axis (tangent of the angle).
      y: float [...], the same downwards.
      coefficients: float [..., TERMS], (k1, k2, p1, p2, k3, k4).

    Returns:
      The distorted (x, y).
    """
    k1, k2, p1, p2, k3, k4 = tf.unstack(coefficients, axis=-1)
    r2 = x * x + y * y
    factor = 1 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4)))
    return (
        x * factor + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * factor + 2 * p2 * x * y + p1 * (r2 + 2 * y * y),
    )


def _guess(radius: tf.Tensor, lenses: Lenses) -> tf.Tensor:
    """r behind the picture's radius, from the tables; the limit for points beyond."""
    most = lenses.limits[:, 1]
    u = tf.sqrt(tf.clip_by_value(1 - radius / most, 0, 1)) * _CELLS
    cell = tf.minimum(tf.cast(u, tf.int32), _CELLS - 1)
    low = tf.gather(lenses.tables, lenses.first + cell)
    high = tf.gather(lenses.tables, lenses.first + cell + 1)
    return low + (u - tf.cast(cell, u.dtype)) * (high - low)


def _perspective(
    x: tf.Tensor, y: tf.Tensor, lenses: Lenses
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Undistorted (x, y), and whether there are any: bool."""
    target_x, target_y = x, y
    radius = tf.sqrt(x * x + y * y)
    factor = tf.math.divide_no_nan(_guess(radius, lenses), radius)
    x, y = x * factor, y * factor
    k1, k2, p1, p2, k3, k4 = tf.unstack(lenses.terms, axis=1)
    for last in range(_ROUNDS + 1):
        got_x, got_y = distort(x, y, lenses.terms)
        r2 = x * x + y * y
        factor = 1 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4)))
        slope = 2 * (k1 + r2 * (2 * k2 + r2 * (3 * k3 + r2 * 4 * k4)))  # d(factor)/dx = slope * x
        dxx = factor + slope * x * x + 2 * p1 * y + 6 * p2 * x
        dxy = slope * x * y + 2 * p1 * x + 2 * p2 * y
        dyy = factor + slope * y * y + 2 * p2 * x + 6 * p1 * y
        determinant = dxx * dyy - dxy * dxy
        error_x, error_y = got_x - target_x, got_y - target_y
        if last == _ROUNDS:
            break
        x = x - tf.math.divide_no_nan(dyy * error_x - dxy * error_y, determinant)
        y = y - tf.math.divide_no_nan(dxx * error_y - dxy * error_x, determinant)
    tilted = tf.cast((p1 != 0) | (p2 != 0), x.dtype)
    limit = lenses.limits[:, 0] * (1 + 1e-9 + _TILT * tilted)
    small = tf.sqrt(error_x * error_x + error_y * error_y) <= 1e-6 * (1 + radius)
    return x, y, small & (determinant > 0) & (tf.sqrt(r2) <= limit)


def _fisheye(radius: tf.Tensor, lenses: Lenses) -> tuple[tf.Tensor, tf.Tensor]:
    """The angle from the axis, radians, and whether there is one: bool."""
    k1, k2, k3, k4 = tf.unstack(lenses.terms[:, :4], axis=1)
    angle = _guess(radius, lenses)
    for _ in range(_ROUNDS):
        s = angle * angle
        error = angle * (1 + s * (k1 + s * (k2 + s * (k3 + s * k4)))) - radius
        slope = 1 + s * (3 * k1 + s * (5 * k2 + s * (7 * k3 + s * 9 * k4)))
        angle -= tf.math.divide_no_nan(error, slope)
        angle = tf.clip_by_value(angle, 0, lenses.limits[:, 0])
    return angle, radius <= lenses.limits[:, 1] * (1 + 1e-9)


def local_directions(
    x: tf.Tensor, y: tf.Tensor, lenses: Lenses, kinds: Sequence[int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Directions of places in pictures.

    Args:
      x: float [R], pixels from the principal point to the right, over fl_x.
      y: float [R], the same downwards.
      lenses: The lens of each of them.
      kinds: The models among them.

    Returns:
      Directions float [R, 3], of unit length, and bool [R], whether the lens shows one there. Where it does not,
      the direction is some other one.
    """
    direction, shown = None, None
    for kind in kinds:
        if kind == Model.PERSPECTIVE:
            flat_x, flat_y, seen = _perspective(x, y, lenses)
            found = tf.stack([flat_x, -flat_y, -tf.ones_like(flat_x)], axis=1)
            found = tf.math.l2_normalize(found, axis=1, epsilon=1e-30)
        elif kind == Model.FISHEYE:
            radius = tf.sqrt(x * x + y * y)
            angle, seen = _fisheye(radius, lenses)
            across = tf.where(
                radius > 0, tf.math.divide_no_nan(tf.sin(angle), radius), tf.ones_like(x)
            )
            found = tf.stack([x * across, -y * across, -tf.cos(angle)], axis=1)
        else:
            up = -y if kind == Model.EQUIRECTANGULAR else tf.asin(tf.clip_by_value(-y, -1, 1))
            flat = tf.cos(up)
            found = tf.stack([tf.sin(x) * flat, tf.sin(up), -tf.cos(x) * flat], axis=1)
            seen = tf.ones_like(x, tf.bool)
        # Where nothing converges numbers may be infinite, and marchers take finite rays.
        ahead = tf.constant([0, 0, -1], found.dtype)
        found = tf.where(
            tf.reduce_all(tf.math.is_finite(found), axis=1, keepdims=True), found, ahead
        )
        if direction is None:
            direction, shown = found, seen
        else:
            here = lenses.model == int(kind)
            direction = tf.where(here[:, None], found, direction)
            shown = tf.where(here, seen, shown)
    assert direction is not None
    return direction, shown
