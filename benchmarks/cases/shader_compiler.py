"""The shader compiler: how long a library of many kernels, compiled while a program runs, keeps it waiting."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import shader_library
from benchmarks.registry import Case, Contender, Context, register

ROOT = Path(__file__).parents[2]
ENTRIES, QUICK_ENTRIES = 650, 44


def library(context: Context) -> list[Contender]:
    text = shader_library.library(QUICK_ENTRIES if context.quick else ENTRIES)
    kernel = re.findall(r'host_name\("(tile_product\w+)"', text)[0]

    def run(define: str, *options: str) -> float:
        """Compiles, as the runtime does, what the cache has or has not by `define`."""
        begin = time.perf_counter()
        subprocess.run(
            [
                *(sys.executable, str(ROOT / "python/metal_ops/metal"), "-", "-o", "/dev/null"),
                *(f"-DTIME={define}", "-fno-shader-validation", *options),
            ],
            input=text,
            text=True,
            check=True,
        )
        return (time.perf_counter() - begin) * 1e3

    def anew() -> str:
        return str(time.time_ns())

    def pipeline() -> float:
        define = anew()
        run(define, "--on-demand")
        return run(define, f"--kernel={kernel}")

    def again() -> float:
        define = anew()
        run(define, "--on-demand")
        return run(define, "--on-demand")

    run(anew(), "--on-demand")  # the precompiled header and what every library carries
    return [
        Contender("a library, from its source", lambda: run(anew(), "--on-demand")),
        Contender("the same source once more", again, note="front end's work from the cache"),
        Contender("one pipeline of it", pipeline, note="a tile of a quantized product"),
        Contender("code of all kernels", lambda: run(anew()), note="without --on-demand"),
    ]


register(
    Case(
        group="shader_compiler",
        name="shader_compiler-library",
        title=f"A library of {ENTRIES} kernels ({QUICK_ENTRIES} with --quick), compiled at run time",
        contenders=library,
    )
)
