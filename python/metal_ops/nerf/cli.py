"""The command line: `python -m metal_ops nerf train|eval|render|compare`.

TensorFlow is imported only once the arguments are known to make sense, so that --help and mistakes answer at once.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metal_ops.programs.cluster import is_worker
from metal_ops.programs.command import (
    add_checkpoint_every,
    add_device,
    add_workers,
    among_workers,
    console_for_people,
    guarded,
    hold,
    positive,
    refuse_used_up,
    use_device,
    whole,
    words,
)
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.reading import kind_of
from metal_ops.programs.telling import loading, phase, told

from . import options
from .config import BACKENDS, ENCODINGS
from .errors import SceneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from .config import ModelConfig, TrainConfig
    from .scenes import Scene
    from .train import Trainer

RENDERED = {"turntable": "render.gif", "views": "views"}


def add_parser(subparsers: Any) -> None:
    """Adds `nerf` and its commands to the subparsers of `python -m metal_ops`."""
    parser = subparsers.add_parser(
        "nerf",
        help="Train, evaluate and render a NeRF with hash encoding",
        **words(
            "nerf",
            "Train, evaluate and render a neural radiance field with hash encoding, on the CPU or the Metal device.",
            ("train", "the built-in scene, a minute; pictures in runs/still_life/"),
            (
                "train --data photos",
                "photographs with transforms.json or a COLMAP model, or a NeRF-synthetic folder",
            ),
            ("eval runs/photos", "PSNR and SSIM of every held-out view"),
            ("render runs/photos", "once around the scene, as render.gif in the run"),
            ("make-scene --size 800", "the built-in scene as a folder, at papers' resolution"),
        ),
    )
    commands = parser.add_subparsers(dest="nerf_command", metavar="<command>", required=True)
    _add_train(commands)
    _add_eval(commands)
    _add_render(commands)
    _add_compare(commands)
    _add_make_scene(commands)


def _add_train(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="Train on a scene; leaves pictures, metrics.json and a checkpoint in runs/<name>/",
        **words(
            "nerf",
            "Train on a scene. Leaves comparison.png, turntable.gif, psnr.png, metrics.json and checkpoint.npz in "
            "runs/<name>/. Ctrl-C, or SIGTERM, stops early and leaves them, too.",
            ("train", "the built-in scene, 60 s"),
            ("train --data photos --downscale 4 --seconds 180", "large photographs, three minutes"),
            ("train --data chair --steps 1500 --seed 1", "the same bits every time"),
            ("train --resume runs/photos --seconds 300", "on, to five minutes in total"),
            ("train --workers 2", "two processes, each on its share of twice the rays"),
        ),
    )
    options.add_scene(parser)
    options.add_budget(parser)
    options.add_model(parser)
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=options.MODEL.backend,
        help="what computes all but the layers: the library's ops, or stock TensorFlow ops (%(default)s)",
    )
    parser.add_argument(
        "--encoding",
        choices=ENCODINGS,
        default=options.MODEL.encoding,
        help="hash table, or the classic NeRF's frequencies (%(default)s)",
    )
    add_device(parser)
    add_checkpoint_every(options.add_output(parser))
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with the run in this folder, with its scene and options; --seconds or --steps set a new total",
    )
    add_workers(parser)
    parser.set_defaults(run=among_workers("nerf", _train))


def _add_eval(commands: Any) -> None:
    parser = commands.add_parser(
        "eval",
        help="Score a run on its held-out views",
        **words(
            "nerf",
            "Score a run's checkpoint on its held-out views: PSNR and SSIM for each and their means, into eval.json.",
            ("eval runs/photos", "all of them"),
            ("eval runs/photos --views 4 --finer 2", "four of them, with steps half as long"),
        ),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--views",
        type=whole(1),
        default=None,
        metavar="N",
        help="at most so many views, evenly spread (all)",
    )
    parser.add_argument(
        "--finer",
        type=whole(1, 16),
        default=1,
        metavar="K",
        help="divide the marching step by K (%(default)s)",
    )
    add_device(parser)
    parser.set_defaults(run=guarded("nerf", _eval))


def _add_render(commands: Any) -> None:
    parser = commands.add_parser(
        "render",
        help="Render the turntable or the held-out views of a run",
        **words(
            "nerf",
            "Render a run's checkpoint: the turntable as a GIF, or every held-out view as a PNG with alpha.",
            ("render runs/photos --frames 96 --size 400", "a slower turn, larger"),
            ("render runs/photos --what views --out views", "held-out views into views/"),
        ),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--what",
        choices=("turntable", "views"),
        default="turntable",
        help="%(default)s if left out",
    )
    parser.add_argument(
        "--frames", type=whole(1, 10000), default=48, help="of the turntable (%(default)s)"
    )
    parser.add_argument(
        "--size",
        type=whole(8, 4096),
        default=None,
        help="pixels along the longer edge (200 for the turntable, the scene's own for views)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        help=f"the GIF, or the folder for the PNGs ({' or '.join(RENDERED.values())} in the run)",
    )
    parser.add_argument(
        "--finer",
        type=whole(1, 16),
        default=1,
        metavar="K",
        help="divide the marching step by K (%(default)s)",
    )
    add_device(parser)
    parser.set_defaults(run=guarded("nerf", _render))


def _add_compare(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="Train several encodings or backends for the same time and draw their curves",
        **words(
            "nerf",
            "Train contenders in turns, each for the same time, and draw PSNR over training time: hash table against "
            "frequencies by default, or --backends fused composite. With --until-psnr each trains until it gets there, "
            "and the times are compared; the exit code is 1 if one does not.",
            ("compare --seconds 30", "hash table against frequencies"),
            (
                "compare --backends fused composite --until-psnr 28",
                "this library's ops against stock ones",
            ),
        ),
    )
    options.add_scene(parser)
    options.add_budget(parser)
    options.add_model(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--encodings",
        nargs="+",
        action="extend",
        choices=ENCODINGS,
        metavar="E",
        help=f"of {', '.join(ENCODINGS)} (all)",
    )
    which.add_argument(
        "--backends",
        nargs="+",
        action="extend",
        choices=BACKENDS,
        metavar="B",
        help=f"of {', '.join(BACKENDS)}, for the hash table",
    )
    parser.add_argument(
        "--until-psnr",
        type=positive,
        metavar="DB",
        help="a contender is through when it reaches this mean PSNR",
    )
    add_device(parser)
    options.add_output(parser)
    parser.set_defaults(run=guarded("nerf", _compare))


def _add_make_scene(commands: Any) -> None:
    parser = commands.add_parser(
        "make-scene",
        help="Write the built-in scene as a folder that `train --data` reads",
        **words(
            "nerf",
            "Render the built-in still life into a folder in the format of NeRF-synthetic (800x800 pixels there), by "
            "pinholes, fisheyes of 120 degrees or panoramas.",
            ("make-scene --size 800", "into scenes/still_life_800"),
            (
                "make-scene --size 160 --camera fisheye --out fisheye",
                "OPENCV_FISHEYE with k1 and k2",
            ),
        ),
    )
    parser.add_argument(
        "--size",
        type=whole(16, 4096),
        default=800,
        help="pixels along the vertical edge; panoramas are twice as wide (%(default)s)",
    )
    parser.add_argument(
        "--camera",
        choices=("pinhole", "fisheye", "equirectangular"),
        default="pinhole",
        help="of all views (%(default)s)",
    )
    for split, count in (("train", 64), ("test", 12)):
        parser.add_argument(
            f"--{split}-views",
            type=whole(1, 10000),
            default=count,
            metavar="N",
            help="%(default)s if left out",
        )
    parser.add_argument(
        "--supersample",
        type=whole(1, 8),
        default=2,
        metavar="K",
        help="rays along a pixel's edge (%(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="scenes/still_life_<size> if left out",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    parser.set_defaults(run=guarded("nerf", _make_scene))


def _make_scene(arguments: argparse.Namespace) -> int:
    from .scenes.make import make_scene

    console = console_for_people()
    suffix = "" if arguments.camera == "pinhole" else f"_{arguments.camera}"
    folder = arguments.out or Path("scenes") / f"still_life_{arguments.size}{suffix}"

    def progress(done: int, count: int) -> None:
        if done == count or done % 16 == 0:
            console.print(f"{done} of {count} pictures", highlight=False)

    make_scene(
        folder,
        arguments.size,
        arguments.camera,
        arguments.train_views,
        arguments.test_views,
        arguments.supersample,
        arguments.overwrite,
        progress,
    )
    console.print(f"Written: {folder}", highlight=False, soft_wrap=True)
    return 0


def _origin(arguments: argparse.Namespace) -> dict[str, Any]:
    """How to load the scene again, as plain values for checkpoint and metrics."""
    data = None if arguments.data is None else os.path.abspath(arguments.data)
    if data is not None and not kind_of(Path(data), SceneError):  # before TensorFlow is imported
        raise SceneError(f"{data}: no such file or folder.")
    return {"data": data, "downscale": arguments.downscale, "size": arguments.size}


def _load_scene(arguments: argparse.Namespace, origin: dict[str, Any], console: Console) -> Scene:
    """The scene; from then on ops run on the device that was asked for."""
    loading(console)
    from .scenes import load_scene

    with phase(console, "reading the scene"):
        scene = load_scene(origin["data"], origin["downscale"], origin["size"])
    from .run import describe

    describe(scene, console)
    use_device(arguments, console)
    return scene


def _train(arguments: argparse.Namespace) -> int:
    from metal_ops.programs.files import run_folder

    console = console_for_people()
    if is_worker():
        return _train_together(arguments, console)
    if arguments.resume is not None:
        return _resume(arguments, console)
    model, train = options.configs(arguments)
    run_folder(arguments.runs, arguments.name, "", arguments.overwrite)  # complain before the work
    origin = _origin(arguments)
    scene = _load_scene(arguments, origin, console)
    from .run import train_run
    from .train import Trainer

    model, train = _for_device(arguments, scene, model, train)
    folder = run_folder(arguments.runs, arguments.name, scene.name, arguments.overwrite)
    hold(arguments, folder)
    trainer = Trainer(scene, model, train)
    return train_run(trainer, folder, origin, console, arguments.frames, arguments.checkpoint_every)


def _for_device(
    arguments: argparse.Namespace, scene: Scene, model: ModelConfig, train: TrainConfig
) -> tuple[ModelConfig, TrainConfig]:
    """The configuration with the defaults of the device that was asked for."""
    from .packed import has_own_memory

    if arguments.device != "metal" or not has_own_memory("GPU:0"):
        return model, train
    return options.for_gpu(arguments, model, train, scene.pixels_across)


def _train_together(arguments: argparse.Namespace, console: Console) -> int:
    """One of several workers. All take the chief's options, or those in its checkpoint."""
    from metal_ops.programs import checkpoint
    from metal_ops.programs.files import run_folder
    from metal_ops.programs.records import configs_from, with_budget
    from metal_ops.programs.workers import join

    from .config import ModelConfig, TrainConfig, to_json
    from .run import describe, train_run
    from .scenes import load_scene, origin_from
    from .train import Trainer

    model, train, origin, loaded = *options.configs(arguments), _origin(arguments), None
    loading(console)
    workers = join(arguments)
    use_device(arguments, console)
    if workers.chief and arguments.resume is not None:
        loaded = checkpoint.load_run(arguments.resume, "nerf")
        header, _, where = loaded
        model, train = configs_from(header, where, ModelConfig, TrainConfig)
        origin = origin_from(header, where)
        train = with_budget(train, arguments.seconds, arguments.steps)
    elif workers.chief:
        run_folder(arguments.runs, arguments.name, "", arguments.overwrite)
    origin = workers.share(origin)
    scene = load_scene(origin["data"], origin["downscale"], origin["size"])
    describe(scene, console)
    if loaded is None:
        model, train = _for_device(arguments, scene, model, train)
    said = workers.share({"model": to_json(model), "train": to_json(train)})
    model, train = ModelConfig(**said["model"]), TrainConfig(**said["train"])
    trainer = Trainer(scene, model, train, workers)
    if loaded is not None:
        trainer.load(*loaded)
    folder = workers.begin(trainer, arguments, scene.name)
    return train_run(trainer, folder, origin, console, arguments.frames, arguments.checkpoint_every)


def _resume(arguments: argparse.Namespace, console: Console) -> int:
    from metal_ops.programs.records import with_budget

    trainer, origin = _trainer_of(
        arguments,
        arguments.resume,
        console,
        lambda config: with_budget(config, arguments.seconds, arguments.steps),
    )
    refuse_used_up(trainer, arguments.resume)
    from .run import train_run

    folder = hold(arguments, arguments.resume)
    return train_run(trainer, folder, origin, console, arguments.frames, arguments.checkpoint_every)


def _trainer_of(
    arguments: argparse.Namespace,
    folder: Path,
    console: Console,
    change: Callable[[TrainConfig], TrainConfig] = lambda config: config,
) -> tuple[Trainer, dict[str, Any]]:
    """The trainer in a run's checkpoint, its scene loaded again, and the scene's origin."""
    from metal_ops.programs import checkpoint
    from metal_ops.programs.records import configs_from

    header, arrays, where = checkpoint.load_run(folder, "nerf")
    loading(console)
    from .config import ModelConfig, TrainConfig
    from .scenes import origin_from
    from .train import Trainer

    model, train = configs_from(header, where, ModelConfig, TrainConfig)
    origin = origin_from(header, where)
    trainer = Trainer(_load_scene(arguments, origin, console), model, change(train))
    trainer.load(header, arrays, where)
    return trainer, origin


def _eval(arguments: argparse.Namespace) -> int:
    from rich.table import Table

    from metal_ops.programs.files import write_json

    console = console_for_people()
    trainer, _ = _trainer_of(arguments, arguments.folder, console)
    from .evaluate import evaluate

    scene = trainer.scene
    most = min(arguments.views or len(scene.test), len(scene.test))
    with told(console, "evaluation", most, "views") as step:
        score = evaluate(
            trainer.renderer(arguments.finer), scene.test, scene.background, most, step=step
        )
    assert score is not None
    table = Table()
    for column in ("view", "PSNR, dB", "SSIM"):
        table.add_column(column, justify="left" if column == "view" else "right")
    for name, psnr, ssim in zip(score.names, score.psnr, score.ssim, strict=True):
        table.add_row(name, f"{psnr:.2f}", f"{ssim:.4f}")
    table.add_section()
    table.add_row("mean", f"{score.mean_psnr:.2f}", f"{score.mean_ssim:.4f}")
    console.print(table)
    write_json(
        arguments.folder / "eval.json",
        {
            "psnr": score.mean_psnr,
            "ssim": score.mean_ssim,
            "steps": trainer.step,
            "finer": arguments.finer,
            "views": [
                {"name": n, "psnr": p, "ssim": s}
                for n, p, s in zip(score.names, score.psnr, score.ssim, strict=True)
            ],
        },
    )
    console.print(f"Written: {arguments.folder}/eval.json", highlight=False, soft_wrap=True)
    return 0


def _render(arguments: argparse.Namespace) -> int:
    console = console_for_people()
    # Not turntable.gif, which is the training's.
    target = arguments.out or arguments.folder / RENDERED[arguments.what]
    if arguments.what == "turntable" and target.suffix.lower() != ".gif":
        raise ProgramError(f"--out {target}: a turntable is a .gif.")
    trainer, _ = _trainer_of(arguments, arguments.folder, console)
    from . import pictures

    render = trainer.renderer(arguments.finer)
    if arguments.what == "turntable":
        with told(console, "turntable", arguments.frames, "frames") as step:
            pictures.turntable(
                target, render, trainer.scene, arguments.frames, arguments.size or 200, step
            )
    else:
        with told(console, "views", len(trainer.scene.test), "pictures") as step:
            pictures.views(target, render, trainer.scene, arguments.size, step)
    console.print(f"Written: {target}", highlight=False, soft_wrap=True)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from metal_ops.programs.files import run_folder

    console = console_for_people()
    model, train = options.configs(arguments)
    run_folder(arguments.runs, arguments.name, "", arguments.overwrite)
    origin = _origin(arguments)
    scene = _load_scene(arguments, origin, console)
    from .compare import compare_run, contenders_from

    folder = run_folder(
        arguments.runs, arguments.name, f"{scene.name}-compare", arguments.overwrite
    )
    hold(arguments, folder)
    models = contenders_from(model, arguments.encodings, arguments.backends)
    return compare_run(scene, models, train, folder, origin, console, arguments.until_psnr)
