"""`lm train --adapters`: its options, and a run of one process or of several."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from metal_ops.programs.checkpoint import FILE_NAME
from metal_ops.programs.command import hold, positive, whole
from metal_ops.programs.errors import CheckpointError, ProgramError
from metal_ops.programs.files import run_folder
from metal_ops.programs.reading import kind_of
from metal_ops.programs.telling import phase

from .config import TrainConfig
from .loading import MODEL, SIZES, configs, load_text, of_files, of_run

if TYPE_CHECKING:
    from rich.console import Console

    from metal_ops.programs.workers import Workers

_RANK = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "adapters",
        "Two narrow matrices beside each of a trained model (LoRA) learn the text in place of the model's own weights, "
        "which stay as they are; runs/<name>/adapter.npz has them alone. `lm generate BASE --adapters runs/<name>` "
        "writes with both.",
    )
    group.add_argument(
        "--adapters",
        type=Path,
        default=None,
        metavar="BASE",
        help="train them alone, beside this model: folder of a run, or what generate takes as --model",
    )
    group.add_argument(
        "--rank", type=whole(1, 4096), default=None, help=f"their width ({_RANK} if left out)"
    )
    group.add_argument(
        "--alpha",
        type=positive,
        default=None,
        help="what they add is taken times alpha / rank (twice the rank)",
    )


def check(arguments: argparse.Namespace) -> None:
    """Raises ProgramError for options that mean nothing with --adapters, or without."""
    if arguments.adapters is None:
        for name in ("rank", "alpha"):
            if getattr(arguments, name) is not None:
                raise ProgramError(f"--{name} is of adapters; give their base by --adapters.")
        return
    if arguments.resume is not None:
        raise ProgramError("--resume: adapters start anew; leave it out, or leave out --adapters.")
    for name in SIZES:
        if getattr(arguments, name) != getattr(MODEL, name):
            option = name.replace("_", "-")
            raise ProgramError(f"--{option}: --adapters has the sizes of its base; leave it out.")


def train(arguments: argparse.Namespace, console: Console, workers: Workers | None = None) -> int:
    """Trains adapters; the exit code."""
    _, how = configs(arguments)
    data = None if arguments.data is None else os.path.abspath(arguments.data)
    # Where a worker was lost they start anew, and find the files they have left themselves.
    again = workers is not None and workers.returned
    arguments.overwrite = arguments.overwrite or again
    if workers is None or workers.chief:  # complain before the work
        run_folder(arguments.runs, arguments.name, "", arguments.overwrite)
    if workers is not None:
        own = [str(arguments.adapters), arguments.context, arguments.rank, arguments.alpha]
        (base, arguments.context, arguments.rank, arguments.alpha), data, of_training = (
            workers.share([own, data, dataclasses.asdict(how)])
        )
        arguments.adapters, how = Path(base), TrainConfig(**of_training)
    base = arguments.adapters
    kind = kind_of(base, CheckpointError)
    if not kind:
        raise CheckpointError(
            f"{base}: no such base for --adapters; give the folder of a run, or a model's file."
        )
    is_run = kind == "folder" and kind_of(base / FILE_NAME, CheckpointError) == "file"
    arguments.folder, arguments.model = base, None if is_run else base
    asked = arguments.context if arguments.context != MODEL.context else None
    arguments.context = None
    model, tokenizer = (of_run if is_run else of_files)(arguments, console)
    context = asked or min(MODEL.context, model.config.context)
    if context > model.config.context:
        raise ProgramError(
            f"--context {context}: {base} sees {model.config.context} at once; leave it out, or give less."
        )
    text = load_text(data, context, console)
    from .adapted import AdapterTrainer
    from .run import train_run

    rank = arguments.rank or _RANK
    with phase(console, "cutting the text into tokens"):
        trainer = AdapterTrainer(
            text,
            model,
            tokenizer,
            how,
            context,
            rank,
            arguments.alpha or 2.0 * rank,
            str(base),
            workers,
        )
    console.print(
        f"Base: {base}, {trainer.held_out():.3f} bits per byte of the text that is held back. An adapter of rank "
        f"{rank} beside it.",
        highlight=False,
        soft_wrap=True,
    )
    if workers is None:
        folder = run_folder(arguments.runs, arguments.name, "adapter", arguments.overwrite)
        hold(arguments, folder)
    else:
        folder = workers.begin(trainer, arguments, "adapter")
    return train_run(trainer, folder, data, console, arguments.checkpoint_every)
