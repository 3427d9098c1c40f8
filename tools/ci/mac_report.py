"""`make mac-report`: this Mac on one page: machine, versions, suites, figures.

Writes build/mac-report.md, and build/mac-report.json with the same. Each test file runs by itself with a limit of time,
as work on a virtual GPU may never end; the page names such files and the tests that failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Suites, by the markers of pyproject.toml.
SUITES = {
    "ops": "ops and not slow",
    "kernels": "kernels and not slow",
    "device": "device and not slow",
}
COUNTS = ("passed", "failed", "error", "skipped")
MOST_FAILURES = 40  # on the page; the JSON has all
FIGURES = ["-m", "benchmarks", "--quick"]
VIRTUAL = "Apple Paravirtual device"

# The questions to the machine: a row of the page, the command, and the reader of its output.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "model": ("sysctl", "-n", "hw.model"),
    "processor": ("sysctl", "-n", "machdep.cpu.brand_string"),
    "cores": ("sysctl", "-n", "hw.ncpu"),
    "memory": ("sysctl", "-n", "hw.memsize"),
    "GPU": ("system_profiler", "-json", "SPDisplaysDataType"),
    "macOS": ("sw_vers",),
    "Xcode": ("xcodebuild", "-version"),
    "Metal compiler": ("xcrun", "-sdk", "macosx", "metal", "--version"),
    "commit": ("git", "describe", "--always", "--dirty", "--abbrev=12"),
    "METAL device": (
        sys.executable,
        "-c",
        "from metal_ops import device; found = device.load(); print(found.name, found.hardware)",
    ),
}
PACKAGES = ("tensorflow", "tensorflow-metal", "keras", "numpy")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mac-report", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build", help="a folder (%(default)s)"
    )
    parser.add_argument("--suites", nargs="*", choices=SUITES, default=[*SUITES], metavar="SUITE")
    parser.add_argument(
        "--limit", type=float, default=600, help="seconds of a test file (%(default)s)"
    )
    parser.add_argument("--no-figures", action="store_true", help="leave out the benchmarks")
    arguments = parser.parse_args()
    if platform.system() != "Darwin":
        parser.error(f"this is {platform.system()}, and the report is about a Mac; run it on one.")
    report = {
        "machine": machine(ask(QUESTIONS)),
        "versions": versions(),
        "suites": {name: run_suite(name, arguments.limit) for name in arguments.suites},
        "figures": "" if arguments.no_figures else figures(),
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "mac-report.json").write_text(json.dumps(report, indent=1) + "\n")
    (arguments.output / "mac-report.md").write_text(render(report))
    print(f"mac-report: {arguments.output}/mac-report.md and .json")
    return 0 if all(fine(rows) for rows in report["suites"].values()) else 1


# ---- the machine ----------------------------------------------------------------------------------------------------
def ask(questions: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The commands' outputs, "" for those that fail."""
    answers = {}
    for name, command in questions.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
            answers[name] = done.stdout if done.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            answers[name] = ""
    return answers


def machine(answers: Mapping[str, str]) -> dict[str, str]:
    """Rows of the page of the answers; "unknown" for those that are empty or have another form."""
    readers = {"GPU": gpu, "macOS": macos, "memory": memory, "METAL device": last_line}
    found = {}
    for name, text in answers.items():
        try:
            found[name] = readers.get(name, first_line)(text) or "unknown"
        except (KeyError, IndexError, TypeError, ValueError):
            found[name] = "unknown"
    return found


def first_line(text: str) -> str:
    return text.strip().split("\n")[0].strip()


def last_line(text: str) -> str:
    return text.strip().split("\n")[-1].strip()


def memory(text: str) -> str:
    return f"{int(text) / 2**30:.0f} GiB"


def macos(text: str) -> str:
    """The output of `sw_vers` as "15.5 (24F74)"."""
    rows = dict(line.split(":", 1) for line in text.strip().splitlines())
    return f"{rows['ProductVersion'].strip()} ({rows['BuildVersion'].strip()})"


def gpu(text: str) -> str:
    """The output of `system_profiler -json SPDisplaysDataType` as names, cores, and the newest Metal of each."""
    parts = []
    for each in json.loads(text)["SPDisplaysDataType"]:
        words = [each.get("sppci_model") or each["_name"]]
        if cores := each.get("sppci_cores"):
            words.append(f"{cores} cores")
        if metal := each.get("spdisplays_mtlgpufamilysupport"):
            words.append(metal.removeprefix("spdisplays_"))
        parts.append(", ".join(words))
    return "; ".join(parts)


def versions() -> dict[str, str]:
    """Python and the packages that are here."""
    found = {"python": f"{platform.python_version()} {platform.machine()}"}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# ---- suites ---------------------------------------------------------------------------------------------------------
def run_suite(name: str, limit: float) -> dict[str, dict[str, Any]]:
    """The result of each of its test files."""
    chosen = subprocess.run(
        [sys.executable, "tools/choose_tests.py", "files", SUITES[name]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {}
    for file in chosen.stdout.split():
        rows[file] = run_file(file, SUITES[name], limit)
        counts = ", ".join(f"{rows[file][kind]} {kind}" for kind in COUNTS if rows[file][kind])
        print(
            f"mac-report: {name}: {file}: {rows[file]['note'] or counts or 'no tests'}", flush=True
        )
    return rows


def run_file(file: str, marker: str, limit: float, python: str = sys.executable) -> dict[str, Any]:
    """Runs one test file, and its children, for so many seconds at most."""
    results = ROOT / "build" / "mac-report.xml"
    results.parent.mkdir(exist_ok=True)
    results.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-m", marker, "-p", "no:cacheprovider", "-q", file]
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, f"--junitxml={results}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code, note = process.wait(limit), ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code, note = process.wait(), f"did not end within {limit:.0f} s"
    row = (
        read_results(results.read_text())
        if results.exists()
        else dict.fromkeys(COUNTS, 0) | {"failures": []}
    )
    # pytest's 5: no test has the marker.
    if not results.exists() and not note or code not in (0, 1, 5) and not note:
        note = f"ended with exit code {code}"
    return row | {"note": note, "seconds": round(time.monotonic() - began, 1)}


def read_results(text: str) -> dict[str, Any]:
    """Counts, and the failures with the first line of their message, of pytest's JUnit XML."""
    counts: Counter[str] = Counter()
    failures = []
    for case in ET.fromstring(text).iter("testcase"):
        kinds = {child.tag: child for child in case}
        kind = next((k for k in ("failure", "error", "skipped") if k in kinds), "passed")
        counts["failed" if kind == "failure" else kind] += 1
        if kind in ("failure", "error"):
            message = first_line(kinds[kind].get("message") or kinds[kind].text or "")
            failures.append([f"{case.get('classname')}::{case.get('name')}", message[:160]])
    return {kind: counts[kind] for kind in COUNTS} | {"failures": failures}


def fine(rows: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether tests were run, and none failed or was ended."""
    bad = any(row["failed"] or row["error"] or row["note"] for row in rows.values())
    return not bad and sum(row["passed"] for row in rows.values()) > 0


def figures() -> str:
    """The benchmarks' tables as they are printed, or the reason why there are none."""
    try:
        done = subprocess.run(
            [sys.executable, *FIGURES],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=3600,
            env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired:
        return "not measured: the benchmarks did not end within an hour"
    text = done.stdout.strip()
    return text if done.returncode == 0 else f"{text}\nexit code {done.returncode}".strip()


# ---- the page -------------------------------------------------------------------------------------------------------
def render(report: Mapping[str, Any]) -> str:
    """The page, as Markdown."""
    lines = ["# metal_ops on a Mac", ""]
    if VIRTUAL in report["machine"].get("GPU", "") + report["machine"].get("METAL device", ""):
        lines += [
            "The GPU is a virtual machine's: it reports fewer features than the one below it, and its figures are "
            "no Mac's.",
            "",
        ]
    lines += ["| machine | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in report["machine"].items()]
    lines += ["", "| version | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in report["versions"].items()]
    lines += [
        "",
        f"| suite | files | {' | '.join(COUNTS)} | seconds | |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for name, rows in report["suites"].items():
        sums = " | ".join(str(sum(row[kind] for row in rows.values())) for kind in COUNTS)
        seconds = sum(row["seconds"] for row in rows.values())
        word = "all passed" if fine(rows) else "**not all passed**"
        lines.append(f"| {name} | {len(rows)} | {sums} | {seconds:.0f} | {word} |")
    told = [
        f"- {file}: {row['note']}"
        for rows in report["suites"].values()
        for file, row in rows.items()
        if row["note"]
    ]
    told += [
        f"- `{test}`: {message}"
        for rows in report["suites"].values()
        for row in rows.values()
        for test, message in row["failures"]
    ]
    if told:
        more = len(told) - MOST_FAILURES
        lines += ["", "## Failures", "", *told[:MOST_FAILURES]]
        lines += [f"- and {more} more, which mac-report.json has"] * (more > 0)
    if report["figures"]:
        lines += ["", "## Figures", "", "```text", report["figures"], "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
