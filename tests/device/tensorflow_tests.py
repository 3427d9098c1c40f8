"""Runs tests written for TensorFlow's own ops, such as those of `tensorflow/python/kernel_tests`, on the device.

    python -m tests.device.tensorflow_tests FOLDER [-k PART] [--out results.json]

TensorFlow's wheel does not hold them: put the files of a source tree, or others of their kind, into a folder. Each file
runs in a process of its own, as `python file` would, with the device loaded; failed tests run once more without it, as
a test may fail on TensorFlow's CPU, too (another release, files that are missing, another processor). The status is 1
if a test fails on the device alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

# The program that runs a file: `test.main()` at its end finds its tests as unittest would, and writes the outcome
# of each.
WORKER = """
import json, os, runpy, sys, unittest
from pathlib import Path
file, out, device, part = sys.argv[1:]
import tensorflow as tf
from tensorflow.python.platform import googletest, test
if device == "device":
    import metal_ops
    metal_ops.device.load()
found = {}

class Result(unittest.TextTestResult):
    def note(self, case, what, error=None):
        name = getattr(case, "test_case", case).id().partition(".")[2]
        if found.get(name, ["passed"])[0] == "passed" or what == "failed":  # of all its parts
            said = str(error[1]).strip().splitlines() if error else []
            found[name] = [what, f"{error[0].__name__}: {' '.join(said)[:300]}" if error else ""]
            Path(out).write_text(json.dumps(found))
    def startTest(self, case):
        self.note(case, "did not end")
        super().startTest(case)
    def addSuccess(self, case):
        found[case.id().partition(".")[2]] = ["passed", ""]
    def addFailure(self, case, error):
        self.note(case, "failed", error)
    addError = addFailure
    def addSubTest(self, case, part, error):
        if error:
            self.note(case, "failed", error)
    def addSkip(self, case, why):  # of a part, too, after which no end is told
        name = getattr(case, "test_case", case).id().partition(".")[2]
        if found.get(name, ["skipped"])[0] != "failed":
            found[name] = ["skipped", why]

def main(argv=None):
    from absl import flags
    flags.FLAGS(sys.argv[:1], known_only=True)
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    def cases(of):
        for each in of:
            yield from cases(each) if isinstance(each, unittest.TestSuite) else [each]
    suite = unittest.TestSuite(case for case in cases(suite) if part in case.id())
    unittest.TextTestRunner(resultclass=Result, verbosity=0).run(suite)
    Path(out).write_text(json.dumps(found))
    raise SystemExit(0)

test.main = googletest.main = tf.test.main = main
sys.path.insert(0, str(Path(file).parent))
sys.argv = [file]
runpy.run_path(file, run_name="__main__")
"""


def run(file: Path, device: str, part: str, timeout: float) -> dict[str, list[str]]:
    """The outcome of each test of a file: ("passed", "failed", "skipped", "did not end") and
    why."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        environment = {k: v for k, v in os.environ.items() if k != "METAL_OPS_DEVICE"}
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TEST_TMPDIR": folder}
        command = [sys.executable, "-c", WORKER, str(file), str(out), device, part]
        ended = ""
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout
            )
            if done.returncode:
                said = (done.stdout + done.stderr).strip().splitlines()
                ended = f"exit status {done.returncode}: {said[-1] if said else ''}"
        except subprocess.TimeoutExpired:
            ended = f"no end after {timeout:.0f} s"
        found = json.loads(out.read_text()) if out.exists() else {}
    if ended and not any(what == "did not end" for what, _ in found.values()):
        found["(the file)"] = ["failed", ended]
    return {
        name: ["failed", f"did not end: {ended}"] if what == "did not end" else [what, why]
        for name, (what, why) in found.items()
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.device.tensorflow_tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="with files *_test.py; a file is taken, too")
    parser.add_argument("-k", default="", metavar="PART", help="only tests whose name contains it")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a file (600)")
    parser.add_argument("--out", type=Path, help="a JSON file for what each test gave")
    asked = parser.parse_args(arguments)
    files = [asked.folder] if asked.folder.is_file() else sorted(asked.folder.rglob("*_test.py"))
    if not files:
        parser.error(f"{asked.folder}: expected a folder with files *_test.py, found none")
    console = Console()
    table = Table("file", "passed", "skipped", "fails on the CPU, too", "failed", "seconds")
    all_of_them: dict[str, dict[str, list[str]]] = {}
    failures = []
    for file in track(files, "running", console=console, transient=True):
        start = time.monotonic()
        found = run(file, "device", asked.k, asked.timeout)
        wrong = {name for name, (what, _) in found.items() if what == "failed"}
        if wrong:
            without = run(file, "cpu", asked.k, asked.timeout)
            also = {name for name in wrong if without.get(name, ["passed"])[0] == "failed"}
            for name in also:
                found[name][0] = "fails on the CPU, too"
            failures += [(file.name, name, found[name][1]) for name in sorted(wrong - also)]
        kinds = [what for what, _ in found.values()]
        counts = [
            str(kinds.count(kind))
            for kind in ("passed", "skipped", "fails on the CPU, too", "failed")
        ]
        table.add_row(file.name, *counts, f"{time.monotonic() - start:.0f}")
        all_of_them[str(file)] = found
        if asked.out:
            asked.out.write_text(json.dumps(all_of_them, indent=1) + "\n")
    console.print(table)
    for name, case, why in failures:
        console.print(f"FAILED {name} {case}: {why}", markup=False, highlight=False, soft_wrap=True)
    ran = [what for found in all_of_them.values() for what, _ in found.values()]
    console.print(
        f"{ran.count('passed')} passed, {len(failures)} failed, {ran.count('skipped')} skipped"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
