"""docs/build.md: each of its commands is run here or by the test that is named here."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.packaging.conftest import ROOT

PAGE = (ROOT / "docs" / "build.md").read_text()
COMMANDS = [
    line.split("  #")[0].strip()
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
    for line in block.splitlines()
]
WHEELS = "tests/packaging/conftest.py"
# command: (file, what it has to say there)
RUN_BY = {
    "make build": ("Makefile", r"^test: build metal"),
    "make metal": ("Makefile", r"^test: build metal"),
    "make wheel": ("tools/packaging/rules.mk", r"make_wheels\.py dist"),
    "make wheel-check": ("tools/packaging/rules.mk", r"pytest tests/packaging/check_wheels\.py"),
    "pip install dist/tensorflow_metal_ops-*.whl": (
        "tests/packaging/test_wheels.py",
        r"new_environment\(\"cpu_only\", wheels\[:1\]\)",
    ),
    "pip install dist/tensorflow_metal_ops-*.whl dist/tensorflow_metal_ops_hostmetal-*.whl": (
        WHEELS,
        r"new_environment\(\"installed\", wheels\)",
    ),
    "pip install .": ("tests/packaging/check_wheels.py", r"def test_pip_install_from_source"),
    "pip install --no-build-isolation . ./hostmetal": (
        "tests/packaging/check_wheels.py",
        r"def test_pip_install_from_source",
    ),
    "make bazel": (".ci/run", r"^make bazel$"),
    "make bazel BAZEL_TESTS=//tests:hostmetal_test": (
        "tools/bazel/rules.mk",
        r"test \$\(BAZEL_TESTS\)",
    ),
    "bazelisk build //...": ("tools/bazel/rules.mk", r"build //\.\.\."),
    "bazelisk test //...": ("tools/bazel/rules.mk", r"^BAZEL_TESTS \?= //\.\.\. "),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_run(command: str):
    if command == "make help":
        done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0
        for target in ("build", "metal", "wheel", "wheel-check", "bazel"):
            assert re.search(rf"^  make {target} ", done.stdout, re.M), target
        return
    path, says = RUN_BY[command]
    assert re.search(says, (ROOT / path).read_text(), re.M), f"{path} does not run `{command}`"


@pytest.mark.parametrize("target", ["build", "metal", "wheel", "wheel-check", "bazel"])
def test_targets_are_known_to_make(target: str):
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_exact_version_in_one_place():
    """Neither pyproject.toml nor a source repeats it."""
    sys.path.insert(0, str(ROOT / "python" / "metal_ops"))
    from _version import __version__

    project = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project and f'"{__version__}"' not in project
    for path in [*ROOT.glob("ops/*.cc"), *ROOT.glob("*.mk"), ROOT / "Makefile"]:
        assert f'"{__version__}"' not in path.read_text(), path
