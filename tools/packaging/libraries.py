"""Compiles the shared libraries for a package that setuptools builds, and puts them into it.

Used by setup.py and by hostmetal/setup.py. The sources are compiled in a copy, so that neither the checkout's own build
nor the user's environment is touched. METAL_OPS_LIBRARIES=<folder> takes libraries that are there already;
METAL_OPS_FOR_PYPI=1 makes the version and the tag such that PyPI takes the wheel.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from setuptools import Distribution
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parents[2]
MACOS = platform.system() == "Darwin"
# The files that make reads; the rest of a checkout (environments, runs, builds) can be gigabytes.
SOURCES = (
    *("Makefile", "requirements.txt", "pyproject.toml"),
    *("ops", "kernels", "graph", "hostmetal", "device", "python", "tools", "benchmarks/rules.mk"),
)
HIGHWAY = "libhwy.so.1"
# PyPI takes no other tags of Linux: glibc 2.35 and the libstdc++ beside it, which GCC 12's code needs.
MANYLINUX = f"manylinux_2_35_{platform.machine()}"
# Files that a checkout has made may be of other sources.
MADE = ("*.so", "*.metallib", "*.pyi")
PLUGIN = ("libmetal_device.so", "libmetal_device.metallib")
STUBS = ("raw_ops.pyi", "ops/__init__.pyi")
VERSIONS = runpy.run_path(str(ROOT / "python" / "metal_ops" / "_version.py"))


class AnyPython(bdist_wheel):
    """For a platform, but for no Python: the libraries talk to TensorFlow alone."""

    def get_tag(self) -> tuple[str, str, str]:
        if for_pypi() and not MACOS:
            return "py3", "none", MANYLINUX
        # python.org's Python on macOS is for two kinds of processors, the libraries built here for one.
        return "py3", "none", super().get_tag()[2].replace("universal2", platform.machine())


class BinaryDistribution(Distribution):
    """One that is of a platform, although setuptools compiles nothing of it."""

    def has_ext_modules(self) -> bool:
        return True


def tensorflow() -> tuple[str, str]:
    """The release of the TensorFlow that is installed, for which libraries are compiled, and the version to ask for.

    Raises:
      SystemExit: There is none, or of a release that the sources are not for. The message says which are.
    """
    releases = VERSIONS["TENSORFLOW_RELEASES"]
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            release = ".".join(importlib.metadata.version(name).split(".")[:2])
        except importlib.metadata.PackageNotFoundError:
            continue
        if release in releases:
            return release, releases[release][0]
        sys.exit(
            f"metal_ops: {name} {release} is installed, expected one of {', '.join(releases)}."
        )
    sys.exit(
        f"metal_ops: TensorFlow is not installed; `pip install tensorflow-cpu~={next(iter(releases))}.0`."
    )


def has_tensorflow_metal(release: str) -> bool:
    """Whether Apple's plugin loads into that release of TensorFlow."""
    releases = list(VERSIONS["TENSORFLOW_RELEASES"])
    return releases.index(release) <= releases.index(VERSIONS["TENSORFLOW_METAL_UNTIL"])


def for_pypi() -> bool:
    """Whether a wheel is made that PyPI takes."""
    return os.environ.get("METAL_OPS_FOR_PYPI") == "1"


def version() -> str:
    """That of the package, and TensorFlow's release, so that pip tells the wheels of several apart: 1.2.3+tf2.18.

    PyPI refuses such versions. Its wheel has the plain one, and is for one release of TensorFlow.
    """
    release = tensorflow()[0]
    return VERSIONS["__version__"] + ("" if for_pypi() else f"+tf{release}")


def provide(names: Iterable[str], package: Path) -> None:
    """Puts libraries, without their debug information, and stubs into a package folder.

    Args:
      names: E.g. `["_metal_ops.so", "raw_ops.pyi"]`.
      package: The folder `metal_ops` that is being built.

    Raises:
      SystemExit: They do not compile, or METAL_OPS_LIBRARIES has no such file. The message says why.
    """
    names = list(names)
    package.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("METAL_OPS_LIBRARIES")
    with tempfile.TemporaryDirectory(prefix="metal_ops_") as scratch:
        folder = Path(given) if given else _compile(names, Path(scratch) / "metal_ops")
        for name in names:
            if not (folder / name).exists():
                sys.exit(f"metal_ops: {folder / name} is missing; run `make build metal` first.")
            _copy(folder / name, package / name)
    if "_metal_ops.so" in names and not MACOS:
        _copy(_highway(), package / HIGHWAY)


def let_tensorflow_find_plugin(site_packages: Path) -> None:
    """Moves the device to where TensorFlow looks for plugins, on macOS for files that end in .dylib.

    Not beside tensorflow-metal: TensorFlow takes one plugin of a name, and its import would fail.

    Args:
      site_packages: The folder that is being built, with the package in it.
    """
    folder = site_packages / "tensorflow-plugins"
    folder.mkdir()
    for name in PLUGIN:
        found = (site_packages / "metal_ops" / name).rename(folder / name)
        if found.suffix == ".so":
            found.rename(found.with_suffix(".dylib"))


def _compile(names: list[str], copy: Path) -> Path:
    for source in SOURCES:
        if (ROOT / source).is_dir():
            ignore = shutil.ignore_patterns(*MADE, "__pycache__", "*.egg-info")
            shutil.copytree(ROOT / source, copy / source, symlinks=True, ignore=ignore)
        elif (ROOT / source).exists():
            (copy / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / source, copy / source)
    products = [f"python/metal_ops/{name}" for name in names]
    # An outer make's options and job server are not for this one.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    done = subprocess.run(
        ["make", f"USE_PYTHON={sys.executable}", "METAL_OPS_TARGETS=all", *products],
        cwd=copy,
        env=environment,
    )
    if done.returncode != 0:
        sys.exit(f"metal_ops: compiling {', '.join(names)} failed; the lines above say why.")
    return copy / "python/metal_ops"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    if target.suffix == ".pyi":
        return
    target.chmod(0o755)
    if target.suffix != ".metallib":
        subprocess.run(["strip", "-x" if MACOS else "--strip-unneeded", str(target)], check=True)


def _highway() -> Path:
    """The SIMD library that the CPU kernels ask for the machine's instruction set: small, and rarely installed."""
    compiler = os.environ.get("CXX", "g++").split()
    found = subprocess.run(
        [*compiler, f"-print-file-name={HIGHWAY}"], capture_output=True, text=True
    ).stdout
    path = Path(found.strip())
    if not path.is_absolute():
        sys.exit(f"metal_ops: {HIGHWAY} was not found; run 'sudo apt-get install libhwy-dev'.")
    return path.resolve()
