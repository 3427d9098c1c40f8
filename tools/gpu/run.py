"""On a machine with a GPU, in the folder that `make gpu-test` packed: runs everything and writes report.txt.

python3 run.py                 # needs Python 3 and NumPy, and no network
"""

from __future__ import annotations

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
    "LD_LIBRARY_PATH": f"{HERE}:{HERE / 'lib'}",
}
# What a test of the CPU's order of threads may find otherwise on a GPU, and why.
OTHER_ORDER = {
    "test_tickets_are_unique": "which thread gets which ticket is open",
    "test_exchange_loses_nothing": "which thread comes last is open",
    "test_scalars_are_shared_too": "threads add to a variable without an atomic, a race that the CPU device has not",
}
ROUNDING = 4e-7  # of float32 sums in another order


def launches() -> list[dict]:
    """Replays what record.py kept; each row gets what differs, "" if nothing does."""
    folder = HERE / "launches"
    rows = json.loads((folder / "launches.json").read_text())
    lines = []
    for row in rows:
        items = [row["library"], row["kernel"], *row["threads"], *row["group"], len(row["buffers"]),
                 len(row["constants"]), len(row["threadgroup"])]  # fmt: skip
        for buffer in row["buffers"]:
            items += buffer[:2]
        for part in (row["constants"], row["threadgroup"]):
            items += [number for entry in part for number in entry]
        lines.append(" ".join(map(str, items)))
    (HERE / "list").write_text("\n".join(lines) + "\n")
    command = [HERE / "replay", folder, HERE / "list", HERE / "results"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    if done.returncode:
        sys.exit(f"replay failed: {done.stdout}{done.stderr}")
    print(done.stdout, end="")
    expected = np.memmap(folder / "data", np.uint8, "r")
    got = np.fromfile(HERE / "results", np.uint8)
    at = of = 0
    for row in rows:
        ran = bool(got[of])
        of += 4
        sizes = [size for _, size, _ in row["buffers"]]
        at += sum(sizes) + sum(size for _, _, size in row["constants"])
        row["differs"] = "" if ran else "did not run"
        for (index, size, dtype), offset in zip(
            row["buffers"], np.cumsum([0, *sizes]), strict=False
        ):
            a = expected[at + offset : at + offset + size].view(dtype)
            b = got[of + offset : of + offset + size].view(dtype)
            row["differs"] = row["differs"] or difference(index, a, b)
        at += sum(sizes)
        of += sum(sizes)
    return rows


def difference(index: int, expected: np.ndarray, got: np.ndarray) -> str:
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
    return f"buffer {index}: {counts}, [{first}] is {got[first]}, on the CPU {expected[first]}"


def output(*command: str | Path) -> Iterator[str]:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    yield from (done.stdout + done.stderr).splitlines()
    if done.returncode:
        yield f"exit status {done.returncode}"


def main() -> None:
    commit = (HERE / "commit").read_text().strip()
    report = [
        f"commit {commit}",
        *output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
    ]
    rows = launches()
    wrong = [row for row in rows if row["differs"]]
    report.append(
        f"launches of tests/msl: {len(rows)}, as on the CPU device: {len(rows) - len(wrong)}"
    )
    failed = 0
    for row in wrong:
        why = next((why for name, why in OTHER_ORDER.items() if name in row["test"]), None)
        failed += why is None
        report.append(
            f"  {'open' if why else 'FAILED'} {row['test']} {row['kernel']}: {why or row['differs']}"
        )
    report += output(HERE / "hash_encode", HERE / "metal_ops.metallib", "--check")
    report += output(HERE / "hash_encode", HERE / "metal_ops.metallib")
    report.append(f"{failed} failed")
    (HERE / "report.txt").write_text("\n".join(report) + "\n")
    print("\n".join(report))
    sys.exit(failed != 0)


main()
