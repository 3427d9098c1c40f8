"""Builds the package `tensorflow-metal-ops`: the Python files, the compiled CPU ops, on macOS the Metal kernels too.

Everything else is in pyproject.toml. An editable install compiles nothing: `make` does.

The libraries are of one release of TensorFlow and of no Python: so are the version, which ends with it, and the wheel.
"""

import platform
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools" / "packaging"))
import libraries  # noqa: E402

# With the stubs, which follow from the op library.
LIBRARIES = ["_metal_ops.so", *libraries.STUBS]
if platform.system() == "Darwin":
    LIBRARIES += ["_metal_kernels.so", "metal_ops.metallib", *libraries.PLUGIN]


class BuildWithLibraries(build_py):
    """The Python files, and the libraries beside them."""

    def run(self) -> None:
        if not self.editable_mode:
            # Files that an earlier build left there would be packed too.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            libraries.provide(LIBRARIES, Path(self.build_lib) / "metal_ops")
            if platform.system() == "Darwin" and not libraries.has_tensorflow_metal(RELEASE):
                libraries.let_tensorflow_find_plugin(Path(self.build_lib))


RELEASE, TENSORFLOW = libraries.tensorflow()
DEPENDENCIES = [
    f"tensorflow-cpu=={TENSORFLOW}; sys_platform == 'linux'",
    f"tensorflow=={TENSORFLOW}; sys_platform == 'darwin'",
    "numpy>=1.26",
    "pillow>=10",
    "imageio>=2.31",
    "matplotlib>=3.8",
    "rich>=13",
    "wrapt>=1.14",  # TensorFlow's own dependency: tells when Keras is imported
]
# In the same version: it asks for exactly this one.
METAL = ["tensorflow-metal-ops-hostmetal; sys_platform == 'linux'"]
if libraries.has_tensorflow_metal(RELEASE):
    METAL.append("tensorflow-metal==1.2.0; sys_platform == 'darwin'")

# As requirements-programs.txt: what programs read files with.
EXTRAS = {
    "metal": METAL,
    "lm": ["gguf==0.19.0", "safetensors==0.8.0", "tokenizers==0.23.3"],
    "colmap": ["pycolmap==4.2.1"],
    "sdf": ["trimesh==5.2.0", "mapbox_earcut==2.1.0"],
}

setup(
    version=libraries.version(),
    install_requires=DEPENDENCIES,
    extras_require=EXTRAS,
    distclass=libraries.BinaryDistribution,
    cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": libraries.AnyPython},
)
