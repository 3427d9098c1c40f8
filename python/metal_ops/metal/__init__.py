"""The Metal shader compiler for Linux: `.metal` -> `.metallib` (an ELF shared object, see hostmetal/msl/metallib_abi.h).

Imports neither TensorFlow nor NumPy. Run it as `python -m metal_ops metal`, `python -m metal_ops.metal`, or, without
the package being installed, `python python/metal_ops/metal`.
"""

from .compiler import CompileError, Options, compile_metallib, compile_object, link

__all__ = ["CompileError", "Options", "compile_metallib", "compile_object", "link"]
