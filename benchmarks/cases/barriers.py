"""hostmetal: kernels with barriers, against the same work as loops over the threads."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.registry import Case, Contender, Context, Results, register

SHADER = Path(__file__).parents[1] / "barriers.metal"
# Kernel -> its work, its threads, threadgroups, and the numbers that a threadgroup reads, shares and writes.
KERNELS: dict[str, tuple[str, int, int, int, int, int]] = {
    "rms": ("root mean squares of 256 rows of 4096", 256, 256, 4096, 8, 4096),
    "sort": ("bitonic sort of 64 rows of 1024", 1024, 64, 1024, 1024, 1024),
    "tile": ("64 tiles of 64 x 32, depth 512, by simdgroup matrices", 128, 64, 32 * 512, 3072, 2048),
}  # fmt: skip


def barriers(context: Context, kernel: str) -> list[Contender]:
    from metal_ops.metal import Options, compile_object, link
    from metal_ops.metal.launch import Library

    _, threads, groups, reads, shares, writes = KERNELS[kernel]

    def compiled(fibers: bool) -> Library:
        file = context.stack.enter_context(tempfile.NamedTemporaryFile(suffix=".metallib"))
        with mock.patch.dict(os.environ, METAL_OPS_FIBERS=str(int(fibers))):
            file.write(link([compile_object(str(SHADER), Options(validation=False))[0]]))
        file.flush()
        return Library(file.name)

    by_lanes, by_fibers = compiled(False), compiled(True)
    assert by_lanes[f"{kernel}_threads"].lanes and not by_fibers[f"{kernel}_threads"].lanes
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal((groups, reads), np.float32)
    w = numbers.standard_normal((64, 512), np.float32)

    def contender(library: Library, name: str, way: str, width: int, **more: Any) -> Contender:
        y = np.zeros((groups, writes), np.float32)

        def time_ms() -> float:
            begin = time.thread_time()
            library[f"{kernel}_{way}"].run(
                width * groups, width, {0: x, 1: y, 2: w}, threadgroup_memory={0: 4 * shares}
            )
            return (time.thread_time() - begin) * 1e3

        def results() -> Results:
            return {"y": y}

        return Contender(name, time_ms, results, **more)

    return [
        contender(
            by_lanes,
            "threads that meet",
            "threads",
            threads,
            note="loops over lanes; CPU time of one thread",
        ),
        contender(by_fibers, "a fiber a thread", "threads", threads, note="METAL_OPS_FIBERS=1"),
        contender(
            by_lanes, "loops over the threads", "loops", 1, note="by hand, in the same language"
        ),
    ]


for _kernel, _what in KERNELS.items():
    register(
        Case(
            group="hostmetal",
            name=f"hostmetal-barriers-{_kernel}",
            title=f"Threads that meet: {_what[0]}",
            contenders=functools.partial(barriers, kernel=_kernel),
        )
    )
