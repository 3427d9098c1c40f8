"""Runs the shaders of kernels/ and device/ under HOSTMETAL_CHECK: `make test-checks`.

python -m tools.checks                 all of them
python -m tools.checks --shard 2/4     the second of four parts
python -m tools.checks --only Conv2D   calls with this in their names
python -m tools.checks --record        and writes docs/checked_shaders.jsonl
python -m tools.checks --sample        a few calls, as CI makes them
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORDS = "race,init,barrier"

SAMPLE = r"^(Cholesky|Cumsum|L2Loss|Softmax|TopKV2) T=float32( \w+=\w+)*$"
if not os.environ.get("HOSTMETAL_CHECK"):
    os.environ["HOSTMETAL_CHECK"] = WORDS
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tools.checks import functions  # noqa: E402

REPORT = re.compile(r"^\[[^\]]+\] (?:race|init|barrier|bounds|alias|and \d+ more).*", re.M)


def idle(library: Path) -> set[str]:
    """The shaders of a library that nothing has launched."""
    ask = ctypes.CDLL(str(library)).metal_kernels_idle_shaders
    ask.restype = ctypes.c_char_p
    return set(ask().decode().splitlines())


@contextlib.contextmanager
def standard_error() -> Iterator[Any]:
    """A file that has it, until the end."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def said_in(file: Any, start: int) -> tuple[str, int]:
    sys.stderr.flush()
    end = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), end - start, start).decode(errors="replace"), end


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools.checks", description="Shaders under HOSTMETAL_CHECK."
    )
    parser.add_argument("--shard", default="1/1", help="2/4: the second of four parts")
    parser.add_argument("--only", help="a pattern of calls' names")
    parser.add_argument("--sample", action="store_const", const=SAMPLE, dest="only")
    parser.add_argument("--record", action="store_true", help=f"write {functions.RECORD.name}")
    parser.add_argument(
        "--reached", type=Path, help="a file for the kernels that each call launches first"
    )
    args = parser.parse_args()
    number, _, count = args.shard.partition("/")

    from benchmarks.device_ops import device_kernels  # loads the device
    from metal_ops import device
    from tools.checks import calls

    libraries = {"kernels": device.KERNELS, "device": device.PLUGIN}
    start = time.monotonic()
    wrong: dict[str, None] = {}
    reached: dict[str, list[list[str]]] = {}
    n_calls = 0
    with standard_error() as file:
        at = 0
        import tensorflow as tf

        for name, call in calls.every(device_kernels()):
            if zlib.crc32(name.encode()) % int(count) != int(number) - 1:
                continue
            if args.only and not re.search(args.only, name):
                continue
            n_calls += 1
            before = {key: idle(path) for key, path in libraries.items()}
            begun = time.monotonic()
            failed = ""
            try:
                with tf.device("GPU:0") if name.startswith("kernels") else contextlib.nullcontext():
                    call()
                device.synchronize()
            except Exception as error:
                # Some ops refuse the other shapes.
                refused = bool(re.search(r" \d$", name)) and not REPORT.search(str(error))
                failed = "" if refused else f"{name}: {type(error).__name__}: {error}"
                device.clear_error()
            said, at = said_in(file, at)
            found = dict.fromkeys(REPORT.findall(said))
            for report in found:
                if report not in wrong:
                    print(report, flush=True)
            wrong |= found
            if failed and not found:
                print(failed[:2000], flush=True)
                wrong[failed] = None
            reached[name] = sorted(
                {
                    (key, kernel)
                    for key, path in libraries.items()
                    for kernel in before[key] - idle(path)
                }
            )
            if args.reached:
                args.reached.write_text(json.dumps(reached))
            print(f"{time.monotonic() - begun:7.2f} s {name}", flush=True)
    print(f"checks: {n_calls} calls, {len(wrong)} findings, {time.monotonic() - start:.0f} s")
    if args.record:
        functions.record(functions.reached_by(kernels for kernels in reached.values()))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
