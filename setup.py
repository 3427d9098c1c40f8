"""Builds the package `tensorflow-metal-ops`: the Python files, the compiled CPU ops, on macOS the Metal kernels too.

Everything else is in pyproject.toml. An editable install compiles nothing: `make` does.
"""

import platform
import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools" / "packaging"))
import libraries  # noqa: E402

LIBRARIES = ["_metal_ops.so"]
if platform.system() == "Darwin":
    LIBRARIES += ["_metal_kernels.so", "metal_ops.metallib"]


class BuildWithLibraries(build_py):
    """The Python files, and the libraries beside them."""

    def run(self) -> None:
        if not self.editable_mode:
            # What an earlier build left there would be packed too.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            libraries.provide(LIBRARIES, Path(self.build_lib) / "metal_ops")


class OfThisMachine(bdist_wheel):
    """python.org's Python on macOS is for two kinds of processors, what is compiled here for one."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, system = super().get_tag()
        return python, abi, system.replace("universal2", platform.machine())


class BinaryDistribution(Distribution):
    """One that is of a platform and a Python, although setuptools compiles nothing of it."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": OfThisMachine},
)
