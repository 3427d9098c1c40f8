"""The gain of each part of instant-ngp's recipe: `python -m benchmarks.nerf_recipe --data <scene> [--steps N]`.

Trains the NeRF program once with all parts and once without each, for the same number of steps, and writes
benchmarks/results/nerf_recipe.md. Steps and not seconds, so that a busy machine changes nothing. Runs that are in
build/nerf_recipe.json already are not made again: it can be stopped and called again, or told to make a few
with --most.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402

from benchmarks import machine, provenance  # noqa: E402
from benchmarks.pages import RESULTS  # noqa: E402
from metal_ops.nerf.config import ModelConfig, TrainConfig  # noqa: E402
from metal_ops.nerf.evaluate import evaluate  # noqa: E402
from metal_ops.nerf.scenes import Scene, load_scene  # noqa: E402
from metal_ops.nerf.train import Trainer  # noqa: E402
from metal_ops.programs.files import write_json  # noqa: E402

RUNS = Path(__file__).parents[1] / "build" / "nerf_recipe.json"
# part of the recipe: its replacement, and the changes to (ModelConfig, TrainConfig).
Changes = tuple[dict[str, Any], dict[str, Any]]
VARIANTS: dict[str, tuple[str, Changes]] = {
    "everything": ("the program's defaults", ({}, {})),
    "exponential density": ("softplus", ({"density": "softplus"}, {})),
    "exponential density ": ("ReLU", ({"density": "relu"}, {})),
    "gradient scaling": ("with it, times 128", ({}, {"gradient_scale": 128.0})),
    "grid update every 16 steps": ("never: the visual hull alone", ({}, {"occupancy_every": 0})),
    "grid update every 16 steps ": ("every step", ({}, {"occupancy_every": 1})),
    "grid update every 16 steps  ": ("every 64 steps", ({}, {"occupancy_every": 64})),
    "learning-rate decay": ("constant 1e-2", ({}, {"final_learning_rate": 1.0})),
    "Adam eps 1e-15": ("1e-8, the paper's", ({}, {"epsilon": 1e-8})),
    "Adam eps 1e-15 ": ("1e-7, Keras'", ({}, {"epsilon": 1e-7})),
    "random background": ("white", ({}, {"background": "white"})),
}


def train(scene: Scene, changes: Changes, steps: int, seed: int) -> dict[str, float]:
    """PSNR of all held-out views, and the cost of training."""
    model = dataclasses.replace(ModelConfig(), **changes[0])
    config = TrainConfig(seconds=None, steps=steps, seed=seed)
    trainer = Trainer(scene, model, dataclasses.replace(config, **changes[1]))
    while not trainer.done:
        trainer.train_step()
    score = evaluate(
        trainer.renderer(), trainer.scene.test, scene.background, len(scene.test), with_ssim=False
    )
    assert score is not None
    return {
        "psnr": score.mean_psnr,
        "rays": trainer.rays_seen,
        "samples": trainer.samples_seen,
        "seconds": trainer.seconds,
        "occupied": trainer.occupancy.occupied_fraction(),
    }


def markdown(content: dict[str, Any], seeds: list[str]) -> str:
    """The table, of the means over these seeds."""
    lines = [
        "# What each part of the NeRF recipe gives",
        "",
        "Made by `python -m benchmarks.nerf_recipe`; do not edit. Mean PSNR of the held-out views after the same "
        "number of steps; the difference is to the run with everything, seed by seed.",
        "",
        *[f"- {key}: {value}" for key, value in content["machine"].items()],
        f"- scene: {content['scene']}, {content['steps']} steps, seeds {', '.join(seeds)}",
        "",
        provenance.said(content["measured"], content["machine"]["cores"]),
        "",
        "## One part of the recipe replaced at a time",
        "",
        "| part | in its place | PSNR, dB | the part gives, dB | M rays seen | grid occupied |",
        "|---|---|--:|--:|--:|--:|",
    ]
    whole = np.array([content["variants"]["everything"]["runs"][seed]["psnr"] for seed in seeds])
    for part, variant in content["variants"].items():
        runs = [variant["runs"][seed] for seed in seeds]
        psnr = np.array([run["psnr"] for run in runs])
        difference = whole - psnr
        # The scaling is the one row with the part switched on.
        difference = -difference if part.strip() == "gradient scaling" else difference
        spread = f" ({', '.join(signed(d) for d in difference)})" if len(psnr) > 1 else ""
        gives = "" if part == "everything" else signed(difference.mean()) + spread
        lines.append(
            f"| {part.strip()} | {variant['instead']} | {psnr.mean():.2f} | {gives} | "
            f"{np.mean([run['rays'] for run in runs]) / 1e6:.2f} | "
            f"{np.mean([run['occupied'] for run in runs]):.1%} |"
        )
    return "\n".join(lines) + "\n"


def signed(value: float) -> str:
    """Two digits and a sign, but none for nothing."""
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def load_results(path: Path, scene: str, steps: int) -> dict[str, Any]:
    """The results that an earlier call has left, if it trained the same scene for as many steps; else nothing yet."""
    if path.exists():
        content = json.loads(path.read_text())
        if (content["scene"], content["steps"]) == (scene, steps):
            return content
    return {
        "group": "nerf_recipe",
        "scene": scene,
        "steps": steps,
        "machine": machine.describe(),
        "measured": provenance.now("nerf"),
        "variants": {
            part: {"instead": instead, "changes": changes, "runs": {}}
            for part, (instead, changes) in VARIANTS.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nerf_recipe", description=__doc__)
    parser.add_argument("--data", default=None, help="scene; the built-in one if left out")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--most", type=int, default=1 << 30, help="runs to make in this call")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the page")
    parser.add_argument("--runs", type=Path, default=RUNS, help="what was trained so far")
    arguments = parser.parse_args()
    scene = load_scene(arguments.data)
    path = arguments.runs
    path.parent.mkdir(parents=True, exist_ok=True)
    content = load_results(path, scene.name, arguments.steps)
    left = arguments.most
    for seed in arguments.seeds:
        for part, (instead, changes) in VARIANTS.items():
            runs = content["variants"][part]["runs"]
            if str(seed) in runs:
                continue
            if left == 0:
                return 3  # there is more to do
            left -= 1
            runs[str(seed)] = train(scene, changes, arguments.steps, seed)
            psnr = runs[str(seed)]["psnr"]
            print(f"{part.strip()}: {instead}: seed {seed}: {psnr:.2f} dB", flush=True)
            write_json(path, content)
    seeds = [str(seed) for seed in arguments.seeds]
    (arguments.out / "nerf_recipe.md").write_text(markdown(content, seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
