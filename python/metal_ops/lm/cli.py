"""The command line: `python -m metal_ops lm train|generate|chat`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metal_ops.programs.cluster import is_worker
from metal_ops.programs.command import (
    add_budget,
    add_checkpoint_every,
    add_device,
    add_output,
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
from metal_ops.programs.errors import ProgramError, short
from metal_ops.programs.telling import loading

from . import adapting
from .config import ModelConfig, TrainConfig
from .loading import MODEL, TRAIN, configs, load_text, of_files, of_run

if TYPE_CHECKING:
    from rich.console import Console

    from .generate import Writer


def add_parser(subparsers: Any) -> None:
    """Adds `lm` and its commands to the subparsers of `python -m metal_ops`."""
    parser = subparsers.add_parser(
        "lm",
        help="Train a small language model over bytes, and let it or one from a file write",
        **words(
            "lm",
            "Train a small transformer over bytes (rotary positions, RMS norm, grouped attention, SwiGLU) on the CPU "
            "or the Metal device, and let it write; or a Llama, Mistral, Qwen or Gemma from a .gguf or a folder.",
            ("train", "on Python's own documentation, a minute; pictures in runs/lm/"),
            ("train --data book.txt --seconds 600", "on a text of yours, ten minutes"),
            ("generate runs/lm 'def '", "text that goes on from a prompt"),
            ("chat runs/lm", "line by line"),
            ("generate --model tiny.gguf 'Once'", "by a model from a file, or a folder"),
        ),
    )
    commands = parser.add_subparsers(dest="lm_command", metavar="<command>", required=True)
    _add_train(commands)
    _add_generate(commands)
    _add_chat(commands)


def _add_train(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="Train on a text; leaves a checkpoint, pictures and a sample in runs/<name>/",
        **words(
            "lm",
            "Train on a text. Leaves loss.png, attention.png, sample.txt, metrics.json and checkpoint.npz in "
            "runs/<name>/. Ctrl-C, or SIGTERM, stops early and leaves them, too.",
            ("train", "Python's own documentation, 60 s"),
            ("train --data book.txt --width 256 --hidden 704", "a text of yours, a larger model"),
            ("train --steps 500 --seed 1", "the same bits every time"),
            ("train --resume runs/lm --seconds 300", "on, to five minutes in total"),
            ("train --workers 2", "two processes, each on a batch of its own"),
            (
                "train --adapters runs/lm --data my.txt",
                "small matrices beside a trained model, which stays",
            ),
        ),
    )
    parser.add_argument(
        "--data",
        default=None,
        metavar="FILE",
        help="any file, read as bytes; the documentation strings of Python's standard library if left out",
    )
    add_budget(parser, TRAIN.seconds)
    model = parser.add_argument_group("model")
    for name, what in (
        ("width", "of what flows from layer to layer"),
        ("layers", "how many"),
        ("heads", "of queries"),
        ("kv_heads", "of keys and values, which neighbouring heads share"),
        ("hidden", "width of the feed-forward part"),
        ("context", "bytes that are seen at once"),
    ):
        model.add_argument(
            f"--{name.replace('_', '-')}",
            type=whole(1),
            default=getattr(MODEL, name),
            help=f"{what} (%(default)s)",
        )
    model.add_argument(
        "--batch", type=whole(1), default=TRAIN.batch, help="pieces of text a step (%(default)s)"
    )
    model.add_argument(
        "--learning-rate",
        type=positive,
        default=TRAIN.learning_rate,
        help="of AdamW, at its highest (%(default)s)",
    )
    adapting.add_options(parser)
    add_device(parser)
    add_checkpoint_every(add_output(parser, "lm"))
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with the run in this folder, with its text and options; --seconds or --steps set a new total",
    )
    add_workers(parser)
    parser.set_defaults(run=among_workers("lm", _train))


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        type=Path,
        default=None,
        metavar="PATH",
        help="in place of a run: a Llama-like model, a .gguf, a .safetensors or the folder of one",
    )
    model.add_argument(
        "--context",
        type=whole(8, 1 << 20),
        default=None,
        help="tokens that a --model sees at once (its own, at most 2048)",
    )
    model.add_argument(
        "--adapters",
        type=Path,
        default=None,
        metavar="RUN",
        help="with what `lm train --adapters` learnt beside this model: its run's folder, or the adapter.npz there",
    )
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--temperature",
        type=_fraction(10.0),
        default=0.8,
        help="0 takes the likeliest token, more is wilder (%(default)s)",
    )
    group.add_argument(
        "--top-k", type=whole(0), default=0, help="of the k likeliest tokens alone (all)"
    )
    group.add_argument(
        "--top-p",
        type=_fraction(1.0),
        default=0.95,
        help="of the likeliest tokens that have this probability together (%(default)s)",
    )
    group.add_argument("--seed", type=whole(0), default=0, help="%(default)s if left out")
    parser.add_argument(
        "--bits",
        type=int,
        choices=(4, 8, 32),
        default=32,
        help="quantize the layers' matrices to 4 or 8 bits, in blocks of 32 (32: float32)",
    )
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="round what is multiplied with quantized matrices to 8 bits, too: faster, and less exact",
    )
    add_device(parser)


def _add_number(parser: argparse.ArgumentParser, what: str, default: int) -> None:
    parser.add_argument(
        "--bytes",
        "--tokens",
        type=whole(1),
        default=default,
        metavar="N",
        help=f"tokens, which are bytes but for a --model: {what} (%(default)s)",
    )


def _fraction(most: float) -> Any:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= most:
            raise argparse.ArgumentTypeError(
                f"expected a number from 0 to {most:g}, got {short(text)}"
            )
        return value

    return parse


def _add_generate(commands: Any) -> None:
    parser = commands.add_parser(
        "generate",
        help="Write text that goes on from a prompt",
        **words(
            "lm",
            "Write text that goes on from a prompt; says how fast at the end.",
            ("generate runs/lm", "from nothing"),
            ("generate runs/lm 'Return the' --bits 4", "from a prompt, with weights of 4 bits"),
            ("generate --model tiny.gguf 'Once'", "a model that others trained"),
            ("generate runs/lm --adapters runs/mine", "with adapters that were trained beside it"),
        ),
    )
    _add_sampling(parser)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RUN PROMPT",
        help="folder of the run, and what the text begins with (nothing); with --model the prompt alone",
    )
    _add_number(parser, "how many to write", 400)
    parser.set_defaults(run=guarded("lm", _generate))


def _add_chat(commands: Any) -> None:
    parser = commands.add_parser(
        "chat",
        help="Line by line: it goes on from what you write",
        **words(
            "lm",
            "Line by line: it goes on from all that was written so far, up to the end of its line. A model that was "
            "trained on conversations answers; others go on with yours. Ends with the input, or by Ctrl-C.",
            ("chat runs/lm", ""),
        ),
    )
    _add_sampling(parser)
    parser.add_argument(
        "words", nargs="*", metavar="RUN", help="folder of the run; none with --model"
    )
    _add_number(parser, "of an answer, at most", 200)
    parser.set_defaults(run=guarded("lm", _chat))


def _train(arguments: argparse.Namespace) -> int:
    from metal_ops.programs.files import run_folder

    console = console_for_people()
    adapting.check(arguments)
    if is_worker():
        return _train_together(arguments, console)
    if arguments.adapters is not None:
        return adapting.train(arguments, console)
    if arguments.resume is not None:
        return _resume(arguments, console)
    model, train = configs(arguments)
    run_folder(arguments.runs, arguments.name, "", arguments.overwrite)  # complain before the work
    data = None if arguments.data is None else os.path.abspath(arguments.data)
    text = load_text(data, model.context, console)
    use_device(arguments, console)
    from .run import train_run
    from .train import Trainer

    folder = run_folder(arguments.runs, arguments.name, "lm", arguments.overwrite)
    hold(arguments, folder)
    trainer = Trainer(text, model, train)
    return train_run(trainer, folder, data, console, arguments.checkpoint_every)


def _train_together(arguments: argparse.Namespace, console: Console) -> int:
    """One of several workers. All take the chief's options, or those in its checkpoint."""
    import dataclasses

    from metal_ops.programs.files import run_folder
    from metal_ops.programs.workers import join

    from .run import train_run
    from .train import Trainer

    model, train = configs(arguments)
    data = None if arguments.data is None else os.path.abspath(arguments.data)
    workers, loaded = join(arguments), None
    if arguments.adapters is not None:
        return adapting.train(arguments, console, workers)
    use_device(arguments, console)
    if workers.chief and arguments.resume is not None:
        model, train, data, loaded = _of_checkpoint(arguments)
    elif workers.chief:
        run_folder(arguments.runs, arguments.name, "", arguments.overwrite)
    records = dataclasses.asdict(model), dataclasses.asdict(train)
    of_model, of_training, data = workers.share([*records, data])
    model, train = ModelConfig(**of_model), TrainConfig(**of_training)
    trainer = Trainer(load_text(data, model.context, console), model, train, workers)
    if loaded is not None:
        trainer.load(*loaded)
    folder = workers.begin(trainer, arguments, "lm")
    return train_run(trainer, folder, data, console, arguments.checkpoint_every)


def _of_checkpoint(
    arguments: argparse.Namespace,
) -> tuple[ModelConfig, TrainConfig, str | None, tuple[Any, Any, str]]:
    """The parts of the run that is to go on: its configuration, with another budget if one is given, its text, its
    state."""
    from metal_ops.programs import checkpoint
    from metal_ops.programs.records import configs_from, data_from, with_budget

    header, arrays, where = checkpoint.load_run(arguments.resume, "lm")
    data = data_from(header, where)
    model, train = configs_from(header, where, ModelConfig, TrainConfig)
    train = with_budget(train, arguments.seconds, arguments.steps)
    return model, train, data, (header, arrays, where)


def _resume(arguments: argparse.Namespace, console: Console) -> int:
    model, train, data, loaded = _of_checkpoint(arguments)
    loading(console)
    from .run import train_run
    from .train import Trainer

    text = load_text(data, model.context, console)
    use_device(arguments, console)
    trainer = Trainer(text, model, train)
    trainer.load(*loaded)
    refuse_used_up(trainer, arguments.resume)
    folder = hold(arguments, arguments.resume)
    return train_run(trainer, folder, data, console, arguments.checkpoint_every)


def _writer(arguments: argparse.Namespace, console: Console) -> Writer:
    model, tokenizer = (of_run if arguments.model is None else of_files)(arguments, console)
    from .generate import Sampling, Writer

    if arguments.bits != 32:
        before = model.n_bytes()
        model = model.quantized(arguments.bits)
        console.print(
            f"Weights of {arguments.bits} bits: {model.n_bytes():,} bytes, {before:,} before.",
            highlight=False,
        )
    if arguments.dynamic:
        if not model.n_quantized():
            raise ProgramError(
                "--dynamic: expected quantized matrices, got floats; give --bits 4 or --bits 8 with it."
            )
        model.dynamic = True
    if arguments.adapters is not None:
        from .adapted import load

        model = load(model, arguments.adapters)
    sampling = Sampling(arguments.temperature, arguments.top_k, arguments.top_p, arguments.seed)
    return Writer(model, sampling, tokenizer)


def _words_of(arguments: argparse.Namespace, most: int) -> str:
    """The prompt; the run's folder becomes `arguments.folder`."""
    words = list(arguments.words)
    if arguments.model is None:
        if not words:
            raise ProgramError("give the folder of a run, or --model with a file.")
        arguments.folder = Path(words.pop(0))
    if len(words) > most:
        raise ProgramError(
            f"{short(words[most])} is one word too many; put quotes around a prompt."
        )
    return words[0] if words else ""


def _generate(arguments: argparse.Namespace) -> int:
    console = console_for_people()
    prompt = _words_of(arguments, 1)
    writer = _writer(arguments, console)
    from .run import stream

    if prompt:
        writer.tell(os.fsencode(prompt))
    stream([os.fsencode(prompt)], sys.stdout)
    stream(writer.write(arguments.bytes), sys.stdout)
    print()
    rate = max(writer.n_written - 1, 1) / max(writer.writing, 1e-9)
    what = "bytes" if arguments.model is None else "tokens"
    print(f"{writer.n_written} {what} written, {rate:.0f} a second", file=sys.stderr)
    return 0


def _chat(arguments: argparse.Namespace) -> int:
    console = console_for_people()
    _words_of(arguments, 0)
    writer = _writer(arguments, console)
    from .run import stream

    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return 0
        writer.tell(os.fsencode(line + "\n"))
        stream(_to_newline(writer.write(arguments.bytes)), sys.stdout)
        print()


def _to_newline(text: Any) -> Any:
    """Bytes before the end of the line, which is read by the writer as well."""
    begun = False
    for piece in text:
        if not begun:
            piece = piece.lstrip(b"\n")
        line, end, _ = piece.partition(b"\n")
        begun = begun or bool(piece)
        yield line
        if end:
            return
