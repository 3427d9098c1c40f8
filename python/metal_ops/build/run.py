"""`python -m metal_ops run`: runs a script with the Metal device loaded, as tensorflow-metal is on a Mac.

Scripts published for macOS load no device: there TensorFlow finds it by itself. They run unedited this way, with op
libraries that `python -m metal_ops build` made.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

DESCRIPTION = """\
Runs a Python script with the Metal device loaded.

  python -m metal_ops run script.py [its arguments]

The device comes alone, without this library's ops and kernels, so that the script may load a library with ops of the
same names, as published samples do. A script that wants them imports metal_ops and calls metal_ops.device.load()."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the `run` command."""
    parser = subparsers.add_parser(
        "run",
        help="Run a script with the Metal device, as it would be on a Mac",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("script", help="the Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what it gets in sys.argv")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the script in this process; returns 2 if there is no device or no such script."""
    import metal_ops.device as device  # `from metal_ops import` would load the op library

    script = Path(arguments.script)
    if not script.is_file():
        print(f"metal_ops run: the script {script} does not exist.", file=sys.stderr)
        return 2
    try:
        device.load(kernels=False)
    except device.DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    # The state that `python script.py` sets up.
    sys.argv = [str(script), *arguments.arguments]
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")
    return 0
