"""The command line: `python -m metal_ops package save|inspect|run`."""

from __future__ import annotations

import argparse
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metal_ops.programs.command import (
    add_device,
    console_for_people,
    guarded,
    use_device,
    whole,
    words,
)
from metal_ops.programs.errors import ProgramError, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from .inspection import Inspection

_MOST_WEIGHTS = 10


def add_parser(subparsers: Any) -> None:
    """Adds `package` and its commands to the subparsers of `python -m metal_ops`."""
    parser = subparsers.add_parser(
        "package",
        help="Pack a SavedModel's optimized graph, weights and shaders into one file",
        **words(
            "package",
            "Pack a signature of a SavedModel: its graph, inlined, fused and optimized, its weights and its compiled "
            "shaders in one file that loads without tracing and without a compiler.",
            ("save my_model my_model.mpkg", "for the CPU"),
            ("inspect my_model.mpkg", "what it takes and returns, ops, weights, hashes"),
            ("run my_model.mpkg x=x.npy --output y.npz", "once, and how long it takes"),
        ),
    )
    commands = parser.add_subparsers(dest="package_command", metavar="<command>", required=True)
    _add_save(commands)
    _add_inspect(commands)
    _add_run(commands)


def _add_save(commands: Any) -> None:
    parser = commands.add_parser(
        "save",
        help="Make a package of a SavedModel",
        **words(
            "package",
            "Make a package of a SavedModel. For functions and Keras models there is metal_ops.package.save in Python.",
            ("save my_model my_model.mpkg", "the signature serving_default"),
            ("save my_model m.mpkg --shape x=8,?,3", "8 rows, as many columns as calls have"),
            ("save my_model m.mpkg --device metal", "fused for the Metal device"),
            ("save my_model m.mpkg --target x86-64-v4", "shaders for processors with AVX-512"),
        ),
    )
    parser.add_argument("saved_model", type=Path, help="folder that tf.saved_model.save wrote")
    parser.add_argument("package", type=Path, help="file to write, e.g. model.mpkg")
    parser.add_argument(
        "--signature", default="serving_default", metavar="NAME", help="of the model (%(default)s)"
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        type=_shape,
        metavar="INPUT=SIZES",
        help="fix sizes of an input, e.g. x=8,?,3; ? leaves one open",
    )
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="compile shaders for it: a processor of clang's -march, sm_80 or sm_90; may be repeated",
    )
    add_device(parser)
    parser.set_defaults(run=guarded("metal_ops package save", _save))


def _add_inspect(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        help="Say what is in a package; nothing of it is run",
        **words(
            "package",
            "Say what is in a package: what it takes and returns, its ops, its weights, its shaders, and whether every "
            "part still is what was saved.",
            ("inspect m.mpkg", "as tables"),
            ("inspect m.mpkg --html m.html", "and the graph, as traced and as packed"),
        ),
    )
    parser.add_argument("package", type=Path, help="a file of `package save`")
    parser.add_argument("--html", type=Path, metavar="FILE", help="draw the graph as a page")
    parser.set_defaults(run=guarded("metal_ops package inspect", _inspect))


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="Load a package, call it, say how long that takes",
        **words(
            "package",
            "Load a package, call it, and say how long that takes.",
            ("run m.mpkg", "on zeros; a size that is open is 1"),
            ("run m.mpkg x=x.npy --output y.npz", "on an array, and keep the result"),
            ("run m.mpkg --calls 100", "the fastest and the median of 100"),
        ),
    )
    parser.add_argument("package", type=Path, help="a file of `package save`")
    parser.add_argument(
        "inputs", nargs="*", type=_file, metavar="INPUT=FILE", help="an array of numpy.save"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the outputs (numpy.savez)"
    )
    parser.add_argument("--calls", type=whole(1, 1_000_000), default=10, help="(%(default)s)")
    add_device(parser)
    parser.set_defaults(run=guarded("metal_ops package run", _run))


def _shape(text: str) -> tuple[str, list[int | None]]:
    name, equals, sizes = text.partition("=")
    try:
        found = [None if size.strip() == "?" else int(size) for size in sizes.split(",") if size]
    except ValueError:
        equals = ""
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected INPUT=SIZES such as x=8,?,3, got {short(text)}")
    return name, found


def _file(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not name or not equals or not path:
        raise argparse.ArgumentTypeError(f"expected INPUT=FILE such as x=x.npy, got {short(text)}")
    return name, Path(path)


@contextmanager
def _sentences() -> Iterator[None]:
    """Errors of a package are told to the user, as errors of an option are."""
    from .errors import PackageError

    try:
        yield
    except PackageError as error:
        raise ProgramError(str(error)) from None


def _save(arguments: argparse.Namespace) -> int:
    console = console_for_people()
    use_device(arguments, console)
    from .inspection import inspect
    from .saver import save

    with _sentences():
        path = save(
            str(arguments.saved_model),
            arguments.package,
            signature=arguments.signature,
            shapes=dict(arguments.shape) or None,
            device=arguments.device.upper(),
            targets=arguments.target,
        )
        _show(console, inspect(path))
    console.print(f"written: {path}", highlight=False, soft_wrap=True)
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from .inspection import inspect

    console = console_for_people()
    with _sentences():
        found = inspect(arguments.package)
        _show(console, found)
        if arguments.html:
            try:
                written = found.explanation().save(arguments.html)
            except OSError as error:
                raise ProgramError(
                    f"--html {arguments.html}: cannot be written ({error.strerror or error})."
                ) from None
            console.print(f"written: {written}", highlight=False, soft_wrap=True)
    if found.damaged:
        raise ProgramError(
            f"{arguments.package}: {', '.join(found.damaged)} is not what was saved; copy or save the file again."
        )
    return 0


def _show(console: Console, found: Inspection) -> None:
    from rich.table import Table

    def table(title: str, *columns: str) -> Table:
        made = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=False)
        for column in columns:
            made.add_column(
                column, justify="right" if column == "bytes" else "left", overflow="fold"
            )
        return made

    made_by = found.made_by
    console.print(
        f"{found.function}: {made_by['device']} on {made_by['platform']}, TensorFlow {made_by['tensorflow']}, "
        f"metal_ops {made_by['metal_ops']}, {_size(found.bytes)}",
        highlight=False,
        soft_wrap=True,
    )
    takes = table("takes and returns", "which", "what")
    for spec in found.inputs:
        takes.add_row("input", str(spec))
    for spec in found.outputs:
        takes.add_row("output", str(spec))
    console.print(takes)
    ops = table("ops", "op", "bytes")
    for op, count in sorted(found.ops.items(), key=lambda each: (-each[1], each[0])):
        ops.add_row(op, str(count))
    console.print(ops)
    if found.fused:
        fused = table("fused nodes", "what", "bytes")
        for what, count in sorted(found.fused.items()):
            fused.add_row(what, str(count))
        console.print(fused)
    weights = table("weights in the file's pages", "name", "what", "bytes")
    for spec, size in found.weights[:_MOST_WEIGHTS]:
        weights.add_row(spec.name, str(spec).removeprefix(f"{spec.name}: "), _size(size))
    rest = found.weights[_MOST_WEIGHTS:]
    if rest:
        weights.add_row(f"and {len(rest)} more", "", _size(sum(size for _, size in rest)))
    for dtype in sorted({spec.dtype for spec, _ in found.weights}):
        total = sum(size for spec, size in found.weights if spec.dtype == dtype)
        weights.add_row(f"all of {dtype}", "", _size(total))
    if found.weights:
        console.print(weights)
    for member, (functions, targets) in found.shaders.items():
        console.print(
            f"{member}: {', '.join(functions)} for {', '.join(targets)}",
            highlight=False,
            soft_wrap=True,
        )
    if not found.damaged:
        console.print("hashes: as saved")


def _size(n: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n >= factor:
            return f"{n / factor:.1f} {unit}"
    return f"{n} B"


def _run(arguments: argparse.Namespace) -> int:
    import numpy as np

    console = console_for_people()
    use_device(arguments, console)
    from .loader import load, zeros

    with _sentences():
        begin = time.perf_counter()
        package = load(arguments.package, arguments.device.upper())
        loaded = time.perf_counter() - begin
        given = dict(
            zip((spec.name for spec in package.inputs), zeros(package.inputs), strict=True)
        )
        for name, path in arguments.inputs:
            given[name] = _array(path)
        times = []
        for _ in range(arguments.calls):
            begin = time.perf_counter()
            result = package(**given)
            outputs = [np.asarray(value) for value in _leaves(result)]
            times.append(time.perf_counter() - begin)
    console.print(f"loaded in {1e3 * loaded:.1f} ms", highlight=False)
    console.print(
        f"calls: first {1e3 * times[0]:.2f} ms, fastest {1e3 * min(times):.2f} ms, median "
        f"{1e3 * sorted(times)[len(times) // 2]:.2f} ms of {len(times)}",
        highlight=False,
    )
    for spec, value in zip(package.outputs, outputs, strict=True):
        console.print(f"{spec.name}: {spec.dtype}{list(value.shape)}", highlight=False)
    if arguments.output:
        named = {spec.name: value for spec, value in zip(package.outputs, outputs, strict=True)}
        try:
            with open(arguments.output, "wb") as file:
                np.savez(file, **named)
        except OSError as error:
            raise ProgramError(
                f"--output {arguments.output}: cannot be written ({error.strerror or error})."
            ) from None
        console.print(f"written: {arguments.output}", highlight=False, soft_wrap=True)
    return 0


def _array(path: Path) -> Any:
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ProgramError(f"{path}: is no array of numpy.save ({error}).") from None
    if not isinstance(array, np.ndarray):
        raise ProgramError(f"{path}: is an archive; give one array, of numpy.save.")
    return array


def _leaves(result: Any) -> list[Any]:
    import tensorflow as tf

    return [value for value in tf.nest.flatten(result) if value is not None]
