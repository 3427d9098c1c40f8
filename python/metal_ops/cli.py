"""The command line, `python -m metal_ops <command>`: dispatches to the module of the command.

A command is a module with `add_parser(subparsers)`, which adds its parser and sets `run`, a function of the parsed
arguments that returns the exit code (or None for 0). Only the module of the command asked for is imported, so that
`--help` answers at once and the doctor runs where the library does not load.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

# command: (module, summary). A command whose module is not in this installation is not listed.
COMMANDS = {
    "doctor": (
        "doctor",
        "Check the installation: what was built, what works, what is missing and how to get it",
    ),
    "nerf": ("nerf.cli", "Train, evaluate and render a NeRF with hash encoding"),
    "lm": (
        "lm.cli",
        "Train a small language model over bytes, and let it or one from a file write",
    ),
    "image": ("image.cli", "Fit a picture with a hash grid, and render it at any size"),
    "sdf": ("sdf.cli", "Fit the signed distance of a mesh, and make a mesh of it again"),
    "metal": ("metal.cli", "Compile Metal shaders on this machine, as `xcrun metal` does on a Mac"),
    "objc": ("build.objc", "Compile and link hosts that use Metal: C, C++, Objective-C"),
    "cmake": (
        "build.cmake",
        "Print a CMake toolchain file with which projects for macOS build here",
    ),
    "build": ("build.cli", "Build op libraries of your own"),
    "fusion": ("fusion.cli", "List the fusion patterns, explain what they do to a SavedModel"),
    "package": (
        "package.cli",
        "Pack a SavedModel's optimized graph, weights and shaders into one file",
    ),
    "run": ("build.run", "Run a script with the Metal device, as it would be on a Mac"),
}
# The commands of the script `hostmetal`.
HOSTMETAL = ("metal", "objc", "cmake", "build", "run", "doctor")
HOSTMETAL_EPILOG = """\
first steps:
  hostmetal metal kernel.metal -o kernel.metallib    as xcrun metal does on a Mac
  hostmetal metal --explain kernel.metal             its cost, and why it is not vectorised
  hostmetal objc host.m -o host                      a program that uses Metal
  hostmetal run script.py                            a script with TensorFlow's METAL device
  hostmetal <command> --help                         what a command can do
"""
EPILOG = """\
first steps:
  python -m metal_ops doctor               is everything there?
  python -m metal_ops nerf train           train on the built-in scene, pictures in runs/
  python -m metal_ops lm train             a language model of Python's documentation, a minute
  python -m metal_ops <command> --help     what a command can do

in Python:
  import metal_ops
  grid = metal_ops.HashGrid(n_dims=3, n_levels=16, finest_resolution=512)
  table = tf.Variable(grid.init_table())
  features = metal_ops.hash_encode(points, table, grid)      # [N, 3] -> [N, 32]
"""


class Parser(argparse.ArgumentParser):
    """A parser, and those of its commands, whose mistakes take two lines: usages of dozens of options hide them."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Arguments that are left over are mistakes of the command that they were given to, and not of the first."""
        found, others = super().parse_known_args(args, namespace)
        if others:
            self.error(f"unrecognized arguments: {' '.join(others)}")
        return found, others

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` lists the options.\n")


def available() -> dict[str, tuple[str, str]]:
    """The commands that are installed: {command: (module, summary)}."""
    here = Path(__file__).parent
    return {
        command: (module, summary)
        for command, (module, summary) in COMMANDS.items()
        if (here / (module.replace(".", "/") + ".py")).exists()
    }


def make_parser(command: str | None, script: str = "metal_ops") -> argparse.ArgumentParser:
    """The parser, with all of `command`'s arguments and only the summaries of the other commands of that script."""
    import metal_ops

    commands = available()
    if script == "hostmetal":
        prog, epilog = "hostmetal", HOSTMETAL_EPILOG
        description = "Metal without a Mac: compiles shaders, and builds programs that compute with Metal, on Linux."
        commands = {name: commands[name] for name in HOSTMETAL if name in commands}
    else:
        prog, epilog = "python -m metal_ops", EPILOG
        description = "Metal ops for TensorFlow: hash encoding and friends, fast on CPU, portable to Apple GPUs."
    if script == "metal_ops" and "nerf" not in commands:
        epilog = "".join(line for line in EPILOG.splitlines(keepends=True) if " nerf " not in line)
    parser = Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"metal_ops {metal_ops.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="<command>", title="commands")
    for name, (module, summary) in commands.items():
        if name == command:
            importlib.import_module(f"metal_ops.{module}").add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def hostmetal() -> int:
    """The script `hostmetal`: the commands for Metal, without those of TensorFlow's ops and the programs."""
    return main(script="hostmetal")


def main(argv: Sequence[str] | None = None, script: str = "metal_ops") -> int:
    """Runs one command; returns the exit code: 0 success, 1 failure, 2 wrong arguments or a broken installation."""
    argv = sys.argv[1:] if argv is None else list(argv)
    command = next((argument for argument in argv if not argument.startswith("-")), None)
    try:
        parser = make_parser(command, script)
        arguments = parser.parse_args(argv)
        arguments.argv = argv  # for commands that start workers
        if arguments.command is None:
            parser.print_help()
            return 0
        return arguments.run(arguments) or 0
    except ImportError as error:
        if type(error).__name__ != "LibraryError":
            raise
        print(f"{error}\n`python -m metal_ops doctor` says more.", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `... | head` closed the pipe: no reader is left
        sys.stderr.close()
        return 0
