"""Builds the package `tensorflow-metal-ops-hostmetal`: what the Metal half of metal_ops needs on Linux.

Runtime, Metal kernels, shaders, TensorFlow's METAL device, and the headers of the shader compiler and of op builds. All
of it goes into the folder of the package `metal_ops`, where that looks for it; there is no Python in it.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "packaging"))
import libraries  # noqa: E402

LIBRARIES = [
    "libhostmetal.so",
    "_metal_kernels.so",
    "metal_ops.metallib",
    "libmetal_device.so",
    "libmetal_device.metallib",
]
# Folder of the checkout -> folder of the package.
HEADERS = {
    "hostmetal/include": "include/hostmetal",
    "hostmetal/msl/include": "metal/msl/include",
    "hostmetal/msl/lib": "metal/msl/lib",
}


class BuildLibraries(build_py):
    """Compiles, and copies the headers, instead of packing Python files."""

    def run(self) -> None:
        if self.editable_mode:
            sys.exit(
                "metal_ops: hostmetal has no editable install; `make metal` builds it in the checkout."
            )
        # Files that an earlier build left there would be packed too.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        package = Path(self.build_lib) / "metal_ops"
        libraries.provide(LIBRARIES, package)
        for source, target in HEADERS.items():
            shutil.copytree(ROOT / source, package / target)
        shutil.copy(ROOT / "hostmetal/msl/metallib_abi.h", package / "metal/msl")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return []


setup(
    version=libraries.version(),
    # They share a folder and an interface that changes without notice.
    install_requires=[f"tensorflow-metal-ops=={libraries.version()}"],
    # Not read, but setuptools wants a folder.
    packages=["metal_ops"],
    package_dir={"metal_ops": "include"},
    distclass=libraries.BinaryDistribution,
    cmdclass={"build_py": BuildLibraries, "bdist_wheel": libraries.AnyPython},
)
