"""Runs each test file of this folder in a process of its own, with the Metal device loaded.

A loaded device stays for the life of a process, and TensorFlow then places every op on it that it can: tests of the
CPU that ran later in the same process would test something else.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests import suites
from tests.forked import Server
from tests.metal_kernels.on_device import again
from tests.processes import VALIDATION

INSIDE = "METAL_OPS_TEST_DEVICE_PROCESS"


class OwnProcess(pytest.Item):
    """All tests of one file."""

    def runtest(self) -> None:
        options = ["-q", "--no-header", "-p", "no:cacheprovider", "--durations=5"]
        # Plugins of packages would be imported by each file: Hypothesis alone takes as long as the rest of pytest.
        options += ["--disable-plugin-autoload", "-m", self.config.option.markexpr]
        timeout = 1800 if VALIDATION else 600
        server = Server.of_this_run()
        code, output = server.run([*options, str(self.path)], timeout, **{INSIDE: "1"})
        # "No tests" is exit code 5, a crash is negative: both are failures.
        if code != 0:
            pytest.fail(f"exit code {code}\n{output}", pytrace=False)
        self.add_report_section("call", "stdout", output)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name} in a process with the Metal device"


class DeviceFile(pytest.File):
    """A test file, seen from outside: with the markers of those of its tests that -m takes."""

    def collect(self) -> Iterator[pytest.Item]:
        asked = self.config.option.markexpr
        taken = [m for m in suites.sets_of_marks(self.path) if suites.takes(asked, m)]
        # Left out where all of its tests are.
        for marks in sorted(taken, key=lambda marks: len(marks.intersection(suites.LEFT_OUT)))[:1]:
            item = OwnProcess.from_parent(self, name="own_process")
            for name in sorted(marks):
                item.add_marker(name)
            yield item


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> DeviceFile | None:
    """Inside the process: collect as usual, which this hook says by None."""
    if os.environ.get(INSIDE):
        return None
    return DeviceFile.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Lets fixtures know, when they end, that the test was skipped."""
    report = yield
    if call.when == "call":
        item.stash[again.SKIPPED] = report.skipped
    return report


@pytest.fixture
def soft_placement() -> Iterator[None]:
    """For tests that say why their checks need ops that the device has no kernels for."""
    import tensorflow as tf

    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


if os.environ.get(INSIDE):
    import tensorflow as tf

    import metal_ops.device

    metal_ops.device.load()
    # Without this an op that has no kernel on the device would quietly run on the CPU, and every test pass.
    tf.config.set_soft_device_placement(False)
