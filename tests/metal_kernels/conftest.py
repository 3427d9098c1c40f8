"""A copy of the checkout, for tests that add files to it and build it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """The environment without the variables of an outer `make` or test process."""
    drop = (
        "MAKEFLAGS",
        "MFLAGS",
        "MAKELEVEL",
        "PYTHONPATH",
        "METAL_OPS_TEST_DEVICE_PROCESS",
        "METAL_OPS_TEST_SERVER",
    )
    return {name: value for name, value in os.environ.items() if name not in drop}


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working tree with its build products, times kept, so that `make` only builds a test's
    changes."""
    copy = tmp_path_factory.mktemp("checkout") / "metal_ops"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    products = [*ROOT.glob("python/metal_ops/*.so"), *ROOT.glob("python/metal_ops/*.metallib")]
    for path in [*(ROOT / name for name in listed), *products]:
        if path.exists() or path.is_symlink():
            target = copy / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
    # Less trees and environments of gigabytes that nothing here asks for.
    others = shutil.ignore_patterns("tf-*", "python-*", "sanitize", "bazelisk")
    shutil.copytree(ROOT / "build", copy / "build", symlinks=True, ignore=others)
    # The environment's own files by link. The stamp that says "this checkout is installed in it" must be up to date,
    # or make would install the copy into the environment of the original.
    environment = copy / ".venv"
    environment.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (environment / name).symlink_to(ROOT / ".venv" / name)
    shutil.copy2(ROOT / ".venv" / "stamp", environment / "stamp")
    (environment / "package.stamp").touch()
    return copy


@pytest.fixture(scope="session")
def shell(checkout: Path, clean_environment: dict[str, str]) -> Callable[..., str]:
    """Runs a bash script in the copy and returns its output; fails with the output otherwise."""
    environment = {**clean_environment, "PYTHONPATH": str(checkout / "python")}
    environment["PATH"] = f"{checkout / '.venv' / 'bin'}:{environment['PATH']}"

    def run(script: str, expect: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=checkout,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        if done.returncode != expect:
            pytest.fail(f"exit code {done.returncode} of\n{script}\n{done.stdout}", pytrace=False)
        return done.stdout

    return run
