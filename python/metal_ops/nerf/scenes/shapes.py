"""Solid shapes with analytic ray intersections, for the procedural scene. NumPy, float32.

Every shape works in its own coordinates: `place` moves rays there by a rotation about z and a translation, so that
distances along a ray stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# A hit nearer than this is the surface that the ray starts from.
_EPSILON = np.float32(1e-4)
_MISS = np.float32(np.inf)

Texture = Callable[[np.ndarray], np.ndarray]  # local points [M, 3] -> RGB [M, 3]


@dataclass(frozen=True)
class Solid:
    """A shape somewhere in the scene.

    Attributes:
      position: [3], world, of the shape's origin.
      turn: Rotation about z, radians.
      texture: Colour of local surface points.
      gloss: Strength of the highlight.
      mirror: The part of the sky's reflection that is added at normal incidence.
    """

    position: tuple[float, float, float]
    texture: Texture
    turn: float = 0.0
    gloss: float = 0.3
    mirror: float = 0.0

    def rotation(self) -> np.ndarray:
        """World from local, float32 [3, 3]."""
        c, s = np.cos(self.turn), np.sin(self.turn)
        return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]], np.float32)

    def to_local(self, points: np.ndarray) -> np.ndarray:
        """World points [M, 3] in the shape's coordinates."""
        return (points - np.asarray(self.position, np.float32)) @ self.rotation()

    def hit(self, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Distance [M] along world rays to the first surface point, infinity for a miss."""
        t = np.full(len(origins), _MISS)
        # Most rays miss most shapes: a bounding sphere settles that cheaply.
        from_middle = origins - np.asarray(self.position, np.float32) - self.middle()
        along = np.einsum("ij,ij->i", from_middle, directions)
        beside = np.einsum("ij,ij->i", from_middle, from_middle) - along * along
        close = np.flatnonzero(beside < np.float32(self.bounding_radius() ** 2))
        if close.size:
            local, turned = self.to_local(origins[close]), directions[close] @ self.rotation()
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                t[close] = self.local_hit(local, turned)
        return t

    def normal(self, points: np.ndarray) -> np.ndarray:
        """Outward unit normals [M, 3], world, at surface points [M, 3], world."""
        normals = self.local_normal(self.to_local(points))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        return normals @ self.rotation().T

    def colour(self, points: np.ndarray) -> np.ndarray:
        """Surface colour [M, 3] at world points [M, 3]."""
        return self.texture(self.to_local(points))

    def middle(self) -> np.ndarray:
        """Centre of a sphere around the shape, float32 [3], local (it must lie on the z axis)."""
        return np.zeros(3, np.float32)

    def bounding_radius(self) -> float:
        """Radius of that sphere."""
        raise NotImplementedError

    def local_hit(self, o: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Distance [M] to the first point beyond _EPSILON, infinity for a miss."""
        raise NotImplementedError

    def local_normal(self, p: np.ndarray) -> np.ndarray:
        """Outward normals [M, 3] of any length."""
        raise NotImplementedError


def _roots(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solutions of a t^2 + 2 b t + c = 0, the smaller first; NaN where there are none."""
    root = np.sqrt(b * b - a * c)
    first, second = (-b - root) / a, (-b + root) / a
    return np.minimum(first, second), np.maximum(first, second)


def _first(*candidates: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The smallest distance that is beyond _EPSILON and allowed, of (distance, allowed) pairs."""
    best = np.full_like(candidates[0][0], _MISS)
    for t, allowed in candidates:
        best = np.where(allowed & (t > _EPSILON) & (t < best), t, best)
    return best


@dataclass(frozen=True)
class Ellipsoid(Solid):
    """An ellipsoid (a sphere with three equal radii) around its origin."""

    radii: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def bounding_radius(self) -> float:
        return max(self.radii)

    def local_hit(self, o: np.ndarray, d: np.ndarray) -> np.ndarray:
        scale = 1 / np.asarray(self.radii, np.float32)
        o, d = o * scale, d * scale
        near, far = _roots((d * d).sum(1), (o * d).sum(1), (o * o).sum(1) - 1)
        return _first((near, np.isfinite(near)), (far, np.isfinite(far)))

    def local_normal(self, p: np.ndarray) -> np.ndarray:
        return p / np.asarray(self.radii, np.float32) ** 2


@dataclass(frozen=True)
class Box(Solid):
    """A box around its origin."""

    half: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def bounding_radius(self) -> float:
        return float(np.linalg.norm(self.half))

    def local_hit(self, o: np.ndarray, d: np.ndarray) -> np.ndarray:
        half = np.asarray(self.half, np.float32)
        safe = np.where(np.abs(d) < 1e-9, np.float32(1e-9), d)
        first, second = (-half - o) / safe, (half - o) / safe
        near = np.minimum(first, second).max(1)
        far = np.maximum(first, second).min(1)
        return _first((near, near <= far), (far, near <= far))

    def local_normal(self, p: np.ndarray) -> np.ndarray:
        relative = p / np.asarray(self.half, np.float32)
        axis = np.abs(relative).argmax(1)
        normals = np.zeros_like(p)
        rows = np.arange(len(p))
        normals[rows, axis] = np.sign(relative[rows, axis])
        return normals


@dataclass(frozen=True)
class Frustum(Solid):
    """An upright cylinder, cone or anything between: radius `bottom` at z = 0, `top` at z = `height`."""

    bottom: float = 1.0
    top: float = 1.0
    height: float = 1.0

    def middle(self) -> np.ndarray:
        return np.array([0, 0, self.height / 2], np.float32)

    def bounding_radius(self) -> float:
        return float(np.hypot(max(self.bottom, self.top), self.height / 2))

    def local_hit(self, o: np.ndarray, d: np.ndarray) -> np.ndarray:
        slope = np.float32((self.top - self.bottom) / self.height)
        # x^2 + y^2 = (bottom + slope z)^2
        radius = self.bottom + slope * o[:, 2]
        growth = slope * d[:, 2]
        near, far = _roots(
            d[:, 0] ** 2 + d[:, 1] ** 2 - growth**2,
            o[:, 0] * d[:, 0] + o[:, 1] * d[:, 1] - radius * growth,
            o[:, 0] ** 2 + o[:, 1] ** 2 - radius**2,
        )
        candidates = []
        for t in (near, far):
            z = o[:, 2] + t * d[:, 2]
            candidates.append((t, (z >= 0) & (z <= self.height)))
        for z, cap in ((0.0, self.bottom), (self.height, self.top)):
            t = (np.float32(z) - o[:, 2]) / np.where(d[:, 2] == 0, np.float32(1e-9), d[:, 2])
            x, y = o[:, 0] + t * d[:, 0], o[:, 1] + t * d[:, 1]
            candidates.append((t, x * x + y * y <= np.float32(cap) ** 2))
        return _first(*candidates)

    def local_normal(self, p: np.ndarray) -> np.ndarray:
        slope = (self.top - self.bottom) / self.height
        radius = np.sqrt(p[:, 0] ** 2 + p[:, 1] ** 2)
        side = np.stack([p[:, 0], p[:, 1], -slope * radius], axis=1)
        # The surface whose equation the point fulfils best.
        off_side = np.abs(radius - (self.bottom + slope * p[:, 2]))
        off_top, off_bottom = np.abs(p[:, 2] - self.height), np.abs(p[:, 2])
        up = np.array([[0, 0, 1]], np.float32)
        normals = np.where((off_top < off_side)[:, None], up, side)
        lowest = (off_bottom < off_side) & (off_bottom < off_top)
        return np.where(lowest[:, None], -up, normals).astype(np.float32)


@dataclass(frozen=True)
class Torus(Solid):
    """A ring around the local axis `axis`: radius `major` of the ring, `minor` of its tube."""

    major: float = 1.0
    minor: float = 0.25
    axis: int = 2

    def _turned(self, v: np.ndarray) -> np.ndarray:
        return np.roll(v, 2 - self.axis, axis=1)

    def local_hit(self, o: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Smallest root beyond _EPSILON of (|p|^2 + R^2 - r^2)^2 = 4 R^2 (x^2 + y^2)."""
        o, d = self._turned(o).astype(np.float64), self._turned(d).astype(np.float64)
        shift = -(o * d).sum(1)  # from the point nearest to the centre on: there is no t^3
        o = o + shift[:, None] * d
        ring = 4 * self.major**2
        k = (o * o).sum(1) + self.major**2 - self.minor**2
        c2 = 2 * k - ring * (d[:, 0] ** 2 + d[:, 1] ** 2)
        c1 = -2 * ring * (o[:, 0] * d[:, 0] + o[:, 1] * d[:, 1])
        c0 = k * k - ring * (o[:, 0] ** 2 + o[:, 1] ** 2)
        candidates = []
        for t in _quartic_roots(c2, c1, c0):
            for _ in range(2):  # the closed form loses digits near double roots
                t = t - (((t * t + c2) * t + c1) * t + c0) / ((4 * t * t + 2 * c2) * t + c1)
            candidates.append((t + shift, np.isfinite(t)))
        return _first(*candidates)

    def bounding_radius(self) -> float:
        return self.major + self.minor

    def local_normal(self, p: np.ndarray) -> np.ndarray:
        p = self._turned(p)
        radius = np.sqrt(p[:, 0] ** 2 + p[:, 1] ** 2)
        normals = p * (1 - self.major / np.maximum(radius, 1e-6))[:, None]
        normals[:, 2] = p[:, 2]
        return np.roll(normals, self.axis - 2, axis=1)


def _quartic_roots(c2: np.ndarray, c1: np.ndarray, c0: np.ndarray) -> list[np.ndarray]:
    """The four roots of t^4 + c2 t^2 + c1 t + c0, NaN for complex ones (Ferrari 1540)."""
    # The largest real root m of the resolvent m^3 + c2 m^2 + (c2^2 / 4 - c0) m - c1^2 / 8.
    p = -(c2 * c2) / 12 - c0
    q = -(c2**3) / 108 + c2 * c0 / 3 - c1 * c1 / 8
    discriminant = q * q / 4 + p**3 / 27
    root = np.sqrt(np.maximum(discriminant, 0))
    one_real = np.cbrt(-q / 2 + root) + np.cbrt(-q / 2 - root)
    size = np.sqrt(np.maximum(-p / 3, 0))
    three_real = (
        2 * size * np.cos(np.arccos(np.clip(-q / 2 / np.maximum(size**3, 1e-30), -1, 1)) / 3)
    )
    m = np.maximum(np.where(discriminant > 0, one_real, three_real) - c2 / 3, 1e-14)
    s = np.sqrt(2 * m)
    roots = []
    for sign in (1.0, -1.0):
        half = np.sqrt(s * s / 4 - (c2 / 2 + m - sign * c1 / (2 * s)))
        roots += [-sign * s / 2 - half, -sign * s / 2 + half]
    return roots
