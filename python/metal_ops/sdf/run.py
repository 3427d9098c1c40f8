"""A run from start to pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from rich.console import Console

from metal_ops.programs import fitting, pictures
from metal_ops.programs.command import CHECKPOINT_EVERY
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.files import write_json
from metal_ops.programs.telling import Whole, phase

from . import pictures as views
from .evaluate import Score, score
from .files import write
from .mesh import Mesh, Placement
from .train import SdfFit

_SHOWN = 128
RESOLUTION, POINTS = 96, 1 << 13


def origin_of(data: str | None, placement: Placement) -> dict[str, Any]:
    """A checkpoint's description of the mesh."""
    return {"data": data, "centre": placement.centre.tolist(), "scale": placement.scale}


def train_run(
    fit: SdfFit,
    folder: Path,
    data: str | None,
    placement: Placement,
    console: Console,
    name: str,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> int:
    """Trains to the end of the budget, or to Ctrl-C, and leaves everything in the folder.

    Returns:
      The exit code: 0, or 130 after Ctrl-C.
    """
    origin = origin_of(data, placement)
    whole = Whole(console, fit.seconds)
    interrupted = fitting.run(fit, folder, origin, console, name, checkpoint_every, whole)
    found: Score | None = None
    try:
        with phase(console, "comparing the surfaces"):
            found = score(fit.sampled, fit.mesh, fit.distances, RESOLUTION, POINTS)
    except ProgramError:
        console.print("What was learnt has no inside yet: no surface to compare.")
    write_json(
        folder / "metrics.json",
        {
            "mesh": name,
            **origin,
            "triangles": len(fit.mesh.triangles),
            "error": fit.history[-1]["error"],
            **({} if found is None else score_fields(found)),
            "steps": fit.step,
            "training_seconds": fit.seconds,
            "parameters": fit.n_parameters(),
            "interrupted": interrupted,
            "device": tf.DeviceSpec.from_string(fit.field.table.device).device_type,
            "history": fit.history,
            "machine": fitting.machine(),
        },
    )
    title = f"{name}: {fit.words(fit.history[-1]['error'])} after {fit.seconds:.0f} s of training"
    label = "mean |f - d|, edges of the cube"
    pictures.curve(folder / "error.png", fit.history, "error", label, title, log=True)
    with phase(console, "drawing comparison.png"):
        compare(folder / "comparison.png", fit)
    what = (
        ""
        if found is None
        else f", Chamfer {found.chamfer:.5f} of the longest side, IoU {found.iou:.4f}"
    )
    console.print(
        f"{fit.step} steps in {whole.words(fit.seconds)}: {fit.words(fit.history[-1]['error'])}{what}.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"Pictures: {folder}/{fitting.PICTURE}, comparison.png, progress.png, error.png. As triangles: python -m "
        f"metal_ops sdf mesh {folder}",
        highlight=False,
        soft_wrap=True,
    )
    return 130 if interrupted else 0


def score_fields(found: Score) -> dict[str, Any]:
    """As metrics.json and eval.json have it."""
    return {
        "chamfer": found.chamfer,
        "chamfer_is_in": "the mesh's longest side",
        "iou": found.iou,
        "surface_triangles": found.triangles,
    }


def compare(path: Path, fit: SdfFit) -> None:
    """The mesh and the learnt surface, by the same ways of drawing."""
    exact, learnt = fit.distances, fit.sampled
    tiles = [
        ("mesh", views.traced(exact, views.by_differences(exact), _SHOWN)),
        ("learnt", views.traced(learnt, learnt.gradient, _SHOWN)),
        ("mesh, distances in the middle", views.slice_of(exact, _SHOWN)),
        ("learnt, distances in the middle", views.slice_of(learnt, _SHOWN)),
    ]
    pictures.sheet(path, tiles, 4, 256)


def write_mesh(path: Path, mesh: Mesh, placement: Placement) -> None:
    """In the units of the mesh that was learnt from."""
    write(path, Mesh(placement.outside(mesh.vertices), mesh.triangles))
