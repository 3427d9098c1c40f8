"""Checks that take longer than `make test` can wait for: `make wheel-check`.

- Two builds from nothing, in folders of different names, give the same wheels.
- The wheels install from PyPI into an environment of their own, where the tests of the ops pass outside of the
  checkout.
- Each `pip install` from source of docs/build.md compiles and installs, as it stands there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from metal_ops._library import build_info
from tests.packaging.conftest import INSTALL_SOURCE, INSTALL_SOURCES, ROOT, Environment

# The tests' own imports; their versions are those of the environment that runs this.
TOOLS = ("pytest", "hypothesis")


def clone(folder: Path) -> Path:
    """The working tree's sources, without anything that was built."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    for name in listed:
        source, target = ROOT / name, folder / name
        if source.exists() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def clean_environment(**more: str) -> dict[str, str]:
    drop = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in drop} | more


def sh(script: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=clean_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        pytest.fail(
            f"exit code {done.returncode} of {script}\n{done.stdout[-8000:]}", pytrace=False
        )
    return done.stdout


def pip(environment: Environment, *arguments: str) -> None:
    done = environment.run("-m", "pip", "install", "--disable-pip-version-check", "-q", *arguments)
    assert "ERROR" not in done, done


def new_environment(folder: Path) -> Environment:
    environment = Environment(folder)
    venv.create(folder / "venv", with_pip=True)
    return environment


def test_builds_from_nothing_are_the_same_bytes(tmp_path):
    digests = []
    for name in ("one", "another-folder"):
        checkout = clone(tmp_path / name / "metal_ops")
        # Its wheels are of one time, as no git is there to ask.
        sh(
            f"make USE_PYTHON={sys.executable} build metal && make USE_PYTHON={sys.executable} wheel",
            checkout,
            SOURCE_DATE_EPOCH="1700000000",
            METAL_OPS_CACHE=str(tmp_path / name / "cache"),
        )
        wheels = sorted((checkout / "dist").glob("*.whl"))
        assert len(wheels) == 2
        digests.append(
            {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
        )
    assert digests[0] == digests[1]


def test_tests_pass_in_a_fresh_environment(wheels, tmp_path):
    """Nothing borrowed: pip finds the dependencies that the wheels name."""
    environment = new_environment(tmp_path)
    pip(environment, *map(str, wheels), *TOOLS)
    environment.copy_tests()
    files = [
        str(path.relative_to(environment.work))
        for path in sorted((environment.work / "tests").glob("test_*.py"))
        # These look at the checkout.
        if path.stem
        not in (
            "test_docs",
            "test_reference",
            "test_house",
            "test_examples",
            "test_import",
            "test_package",
        )
    ]
    out = environment.run(
        *("-m", "pytest", "-p", "no:cacheprovider", *files, "tests/metal_kernels/on_device"),
        timeout=1800,
    )
    assert re.search(r"\d+ passed", out), out[-3000:]


@pytest.mark.parametrize("command", [INSTALL_SOURCE, INSTALL_SOURCES])
def test_pip_install_from_source(command, tmp_path):
    """The CPU ops, and both halves, from a copy without anything built."""
    checkout = clone(tmp_path / "metal_ops")
    environment = new_environment(tmp_path / "environment")
    # setuptools of the new environment may be older than pyproject.toml requires.
    pip(environment, "setuptools>=77", f"tensorflow-cpu=={build_info()['tensorflow']}")
    sh(command, checkout, PATH=f"{environment.python.parent}:{os.environ['PATH']}")
    out = environment.run("-m", "metal_ops", "doctor")
    assert "metal_ops works" in out and ("GPU:0" in out) == (command == INSTALL_SOURCES)
    package = environment.site_packages / "metal_ops"
    assert "def hash_encode(" in (package / "raw_ops.pyi").read_text()
    assert "metal_ops.ops.zero_out import *" in (package / "ops" / "__init__.pyi").read_text()
    left = [*checkout.glob("python/metal_ops/*.so"), *checkout.rglob("*.pyi")]
    assert not left, "pip leaves nothing in the checkout"
