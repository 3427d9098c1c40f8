"""The command line: `python -m metal_ops image fit|eval|render`."""

from __future__ import annotations

import argparse
import os
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
from metal_ops.programs.errors import CheckpointError, ProgramError, short
from metal_ops.programs.hash_field import add_field, add_number, field_of
from metal_ops.programs.telling import loading, phase

from .config import LIMITS, ModelConfig, TrainConfig

if TYPE_CHECKING:
    from rich.console import Console

    from .picture import Picture
    from .train import ImageFit

_MODEL, _TRAIN = ModelConfig(), TrainConfig()
_MOST_SIZE = 1 << 15


def add_parser(subparsers: Any) -> None:
    """Adds `image` and its commands to the subparsers of `python -m metal_ops`."""
    parser = subparsers.add_parser(
        "image",
        help="Fit a picture with a hash grid, and render it at any size",
        **words(
            "image",
            'Fit a picture by a hash grid and a small network (instant-ngp\'s "gigapixel image"), on the CPU or the '
            "Metal device, and render it at any size.",
            ("fit", "the built-in picture, half a minute; pictures in runs/julia/"),
            ("fit photo.jpg -o runs/photo", "a picture of yours"),
            ("render runs/photo --size 4000", "what was learnt, larger"),
            ("eval runs/photo", "PSNR of every pixel"),
        ),
    )
    commands = parser.add_subparsers(dest="image_command", metavar="<command>", required=True)
    _add_fit(commands)
    _add_eval(commands)
    _add_render(commands)


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="Fit a picture; leaves pictures, metrics.json and a checkpoint in runs/<name>/",
        **words(
            "image",
            "Fit a picture. While it trains, picture.png shows what was learnt so far, and so does a terminal. Leaves "
            "comparison.png, progress.png, psnr.png, metrics.json and checkpoint.npz beside it. Ctrl-C, or SIGTERM, "
            "stops early and leaves them, too.",
            ("fit", "the built-in picture, 30 s"),
            ("fit photo.jpg --seconds 120", "a picture of yours, two minutes"),
            ("fit huge.ppm --log2-hashmap-size 22", "larger than memory: a mapped file"),
            ("fit --resume runs/photo --seconds 300", "on, to five minutes in total"),
        ),
    )
    parser.add_argument(
        "data",
        nargs="?",
        metavar="PICTURE",
        help="PNG, JPEG, WebP, BMP or TIFF; a binary PPM or .npy (uint8 [H, W, 3]) is mapped, whatever its size; the "
        "built-in picture if left out",
    )
    add_budget(parser, _TRAIN.seconds)
    add_field(parser, _MODEL, "half of the picture's longer edge")
    learning = parser.add_argument_group("learning")
    add_number(learning, "batch", "batch", "pixels a step (%(default)s)", _TRAIN.batch, LIMITS)
    learning.add_argument(
        "--learning-rate",
        type=positive,
        default=_TRAIN.learning_rate,
        help="of Adam, at first (%(default)s)",
    )
    add_device(parser)
    add_checkpoint_every(add_output(parser, "the picture's name"))
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with the run in this folder, with its picture and options; --seconds or --steps set a new total",
    )
    parser.set_defaults(run=guarded("image", _fit))


def _add_eval(commands: Any) -> None:
    parser = commands.add_parser(
        "eval",
        help="PSNR of every pixel",
        **words(
            "image",
            "Measure a run's checkpoint on every pixel of its picture, into eval.json.",
            ("eval runs/photo", ""),
        ),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    add_device(parser)
    parser.set_defaults(run=guarded("image", _eval))


def _add_render(commands: Any) -> None:
    parser = commands.add_parser(
        "render",
        help="Render the picture of a run, or a part of it, at any size",
        **words(
            "image",
            "Render what a run has learnt, or a part of it, as a PNG. The picture itself is not needed.",
            ("render runs/photo --size 4000", "4000 pixels along the longer edge"),
            ("render runs/photo --part 100 80 64 64 --size 512", "64 x 64 pixels, enlarged"),
        ),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--size",
        type=whole(1, _MOST_SIZE),
        default=None,
        help="pixels along the longer edge (the picture's own)",
    )
    parser.add_argument(
        "--part",
        type=whole(0, 1 << 17),
        nargs=4,
        default=None,
        metavar=("LEFT", "TOP", "WIDTH", "HEIGHT"),
        help="of the picture, in its pixels (all of it)",
    )
    parser.add_argument("--out", type=Path, default=None, help="the PNG (render.png in the run)")
    add_device(parser)
    parser.set_defaults(run=guarded("image", _render))


def _load(data: str | None, console: Console) -> Picture:
    from . import picture

    with phase(console, "reading the picture"):
        found = picture.load(data)
    loading(console)
    console.print(
        f"Picture {found.name}: {found.width} x {found.height} pixels.",
        highlight=False,
        soft_wrap=True,
    )
    if found.note:
        console.print(f"Note: {found.note}", highlight=False, soft_wrap=True)
    return found


def _fit(arguments: argparse.Namespace) -> int:
    from metal_ops.programs.files import run_folder

    console = console_for_people()
    if arguments.resume is not None:
        return _resume(arguments, console)
    run_folder(arguments.runs, arguments.name, "", arguments.overwrite)  # complain before the work
    data = None if arguments.data is None else os.path.abspath(arguments.data)
    picture = _load(data, console)
    finest = arguments.finest_resolution
    if finest is None:
        finest = max(picture.longest // 2, arguments.base_resolution)
    with naming_options():
        model = ModelConfig(**field_of(arguments) | {"finest_resolution": finest})
        train = train_config(TrainConfig, arguments, "batch", "learning_rate")
    use_device(arguments, console)
    from .run import fit_run
    from .train import ImageFit

    folder = run_folder(arguments.runs, arguments.name, picture.name, arguments.overwrite)
    hold(arguments, folder)
    fit = ImageFit(picture, model, train)
    return fit_run(fit, folder, data, console, arguments.checkpoint_every)


def _fit_of(
    arguments: argparse.Namespace, folder: Path, console: Console, renewed: bool = False
) -> tuple[ImageFit, str | None]:
    """The fit in a run's checkpoint with its picture, and where that is."""
    from metal_ops.programs import checkpoint
    from metal_ops.programs.records import configs_from, data_from, with_budget

    header, arrays, where = checkpoint.load_run(folder, "image")
    loading(console)
    from .train import ImageFit

    model, train = configs_from(header, where, ModelConfig, TrainConfig)
    data = data_from(header, where)
    picture = _load(data, console)
    size = (header.get("width"), header.get("height"))
    if size != (picture.width, picture.height):
        raise CheckpointError(
            f"{where}: fields 'width' and 'height' are {short(size[0])} and {short(size[1])}, and "
            f"{data or 'the built-in picture'} has {picture.width} x {picture.height} pixels; it is another picture, "
            "fit it anew."
        )
    use_device(arguments, console)
    if renewed:
        train = with_budget(train, arguments.seconds, arguments.steps)
    fit = ImageFit(picture, model, train)
    fit.load(header, arrays, where)
    return fit, data


def _resume(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.data is not None:
        raise ProgramError(
            f"--resume {arguments.resume}: goes on with the picture of that run; leave {arguments.data} out."
        )
    fit, data = _fit_of(arguments, arguments.resume, console, renewed=True)
    refuse_used_up(fit, arguments.resume)
    from .run import fit_run

    folder = hold(arguments, arguments.resume)
    return fit_run(fit, folder, data, console, arguments.checkpoint_every)


def _eval(arguments: argparse.Namespace) -> int:
    from metal_ops.programs.files import write_json

    console = console_for_people()
    fit, _ = _fit_of(arguments, arguments.folder, console)
    from .train import every_pixel

    with phase(console, "measuring every pixel"):
        psnr, pixels = every_pixel(fit)
    write_json(arguments.folder / "eval.json", {"psnr": psnr, "pixels": pixels, "steps": fit.step})
    console.print(f"{psnr:.2f} dB, of {pixels:,} pixels.", highlight=False)
    console.print(f"Written: {arguments.folder}/eval.json", highlight=False, soft_wrap=True)
    return 0


def _render(arguments: argparse.Namespace) -> int:
    from metal_ops.programs import checkpoint, pictures
    from metal_ops.programs.reading import MOST_PIXELS
    from metal_ops.programs.records import configs_from, number_from, take_state

    console = console_for_people()
    target = arguments.out or arguments.folder / "render.png"
    if target.suffix.lower() != ".png":
        raise ProgramError(f"--out {target}: a picture is a .png.")
    header, arrays, where = checkpoint.load_run(arguments.folder, "image")
    whole_width, whole_height = (
        number_from(header, name, where, 1, 1 << 17) for name in ("width", "height")
    )
    left, top, width, height = arguments.part or (0, 0, whole_width, whole_height)
    if not (width and height and left + width <= whole_width and top + height <= whole_height):
        raise ProgramError(
            f"--part {left} {top} {width} {height}: does not lie in the picture of {whole_width} x {whole_height} "
            "pixels."
        )
    zoom = (arguments.size or max(width, height)) / max(width, height)
    size = (max(round(width * zoom), 1), max(round(height * zoom), 1))
    if size[0] * size[1] > MOST_PIXELS:
        raise ProgramError(
            f"--size: {size[0]} x {size[1]} pixels are more than {MOST_PIXELS}; give a smaller one, or a --part."
        )
    loading(console)
    use_device(arguments, console)
    from .model import ImageField
    from .train import compiled, render

    field = ImageField(configs_from(header, where, ModelConfig, TrainConfig)[0])
    take_state(field.state(), arrays, where)
    longest = max(whole_width, whole_height)
    part = (left / longest, top / longest, width / longest, height / longest)
    with phase(console, f"rendering {size[0]} x {size[1]} pixels"):
        pictures.save(target, render(compiled(field), *size, part))
    console.print(f"Written: {target}", highlight=False, soft_wrap=True)
    return 0
