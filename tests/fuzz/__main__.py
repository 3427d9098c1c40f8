"""Fuzzes the readers of files and arguments from untrusted sources.

    python -m tests.fuzz --reader scene --inputs 250000 --seed 1
    python -m tests.fuzz --reader scene --seed 1 --first 4711 --inputs 1     # the one that failed, again

Exit code 1 if an input ended in anything but a result or a sentence; such inputs are kept in build/fuzz.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import sys
from pathlib import Path

from . import engine, readers


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--reader", action="append", choices=readers.NAMES, help="what to fuzz (all)"
    )
    parser.add_argument("--inputs", type=int, default=10_000, help="for each reader (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (%(default)s)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first input (%(default)s)"
    )
    parser.add_argument(
        "--keep", type=Path, default=Path("build/fuzz"), help="where failures go (%(default)s)"
    )
    arguments = parser.parse_args()
    failed = False
    for name in arguments.reader or readers.NAMES:
        reader = readers.make(name)
        try:
            if hasattr(reader, "run"):
                report = reader.run(arguments.seed, arguments.inputs, arguments.keep)
            else:
                report = engine.run(
                    reader, arguments.seed, arguments.first, arguments.inputs, arguments.keep
                )
        finally:
            reader.close()
        print(report.line(), flush=True)
        for number, text in report.failures[:10]:
            print(f"input {number}:\n{text}", file=sys.stderr)
        failed = failed or bool(report.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
