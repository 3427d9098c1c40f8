"""Scenes that the program makes: folders in the format of NeRF-synthetic, of any size and three kinds of lenses."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from metal_ops.programs.errors import OutputError
from metal_ops.programs.files import atomic, write_json
from metal_ops.programs.reading import kind_of

from ..cameras import Cameras
from ..errors import SceneError
from .procedural import HELD_OUT, render_view, ring_cameras, still_life

KINDS = ("pinhole", "fisheye", "equirectangular")


def make_scene(
    folder: Path,
    size: int = 800,
    kind: str = "pinhole",
    train_views: int = 64,
    test_views: int = 12,
    supersample: int = 2,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, count: None,
) -> None:
    """Renders the built-in still life into a folder that `load_scene` reads.

    Args:
      folder: Where to; transforms_train.json, transforms_test.json and PNGs with alpha.
      size: Pixels along the vertical edge; panoramas are twice as wide.
      kind: Kind of the cameras, one of `KINDS`.
      train_views: Pictures to learn from.
      test_views: Held-out pictures.
      supersample: Rays along a pixel's edge.
      overwrite: Whether files in the folder may be replaced.
      progress: Is told how many of how many pictures are done.

    Raises:
      OutputError: If the folder is there, or cannot be written.
    """
    if kind_of(folder, OutputError) and not overwrite:
        raise OutputError(f"{folder}: is there already; give another --out, or --overwrite.")
    solids, done = still_life(), 0
    for split, count, offset in (("train", train_views, 0.0), ("test", test_views, HELD_OUT)):
        try:
            (folder / split).mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise OutputError(f"{folder / split}: cannot be made: {why.strerror}.") from None
        cameras = ring_cameras(kind, count, offset, size)
        frames = []
        for view, image in enumerate(_images(cameras, solids, supersample)):
            with atomic(folder / split / f"r_{view}.png") as temporary:
                Image.fromarray(image).save(temporary)
            pose = np.vstack([cameras.poses[view], [0, 0, 0, 1]]).astype(float).tolist()
            frames.append({"file_path": f"./{split}/r_{view}", "transform_matrix": pose})
            done += 1
            progress(done, train_views + test_views)
        write_json(folder / f"transforms_{split}.json", {**_lens(cameras, kind), "frames": frames})


def _images(cameras: Cameras, solids: list[Any], supersample: int) -> Iterator[np.ndarray]:
    """The pictures in order, some at once."""
    at_once = min(os.cpu_count() or 1, 8)
    views = iter(range(len(cameras)))
    with ThreadPoolExecutor(at_once) as pool:  # NumPy lets go of the interpreter in its loops
        while chunk := list(islice(views, at_once)):
            yield from pool.map(lambda view: render_view(solids, cameras, view, supersample), chunk)


def _lens(cameras: Cameras, kind: str) -> dict[str, Any]:
    """A file's fields for the lens: NeRF-synthetic's own for pinholes, else nerfstudio's."""
    width, height = cameras.width, cameras.height
    focal = float(cameras.intrinsics[0, 0])
    if kind == "pinhole":
        return {"camera_angle_x": 2 * math.atan(0.5 * width / focal)}
    lens: dict[str, Any] = {"w": width, "h": height, "cx": width / 2, "cy": height / 2}
    if kind == "fisheye":
        terms = map(float, cameras.distortion[0, :4])
        named = dict(zip(("k1", "k2", "k3", "k4"), terms, strict=True))
        return {**lens, "camera_model": "OPENCV_FISHEYE", "fl_x": focal, "fl_y": focal, **named}
    if kind != "equirectangular":
        raise SceneError(f"camera '{kind}' is not one of {', '.join(KINDS)}.")
    return {**lens, "camera_model": "EQUIRECTANGULAR", "fl_x": width / 2, "fl_y": height}
