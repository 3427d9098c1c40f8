"""The command line: `python -m metal_ops sdf train|eval|mesh|render`."""

from __future__ import annotations

import argparse
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metal_ops.programs.command import (
    add_budget,
    add_checkpoint_every,
    add_device,
    add_output,
    console_for_people,
    guarded,
    hold,
    naming_options,
    positive,
    refuse_used_up,
    train_config,
    use_device,
    whole,
    words,
)
from metal_ops.programs.errors import CheckpointError, ProgramError
from metal_ops.programs.hash_field import add_field, add_number, field_of
from metal_ops.programs.telling import loading, phase, told

from .config import CHOICES, LIMITS, ModelConfig, TrainConfig

if TYPE_CHECKING:
    from rich.console import Console

    from .distance import Distances
    from .mesh import Mesh, Placement
    from .train import Sampled, SdfFit

_MODEL, _TRAIN = ModelConfig(), TrainConfig()
BUILT_IN = "knot"
_SECONDS_PER_TURN = 4.0


def add_parser(subparsers: Any) -> None:
    """Adds `sdf` and its commands to the subparsers of `python -m metal_ops`."""
    parser = subparsers.add_parser(
        "sdf",
        help="Fit the signed distance of a mesh, and make a mesh of it again",
        **words(
            "sdf",
            "Fit the signed distance of a closed mesh by a hash grid and a small network, with the Eikonal loss, on "
            "the CPU or the Metal device; make pictures of it, and a mesh again.",
            ("train", "the built-in knot, under a minute; pictures in runs/knot/"),
            ("train bunny.ply -o runs/bunny", "a mesh of yours: .obj, .ply, .off, .stl, .glb"),
            ("mesh runs/knot --out knot.obj", "the surface as triangles"),
            ("render runs/knot", "once around it, as a GIF"),
        ),
    )
    commands = parser.add_subparsers(dest="sdf_command", metavar="<command>", required=True)
    _add_train(commands)
    _add_eval(commands)
    _add_mesh(commands)
    _add_render(commands)


def _add_train(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="Train on a mesh; leaves pictures, metrics.json and a checkpoint in runs/<name>/",
        **words(
            "sdf",
            "Train on a closed mesh. While it trains, picture.png shows what was learnt so far, and so does a "
            "terminal. Leaves comparison.png, progress.png, error.png, metrics.json and checkpoint.npz beside it. "
            "Ctrl-C, or SIGTERM, stops early and leaves them, too.",
            ("train", "the built-in knot, 40 s"),
            ("train bunny.ply --finest-resolution 256", "a mesh of yours, in more detail"),
            ("train --steps 300 --seed 1", "the same bits every time"),
            ("train --resume runs/knot --seconds 300", "on, to five minutes in total"),
        ),
    )
    parser.add_argument(
        "data",
        nargs="?",
        metavar="MESH",
        help=".obj, .ply, .off, .stl, .glb or .gltf, closed; the built-in knot if left out",
    )
    add_budget(parser, _TRAIN.seconds)
    add_field(parser, _MODEL)
    learning = parser.add_argument_group("learning")
    for name, what in (
        ("batch", "points a step"),
        ("samples", "points whose distances are computed before, near the surface and anywhere"),
    ):
        add_number(learning, name, name, f"{what} (%(default)s)", getattr(_TRAIN, name), LIMITS)
    learning.add_argument(
        "--loss",
        choices=CHOICES["loss"],
        default=_TRAIN.loss,
        help="l1: |f - d|; mape: |f - d| / (|d| + 0.01) (%(default)s)",
    )
    learning.add_argument(
        "--eikonal",
        type=float,
        default=_TRAIN.eikonal,
        help="weight of (|grad f| - 1)^2; 0 leaves it without effect (%(default)s)",
    )
    learning.add_argument(
        "--learning-rate",
        type=positive,
        default=_TRAIN.learning_rate,
        help="of Adam, at first (%(default)s)",
    )
    add_device(parser)
    add_checkpoint_every(add_output(parser, "the mesh's name"))
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with the run in this folder, with its mesh and options; --seconds or --steps set a new total",
    )
    parser.set_defaults(run=guarded("sdf", _train))


def _add_eval(commands: Any) -> None:
    parser = commands.add_parser(
        "eval",
        help="Chamfer distance and overlap with the mesh",
        **words(
            "sdf",
            "Compare a run's checkpoint with its mesh: Chamfer distance of the surfaces, overlap (IoU) of the solids, "
            "into eval.json.",
            ("eval runs/knot --resolution 192", "with a finer surface"),
        ),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    _add_resolution(parser)
    parser.add_argument(
        "--points", type=whole(16, 1 << 22), default=1 << 15, help="on each surface (%(default)s)"
    )
    add_device(parser)
    parser.set_defaults(run=guarded("sdf", _eval))


def _add_resolution(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resolution",
        type=whole(4, 512),
        default=128,
        help="cells along an edge for marching tetrahedra (%(default)s)",
    )


def _add_mesh(commands: Any) -> None:
    parser = commands.add_parser(
        "mesh",
        help="Write the surface as triangles, OBJ or PLY",
        **words(
            "sdf",
            "Write the surface that a run has learnt, by marching tetrahedra, in the units of its mesh. The mesh "
            "itself is not needed.",
            ("mesh runs/knot --out knot.obj", "as text"),
            ("mesh runs/knot --resolution 256", "finer, as mesh.ply in the run"),
        ),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    _add_resolution(parser)
    parser.add_argument("--out", type=Path, default=None, help=".obj or .ply (mesh.ply in the run)")
    add_device(parser)
    parser.set_defaults(run=guarded("sdf", _mesh))


def _add_render(commands: Any) -> None:
    parser = commands.add_parser(
        "render",
        help="Once around the surface, as a GIF, or one picture as a PNG",
        **words(
            "sdf",
            "Render what a run has learnt by sphere tracing: once around as a GIF, or one picture as a PNG.",
            ("render runs/knot --size 320", "turntable.gif in the run"),
            ("render runs/knot --out knot.png --size 1024", "one picture"),
        ),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--frames", type=whole(1, 1000), default=36, help="of the GIF (%(default)s)"
    )
    parser.add_argument(
        "--size", type=whole(8, 4096), default=200, help="pixels along an edge (%(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help=".gif or .png (turntable.gif in the run)"
    )
    add_device(parser)
    parser.set_defaults(run=guarded("sdf", _render))


def _load(data: str | None, console: Console) -> tuple[str, Mesh, Placement, Distances]:
    """Name, mesh in the cube, how it lies there, and distances to it."""
    from . import files, mesh
    from .distance import Distances

    name = BUILT_IN if data is None else Path(data).stem
    where = "the built-in knot" if data is None else data
    with phase(console, "reading the mesh"):
        solid = mesh.closed(mesh.knot() if data is None else files.read(Path(data)), where)
        placed, placement = mesh.in_cube(solid, where)
        distances = Distances(placed)
    console.print(
        f"Mesh {name}: {len(placed.triangles):,} triangles, {len(placed.vertices):,} vertices, closed.",
        highlight=False,
        soft_wrap=True,
    )
    loading(console)
    name = re.sub(r"[^\w.+-]", "_", name).lstrip(".")[:60] or "mesh"
    return name, placed, placement, distances


def _train(arguments: argparse.Namespace) -> int:
    from metal_ops.programs.files import run_folder

    console = console_for_people()
    if arguments.resume is not None:
        return _resume(arguments, console)
    with naming_options():
        model = ModelConfig(**field_of(arguments))
        fields = ("batch", "samples", "loss", "eikonal", "learning_rate")
        train = train_config(TrainConfig, arguments, *fields)
    run_folder(arguments.runs, arguments.name, "", arguments.overwrite)  # complain before the work
    data = None if arguments.data is None else os.path.abspath(arguments.data)
    name, mesh, placement, distances = _load(data, console)
    use_device(arguments, console)
    from .run import train_run
    from .train import SdfFit

    folder = run_folder(arguments.runs, arguments.name, name, arguments.overwrite)
    hold(arguments, folder)
    with phase(console, "computing distances"):
        fit = SdfFit(mesh, distances, model, train)
    return train_run(fit, folder, data, placement, console, name, arguments.checkpoint_every)


def _fit_of(
    arguments: argparse.Namespace, folder: Path, console: Console, renewed: bool = False
) -> tuple[SdfFit, str | None, Placement, str]:
    """The fit in a run's checkpoint with its mesh, where that is, how it lies, and its name."""
    import numpy as np

    from metal_ops.programs import checkpoint
    from metal_ops.programs.records import configs_from, data_from, with_budget

    header, arrays, where = checkpoint.load_run(folder, "sdf")
    loading(console)
    from .train import SdfFit, placement_from

    model, train = configs_from(header, where, ModelConfig, TrainConfig)
    before, data = placement_from(header, where), data_from(header, where)
    name, mesh, placement, distances = _load(data, console)
    same = np.allclose(before.centre, placement.centre, rtol=1e-9, atol=1e-9 / placement.scale)
    if not (same and math.isclose(before.scale, placement.scale, rel_tol=1e-9)):
        raise CheckpointError(
            f"{where}: fields 'centre' and 'scale' are not those of {data or 'the built-in knot'}; it is another mesh, "
            "train anew."
        )
    use_device(arguments, console)
    if renewed:
        train = with_budget(train, arguments.seconds, arguments.steps)
    with phase(console, "computing distances"):
        fit = SdfFit(mesh, distances, model, train)
    fit.load(header, arrays, where)
    return fit, data, placement, name


def _resume(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.data is not None:
        raise ProgramError(
            f"--resume {arguments.resume}: goes on with the mesh of that run; leave {arguments.data} out."
        )
    fit, data, placement, name = _fit_of(arguments, arguments.resume, console, renewed=True)
    refuse_used_up(fit, arguments.resume)
    from .run import train_run

    folder = hold(arguments, arguments.resume)
    return train_run(fit, folder, data, placement, console, name, arguments.checkpoint_every)


def _eval(arguments: argparse.Namespace) -> int:
    from metal_ops.programs.files import write_json

    console = console_for_people()
    fit, *_ = _fit_of(arguments, arguments.folder, console)
    from .evaluate import score
    from .run import score_fields

    with phase(console, "comparing the surfaces"):
        found = score(fit.sampled, fit.mesh, fit.distances, arguments.resolution, arguments.points)
    fields = score_fields(found) | {"resolution": arguments.resolution, "steps": fit.step}
    write_json(arguments.folder / "eval.json", fields)
    console.print(
        f"Chamfer {found.chamfer:.6f} of the longest side, IoU {found.iou:.4f}.", highlight=False
    )
    console.print(f"Written: {arguments.folder}/eval.json", highlight=False, soft_wrap=True)
    return 0


def _sampled(arguments: argparse.Namespace, console: Console) -> tuple[Sampled, Placement]:
    """The field of a run, without its mesh, and how that lay."""
    from metal_ops.programs import checkpoint
    from metal_ops.programs.records import configs_from, take_state

    header, arrays, where = checkpoint.load_run(arguments.folder, "sdf")
    loading(console)
    use_device(arguments, console)
    from .model import DistanceField
    from .train import Sampled, placement_from

    field = DistanceField(configs_from(header, where, ModelConfig, TrainConfig)[0])
    take_state(field.state(), arrays, where)
    return Sampled(field), placement_from(header, where)


def _mesh(arguments: argparse.Namespace) -> int:
    from .files import WRITTEN

    console = console_for_people()
    target = arguments.out or arguments.folder / "mesh.ply"
    if target.suffix.lower() not in WRITTEN:
        raise ProgramError(f"--out {target}: a mesh is an .obj or a .ply.")
    sampled, placement = _sampled(arguments, console)
    from .evaluate import polygons
    from .run import write_mesh

    with phase(console, "extracting the surface"):
        found = polygons(sampled, arguments.resolution)
    write_mesh(target, found, placement)
    console.print(
        f"Written: {target}, {len(found.triangles):,} triangles", highlight=False, soft_wrap=True
    )
    return 0


def _render(arguments: argparse.Namespace) -> int:
    from metal_ops.programs import pictures

    console = console_for_people()
    target = arguments.out or arguments.folder / "turntable.gif"
    if target.suffix.lower() not in (".gif", ".png"):
        raise ProgramError(f"--out {target}: a turntable is a .gif, one picture a .png.")
    sampled, _ = _sampled(arguments, console)
    from .pictures import traced

    if target.suffix.lower() == ".png":
        with phase(console, "tracing the picture"):
            pictures.save(target, traced(sampled, sampled.gradient, arguments.size))
    else:
        turns = [0.6 + 2 * math.pi * i / arguments.frames for i in range(arguments.frames)]
        frames = []
        with told(console, "turntable", arguments.frames, "frames") as step:
            for turn in turns:
                frames.append(traced(sampled, sampled.gradient, arguments.size, turn))
                step()
        pictures.turn(target, frames, _SECONDS_PER_TURN)
    console.print(f"Written: {target}", highlight=False, soft_wrap=True)
    return 0
