"""Shared by the commands of programs: options, how mistakes and Ctrl-C end them, and the device.

TensorFlow is imported only once the arguments are known to make sense, so that --help and mistakes answer at once.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import signal
import sys
import textwrap
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import ProgramError, short
from .files import locked
from .interrupts import ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.console import Console

DEVICES = ("cpu", "metal")
CHECKPOINT_EVERY = 30.0  # training seconds
Config = TypeVar("Config", bound=Any)


def words(program: str, description: str, *examples: tuple[str, str]) -> dict[str, Any]:
    """The arguments of add_parser for a description that is wrapped, and examples (arguments, their effect) that are
    not."""
    width = max(len(command) for command, _ in examples)
    lines = [
        f"  python -m metal_ops {program} {command:{width}}  {what}" for command, what in examples
    ]
    return {
        "description": textwrap.fill(description, 78),
        "epilog": "\n".join(["examples:", *lines]),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def whole(least: int, most: int = 1 << 30) -> Callable[[str], int]:
    """A parser of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"expected a whole number, got {short(text)}"
            ) from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"expected a whole number from {least} to {most}, got {short(value)}"
            )
        return value

    return parse


def positive(text: str) -> float:
    """A positive, finite number."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {short(text)}") from None
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {short(text)}")
    return value


def folder_name(text: str) -> str:
    """A name without a path."""
    fits = len(text) <= 100 and text.isprintable()
    if not fits or text in ("", ".", "..") or "/" in text or "\\" in text:
        raise argparse.ArgumentTypeError(f"expected a plain folder name, got {short(text)}")
    return text


def add_device(parser: argparse.ArgumentParser) -> None:
    """Where the ops run."""
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default="cpu",
        help="metal runs the Metal shaders: on the GPU of a Mac, through this library's Metal runtime on Linux; what "
        "has no shader runs on the CPU (%(default)s)",
    )


def add_budget(parser: argparse.ArgumentParser, seconds: float | None) -> None:
    """How long to train, and the seed; `seconds` is said to be the default."""
    group = parser.add_argument_group("budget")
    group.add_argument(
        "--seconds",
        type=positive,
        default=None,
        help=f"training time ({seconds:g} unless --steps is given)",
    )
    group.add_argument("--steps", type=whole(1), default=None, help="training steps")
    group.add_argument("--seed", type=whole(0), default=0, help="%(default)s if left out")


def train_config(
    kind: type[Config], arguments: argparse.Namespace, *names: str, **others: Any
) -> Config:
    """How to train: the budget, where none is given the default, the seed, and fields as arguments of those names."""
    fields = {name: getattr(arguments, name) for name in ("seconds", "steps", "seed", *names)}
    if fields["seconds"] is None and fields["steps"] is None:
        fields["seconds"] = kind().seconds
    return kind(**fields, **others)


@contextmanager
def naming_options() -> Iterator[None]:
    """Errors of a configuration name the option."""
    try:
        yield
    except ValueError as error:
        raise ProgramError(f"{error}; --help names the options.") from None


class _RunFolder(argparse.Action):
    """A run's folder in one word: of its last part becomes --name, of the others --runs."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        path = Path(value)
        try:
            namespace.name = folder_name(path.name)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentError(
                self, f"expected a path that ends with a folder's name, got {short(value)}"
            ) from None
        namespace.runs = path.parent


def add_checkpoint_every(group: argparse._ArgumentGroup) -> None:
    """How often the run's state is written."""
    group.add_argument(
        "--checkpoint-every",
        type=positive,
        default=CHECKPOINT_EVERY,
        metavar="SECONDS",
        help="of training; after a crash --resume goes on from the last checkpoint, and so do all workers where one "
        "dies (%(default)g)",
    )


def add_output(parser: argparse.ArgumentParser, default: str) -> argparse._ArgumentGroup:
    """Where the results go; `default` is the name of an unnamed run."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--name", type=folder_name, default=None, help=f"of the run ({default}, numbered)"
    )
    group.add_argument(
        "--runs", type=Path, default=Path("runs"), help="folder of all runs (%(default)s)"
    )
    group.add_argument(
        "-o",
        action=_RunFolder,
        metavar="RUN",
        help="short for --runs and --name: folder of the run",
    )
    group.add_argument("--overwrite", action="store_true", help="replace the run of that --name")
    return group


def hold(arguments: argparse.Namespace, folder: Path) -> Path:
    """The run's folder, which no other process writes into until the command ends.

    Raises:
      ProgramError: Another process has it.
    """
    arguments.stack.enter_context(locked(folder))
    return folder


def refuse_used_up(trainer: Any, run: Path) -> None:
    """Raises ProgramError if a run that is to go on has no budget left."""
    if trainer.done:
        raise ProgramError(
            f"{run}: has used up its budget ({trainer.step} steps, {trainer.seconds:.0f} s); give a larger --steps or "
            "--seconds."
        )


def guarded(
    program: str, command: Callable[[argparse.Namespace], int]
) -> Callable[[argparse.Namespace], int]:
    """Turns the user's mistakes into one sentence and exit code 2."""

    def run(arguments: argparse.Namespace) -> int:
        # TensorFlow's remarks about the CPU would push the first lines off the screen.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        try:
            # Contexts that a command enters end with it.
            with terminated_as_interrupted(), ExitStack() as arguments.stack:
                return command(arguments)
        except ProgramError as error:
            print(f"{program}: {error}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            print(f"{program}: interrupted.", file=sys.stderr)
            return 130
        except OSError as error:  # files of runs have their own sentence: this is the output
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            # The buffered rest is lost, or Python would complain of it when it ends.
            with suppress(OSError), open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), sys.stdout.fileno())
            print(f"{program}: the output cannot be written ({error.strerror}).", file=sys.stderr)
            return ProgramError.exit_code

    return run


def add_workers(parser: argparse.ArgumentParser) -> None:
    """How many processes train, and how they find each other."""
    group = parser.add_argument_group(
        "many processes",
        "With --workers N, N processes of this machine train together: each on its own share of N times the batch, one "
        "of them writes the files. On several machines start the same command on each, with TF_CONFIG as TensorFlow's "
        "MultiWorkerMirroredStrategy has it; docs/distributed.md shows one.",
    )
    group.add_argument(
        "--workers",
        type=whole(1, 256),
        default=1,
        metavar="N",
        help="on this machine (%(default)s)",
    )
    group.add_argument(
        "--wait",
        type=positive,
        default=60.0,
        metavar="SECONDS",
        help="for the other workers to come, before giving up (%(default)g)",
    )


def among_workers(
    program: str, command: Callable[[argparse.Namespace], int]
) -> Callable[[argparse.Namespace], int]:
    """A `guarded` command that --workers or TF_CONFIG start in several processes."""
    from .cluster import cluster_from, horovod_rank, is_worker

    alone = guarded(program, command)

    def launched(arguments: argparse.Namespace) -> int:
        from .launch import run

        cluster = cluster_from(os.environ)
        if arguments.workers > 1 and cluster is not None:
            raise ProgramError(
                f"--workers {arguments.workers}: TF_CONFIG names {len(cluster.addresses)} workers already; give one of "
                "both."
            )
        if arguments.workers == 1 and cluster is None:
            return command(arguments)
        return run(program, arguments.argv, arguments.workers, cluster, arguments.wait)

    def chosen(arguments: argparse.Namespace) -> int:
        if not is_worker():
            return guarded(program, launched)(arguments)
        if horovod_rank(os.environ) is not None and (
            arguments.workers > 1 or os.environ.get("TF_CONFIG")
        ):
            print(
                f"{program}: horovodrun has started the workers already; leave out --workers and TF_CONFIG.",
                file=sys.stderr,
            )
            return 2
        code = alone(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        # TensorFlow's threads may wait for workers that are gone, and an orderly end for them.
        os._exit(code)

    return chosen


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, which batch systems and containers send, and SIGHUP of a closed terminal end commands as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # the others cannot have handlers
        yield
        return
    others = [number for number in ends() if number != signal.SIGINT]
    before = {number: signal.signal(number, interrupt) for number in others}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def console_for_people() -> Console:
    from rich.console import Console

    # Names of files and views may look like its markup.
    return Console(markup=False, emoji=False)


def find_device(arguments: argparse.Namespace) -> Any:
    """The Metal device, loaded, if it was asked for; else None. TensorFlow has made no devices yet."""
    if arguments.device != "metal":
        return None
    from metal_ops import device

    try:
        found = device.load()
    except device.DeviceError as error:
        raise ProgramError(f"--device metal: {error}") from None
    if found.kernels is None:
        raise ProgramError(
            "--device metal: this library's Metal kernels are not built, and all of its ops would run on the CPU; "
            "`make metal` in the source checkout."
        )
    return found


def use_device(arguments: argparse.Namespace, console: Console) -> None:
    """From now on, until the command ends, ops run on the device that was asked for."""
    import tensorflow as tf

    # Named also for the CPU: METAL_OPS_DEVICE=1 or tensorflow-metal may have made a GPU that ops would go to.
    where = "/CPU:0"
    found = find_device(arguments)
    if found is not None:
        console.print(f"Device {found}.", highlight=False, soft_wrap=True, markup=False)
        where = f"/{found.name}"
    arguments.stack.enter_context(tf.device(where))
