"""`python -m metal_ops build`: builds a TensorFlow op library with Metal kernels from any sources."""

from __future__ import annotations

import argparse
import os
import sys

SUMMARY = "Build op libraries of your own"
DESCRIPTION = """\
Builds a TensorFlow op library: C++ and Objective-C++ sources to a .so, Metal shaders to a .metallib beside it.

  python -m metal_ops build --ops my_op.cc --kernels my_op.mm --shaders my_op.metal -o my_op.so

On Linux the library runs on the METAL device of this package (metal_ops.device.load()), on macOS on
tensorflow-metal's. Ops published as macOS samples build without edits."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the `build` command."""
    parser = subparsers.add_parser(
        "build",
        help=SUMMARY,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--ops",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="C++ sources: REGISTER_OP, CPU kernels",
    )
    parser.add_argument(
        "--kernels",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="Objective-C++ sources: Metal kernels (.mm or .cc)",
    )
    parser.add_argument(
        "--shaders",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="Metal shaders, linked into one metallib",
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the shared object to write"
    )
    parser.add_argument(
        "--metallib",
        metavar="FILE",
        help="where the shaders go (default: beside the output, as <name>.metallib)",
    )
    parser.add_argument(
        "-I", dest="include", action="append", default=[], metavar="DIR", help="include folder"
    )
    parser.add_argument(
        "-D",
        dest="define",
        action="append",
        default=[],
        metavar="NAME",
        help="macro, for sources and shaders",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="OPT",
        help="option for the C++ compiler, e.g. --option=-O3",
    )
    parser.add_argument(
        "--shader-option",
        action="append",
        default=[],
        metavar="OPT",
        help="option for the shader compiler",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print every command")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Builds; returns 0, 1 if something does not compile, 2 for wrong arguments or missing tools."""
    from metal_ops.build import builder

    defines = [f"-D{name}" for name in arguments.define]
    try:
        written = builder.build_op(
            [*arguments.ops, *arguments.kernels],
            arguments.shaders,
            arguments.output,
            metallib=arguments.metallib,
            include=arguments.include,
            options=[*defines, *arguments.option],
            shader_options=[*defines, *arguments.shader_option],
            verbose=arguments.verbose,
        )
    except builder.BuildError as error:
        print(f"metal_ops build: {error}", file=sys.stderr)
        return 1
    for path in written:
        # A name that is not of this terminal's encoding is no reason to fail.
        print(os.fsencode(path).decode(errors="replace"))
    return 0
