"""Builds the wheels from the libraries that make has built: `make_wheels.py <output folder>`. Prints their sha256.

`--pypi` makes the one that PyPI takes; `--trial` takes libraries that are for this machine alone.

The same sources give the same bytes: files are packed from a copy with plain permissions, and all times are that of the
last commit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKED = (
    *("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"),
    *("python", "kernels", "hostmetal", "tools/packaging"),
)
# Wheels are zip archives, which know no earlier time.
EPOCH_OF_ZIP = "315532800"


def time_of_sources() -> str:
    """SOURCE_DATE_EPOCH: that of the environment, else of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True
    )
    return asked.stdout.strip() or EPOCH_OF_ZIP


def make(
    output: Path, libraries: Path = ROOT / "python" / "metal_ops", pypi: bool = False
) -> list[Path]:
    """Builds the wheels.

    Args:
      output: Where they go; made if missing.
      libraries: The folder with the compiled libraries.
      pypi: Whether to make the package alone, with the version and the tag that PyPI takes. The Metal half needs the
        system's GNUstep, which no such tag stands for.

    Returns:
      The wheels: the package with its CPU ops and, on Linux, the Metal half, which macOS has in the first.
    """
    with tempfile.TemporaryDirectory(prefix="metal_ops_wheel_") as scratch:
        copy, made = Path(scratch) / "metal_ops", Path(scratch) / "made"
        for name in PACKED:
            if (ROOT / name).is_dir():
                ignore = shutil.ignore_patterns("*.so", "*.metallib", "__pycache__", "*.egg-info")
                shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignore)
            else:
                copy.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
        for name in ("LICENSE", "NOTICE"):
            shutil.copy(ROOT / name, copy / "hostmetal" / name)
        for path in copy.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
        environment = {
            **os.environ,
            "SOURCE_DATE_EPOCH": time_of_sources(),
            "METAL_OPS_LIBRARIES": str(libraries.resolve()),
            "METAL_OPS_FOR_PYPI": "1" if pypi else "0",
        }
        pip = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--disable-pip-version-check",
            "-q",
            "--no-deps",
        ]
        alone = pypi or platform.system() == "Darwin"
        for project in [copy] if alone else [copy, copy / "hostmetal"]:
            done = subprocess.run(
                [*pip, "--no-build-isolation", "--no-index", "-w", str(made), str(project)],
                env=environment,
                umask=0o022,
            )
            if done.returncode != 0:
                sys.exit("metal_ops: the wheel was not built; the lines above say why.")
        output.mkdir(parents=True, exist_ok=True)
        wheels = [output / path.name for path in sorted(made.iterdir(), reverse=True)]
        for wheel in wheels:
            shutil.move(made / wheel.name, wheel)
    return sorted(wheels, key=lambda path: "hostmetal" in path.name)


def is_for_this_machine(libraries: Path) -> bool:
    """Whether shader libraries have kernels whose code is made of this checkout's files (METAL_OPS_TARGETS)."""
    return any(
        b"metallib_v1_deferred" in file.read_bytes() for file in libraries.glob("*.metallib")
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make_wheels.py", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--pypi", action="store_true", help="the wheel that PyPI takes")
    parser.add_argument(
        "--trial", action="store_true", help="of libraries that are for this machine alone, too"
    )
    arguments = parser.parse_args()
    if not arguments.trial and is_for_this_machine(ROOT / "python" / "metal_ops"):
        sys.exit(
            "metal_ops: the libraries are for this machine alone; run 'make wheel', or "
            "'make METAL_OPS_TARGETS=all metal' before."
        )
    for wheel in make(arguments.output, pypi=arguments.pypi):
        content = wheel.read_bytes()
        print(
            f"{wheel}  {len(content) / 2**20:.1f} MiB  sha256 {hashlib.sha256(content).hexdigest()}"
        )


if __name__ == "__main__":
    main()
