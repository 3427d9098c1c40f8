"""On a machine with a GPU, in the folder that `make gpu-test` packed: runs everything and writes report.txt.

python3 run.py [RUNS]          # needs Python 3 and NumPy, and no network; a race may show in the twentieth run

Several processes go at once, each with a part of the launches. report.txt holds the results so far, also when this is
stopped.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {
    **os.environ,
    "HOSTMETAL_DEVICE": os.environ.get("HOSTMETAL_DEVICE", "cuda:0"),
    # Behind ours the caller's, of a compiler.
    "LD_LIBRARY_PATH": ":".join(
        filter(None, [str(HERE), str(HERE / "lib"), os.environ.get("LD_LIBRARY_PATH")])
    ),
}
# Results that may differ on a GPU, and why.
OTHERWISE = {
    "test_tickets_are_unique": "which thread gets which ticket is open",
    "test_exchange_loses_nothing": "which thread comes last is open",
    "test_scalars_are_shared_too": "threads add to a variable without an atomic, a race that the CPU device has not",
}
# The same for hostmetal's tests, with tests/hostmetal/fixture.metal in place of kernels written by hand.
CASES_OTHERWISE = {
    "threadgroup_memory_lengths_reach_the_kernel": "a shader does not see how much threadgroup memory there is",
    "shader_fault_is_a_page_fault_error": "a shader cannot say that it has faulted",
    "pipeline_of_nil_function_is_an_error": "a shader of so much threadgroup memory does not compile",
    "device_describes_itself": "it is the CPU device that is called hostmetal and has the CPU's memory",
    "buffer_has_the_asked_properties": "the address of a private buffer is the GPU's",
    "small_buffers_are_recycled": "which memory is used again is open",
    "inline_buffer_is_a_buffer": "its contents are the GPU's",
    "inline_part_is_a_buffer_of_the_same_bytes": "its contents are the GPU's",
    "rebuilt_library_is_loaded_anew": "the library that is rebuilt has no code for GPUs",
    "memory_that_is_not_there_is_an_error_where_it_is_touched": "memory that is not there ends the use of the GPU",
    "library_takes_code_for_wide_vectors": "it is the CPU's code",
}
AT_ONCE = min(
    6, os.cpu_count() or 1
)  # processes take turns on a GPU, and each compiles kernels meanwhile
PART = 8  # launches per process: to start one takes half a second, to compile a kernel for a GPU up to seconds
ROUNDING = 4e-7  # of float32 sums in another order
# Compared with the CPU device, and measured.
PROGRAMS = (
    ("textures", "textures.metallib"),
    ("hash_encode", "metal_ops.metallib", "--check"),
    ("hash_encode", "metal_ops.metallib"),
)


class Launches:
    """The launches that record.py kept."""

    def __init__(self) -> None:
        self.folder = HERE / "launches"
        self.rows: list[dict] = json.loads((self.folder / "launches.json").read_text())
        self.left_out: dict[str, str] = json.loads((self.folder / "left_out.json").read_text())
        self.listed = HERE / "list"
        self.listed.write_text("".join(line(row) + "\n" for row in self.rows))
        self.data = np.memmap(self.folder / "data", np.uint8, "r")
        self.sizes = [[size for _, size, _ in row["buffers"]] for row in self.rows]
        constants = [sum(size for _, _, size in row["constants"]) for row in self.rows]
        before = [sum(sizes) + c for sizes, c in zip(self.sizes, constants, strict=True)]
        lengths = [b + sum(sizes) for b, sizes in zip(before, self.sizes, strict=True)]
        starts = itertools.accumulate(lengths, initial=0)
        self.expected = [start + b for start, b in zip(starts, before, strict=False)]

    def replay(self, numbers: range, runs: int) -> dict[int, list[str]]:
        """The differences in each run of these launches, "" where there are none."""
        found: dict[int, list[str]] = {}
        results = HERE / f"results.{numbers.start}"
        first = numbers.start
        while first < numbers.stop:  # a fault ends a process; the next one goes on behind it
            command = [HERE / "replay", self.folder, self.listed, results]
            done = subprocess.run(
                [*command, *map(str, (first, numbers.stop, runs))],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=500,
            )
            if done.returncode not in (0, 3):
                sys.exit(f"replay failed: {done.stdout}{done.stderr}")
            print(done.stdout, end="")
            got, at = np.fromfile(results, np.uint8), 0
            if not got.size:
                sys.exit(f"replay wrote no results: {done.stdout}{done.stderr}")
            while at < len(got):
                length = 4 + sum(self.sizes[first])
                part = got[at : at + runs * length]
                found[first] = [
                    self.differs(first, part[i : i + length]) for i in range(0, len(part), length)
                ]
                at += len(part)
                first += 1
        results.unlink()
        return found

    def differs(self, number: int, got: np.ndarray) -> str:
        if not got[0]:
            return "did not run"
        of, at = 4, self.expected[number]
        for index, size, dtype in self.rows[number]["buffers"]:
            kind = dtype_of(dtype)
            a, b = self.data[at : at + size].view(kind), got[of : of + size].view(kind)
            if why := difference(f"buffer {index}", a, b):
                return why
            at += size
            of += size
        return ""


def line(row: dict) -> str:
    """A launch as replay reads it."""
    items = [row["library"], row["kernel"], *row["threads"], *row["group"], len(row["buffers"]),
             len(row["constants"]), len(row["threadgroup"])]  # fmt: skip
    for buffer in row["buffers"]:
        items += buffer[:2]
    for part in (row["constants"], row["threadgroup"]):
        items += [item for entry in part for item in entry]
    return " ".join(map(str, items))


def dtype_of(recorded: str | list) -> np.dtype:
    """A dtype as record.py wrote it; JSON has no tuples."""
    if isinstance(recorded, str):
        return np.dtype(recorded)
    fields = [(name, dtype_of(kind), *map(tuple, shape)) for name, kind, *shape in recorded]
    places = np.dtype([(f"{i} {name}", *rest) for i, (name, *rest) in enumerate(fields)])
    named = [(key, name) for key, (name, *_) in zip(places.names, fields, strict=True) if name]
    return np.dtype(
        {
            "names": [name for _, name in named],
            "formats": [places.fields[key][0] for key, _ in named],
            "offsets": [places.fields[key][1] for key, _ in named],
            "itemsize": places.itemsize,
        }
    )


def difference(what: str, expected: np.ndarray, got: np.ndarray) -> str:
    if expected.dtype.names:
        found = (
            difference(f"{what}, {n}", expected[n].ravel(), got[n].ravel())
            for n in expected.dtype.names
        )
        return next(filter(None, found), "")
    if expected.tobytes() == got.tobytes():
        return ""
    different = expected != got
    if expected.dtype.kind == "f":
        with np.errstate(all="ignore"):
            a, b = expected.astype(np.float64), got.astype(np.float64)
            unit = ROUNDING if expected.dtype.itemsize == 4 else 2.0**-10
            near = np.abs(a - b) <= unit * np.maximum(np.abs(a), 1e-3)
        different &= ~(near | (np.isnan(a) & np.isnan(b)))
        if not different.any():
            return ""
    first = int(np.argmax(different))
    counts = f"{int(different.sum())} of {expected.size}"
    return f"{what}: {counts}, [{first}] is {got[first]}, on the CPU {expected[first]}"


def case(name: str, **more: str) -> str:
    """The message of one of hostmetal's tests in a process of its own; "" where it passes."""
    environment = {**ENVIRONMENT, "HOSTMETAL_FIXTURES": str(HERE / "fixtures"), **more}
    try:
        done = subprocess.run(
            [HERE / "hostmetal_tests", name],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return "did not end in 60 s"
    except OSError as error:
        return error.strerror or "did not start"
    said = " ".join((done.stdout + done.stderr).split())
    return f"exit status {done.returncode}: {said}" if done.returncode else ""


def cases() -> Iterator[str]:
    """hostmetal's own tests; those that compile shaders where HOSTMETAL_COMPILER and clang are."""
    names = (HERE / "cases").read_text().split()
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        wrong = {n: why for n, why in zip(names, pool.map(case, names), strict=True) if why}
    uncompiled = [n for n, why in wrong.items() if "no shader compiler" in why]
    ran = len(names) - len(uncompiled)
    yield f"tests of hostmetal: {ran}, passed: {len(names) - len(wrong)}"
    if uncompiled:
        yield f"  not run, as no shader compiler is here: {' '.join(uncompiled)}"
    for name, why in wrong.items():
        if name in uncompiled:
            continue
        known = CASES_OTHERWISE.get(name)
        yield f"  {'open' if known else 'FAILED'} {name}: {known or why}"
    several = [name for name in names if name.startswith("devices_")]
    gpus = sum("UUID: GPU" in line for line in output("nvidia-smi", "-L"))
    if gpus < 2:
        yield f"  not run: {' '.join(several)} with two GPUs, as {gpus} is here"
        return
    wrong = {name: case(name, HOSTMETAL_DEVICES="2") for name in several}
    yield f"with two GPUs: {len(several)}, passed: {sum(not why for why in wrong.values())}"
    yield from (f"  FAILED {name}: {why}" for name, why in wrong.items() if why)


def output(*command: str | Path) -> Iterator[str]:
    try:
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    except OSError as error:
        yield f"FAILED {Path(command[0]).name}: {error.strerror}"
        return
    yield from (done.stdout + done.stderr).splitlines()
    if done.returncode:
        yield f"FAILED {Path(command[0]).name}: exit status {done.returncode}"


def write(report: list[str], last: str) -> None:
    (HERE / "report.txt").write_text("\n".join([*report, last]) + "\n")


def replayed(runs: int) -> Iterator[tuple[int, int, list[str]]]:
    """The launches that have run, their total, and the messages about them, part by part."""
    launches = Launches()
    total = len(launches.rows)
    parts = [range(i, min(i + PART, total)) for i in range(0, total, PART)]
    ended, right, lines = 0, 0, []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for part in pool.map(lambda numbers: launches.replay(numbers, runs), parts):
            for number, differences in part.items():
                row, wrong = launches.rows[number], list(filter(None, differences))
                ended += 1
                right += not wrong
                if wrong:
                    why = next((why for name, why in OTHERWISE.items() if name in row["test"]), "")
                    lines.append(
                        f"  {'open' if why else 'FAILED'} {row['test']} {row['kernel']} ({number}), "
                        f"{len(wrong)} of {runs}: {why or wrong[0]}"
                    )
            times = "once" if runs == 1 else f"{runs} times"
            yield (
                ended,
                total,
                [
                    f"launches of tests/msl: {ended}, run {times}, always as on the CPU device: {right}",
                    *lines,
                    *(f"  not run: {test}: {why}" for test, why in launches.left_out.items()),
                ],
            )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    commit = (HERE / "commit").read_text().strip()
    head = [
        f"commit {commit}",
        *output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
    ]
    report = head
    for ended, total, lines in replayed(runs):
        report = [*head, *lines]
        write(report, f"NOT FINISHED: {ended} of {total} launches")
    for program, *arguments in PROGRAMS:
        report += output(HERE / program, *(HERE / a if a[0] != "-" else a for a in arguments))
        write(report, f"NOT FINISHED: behind {program}")
    report += cases()
    failed = sum(line.lstrip().startswith("FAILED") for line in report)
    write(report, f"{failed} failed")
    print((HERE / "report.txt").read_text(), end="")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
