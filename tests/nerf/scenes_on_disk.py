"""Writes a scene in each of the formats that the program reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from metal_ops.nerf.metrics import on_background
from metal_ops.nerf.scenes import Scene, Views


def matrix(pose: np.ndarray) -> list[list[float]]:
    return np.vstack([pose, [0, 0, 0, 1]]).astype(float).tolist()


def write_image(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


def blender(folder: Path, scene: Scene, train: int = 4, test: int = 2) -> Path:
    """A NeRF-synthetic folder of the first views of a scene."""
    cameras = scene.train.cameras
    angle = 2 * math.atan(0.5 * cameras.width / float(cameras.intrinsics[0, 0]))
    for split, views, count in (("train", scene.train, train), ("test", scene.test, test)):
        frames = []
        for i in range(count):
            write_image(folder / split / f"r_{i}.png", views.images[i])
            frames.append(
                {
                    "file_path": f"./{split}/r_{i}",
                    "transform_matrix": matrix(views.cameras.poses[i]),
                }
            )
        content = {"camera_angle_x": angle, "frames": frames}
        (folder / f"transforms_{split}.json").write_text(json.dumps(content))
    return folder


def tiny(path: Path, scene: Scene, count: int = 9, **changes: Any) -> Path:
    """An .npz like tiny_nerf_data.npz: RGB on black."""
    views = scene.train
    arrays: dict[str, Any] = {
        "images": on_background(views.images[:count], (0.0, 0.0, 0.0)),
        "poses": np.stack([matrix(pose) for pose in views.cameras.poses[:count]]).astype(
            np.float32
        ),
        "focal": np.float64(views.cameras.intrinsics[0, 0]),
    }
    arrays |= changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def instant_ngp(
    folder: Path, views: Views, alpha: bool = False, per_frame: bool = False, **shared: Any
) -> Path:
    """A folder with transforms.json and images; intrinsics shared or in each frame."""
    frames = []
    cameras = views.cameras
    names = ("fl_x", "fl_y", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "w", "h")

    def lens(view: int) -> dict[str, float]:
        values = [
            *cameras.intrinsics[view],
            *cameras.distortion[view],
            cameras.width,
            cameras.height,
        ]
        return dict(zip(names, map(float, values), strict=True))

    for i, image in enumerate(views.images):
        opaque = (on_background(image, (0.0, 0.0, 0.0)) * 255).round().astype(np.uint8)
        write_image(folder / "images" / f"{i:03d}.png", image if alpha else opaque)
        frame = {"file_path": f"images/{i:03d}.png", "transform_matrix": matrix(cameras.poses[i])}
        frames.append(frame | (lens(i) if per_frame else {}))
    content = {"frames": frames, "aabb_scale": 1, **({} if per_frame else lens(0)), **shared}
    (folder / "transforms.json").write_text(json.dumps(content))
    return folder
