"""The checks of a .metallib before it is loaded, under libFuzzer and the sanitizers: coverage leads the mutations."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import engine

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "fuzz" / "elf_fuzz"
SEED = ROOT / "build" / "tests" / "hostmetal" / "fixture.metallib"


class MetallibReader:
    """`make build/fuzz/elf_fuzz` makes the program; its inputs follow from the seed all together."""

    name = "metallib"

    def run(self, seed: int, count: int, keep: Path | None) -> engine.Report:
        if not PROGRAM.exists() or not SEED.exists():
            raise SystemExit(f"{PROGRAM} is missing; `make {PROGRAM.relative_to(ROOT)}`.")
        report = engine.Report(self.name, seed)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SEED, folder)
            kept = keep or Path(folder)
            kept.mkdir(parents=True, exist_ok=True)
            # One more than the seed's length: appended bytes matter too.
            command = [
                PROGRAM,
                folder,
                f"-runs={count}",
                f"-seed={seed or 1}",
                "-print_final_stats=1",
            ]
            command += [
                f"-artifact_prefix={kept}/metallib-{seed}-",
                f"-max_len={SEED.stat().st_size + 4096}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
        peak = re.search(r"stat::peak_rss_mb:\s*(\d+)", done.stderr)
        report.inputs = int(executed[1]) if executed else 0
        report.peak_mib = int(peak[1]) if peak else 0
        report.outcomes["read"] = report.inputs
        if done.returncode or not executed:
            report.failures.append((report.inputs, done.stderr[-5000:]))
        return report

    def close(self) -> None: ...
