"""Cameras: poses, intrinsics and lenses, and the rays of their pixels.

Poses are camera-to-world with OpenGL axes (x right, y up, the camera looks along -z), and pixel centres
lie at half-integers. The models of lenses are those of `lenses.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from .lenses import PANORAMAS, TERMS, Lenses, lenses_of, local_directions

_ROWS_AT_ONCE = 1 << 18  # pixels whose rays are calculated at once in float64


@dataclass(frozen=True)
class Cameras:
    """N cameras of one image size.

    Attributes:
      poses: float32 [N, 3, 4], camera-to-world.
      intrinsics: float32 [N, 4], (fl_x, fl_y, cx, cy) in pixels; of panoramas fl_x is pixels a radian of longitude,
        fl_y pixels a radian of latitude, or a unit of its sine.
      distortion: float32 [N, 6], (k1, k2, p1, p2, k3, k4), of a fisheye (k1, k2, k3, k4, 0, 0); zeros for a pinhole.
        The last ones are zeros if left out.
      width: Pixels in a row.
      height: Pixels in a column.
      models: int32 [N], of `Model`; all PERSPECTIVE if left out.

    Example:
      >>> import numpy as np
      >>> one = pinhole_cameras(np.eye(4)[None], focal=50.0, width=100, height=100)
      >>> one.rays(0, np.array([50.0]), np.array([50.0]))
      array([[ 0.,  0., -1.]])
    """

    poses: np.ndarray
    intrinsics: np.ndarray
    distortion: np.ndarray
    width: int
    height: int
    models: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        models = np.zeros(len(self.poses)) if self.models is None else self.models
        object.__setattr__(self, "models", np.asarray(models, np.int32))
        terms = np.zeros([len(self.poses), TERMS], np.float32)
        terms[:, : self.distortion.shape[1]] = self.distortion
        object.__setattr__(self, "distortion", terms)

    def __len__(self) -> int:
        return len(self.poses)

    @property
    def is_pinhole(self) -> bool:
        """Whether all of them are pinholes."""
        return not (self.distortion.any() or self.models.any())

    @property
    def kinds(self) -> tuple[int, ...]:
        """The models among them."""
        return tuple(int(model) for model in np.unique(self.models))

    def select(self, indices: np.ndarray | list[int]) -> Cameras:
        """The cameras at `indices`, in that order."""
        return Cameras(
            self.poses[indices],
            self.intrinsics[indices],
            self.distortion[indices],
            self.width,
            self.height,
            self.models[indices],
        )

    def scaled(self, width: int, height: int) -> Cameras:
        """The same cameras with images of another size (the field of view stays)."""
        factors = np.array([width / self.width, height / self.height], np.float32)
        return Cameras(
            self.poses,
            (self.intrinsics * np.tile(factors, 2)).astype(np.float32),
            self.distortion,
            width,
            height,
            self.models,
        )

    def reach(self) -> np.ndarray:
        """Largest radius in each picture, over the focal length: float64 [N]."""
        fl_x, fl_y, cx, cy = self.intrinsics.astype(np.float64).T
        x = np.maximum(np.abs(cx), np.abs(self.width - cx)) / fl_x
        y = np.maximum(np.abs(cy), np.abs(self.height - cy)) / fl_y
        return np.hypot(x, y)

    def lenses(self, dtype: tf.DType = tf.float32) -> Lenses | None:
        """The argument of `cast_rays`; None for pinholes."""
        if self.is_pinhole:
            return None
        return lenses_of(self.models, self.distortion, self.reach(), dtype)

    def rays(self, view: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Directions of places in a picture, in float64.

        Args:
          view: Number of the camera.
          x: float [M], pixels from the left edge; the first pixel's centre is at 0.5.
          y: float [M], pixels from the top edge.

        Returns:
          float64 [M, 3], world space, of unit length; NaN where the lens shows no direction.
        """
        one = self.select([view])
        fl_x, fl_y, cx, cy = one.intrinsics[0].astype(np.float64)
        pose = one.poses[0].astype(np.float64)
        x, y = (np.asarray(x, np.float64) - cx) / fl_x, (np.asarray(y, np.float64) - cy) / fl_y
        lenses = one.lenses(tf.float64)
        if lenses is None:
            local = np.stack([x, -y, -np.ones_like(x)], axis=1)
            local /= np.linalg.norm(local, axis=1, keepdims=True)
            return local @ pose[:, :3].T
        with tf.device("CPU:0"):
            place = tf.zeros([len(x)], tf.int32)
            local, shown = local_directions(
                tf.constant(x), tf.constant(y), lenses.gathered(place), one.kinds
            )
        return np.where(shown.numpy()[:, None], local.numpy(), np.nan) @ pose[:, :3].T

    def shown(self, view: int) -> np.ndarray | None:
        """The pixels of a picture that have a ray: bool [H, W]; None if all have one.

        A lens whose polynomial turns back shows nothing beyond the turning point, and a fisheye nothing beyond
        half a turn from its axis.
        """
        one = self.select([view])
        if one.is_pinhole or int(one.models[0]) in PANORAMAS:
            return None
        return _shown(
            int(one.models[0]),
            tuple(map(float, one.intrinsics[0])),
            tuple(map(float, one.distortion[0])),
            self.width,
            self.height,
        )


@functools.lru_cache(maxsize=64)
def _shown(
    model: int, intrinsics: tuple[float, ...], terms: tuple[float, ...], width: int, height: int
) -> np.ndarray | None:
    one = Cameras(
        np.eye(4, dtype=np.float32)[None, :3],
        np.array([intrinsics], np.float32),
        np.array([terms], np.float32),
        width,
        height,
        np.array([model]),
    )

    def has_ray(column: np.ndarray, row: np.ndarray) -> np.ndarray:
        return np.isfinite(one.rays(0, column + 0.5, row + 0.5)[:, 0])

    # The region is round: if it holds the picture's edge, it holds the picture.
    wide, high = np.arange(width), np.arange(height)
    edge = [
        (wide, 0 * wide),
        (wide, 0 * wide + height - 1),
        (0 * high, high),
        (0 * high + width - 1, high),
    ]
    if all(has_ray(*side).all() for side in edge):
        return None
    seen = np.empty([height, width], bool)
    rows = max(_ROWS_AT_ONCE // width, 1)
    for top in range(0, height, rows):
        row, column = np.mgrid[top : min(top + rows, height), :width]
        seen[top : top + rows] = has_ray(column.ravel(), row.ravel()).reshape(row.shape)
    seen.flags.writeable = False
    return seen


def pinhole_cameras(poses: np.ndarray, focal: float, width: int, height: int) -> Cameras:
    """Cameras that share one focal length and look through the image's centre.

    Args:
      poses: [N, 3, 4] or [N, 4, 4], camera-to-world.
      focal: Focal length in pixels.
      width: Pixels in a row.
      height: Pixels in a column.
    """
    count = len(poses)
    intrinsics = np.tile(np.array([focal, focal, width / 2, height / 2], np.float32), (count, 1))
    return Cameras(
        np.asarray(poses, np.float32)[:, :3, :4],
        intrinsics,
        np.zeros([count, 4], np.float32),
        width,
        height,
    )


def look_at(eye: np.ndarray, target: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Camera-to-world matrix [3, 4] of a camera at `eye` that looks at `target`.

    Example:
      >>> import numpy as np
      >>> look_at(np.array([0., -4., 0.]), np.zeros(3), np.array([0., 0., 1.]))[:, 3]
      array([ 0., -4.,  0.])
    """
    backward = np.asarray(eye, float) - target
    backward /= np.linalg.norm(backward)
    right = np.cross(up, backward)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(backward, right), backward, eye], axis=1)


def orbit_poses(
    count: int, radius: float, elevation: float, centre: np.ndarray, up: np.ndarray
) -> np.ndarray:
    """A full circle of cameras around `centre`.

    Args:
      count: Number of cameras.
      radius: Distance from the centre.
      elevation: Angle above the plane through the centre, radians.
      centre: [3], the point that they look at.
      up: [3], the axis that they circle, unit length.

    Returns:
      float32 [count, 3, 4].
    """
    helper = np.eye(3)[np.argmin(np.abs(up))]
    first = np.cross(up, helper)
    first /= np.linalg.norm(first)
    second = np.cross(up, first)
    poses = []
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        flat = np.cos(angle) * first + np.sin(angle) * second
        eye = centre + radius * (np.cos(elevation) * flat + np.sin(elevation) * up)
        poses.append(look_at(eye, centre, up))
    return np.asarray(poses, np.float32)


def cast_rays(
    poses: tf.Tensor,
    intrinsics: tf.Tensor,
    lenses: Lenses | None,
    kinds: Sequence[int],
    column: tf.Tensor,
    row: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Rays through pixel centres.

    Args:
      poses: float32 [R, 3, 4] camera-to-world, or [1, 3, 4] for all rays; so the next two.
      intrinsics: float32 [R, 4].
      lenses: The lens of each ray; None for pinholes.
      kinds: The models among them.
      column: int32 [R], pixel from the left.
      row: int32 [R], pixel from the top.

    Returns:
      origins float32 [R, 3] and directions float32 [R, 3] of unit length, world space. Pixels without a ray
      (`Cameras.shown`) get some direction.
    """
    fl_x, fl_y, cx, cy = tf.unstack(intrinsics, axis=1)
    x = (tf.cast(column, tf.float32) + 0.5 - cx) / fl_x
    y = (tf.cast(row, tf.float32) + 0.5 - cy) / fl_y
    # OpenGL axes: rows go down while y goes up, and the camera looks along -z.
    if lenses is None:
        direction = x[:, None] * poses[:, :, 0] - y[:, None] * poses[:, :, 1] - poses[:, :, 2]
    else:
        local, _ = local_directions(x, y, lenses, kinds)
        direction = tf.reduce_sum(poses[:, :, :3] * local[:, None, :], axis=2)
    origins = tf.broadcast_to(poses[:, :, 3], tf.shape(direction))
    return origins, tf.math.l2_normalize(direction, axis=1)


class RayCaster:
    """Turns pixels of a set of cameras into rays, inside or outside tf.function.

    Example:
      >>> import numpy as np
      >>> cameras = pinhole_cameras(np.eye(4)[None], focal=50.0, width=100, height=100)
      >>> origins, directions = RayCaster(cameras)([0], [50], [50])
      >>> directions.shape
      TensorShape([1, 3])
    """

    def __init__(self, cameras: Cameras) -> None:
        self._poses = tf.constant(cameras.poses, tf.float32)
        self._intrinsics = tf.constant(cameras.intrinsics, tf.float32)
        self._lenses, self._kinds = cameras.lenses(), cameras.kinds

    def __call__(
        self, view: tf.Tensor, column: tf.Tensor, row: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Rays of pixels (int32 [R] each) of cameras (int32 [R]): see `cast_rays`."""
        return cast_rays(
            tf.gather(self._poses, view),
            tf.gather(self._intrinsics, view),
            None if self._lenses is None else self._lenses.gathered(view),
            self._kinds,
            column,
            row,
        )
