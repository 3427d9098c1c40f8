"""Fisheyes and panoramas beside their pinhole twin: `python -m benchmarks.nerf_lenses [--steps N] [--seeds N]`.

The built-in still life from the same places, with as many pixels a radian on the axis, by each kind of camera of
`nerf make-scene`. All are judged on the same held-out pinhole views, and on the solid pixels of held-out views by their
own kind of camera. Steps and not seconds, so that a busy machine changes nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402

from metal_ops.nerf.cameras import Cameras, pinhole_cameras  # noqa: E402
from metal_ops.nerf.config import ModelConfig, TrainConfig  # noqa: E402
from metal_ops.nerf.evaluate import evaluate  # noqa: E402
from metal_ops.nerf.scenes import Scene, Views  # noqa: E402
from metal_ops.nerf.scenes.procedural import (  # noqa: E402
    HELD_OUT,
    procedural_scene,
    render_view,
    ring_cameras,
    still_life,
)
from metal_ops.nerf.train import Trainer  # noqa: E402

KINDS = ("pinhole", "fisheye", "equirectangular")
_TWIN_VIEW = np.radians(80)


def cameras(kind: str, count: int, offset: float, size: int) -> Cameras:
    """Cameras of a kind; fisheyes have `size` pixels along an edge, and the others as many a radian."""
    fisheyes = ring_cameras("fisheye", count, offset, size)
    focal = float(fisheyes.intrinsics[0, 0])
    if kind == "fisheye":
        return fisheyes
    if kind == "pinhole":
        edge = round(2 * focal * np.tan(_TWIN_VIEW / 2))
        return pinhole_cameras(fisheyes.poses, focal, edge, edge)
    return ring_cameras(kind, count, offset, round(np.pi * focal))


def pictures(of: Cameras, name: str) -> Views:
    """The cameras' pictures."""
    images = [render_view(still_life(), of, view, 2) for view in range(len(of))]
    return Views(tuple(f"{name}_{view:03d}" for view in range(len(of))), np.stack(images), of)


def solid(views: Views) -> Views:
    """The views with masks of solid matter: how much of a picture is background differs between lenses."""
    return dataclasses.replace(views, masks=views.images[..., 3] == 255)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--size", type=int, default=128, help="pixels along a fisheye's edge")
    parser.add_argument("--views", type=int, default=32, help="to learn from")
    arguments = parser.parse_args()
    like: Scene = procedural_scene(size=16, train_views=1, test_views=1, supersample=1)
    test = {kind: pictures(cameras(kind, 6, HELD_OUT, arguments.size), "test") for kind in KINDS}
    twin = test["pinhole"]
    print("| cameras | size | PSNR of the twin's views, dB | of their own, solid pixels |")
    print("|---|---|--:|--:|")
    for kind in KINDS:
        train = pictures(cameras(kind, arguments.views, 0.0, arguments.size), "train")
        scene = dataclasses.replace(like, train=train, test=twin)
        own = solid(test[kind])
        scores = []
        for seed in range(arguments.seeds):
            model = ModelConfig(finest_resolution=round(2.5 * twin.cameras.width))
            config = TrainConfig(seconds=None, steps=arguments.steps, seed=seed)
            trainer = Trainer(scene, model, config)
            while not trainer.done:
                trainer.train_step()
            render = trainer.renderer()
            found = [
                evaluate(render, views, (1.0,) * 3, 6, with_ssim=False) for views in (twin, own)
            ]
            scores.append([score.mean_psnr for score in found if score])
        mean, own_mean = np.mean(scores, axis=0)
        size = f"{train.cameras.width}x{train.cameras.height}"
        print(f"| {kind} | {size} | {mean:.2f} | {own_mean:.2f} |", flush=True)


if __name__ == "__main__":
    main()
