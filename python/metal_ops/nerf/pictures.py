"""The pictures of a run: comparison, turntable, curves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import imageio.v3 as imageio
import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from metal_ops.programs.files import atomic

from .cameras import Cameras, orbit_poses, pinhole_cameras
from .evaluate import Picture, Renderer, spread
from .lenses import Model
from .metrics import on_background, psnr
from .scenes import Scene

_GAP, _CAPTION = 6, 24
_INK, _PAPER = (40, 40, 48), (255, 255, 255)
TURNTABLE_FRAMES = 48
_SECONDS_PER_TURN = 4.0
_FIELD_OF_VIEW = math.radians(50)  # of the turntable where the scene's cameras are no pinholes


def depth_colours(picture: Picture) -> np.ndarray:
    """Depth as colours (near is bright), white where there is nothing: float32 [H, W, 3]."""
    solid = picture.opacity > 0.5
    if not solid.any():
        return np.ones_like(picture.colour)
    near, far = np.percentile(picture.depth[solid], [1, 99])
    nearness = 1 - np.clip((picture.depth - near) / max(far - near, 1e-6), 0, 1)
    colours = matplotlib.colormaps["magma"](0.08 + 0.87 * nearness)[..., :3]
    opacity = np.clip(picture.opacity, 0, 1)[..., None]
    return (colours * opacity + 1 - opacity).astype(np.float32)


def _tile(image: np.ndarray, size: tuple[int, int]) -> Image.Image:
    tile = Image.fromarray((np.clip(image, 0, 1) * 255).round().astype(np.uint8))
    return tile.resize(size, Image.Resampling.LANCZOS) if tile.size != size else tile


def comparison(
    path: Path,
    render: Renderer,
    scene: Scene,
    columns: int = 2,
    rows: int = 2,
    title: str | None = None,
) -> None:
    """Writes truth, render and depth of held-out views side by side as a PNG.

    Args:
      path: Where to.
      render: Renders the field.
      scene: The scene whose held-out views are shown, evenly spread.
      columns: Groups of three pictures in a row.
      rows: Rows.
      title: A line above, if any.
    """
    chosen = spread(len(scene.test), columns * rows)
    rows = math.ceil(len(chosen) / columns)
    columns = min(columns, len(chosen))
    height, width = scene.test.images.shape[1:3]
    zoom = (
        max(1.0, 200 / max(width, height))
        if max(width, height) <= 400
        else 400 / max(width, height)
    )
    size = (round(width * zoom), round(height * zoom))
    group = 3 * size[0] + 2 * _GAP
    top = _CAPTION if title else 0
    sheet = Image.new(
        "RGB",
        (
            columns * group + (columns + 1) * 2 * _GAP,
            top + rows * (size[1] + _CAPTION + _GAP) + _GAP,
        ),
        _PAPER,
    )
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    if title:
        draw.text((2 * _GAP, _GAP), title, _INK, font)
    for number, view in enumerate(chosen):
        picture = render(scene.test.cameras, int(view))
        image = picture.over(scene.background)
        truth = on_background(scene.test.images[view], scene.background)
        left = 2 * _GAP + (number % columns) * (group + 2 * _GAP)
        upper = top + _GAP + (number // columns) * (size[1] + _CAPTION + _GAP)
        captions = (
            "truth",
            f"render, {psnr(image, truth, scene.test.valid(int(view))):.1f} dB",
            "depth",
        )
        tiles = (truth, image, depth_colours(picture))
        for place, (caption, tile) in enumerate(zip(captions, tiles, strict=True)):
            x = left + place * (size[0] + _GAP)
            sheet.paste(_tile(tile, size), (x, upper))
            middle = x + size[0] / 2
            draw.text((middle, upper + size[1] + 4), caption, _INK, font, anchor="ma")
    with atomic(path) as temporary:
        sheet.save(temporary, optimize=True)


def turntable_cameras(scene: Scene, frames: int, size: int) -> Cameras:
    """Cameras that circle the scene the way its photographers did.

    A full turn where the training views go all around; else a swing to and fro within the angles that they cover.

    Args:
      scene: The scene.
      frames: Number of cameras.
      size: Pixels along the longer edge.
    """
    cameras = scene.train.cameras
    up = scene.up
    eyes = cameras.poses[:, :, 3] - scene.space.centre
    height = eyes @ up
    flat = eyes - height[:, None] * up
    distance = float(np.median(np.linalg.norm(eyes, axis=1)))
    elevation = float(np.median(np.arctan2(height, np.linalg.norm(flat, axis=1))))
    elevation = float(np.clip(elevation, math.radians(-20), math.radians(35)))
    # Two axes in the plane that is circled, the first one that of orbit_poses.
    first = np.cross(up, np.eye(3)[np.argmin(np.abs(up))])
    first /= np.linalg.norm(first)
    angles = np.sort(np.arctan2(flat @ np.cross(up, first), flat @ first))
    gaps = np.diff(np.append(angles, angles[0] + 2 * np.pi))
    widest = int(gaps.argmax())
    fine = 720
    circle = orbit_poses(fine, distance, elevation, scene.space.centre, up)
    if gaps[widest] < math.radians(100):
        turns = np.arange(frames) / frames * 2 * np.pi
    else:
        covered = 2 * np.pi - gaps[widest]
        start = angles[(widest + 1) % len(angles)]
        turns = start + covered * (0.5 - 0.5 * np.cos(np.arange(frames) / frames * 2 * np.pi))
    poses = circle[np.round(turns / (2 * np.pi) * fine).astype(int) % fine]
    longest = max(cameras.width, cameras.height)
    width, height_px = (
        max(round(edge * size / longest), 1) for edge in (cameras.width, cameras.height)
    )
    if cameras.models[0] != Model.PERSPECTIVE:
        return pinhole_cameras(poses, 0.5 * size / math.tan(_FIELD_OF_VIEW / 2), width, height_px)
    one = cameras.select([0] * frames)
    pinhole = Cameras(poses, one.intrinsics, np.zeros_like(one.distortion), one.width, one.height)
    return pinhole.scaled(width, height_px)


def turntable(
    path: Path,
    render: Renderer,
    scene: Scene,
    frames: int = TURNTABLE_FRAMES,
    size: int = 200,
    step: Callable[[], None] = lambda: None,
) -> None:
    """Writes a GIF that goes around the scene once; `step` is called after each frame."""
    cameras = turntable_cameras(scene, frames, size)
    images: list[np.ndarray] = []
    for frame in range(frames):
        image = render(cameras, frame).over(scene.background)
        images.append((image * 255).round().astype(np.uint8))
        step()
    with atomic(path) as temporary:
        imageio.imwrite(
            temporary, np.stack(images), duration=1000 * _SECONDS_PER_TURN / frames, loop=0
        )


def curves(
    path: Path,
    histories: dict[str, list[dict[str, float]]],
    title: str,
    threshold: float | None = None,
) -> None:
    """Plots held-out PSNR over training time, a curve for each history, as a PNG.

    Args:
      path: Where to.
      histories: For each label the points, with "seconds" and "psnr".
      title: Above the plot.
      threshold: A PSNR to mark, and the time at which each curve crosses it.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for label, history in histories.items():
        points = [point for point in history if "psnr" in point]
        seconds = [point["seconds"] for point in points]
        line = axes.plot(seconds, [point["psnr"] for point in points], "o-", ms=3.5, label=label)[0]
        crossing = time_to(history, threshold) if threshold is not None else None
        if crossing is not None:
            axes.axvline(crossing, color=line.get_color(), lw=0.8, ls=":")
            axes.annotate(
                f"{crossing:.1f} s",
                (crossing, threshold),
                xytext=(5, -5),
                textcoords="offset points",
                color=line.get_color(),
                va="top",
                bbox={"fc": "white", "ec": "none", "pad": 1},
            )
    if threshold is not None:
        axes.axhline(threshold, color="grey", lw=0.8, ls="--")
    axes.set_xlabel("training time, s (evaluation does not count)")
    axes.set_ylabel("mean PSNR of held-out views, dB")
    axes.set_title(title, parse_math=False)  # names of scenes may hold a $
    axes.grid(alpha=0.3)
    axes.set_xlim(left=0)
    if len(histories) > 1:
        axes.legend(loc="lower right")
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=130)


def time_to(history: list[dict[str, float]], level: float | None) -> float | None:
    """Training seconds at which a history first reaches a PSNR, interpolated linearly; None if never.

    Example:
      >>> time_to([{"seconds": 1, "psnr": 20}, {"seconds": 3, "psnr": 30}], 25)
      2.0
    """
    before = None
    for point in history:
        if "psnr" not in point or level is None:
            continue
        if point["psnr"] >= level:
            if before is None:
                return float(point["seconds"])
            part = (level - before["psnr"]) / (point["psnr"] - before["psnr"])
            return float(before["seconds"] + part * (point["seconds"] - before["seconds"]))
        before = point
    return None


def _stems(names: Sequence[str]) -> list[str]:
    """A file name for each view, all of them different: its stem, or its whole path where that does not tell.

    Example:
      >>> _stems(["a/r_0.png", "a/r_1.png"]), _stems(["a/0.png", "b/0.png", "b/0.jpg"])
      (['r_0', 'r_1'], ['a_0', 'b_0', 'b_0-2'])
    """
    paths = [PurePosixPath(name) for name in names]
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        folders = [[part for part in path.parts[:-1] if part.strip("./")] for path in paths]
        stems = ["_".join([*parts, stem]) for parts, stem in zip(folders, stems, strict=True)]
    # Neither empty nor hidden, and no longer than a file's name may be.
    stems = [re.sub(r"[^\w.+-]", "_", stem).lstrip(".")[-100:] or "view" for stem in stems]
    taken: set[str] = set()
    for place, stem in enumerate(stems):
        number = 1
        while stems[place] in taken:
            number += 1
            stems[place] = f"{stem}-{number}"
        taken.add(stems[place])
    return stems


def views(
    folder: Path,
    render: Renderer,
    scene: Scene,
    size: int | None = None,
    step: Callable[[], None] = lambda: None,
) -> None:
    """Writes every held-out view as an RGBA PNG with straight alpha.

    Args:
      folder: Where to; files are called after the views, with their folders where names alone are not different.
      render: Renders the field.
      scene: The scene whose held-out cameras are used.
      size: Pixels along the longer edge; the scene's own if None.
      step: Called after each view.
    """
    cameras = scene.test.cameras
    if size is not None:
        longest = max(cameras.width, cameras.height)
        cameras = cameras.scaled(
            max(round(cameras.width * size / longest), 1),
            max(round(cameras.height * size / longest), 1),
        )
    for view, stem in enumerate(_stems(scene.test.names)):
        picture = render(cameras, view)
        alpha = np.clip(picture.opacity[..., None], 0, 1)
        straight = picture.colour / np.maximum(alpha, 1e-6)
        pixels = np.clip(np.concatenate([straight, alpha], axis=-1), 0, 1)
        with atomic(folder / f"{stem}.png") as temporary:
            Image.fromarray((pixels * 255).round().astype(np.uint8)).save(temporary)
        step()
