"""The wheels of the libraries that make has built, and an environment that has nothing but them."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "packaging"))
import make_wheels  # noqa: E402

# The commands of docs/build.md, without comments: those that install are run here as they stand there.
PAGE_COMMANDS = [
    line.split("  #")[0].strip()
    for block in re.findall(
        r"^```bash\n(.*?)^```$", (ROOT / "docs" / "build.md").read_text(), re.M | re.S
    )
    for line in block.splitlines()
]
INSTALL_WHEEL, INSTALL_WHEELS = (c for c in PAGE_COMMANDS if c.startswith("pip install dist/"))
INSTALL_SOURCE, INSTALL_SOURCES = (
    c for c in PAGE_COMMANDS if re.match(r"pip install .*\.$|.* \. ", c)
)

# The tests' options, for a copy outside of the checkout.
PYTEST = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
PYTEST_INI = f"[pytest]\naddopts = {PYTEST['addopts']}\npythonpath = .\nmarkers =\n" + "".join(
    f"    {marker}\n" for marker in PYTEST["markers"]
)


class Environment:
    """A virtual environment and a folder outside of the checkout to run in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        self.work = folder / "work"
        self.work.mkdir(parents=True)

    @property
    def site_packages(self) -> Path:
        return next((self.folder / "venv" / "lib").glob("python*/site-packages"))

    def variables(self, **more: str) -> dict[str, str]:
        drop = (
            "PYTHONPATH",
            "METAL_OPS_DEVICE",
            "METAL_OPS_TEST_DEVICE_PROCESS",
            "METAL_OPS_TEST_SERVER",
            "VIRTUAL_ENV",
        )
        kept = {name: value for name, value in os.environ.items() if name not in drop}
        return {**kept, "TF_CPP_MIN_LOG_LEVEL": "2", **more}

    def run(self, *arguments: str, expect: int = 0, timeout: int = 600, **variables: str) -> str:
        """Runs its Python outside of the checkout; returns its output."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.work,
            env=self.variables(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        if done.returncode != expect:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}", pytrace=False)
        return done.stdout

    def copy_tests(self) -> None:
        """The test suite, beside nothing of the checkout."""
        ignore = shutil.ignore_patterns("__pycache__", "packaging")
        shutil.copytree(ROOT / "tests", self.work / "tests", ignore=ignore)
        (self.work / "pytest.ini").write_text(PYTEST_INI)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The package and its Metal half."""
    return make_wheels.make(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def new_environment(
    tmp_path_factory: pytest.TempPathFactory, wheels: list[Path]
) -> Callable[..., Environment]:
    """Makes an environment by a command of docs/build.md, run where `dist/` has the wheels; their dependencies are
    borrowed from the environment that runs this."""

    def make(name: str, command: str) -> Environment:
        environment = Environment(tmp_path_factory.mktemp(name))
        venv = [sys.executable, "-m", "venv", "--without-pip", str(environment.folder / "venv")]
        subprocess.run(venv, check=True)
        (environment.folder / "dist").symlink_to(wheels[0].parent)
        pip = environment.python.with_name("pip")
        pip.write_text(
            f'#!/bin/sh\nexec {sys.executable} -m pip --python {environment.python} "$@"\n'
        )
        pip.chmod(0o755)
        alone = {f"PIP_{option}": "1" for option in ("NO_DEPS", "NO_INDEX", "NO_COMPILE", "QUIET")}
        path = f"{pip.parent}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", "-c", command],
            cwd=environment.folder,
            env=environment.variables(PATH=path, PIP_DISABLE_PIP_VERSION_CHECK="1", **alone),
            check=True,
        )
        # Folders named by a .pth file are searched last, and .pth files in them are not read: the checkout, which is
        # installed there by one, stays out.
        borrowed = "\n".join([*site.getsitepackages(), ""])
        (environment.site_packages / "borrowed.pth").write_text(borrowed)
        return environment

    return make


@pytest.fixture(scope="session")
def installed(new_environment: Callable[..., Environment]) -> Environment:
    """Both wheels, and the tests."""
    environment = new_environment("installed", INSTALL_WHEELS)
    environment.copy_tests()
    return environment
