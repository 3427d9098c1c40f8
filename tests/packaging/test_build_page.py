"""docs/build.md: the effect of each of its commands, asked of make; those that install are run by the tests of
wheels."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from metal_ops import __version__
from tests.packaging.conftest import (
    INSTALL_SOURCE,
    INSTALL_SOURCES,
    INSTALL_WHEEL,
    INSTALL_WHEELS,
    PAGE_COMMANDS,
    ROOT,
)

# With a source that counts as changed: make's next commands, as a regular expression.
MAKES = {
    "make build": (
        "kernels/zero_out/zero_out_op.cc",
        r"zero_out_op\.cc.*-o python/metal_ops/_metal_ops\.so",
    ),
    "make metal": ("kernels/zero_out/zero_out_metal.mm", r"zero_out_metal\.mm.*_metal_kernels\.so"),
    # Everything anew, as the old objects are for another release; the flags are tested by tests/device/test_macos.py.
    "make metal MACOS_OF_METAL=13.0": ("", r"zero_out_metal\.mm.*_metal_kernels\.so"),
    "make TF=2.21 metal": ("", r"other_release\.sh 2\.21 .* make -C build/tf-2\.21 metal"),
    "make wheel": ("", r"make_wheels\.py dist"),
    "make wheel-check": ("", r"-m pytest .*tests/packaging/check_wheels\.py"),
    "make fresh": ("", r"tools/fresh\.sh"),
    "make fresh ARGS='nerf test'": ("", r"tools/fresh\.sh nerf test"),
    "make bazel": ("", r"build //\.\.\..* test //\.\.\. .*same_as_make"),
    "make bazel BAZEL_TESTS=//tests:hostmetal_test": (
        "",
        r"build //\.\.\..* test //tests:hostmetal_test",
    ),
}
# Within `make bazel`, which runs them so.
BAZEL = {"bazelisk build //...": r" build //\.\.\.", "bazelisk test //...": r" test //\.\.\. "}
# Run below, in bash: their output.
PRINTS = {command: "[5 0]\n" for command in PAGE_COMMANDS if "zero_out([5, 4])" in command}
# tests/packaging/test_wheels.py and check_wheels.py run these.
INSTALLS = {INSTALL_WHEEL, INSTALL_WHEELS, INSTALL_SOURCE, INSTALL_SOURCES}


def would_do(*arguments: str) -> str:
    """The commands that make would run, in one line."""
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_every_command_is_known():
    assert set(PAGE_COMMANDS) == {"make help", *MAKES, *BAZEL, *PRINTS, *INSTALLS}
    assert len(INSTALLS) == 4


@pytest.mark.parametrize("command", PRINTS)
def test_prints(command: str):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, PRINTS[command]), done.stderr


@pytest.mark.parametrize("command", MAKES)
def test_make(command: str):
    source, does = MAKES[command]
    arguments = shlex.split(command)[1:]
    assert re.search(does, would_do(*arguments, *(["-W", source] if source else [])))
    if source:  # the control: without that change there is nothing to do
        assert not re.search(does, would_do(*arguments))


@pytest.mark.parametrize("command", BAZEL)
def test_bazel(command: str):
    assert re.search(BAZEL[command], would_do("bazel"))


def test_help_lists_the_targets():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("build", "metal", "wheel", "wheel-check", "bazel", "release", "mac-report"):
        assert re.search(rf"^  make {target} ", done.stdout, re.M), target


def test_release_and_report_pass_their_arguments_on():
    assert "tools/packaging/release.py --trial" in would_do("release", "ARGS=--trial")
    report = would_do("mac-report", "ARGS=--no-figures")
    assert "METAL_OPS_TEST_DEPTH=first" in report and "mac_report.py --no-figures" in report
    assert "METAL_OPS_TEST_DEPTH=all" in would_do("mac-report", "METAL_OPS_TEST_DEPTH=all")


def test_exact_version_in_one_place():
    """No source, rule or project file repeats it; tests name the versions whose saved files they load."""
    listed = subprocess.run(
        ["git", "grep", "-lF", f'"{__version__}"', "--", ":!docs", ":!tests", ":!*.md", ":!*.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert listed.stdout.split() == ["python/metal_ops/_version.py"], listed.stderr
    assert 'dynamic = ["version", ' in (ROOT / "pyproject.toml").read_text()
