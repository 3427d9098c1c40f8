"""hostmetal: the cost of a dispatch and a buffer, and the compiled hash-encode shader against a loop in plain C++."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.registry import Case, Contender, Context, Results, register

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "build/tests/hostmetal/bench"
LOOP = ROOT / "build/benchmarks/hash_encode_loop"
FIXTURE = ROOT / "build/tests/hostmetal/fixture.metallib"
SHADERS = ROOT / "python/metal_ops/metal_ops.metallib"
POINTS = 65536  # benchmarks/hash_encode_inputs.h


class Program:
    """One of the two programs; a line in, a line out. It times itself."""

    def __init__(self, context: Context, command: list[str | Path], threads: int = 0) -> None:
        if not Path(command[0]).exists():
            raise FileNotFoundError(f"[benchmarks] {command[0]} is missing. Run 'make bench'.")
        environment = dict(os.environ)
        if threads:
            environment["HOSTMETAL_NUM_THREADS"] = str(threads)
        self._process = context.stack.enter_context(
            subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
        # Before Popen's own exit, which waits for an end that its stdin must bring.
        context.stack.callback(self._close)

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"[benchmarks] {self._process.args} ended at {line!r}.")
        return answer

    def contender(self, name: str, line: str, note: str = "") -> Contender:
        return Contender(name, lambda: float(self.ask(line)), note=note)

    def encoding(self) -> Results:
        with tempfile.NamedTemporaryFile() as file:
            if self.ask(f"dump {file.name}").strip() != "1":
                raise RuntimeError(
                    f"[benchmarks] {self._process.args} could not write {file.name}."
                )
            return {"encoding": np.fromfile(file.name, np.float32)}


def runtime(context: Context) -> list[Contender]:
    program = Program(context, [BENCH, FIXTURE, SHADERS])
    return [
        program.contender(row, row, note)
        for row, note in (
            ("empty dispatch, end to end", "commit, run, wait; at most 0.020 ms"),
            ("empty dispatch, one of 100", "in one encoder; at most 0.005 ms"),
            ("empty dispatch, queue asleep", "committed 300 us after the last one"),
            ("buffer of 4 KiB, new and release", "recycled: no system call"),
            ("buffer of 16 MiB, new and release", "mapped and cleared"),
            ("dispatch_sync, uncontended", ""),
        )
    ]


def launch(context: Context) -> list[Contender]:
    program = Program(context, [sys.executable, ROOT / "benchmarks" / "launch_worker.py"])
    note = (
        "the encoding thread's own time; at 625a893 10,501 instructions, 26,417 before launches "
        "went by name (callgrind, 1,000 launches)"
    )
    return [program.contender("one launch", "launch", note)]


def hash_encode(threads: int) -> Case:
    def contenders(context: Context) -> list[Contender]:
        shader = Program(context, [BENCH, FIXTURE, SHADERS], threads)
        loop = Program(context, [LOOP, str(threads)])
        ours = shader.contender(
            "compiled shader", "hash encode", "hash_encode_float_3_2 of metal_ops.metallib"
        )
        ours.results = shader.encoding
        plain = loop.contender("plain C++", "run", "the same loop: g++ -O3 -march=native")
        plain.results = loop.encoding
        return [ours, plain]

    title = "one thread" if threads == 1 else "all cores"
    return Case(
        group="hostmetal",
        name="hostmetal-hash-encode" + ("-1-thread" if threads == 1 else ""),
        title=f"hash encoding forward of {POINTS} points, {title}: shader against C++ "
        "(time / ours at least 0.77)",
        contenders=contenders,
        units=POINTS,
        tolerance=1e-5,
    )


register(
    Case(
        group="hostmetal",
        name="hostmetal-runtime",
        title="hostmetal: what the runtime costs",
        contenders=runtime,
    )
)
register(
    Case(
        group="hostmetal",
        name="hostmetal-launch",
        title="encoding one launch of a kernel with three arguments, from its inputs to commit",
        contenders=launch,
    )
)
for count in sorted({1, os.cpu_count() or 1}):
    register(hash_encode(count))
