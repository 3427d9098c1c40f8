"""Builds and tests one mutant at a time in a copy of the checkout.

TensorFlow is imported once; each group of tests runs in a fork of that process, which loads the copy's libraries.
Limits are in CPU time where they can be: the machine may be busy.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutation import rooms
from tools.mutation.places import Mutant

FAST = "-O1 -g0"
# One instruction set instead of three. Not for other files: Eigen rounds half otherwise with it.
FAST_VECTORS = f"{FAST} -march=x86-64-v3 -maes -mpclmul -DHWY_COMPILE_ONLY_STATIC"
VECTORS = ("_simd.cc", "-inl.h")
BUILD_LIMIT = 1500  # seconds
LEFT_OUT = (
    ".git",
    ".venv*",
    ".mypy_cache",
    "runs",
    "build/mutation",
    "build/sanitize",
    "build/site",
)
INSIDE = "METAL_OPS_TEST_DEVICE_PROCESS"
PRECOMPILED = "build/tensorflow/headers.h"
# A test that needs more CPU time than this, or gets none for so long, does not end: the slowest takes a third of it.
TEST_LIMIT = 90


@dataclass(frozen=True)
class Outcome:
    """How one process of tests ended."""

    passed: bool
    said: str  # the first failure, or how the process ended
    test: str  # the test that failed, or ran when the process ended; "" where that was none yet


def _session_seconds(leader: int) -> float:
    """CPU time of all processes of a session, and of those that they have waited for."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) == leader:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    """make's: not that of a make outside, and no compiler cache, which keeps objects that are never asked for again."""
    own = ("MAKE", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    folders = environment["PATH"].split(os.pathsep)
    environment["PATH"] = os.pathsep.join(
        folder for folder in folders if (Path(folder) / "g++").resolve().name != "ccache"
    )
    return environment


class Reports:
    """Writes down which tests begin and fail: a test that ends the process is the last that began."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _write(self, what: str, test: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{what}\t{test}\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("began", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._write("failed", report.nodeid)


class Copy:
    """The copy that is broken, and one beside it that stays whole."""

    def __init__(self, root: Path, work: Path) -> None:
        self.work = work
        self.tree, self.whole = work / "tree", work / "whole"
        ready = work / "ready"
        if not ready.exists() or self._is_behind(root):
            ready.unlink(missing_ok=True)
            for target in (self.whole, self.tree):
                shutil.rmtree(target, ignore_errors=True)
                self._copy(root, target)
            self._precompile()
            ready.touch()
        for target in (self.whole, self.tree):  # tests that were written for survivors
            shutil.copytree(root / "tests", target / "tests", dirs_exist_ok=True)
        self.mend()  # left by an aborted run
        self.dependents = rooms.dependents(self.whole)
        self._builds: set[str] = set()  # kinds of sources that are known to build without a mutant
        self._reports = work / "reports"  # the outcome of the tests of the last process
        self._known = work / "whole.json"  # test: whether it passes without a mutant
        self._passes: dict[str, bool] = (
            json.loads(self._known.read_text()) if self._known.exists() else {}
        )

    def _is_behind(self, root: Path) -> bool:
        sources = (
            path
            for patterns, _ in rooms.ROOMS.values()
            for pattern in patterns
            for path in root.glob(pattern)
        )
        twins = ((path, self.whole / path.relative_to(root)) for path in sources if path.is_file())
        return any(
            not twin.exists() or path.read_bytes() != twin.read_bytes() for path, twin in twins
        )

    def _copy(self, root: Path, target: Path) -> None:
        left_out = [f"--exclude=./{name}" for name in LEFT_OUT]
        target.mkdir(parents=True)
        pack = subprocess.Popen(
            ["tar", "-C", root, *left_out, "-cf", "-", "."], stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-C", target, "-xf", "-"], stdin=pack.stdout, check=True)
        (target / ".venv").symlink_to((root / ".venv").resolve())

    def _precompile(self) -> None:
        """TensorFlow's headers, with the flags of mutants; as old as can be, so that no object is behind them."""
        flags = self.tree / "build" / "tensorflow" / "cflags"
        if flags.exists():
            for path in (self.tree / PRECOMPILED, self.tree / f"{PRECOMPILED}.gch"):
                path.unlink(missing_ok=True)
            self._make([f"{PRECOMPILED}.gch"], FAST)
            for path in (self.tree / PRECOMPILED, self.tree / f"{PRECOMPILED}.gch"):
                if path.exists():
                    os.utime(path, ns=(flags.stat().st_mtime_ns, flags.stat().st_mtime_ns))

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
                if twin.is_relative_to(self.whole / "build" / "tensorflow"):
                    continue
                path, status = self.tree / twin.relative_to(self.whole), twin.stat()
                now = path.stat() if path.exists() else None
                if now is None or (now.st_mtime_ns, now.st_size) != (
                    status.st_mtime_ns,
                    status.st_size,
                ):
                    shutil.copy2(twin, path)

    def build(self, mutant: Mutant) -> str:
        """The compiler's errors for it; "" where it builds."""
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
        try:
            made = subprocess.run(
                command, capture_output=True, text=True, timeout=BUILD_LIMIT, env=_environment()
            )
        except subprocess.TimeoutExpired:
            return f"the compiler needs more than {BUILD_LIMIT} s"
        return (made.stderr or made.stdout)[-800:] if made.returncode else ""

    # ---- testing ----------------------------------------------------------------------------------------------------

    def tests(self, mutant: Mutant, near: int | None) -> list[str]:
        """The mutant's test files, or the nearest of them."""
        named = rooms.tests_of(mutant.path, self.dependents.get(mutant.path, set()))
        return [name for name in named if (self.tree / name).exists()][:near]

    def notices(self, tests: list[str]) -> Outcome | None:
        """The first failure on the broken copy of a test that passes on the whole one."""
        while True:
            fails = [test for test, passes in self._passes.items() if not passes]
            outcome = self.run(self.tree, tests, fails)
            if outcome.passed:
                return None
            test = outcome.test
            if not test:  # it ended while it collected tests
                return outcome if self.run(self.whole, ["--collect-only", *tests]).passed else None
            if test not in self._passes:
                self._passes[test] = self.run(self.whole, [test]).passed
                self._known.write_text(json.dumps(self._passes, indent=1))
            if self._passes[test]:
                return outcome

    def run(self, tree: Path, tests: list[str], left_out: list[str] | None = None) -> Outcome:
        """Tests in a fork of this process, up to the first failure."""
        log = self.work / "log"
        self._reports.write_text("")
        child = os.fork()
        if child == 0:
            self._be_pytest(tree, tests, left_out or [], log)
        size, began, used_before = -1, time.monotonic(), 0.0
        status, endless, looked = None, False, 0.0
        while status is None:
            done, code = os.waitpid(child, os.WNOHANG)
            now = time.monotonic()
            if done:
                status = code
            elif now - looked > 2:
                looked = now
                used = _session_seconds(child)
                new_size = log.stat().st_size if log.exists() else 0
                if new_size != size:
                    size, began, used_before = new_size, now, used
                idle = now - began > TEST_LIMIT and used - used_before < 1
                if endless := idle or used - used_before > TEST_LIMIT:
                    os.killpg(child, signal.SIGKILL)
                    _, status = os.waitpid(child, 0)
            else:
                time.sleep(0.05)
        try:  # processes that the tests started and left behind
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        code = os.waitstatus_to_exitcode(status)
        if code in (0, 5):  # 5: nothing to run
            return Outcome(True, "", "")
        said = log.read_text(errors="replace")
        reports = [line.split("\t") for line in self._reports.read_text().splitlines()]
        wrong = [test for what, test in reports if what == "failed"]
        test = (wrong or [test for _, test in reports[-1:]] or [""])[0]
        if endless:
            return Outcome(False, f"{test or tests[0]}: does not end", test)
        found = re.search(r"^(?:FAILED|ERROR) (tests.*)$", said, re.M)
        end = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return Outcome(False, found[1][:300] if found else f"{test or tests[0]}: {end}", test)

    def _be_pytest(self, tree: Path, tests: list[str], left_out: list[str], log: Path) -> None:
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
            if "/on_device/" in tests[-1]:
                os.environ[INSIDE] = "1"
            sys.path[:0] = [package, str(tree)]
            for name in [
                name
                for name in sys.modules
                if name.split(".")[0] in ("tools", "tests", "metal_ops")
            ]:
                del sys.modules[name]
            import pytest

            deselected = [word for test in left_out for word in ("--deselect", test)]
            # -vv, as pyproject.toml says -q: the output shows that the tests go on.
            options = ["-x", "-vv", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-rfE"]
            status = pytest.main([*options, *deselected, *tests], plugins=[Reports(self._reports)])
        finally:
            sys.stdout.flush()
            os._exit(int(status))


def processes(tests: list[str]) -> list[list[str]]:
    """Test files that one process can run, nearest first: those with the device in it are apart."""
    groups: dict[bool, list[str]] = {}
    for test in tests:
        groups.setdefault("/on_device/" in test, []).append(test)
    return list(groups.values())


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
        for group in processes(tests):
            failure = copy.notices(group)
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
