"""The built-in scene: a still life of solid shapes, rendered from analytic ray intersections.

Needs no download, has an exact answer at any resolution, and holds the features that a radiance field has to show for
itself: fine texture, thin parts, soft shadows, highlights and reflections that move with the view.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..cameras import Cameras, look_at, pinhole_cameras
from ..lenses import Model, panorama
from ..space import Space
from .common import Scene, Views
from .shapes import Box, Ellipsoid, Frustum, Solid, Texture, Torus

RADIUS = 3.7  # of the sphere that the cameras are on
FIELD_OF_VIEW = math.radians(38)
CENTRE = np.array([0.0, 0.0, -0.12])
HELD_OUT = 0.37  # turns between the held-out ring of cameras and the other one
# Cameras that see more come nearer; real fisheyes of 120 degrees bend about so much.
WIDE_RADIUS = 2.2
FISHEYE_VIEW = math.radians(120)
FISHEYE_TERMS = (0.05, -0.01, 0.0, 0.0)
_HALF_SIZE = 1.2
_RAYS_AT_ONCE = 1 << 20  # of a picture: each takes 200 bytes

_SUN = np.array([0.55, -0.45, 0.75]) / np.linalg.norm([0.55, -0.45, 0.75])
_SUN_SPREAD = 0.09  # half the width of the light, radians
_SUN_SAMPLES = 6


def _rgb(*values: float) -> np.ndarray:
    return np.array(values, np.float32) / 255


def _choose(condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.where(condition[:, None], yes, no).astype(np.float32)


def _angle(p: np.ndarray) -> np.ndarray:
    return np.arctan2(p[:, 1], p[:, 0]) / (2 * np.pi)


def _tiles(p: np.ndarray) -> np.ndarray:
    """The plinth: tiles in rings on top, a band of triangles around the side."""
    radius = np.hypot(p[:, 0], p[:, 1])
    ring = np.floor(np.sqrt(radius) * 6)
    sector = np.floor(_angle(p) * 20)
    top = _choose((ring + sector) % 2 == 0, _rgb(216, 204, 180), _rgb(92, 98, 108))
    saw = np.abs((_angle(p) * 36) % 1 - 0.5) * 2
    side = _choose(saw * 0.12 + 0.02 > p[:, 2], _rgb(178, 92, 60), _rgb(236, 224, 200))
    return np.where((p[:, 2] > 0.159)[:, None], top, side)


def _striped(p: np.ndarray) -> np.ndarray:
    """The ball: white bands that swing around it."""
    wave = p[:, 2] + 0.04 * np.sin(6 * 2 * np.pi * _angle(p))
    return _choose((wave * 9) % 1 < 0.3, _rgb(250, 240, 225), _rgb(196, 32, 40))


def _bricks(p: np.ndarray) -> np.ndarray:
    """The box: courses of bricks with light joints."""
    along = np.where(np.abs(p[:, 0]) > 0.259, p[:, 1], p[:, 0])
    height = np.where(np.abs(p[:, 2]) > 0.299, p[:, 1] + 0.05, p[:, 2])  # its lid is paved, too
    course = np.floor(height / 0.1)
    brick = (along + 0.06 * (course % 2)) / 0.13
    joint = ((height / 0.1) % 1 < 0.16) | (brick % 1 < 0.12)
    shade = 0.85 + 0.3 * ((np.floor(brick) * 7 + course * 3) % 5) / 5
    return (
        _choose(joint, _rgb(225, 225, 220), _rgb(48, 98, 168))
        * np.where(joint, np.float32(1), shade.astype(np.float32))[:, None]
    )


def _spiral(p: np.ndarray) -> np.ndarray:
    """The cone: a spiral from foot to tip."""
    return _choose((p[:, 2] * 7 + _angle(p)) % 1 < 0.5, _rgb(244, 190, 52), _rgb(60, 128, 84))


def _checks(p: np.ndarray) -> np.ndarray:
    """The column: a chequered cylinder."""
    odd = np.floor(_angle(p) * 14) + np.floor(p[:, 2] / 0.085)
    return _choose(odd % 2 == 0, _rgb(238, 234, 224), _rgb(112, 62, 134))


def _plain(*colour: float) -> Texture:
    return lambda p: np.broadcast_to(_rgb(*colour), p.shape).astype(np.float32)


def still_life() -> list[Solid]:
    """The solids of the scene; z is up, and everything lies within 1.2 of the origin."""
    floor = -0.5
    box, column = (0.42, 0.38), (-0.45, 0.4)
    gold, teal, silver = _plain(214, 168, 66), _plain(40, 150, 150), _plain(235, 235, 240)
    plinth = Frustum(
        (0.0, 0.0, floor - 0.16), _tiles, gloss=0.15, bottom=1.05, top=1.0, height=0.16
    )
    ball = Ellipsoid(
        (-0.42, -0.45, floor + 0.3), _striped, gloss=0.7, mirror=0.06, radii=(0.3,) * 3
    )
    house = Box((*box, floor + 0.3), _bricks, turn=0.5, gloss=0.1, half=(0.26, 0.26, 0.3))
    ring = Torus(
        (*box, floor + 0.89), teal, turn=0.9, gloss=0.8, mirror=0.12, axis=0, major=0.22, minor=0.07
    )
    cone = Frustum((0.42, -0.46, floor), _spiral, turn=0.3, bottom=0.26, top=0.02, height=0.72)
    pillar = Frustum((*column, floor), _checks, gloss=0.2, bottom=0.19, top=0.19, height=0.68)
    globe = Ellipsoid((*column, floor + 0.87), gold, gloss=0.9, mirror=0.35, radii=(0.19,) * 3)
    pebble = Ellipsoid(
        (0.02, 0.0, floor + 0.12), silver, gloss=0.9, mirror=0.45, radii=(0.2, 0.2, 0.12)
    )
    return [plinth, ball, house, ring, cone, pillar, globe, pebble]


def _sky(directions: np.ndarray) -> np.ndarray:
    """The surroundings that mirrors see: ground, horizon, sky and a soft window."""
    up = directions[:, 2:3]
    sky = (1 - np.clip(up, 0, 1)) * _rgb(232, 238, 244) + np.clip(up, 0, 1) * _rgb(96, 146, 214)
    ground = _rgb(120, 108, 96) * (1 + 0.6 * np.clip(up, -1, 0))
    blend = np.clip(up * 6 + 0.5, 0, 1)
    window = np.clip((directions @ _SUN.astype(np.float32) - 0.9) * 30, 0, 1)[:, None]
    return ground * (1 - blend) + sky * blend + window * 0.8


def _sun_directions() -> np.ndarray:
    """Fixed points of a disc of light, [K, 3]: the same for every view, so that shadows do not move."""
    across = np.cross(_SUN, [0, 0, 1.0])
    across /= np.linalg.norm(across)
    other = np.cross(across, _SUN)
    k = np.arange(_SUN_SAMPLES) + 0.5
    radius, turn = _SUN_SPREAD * np.sqrt(k / _SUN_SAMPLES), k * np.pi * (3 - math.sqrt(5))
    points = _SUN + np.outer(radius * np.cos(turn), across) + np.outer(radius * np.sin(turn), other)
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def trace(
    solids: list[Solid], origins: np.ndarray, directions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Colour and distance of the surface that rays hit first.

    Args:
      solids: The scene.
      origins: float32 [M, 3].
      directions: float32 [M, 3], unit length.

    Returns:
      colour float32 [M, 3] (sRGB, zero for a miss) and distance float32 [M] (infinity for a miss).
    """
    distances = np.stack([solid.hit(origins, directions) for solid in solids])  # [S, M]
    which = distances.argmin(axis=0)
    nearest = distances.min(axis=0)
    colours = np.zeros_like(origins)
    hit = np.flatnonzero(np.isfinite(nearest))
    if not hit.size:
        return colours, nearest
    points = origins[hit] + nearest[hit, None] * directions[hit]
    normals, base = np.empty_like(points), np.empty_like(points)
    gloss, mirror = np.empty([hit.size, 1], np.float32), np.empty([hit.size, 1], np.float32)
    for number, solid in enumerate(solids):
        rows = np.flatnonzero(which[hit] == number)
        if rows.size:
            normals[rows], base[rows] = solid.normal(points[rows]), solid.colour(points[rows])
            gloss[rows], mirror[rows] = solid.gloss, solid.mirror
    towards = -directions[hit]
    # Light comes from a disc of directions; each is blocked or not, which makes soft shadows.
    start = points + 2e-3 * normals
    lit = np.zeros([hit.size, 1], np.float32)
    for sun in _sun_directions():
        cosine = np.clip(normals @ sun, 0, None)
        facing = np.flatnonzero(cosine > 0)
        rays = np.broadcast_to(sun, [facing.size, 3])
        blocked = np.zeros(facing.size, bool)
        for solid in solids:
            open_rays = np.flatnonzero(~blocked)
            blocked[open_rays] = np.isfinite(solid.hit(start[facing[open_rays]], rays[open_rays]))
        lit[facing, 0] += np.where(blocked, 0, cosine[facing]) / _SUN_SAMPLES
    sky_light = (0.5 + 0.5 * normals[:, 2:3]) * _rgb(120, 130, 150) + _rgb(62, 58, 54)
    diffuse = base * (sky_light + lit * _rgb(236, 226, 206))
    halfway = towards + _SUN.astype(np.float32)
    halfway /= np.linalg.norm(halfway, axis=1, keepdims=True)
    highlight = gloss * np.clip((normals * halfway).sum(1, keepdims=True), 0, 1) ** 48 * (lit > 0)
    # Schlick's approximation: everything reflects more at grazing angles.
    facing_view = np.clip((normals * towards).sum(1, keepdims=True), 0, 1)
    fresnel = (
        mirror
        + (np.maximum(mirror, 0.02 + 0.1 * gloss) - mirror + 0.25 * mirror) * (1 - facing_view) ** 5
    )
    reflected = 2 * facing_view * normals - towards
    shaded = diffuse * (1 - fresnel) + fresnel * _sky(reflected) + highlight
    colours[hit] = np.clip(shaded, 0, 1)
    return colours, nearest


def render_view(
    solids: list[Solid], cameras: Cameras, view: int, supersample: int = 3
) -> np.ndarray:
    """One picture: uint8 [H, W, 4] with straight alpha, each pixel the mean of supersample^2 rays.

    Args:
      solids: The scene.
      cameras: Cameras of any model; pixels without a ray are transparent.
      view: Index of the view.
      supersample: Rays along a pixel's edge.
    """
    height, width = cameras.height, cameras.width
    band = max(_RAYS_AT_ONCE // (width * supersample**2), 1)
    parts = [
        _render_rows(solids, cameras, view, supersample, top, min(top + band, height))
        for top in range(0, height, band)
    ]
    return np.concatenate(parts)


def _render_rows(
    solids: list[Solid], cameras: Cameras, view: int, factor: int, top: int, end: int
) -> np.ndarray:
    width = cameras.width
    x = (np.arange(width * factor) + 0.5) / factor
    y = (np.arange(top * factor, end * factor) + 0.5) / factor
    right, up, backward, origin = cameras.poses[view].T.astype(np.float32)
    if cameras.is_pinhole:
        fl_x, fl_y, cx, cy = cameras.intrinsics[view]
        x, y = (x - cx) / fl_x, (y - cy) / fl_y
        directions = x[None, :, None] * right - y[:, None, None] * up - backward
        directions = directions.astype(np.float32).reshape(-1, 3)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    else:
        places = (part.ravel() for part in np.meshgrid(x, y))
        directions = cameras.rays(view, *places).astype(np.float32)
    colour = np.zeros_like(directions)
    alpha = np.zeros([len(directions), 1], np.float32)
    # Rays that miss a sphere around everything need no shapes; nor do those that point away from it, and NaN.
    along = directions @ origin
    outside = origin @ origin - np.float32((_HALF_SIZE * 1.05) ** 2)
    near = np.flatnonzero((along**2 - outside > 0) & ((along < 0) | (outside < 0)))
    colour[near], distance = trace(
        solids, np.broadcast_to(origin, [near.size, 3]), directions[near]
    )
    alpha[near, 0] = np.isfinite(distance)
    blocks = np.concatenate([colour * alpha, alpha], axis=1).reshape(
        end - top, factor, width, factor, 4
    )
    mean = blocks.mean(axis=(1, 3))
    straight = mean[..., :3] / np.maximum(mean[..., 3:], 1e-6)
    return (np.concatenate([straight, mean[..., 3:]], axis=-1) * 255).round().astype(np.uint8)


def camera_ring(count: int, offset: float, radius: float = RADIUS) -> np.ndarray:
    """Poses [count, 3, 4] spread over the upper part of a sphere, looking at the middle.

    A golden-angle spiral from 5 to 65 degrees of elevation; `offset` (in turns) tells splits apart.
    """
    golden = (3 - math.sqrt(5)) / 2
    poses = []
    for k in range(count):
        sine = math.sin(math.radians(5)) + (k + 0.5) / count * (
            math.sin(math.radians(65)) - math.sin(math.radians(5))
        )
        flat, turn = math.sqrt(1 - sine**2), 2 * math.pi * (k * golden + offset)
        eye = radius * np.array([flat * math.cos(turn), flat * math.sin(turn), sine])
        poses.append(look_at(CENTRE + eye, CENTRE, np.array([0.0, 0.0, 1.0])))
    return np.asarray(poses, np.float32)


def ring_cameras(kind: str, count: int, offset: float, size: int) -> Cameras:
    """The cameras of a made scene.

    Args:
      kind: "pinhole", or "fisheye" (120 degrees across) or "equirectangular" (twice as wide as high), which are nearer.
      count: Number of cameras.
      offset: Tells splits apart, as in `camera_ring`.
      size: Pixels along the vertical edge.
    """
    if kind == "pinhole":
        focal = 0.5 * size / math.tan(0.5 * FIELD_OF_VIEW)
        return pinhole_cameras(camera_ring(count, offset), focal, size, size)
    poses = camera_ring(count, offset, WIDE_RADIUS)
    if kind == "fisheye":
        edge = FISHEYE_VIEW / 2
        bent = edge * (1 + sum(k * edge ** (2 * i + 2) for i, k in enumerate(FISHEYE_TERMS)))
        focal = 0.5 * size / bent
        model, width, intrinsics = Model.FISHEYE, size, [focal, focal, size / 2, size / 2]
    else:
        model, width = Model.EQUIRECTANGULAR, 2 * size
        intrinsics = panorama(model, width, size)
    terms = FISHEYE_TERMS if kind == "fisheye" else (0.0,) * 4
    return Cameras(
        poses,
        np.tile(np.array(intrinsics, np.float32), (count, 1)),
        np.tile(np.array(terms, np.float32), (count, 1)),
        width,
        size,
        np.full(count, model),
    )


def procedural_scene(
    size: int = 160, train_views: int = 64, test_views: int = 12, supersample: int = 3
) -> Scene:
    """Renders the built-in scene: deterministic, the same on every machine up to rounding.

    Args:
      size: Pixels along an edge.
      train_views: Pictures to learn from.
      test_views: Held-out pictures.
      supersample: Rays along a pixel's edge.

    Example:
      >>> scene = procedural_scene(size=16, train_views=2, test_views=1, supersample=1)
      >>> scene.train.images.shape
      (2, 16, 16, 4)
    """
    solids = still_life()
    splits = []
    # NumPy lets go of the interpreter in its loops: threads help.
    with ThreadPoolExecutor() as pool:
        for count, offset, prefix in ((train_views, 0.0, "train"), (test_views, HELD_OUT, "test")):
            cameras = ring_cameras("pinhole", count, offset, size)
            images = list(
                pool.map(
                    lambda view, c=cameras: render_view(solids, c, view, supersample), range(count)
                )
            )
            names = tuple(f"{prefix}_{view:03d}" for view in range(count))
            splits.append(Views(names, np.stack(images), cameras))
    return Scene(
        name="still_life",
        train=splits[0],
        test=splits[1],
        space=Space(np.array([[-_HALF_SIZE] * 3, [_HALF_SIZE] * 3], np.float32)),
        up=np.array([0.0, 0.0, 1.0]),
        background=(1.0, 1.0, 1.0),
        has_alpha=True,
    )
