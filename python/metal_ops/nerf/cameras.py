"""Cameras: poses, intrinsics and lens distortion, and the rays of their pixels.

Poses are camera-to-world with OpenGL axes (x right, y up, the camera looks along -z), pixel centres
lie at half-integers, and distortion is OpenCV's radial-tangential model (k1, k2, p1, p2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

# Newton's method squares the error each time: real lenses (|k1| < 0.5) need four rounds in float32.
_UNDISTORT_ROUNDS = 6


@dataclass(frozen=True)
class Cameras:
    """N cameras of one image size.

    Attributes:
      poses: float32 [N, 3, 4], camera-to-world.
      intrinsics: float32 [N, 4], (fl_x, fl_y, cx, cy) in pixels.
      distortion: float32 [N, 4], (k1, k2, p1, p2); zeros for a pinhole.
      width: Pixels in a row.
      height: Pixels in a column.
    """

    poses: np.ndarray
    intrinsics: np.ndarray
    distortion: np.ndarray
    width: int
    height: int

    def __len__(self) -> int:
        return len(self.poses)

    @property
    def has_distortion(self) -> bool:
        """Whether any of the lenses bends rays."""
        return bool(np.any(self.distortion))

    def select(self, indices: np.ndarray | list[int]) -> Cameras:
        """The cameras at `indices`, in that order."""
        return Cameras(
            self.poses[indices],
            self.intrinsics[indices],
            self.distortion[indices],
            self.width,
            self.height,
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
        )


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
      centre: [3], what they look at.
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


def distort(x: tf.Tensor, y: tf.Tensor, coefficients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where the lens moves normalised image coordinates to (OpenCV's model).

    Args:
      x: float [...], undistorted coordinate right of the axis (tangent of the angle).
      y: float [...], the same downwards.
      coefficients: float [..., 4], (k1, k2, p1, p2).

    Returns:
      The distorted (x, y).
    """
    k1, k2, p1, p2 = tf.unstack(coefficients, axis=-1)
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * k2)
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + 2 * p2 * x * y + p1 * (r2 + 2 * y * y),
    )


def undistort(x: tf.Tensor, y: tf.Tensor, coefficients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The inverse of `distort`, by Newton's method from the distorted point."""
    target_x, target_y = x, y
    k1, k2, p1, p2 = tf.unstack(coefficients, axis=-1)
    for _ in range(_UNDISTORT_ROUNDS):
        got_x, got_y = distort(x, y, coefficients)
        r2 = x * x + y * y
        radial = 1 + r2 * (k1 + r2 * k2)
        slope = 2 * (k1 + 2 * k2 * r2)  # d(radial)/dx = slope * x
        dxx = radial + slope * x * x + 2 * p1 * y + 6 * p2 * x
        dxy = slope * x * y + 2 * p1 * x + 2 * p2 * y
        dyy = radial + slope * y * y + 2 * p2 * x + 6 * p1 * y
        determinant = dxx * dyy - dxy * dxy
        error_x, error_y = got_x - target_x, got_y - target_y
        x = x - (dyy * error_x - dxy * error_y) / determinant
        y = y - (dxx * error_y - dxy * error_x) / determinant
    return x, y


def cast_rays(
    poses: tf.Tensor,
    intrinsics: tf.Tensor,
    distortion: tf.Tensor | None,
    column: tf.Tensor,
    row: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Rays through pixel centres.

    Args:
      poses: float32 [R, 3, 4] camera-to-world, or [1, 3, 4] for all rays; so the next two.
      intrinsics: float32 [R, 4].
      distortion: float32 [R, 4]; None for pinholes.
      column: int32 [R], pixel from the left.
      row: int32 [R], pixel from the top.

    Returns:
      origins float32 [R, 3] and directions float32 [R, 3] of unit length, world space.
    """
    fl_x, fl_y, cx, cy = tf.unstack(intrinsics, axis=1)
    x = (tf.cast(column, tf.float32) + 0.5 - cx) / fl_x
    y = (tf.cast(row, tf.float32) + 0.5 - cy) / fl_y
    if distortion is not None:
        x, y = undistort(x, y, distortion)
    # OpenGL axes: rows go down while y goes up, and the camera looks along -z.
    direction = x[:, None] * poses[:, :, 0] - y[:, None] * poses[:, :, 1] - poses[:, :, 2]
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
        self._distortion = (
            tf.constant(cameras.distortion, tf.float32) if cameras.has_distortion else None
        )

    def __call__(
        self, view: tf.Tensor, column: tf.Tensor, row: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Rays of pixels (int32 [R] each) of cameras (int32 [R]): see `cast_rays`."""
        return cast_rays(
            tf.gather(self._poses, view),
            tf.gather(self._intrinsics, view),
            None if self._distortion is None else tf.gather(self._distortion, view),
            column,
            row,
        )
