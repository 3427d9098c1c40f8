"""The shader compiler: how long a library of many kernels, compiled while a program runs, keeps it waiting."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import shader_library
from benchmarks.registry import Case, Contender, Context, register

ROOT = Path(__file__).parents[2]
ENTRIES, QUICK_ENTRIES = 650, 44


def _run(text: str, define: str, *options: str) -> float:
    """Compiles, as the runtime does; `define` decides whether the cache has it. Returns ms of CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "python/metal_ops/metal"), "-", "-o", "/dev/null"),
            *(f"-DTIME={define}", "-fno-shader-validation", *options),
        ],
        input=text,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3


def _anew() -> str:
    return str(time.time_ns())


def _source(quick: bool) -> tuple[str, str]:
    """The library, and the name of one of its kernels."""
    text = shader_library.library(QUICK_ENTRIES if quick else ENTRIES)
    return text, re.findall(r'host_name\("(tile_product\w+)"', text)[0]


def library(context: Context) -> list[Contender]:
    text, kernel = _source(context.quick)

    def run(define: str, *options: str) -> float:
        begin = time.perf_counter()
        _run(text, define, *options)
        return (time.perf_counter() - begin) * 1e3

    def pipeline() -> float:
        define = _anew()
        run(define, "--on-demand")
        return run(define, f"--kernel={kernel}")

    def again() -> float:
        define = _anew()
        run(define, "--on-demand")
        return run(define, "--on-demand")

    run(_anew(), "--on-demand")  # the precompiled header and the objects that every library carries
    return [
        Contender("a library, from its source", lambda: run(_anew(), "--on-demand")),
        Contender("the same source once more", again, note="front end's work from the cache"),
        Contender("one pipeline of it", pipeline, note="a tile of a quantized product"),
        Contender("code of all kernels", lambda: run(_anew()), note="without --on-demand"),
    ]


def processor_time(context: Context) -> list[Contender]:
    text, kernel = _source(context.quick)

    def usable() -> float:
        define = _anew()
        return _run(text, define, "--on-demand") + _run(text, define, f"--kernel={kernel}")

    return [
        Contender("from the source to its first pipeline", usable, note="at most 5,000 ms"),
        Contender(
            "code of all kernels",
            lambda: _run(text, _anew()),
            note="at most 180,000 ms: 90 s on two cores; measured once",
            once=True,
        ),
    ]


register(
    Case(
        group="shader_compiler",
        name="shader_compiler-library",
        title=f"A library of {ENTRIES} kernels ({QUICK_ENTRIES} with --quick), compiled at run time",
        contenders=library,
    )
)
register(
    Case(
        group="shader_compiler",
        name="shader_compiler-cpu",
        title=f"A library of {ENTRIES} kernels, CPU time of all processes",
        contenders=processor_time,
        in_quick=False,
    )
)
