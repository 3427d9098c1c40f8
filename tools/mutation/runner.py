"""Builds and tests one mutant at a time in a copy of the checkout.

TensorFlow is imported once; each group of tests runs in a fork of that process, which loads the copy's libraries.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

from tools.mutation import rooms
from tools.mutation.places import Mutant

FAST = "-O1 -g0"
# One instruction set instead of three. Not for other files: Eigen rounds half otherwise with it.
FAST_VECTORS = f"{FAST} -march=x86-64-v3 -maes -mpclmul -DHWY_COMPILE_ONLY_STATIC"
VECTORS = ("_simd.cc", "-inl.h")
BUILD_LIMIT = 400  # seconds
LEFT_OUT = (".git", ".venv", "runs", "build/mutation", "build/sanitize", "build/site")
INSIDE = "METAL_OPS_TEST_DEVICE_PROCESS"


@dataclass(frozen=True)
class Outcome:
    """How one process of tests ended."""

    passed: bool
    said: str  # the first failure, or how the process ended
    seconds: float
    endless: bool = False


class Copy:
    """The copy that is broken, and one beside it that stays whole."""

    def __init__(self, root: Path, work: Path) -> None:
        self.work = work
        self.tree, self.whole = work / "tree", work / "whole"
        if not self.tree.exists():
            for target in (self.whole, self.tree):
                self._copy(root, target)
        self.mend()  # what a run that was ended has left
        self.dependents = rooms.dependents(self.whole)
        self._builds: set[str] = set()  # kinds of sources that are known to build without a mutant
        self._known = work / "whole.json"
        known = json.loads(self._known.read_text()) if self._known.exists() else {}
        self._baseline = {test: Outcome(*outcome) for test, outcome in known.items()}

    def _copy(self, root: Path, target: Path) -> None:
        left_out = [f"--exclude=./{name}" for name in LEFT_OUT]
        target.mkdir(parents=True)
        pack = subprocess.Popen(
            ["tar", "-C", root, *left_out, "-cf", "-", "."], stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-C", target, "-xf", "-"], stdin=pack.stdout, check=True)
        (target / ".venv").symlink_to((root / ".venv").resolve())

    # ---- building ---------------------------------------------------------------------------------------------------

    def breaks(self, mutant: Mutant) -> None:
        path = self.tree / mutant.path
        path.write_text(mutant.apply((self.whole / mutant.path).read_text()))

    def mend(self) -> None:
        """Puts back every file that is newer than its whole twin, with its time, so that make has nothing to do."""
        for folder in ("build", rooms.PACKAGE, "kernels", "ops", "graph", "device", "hostmetal"):
            for twin in (self.whole / folder).rglob("*"):
                if twin.is_symlink() or not twin.is_file() or "__pycache__" in twin.parts:
                    continue
                path, status = self.tree / twin.relative_to(self.whole), twin.stat()
                now = path.stat() if path.exists() else None
                if now is None or (now.st_mtime_ns, now.st_size) != (
                    status.st_mtime_ns,
                    status.st_size,
                ):
                    shutil.copy2(twin, path)

    def build(self, mutant: Mutant) -> str:
        """What the compiler says against it; "" where it builds."""
        if mutant.path.endswith(".py"):
            try:
                compile((self.tree / mutant.path).read_text(), mutant.path, "exec")
            except SyntaxError as error:
                return str(error)
            return ""
        targets = rooms.targets_of(mutant.path, self.dependents.get(mutant.path, set()))
        if not targets:
            return ""
        flags = FAST_VECTORS if mutant.path.endswith(VECTORS) else FAST
        wrong = self._make(targets, flags)
        kind = f"{mutant.room} {Path(mutant.path).suffix}"
        if wrong and kind not in self._builds:
            (self.tree / mutant.path).write_text((self.whole / mutant.path).read_text())
            if self._make(targets, flags):
                raise RuntimeError(f"{mutant.path} does not build without a mutant either: {wrong}")
        self._builds.add(kind)
        return wrong

    def _make(self, targets: list[str], flags: str) -> str:
        command = ["make", "-C", str(self.tree), f"CXXFLAGS={flags}", *targets]
        own = ("MAKE", "MFLAGS")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(own)
        }
        try:
            made = subprocess.run(
                command, capture_output=True, text=True, timeout=BUILD_LIMIT, env=environment
            )
        except subprocess.TimeoutExpired:
            return f"the compiler needs more than {BUILD_LIMIT} s"
        return (made.stderr or made.stdout)[-800:] if made.returncode else ""

    # ---- testing ----------------------------------------------------------------------------------------------------

    def tests(self, mutant: Mutant, near: int | None) -> list[str]:
        """The mutant's test files, or the nearest of them; those left out which fail on the whole copy too."""
        named = rooms.tests_of(mutant.path, self.dependents.get(mutant.path, set()))[:near]
        failing = {name for name, outcome in self._baseline.items() if not outcome.passed}
        return [name for name in named if name not in failing and (self.tree / name).exists()]

    def notices(self, test: str) -> Outcome | None:
        """The failure of a test on the broken copy; it is run on the whole one when there is a failure to doubt."""
        known = self._baseline.get(test)
        limit = 45 + 6 * known.seconds if known else 400
        outcome = self.run(self.tree, test, limit)
        if outcome.endless and not self.run(self.whole, test, limit).passed:  # the machine is busy
            outcome = self.run(self.tree, test, 5 * limit)
        if outcome.passed:
            return None
        if known is None:
            known = self._baseline[test] = self.run(self.whole, test, 900)
            about = {name: astuple(outcome) for name, outcome in self._baseline.items()}
            self._known.write_text(json.dumps(about, indent=1))
        return outcome if known.passed else None

    def run(self, tree: Path, test: str, limit: float) -> Outcome:
        """One test file, in a fork of this process."""
        log = self.work / "log"
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            self._be_pytest(tree, test, log)
        deadline = began + limit
        status = None
        while status is None:
            done, code = os.waitpid(child, os.WNOHANG)
            if done:
                status = code
            elif time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Outcome(False, f"{test}: no end after {limit:.0f} s", limit, endless=True)
            else:
                time.sleep(0.02)
        try:  # what the tests started and left behind
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        seconds = time.monotonic() - began
        code = os.waitstatus_to_exitcode(status)
        if code in (0, 5):  # 5: nothing to run
            return Outcome(True, "", seconds)
        said = log.read_text(errors="replace")
        found = re.search(r"^(?:FAILED|ERROR) (.*)$", said, re.M)
        end = f"{test}: ended by signal {-code}" if code < 0 else f"{test}: exit code {code}"
        return Outcome(False, found[1][:300] if found else end, seconds)

    def _be_pytest(self, tree: Path, test: str, log: Path) -> None:
        status = 70
        try:
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(out, stream)
            os.chdir(tree)
            package = str(tree / "python")
            os.environ["PYTHONPATH"] = package
            os.environ["METAL_OPS_CACHE"] = str(self.work / "cache")
            if "/on_device/" in test:
                os.environ[INSIDE] = "1"
            sys.path[:0] = [package, str(tree)]
            for name in [
                name
                for name in sys.modules
                if name.split(".")[0] in ("tools", "tests", "metal_ops")
            ]:
                del sys.modules[name]
            import pytest

            status = pytest.main(
                ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-rfE", test]
            )
        finally:
            sys.stdout.flush()
            os._exit(int(status))


def verdict(copy: Copy, mutant: Mutant, near: int | None = None) -> dict[str, object]:
    """Breaks, builds, tests and mends."""
    tests = copy.tests(mutant, near)
    began = time.monotonic()
    result: dict[str, object] = {**mutant.as_dict(), "tests": len(tests)}
    try:
        copy.breaks(mutant)
        wrong = copy.build(mutant)
        result["build_seconds"] = round(time.monotonic() - began, 1)
        if wrong:
            return {**result, "status": "does not build", "by": wrong}
        for test in tests:
            failure = copy.notices(test)
            if failure:
                seconds = round(time.monotonic() - began, 1)
                return {**result, "status": "found", "by": failure.said, "seconds": seconds}
        return {
            **result,
            "status": "survived",
            "by": "",
            "seconds": round(time.monotonic() - began, 1),
        }
    finally:
        copy.mend()
