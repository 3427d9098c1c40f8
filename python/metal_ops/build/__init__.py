"""Builds TensorFlow ops with Metal kernels from any sources, on Linux and on macOS: `python -m metal_ops build
--help`."""

from metal_ops.build.builder import BuildError, build_op

__all__ = ["BuildError", "build_op"]
