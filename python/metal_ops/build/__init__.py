"""Builds TensorFlow ops with Metal kernels, anybody's, on Linux and on macOS: `python -m metal_ops build --help`."""

from metal_ops.build.builder import BuildError, build_op

__all__ = ["BuildError", "build_op"]
