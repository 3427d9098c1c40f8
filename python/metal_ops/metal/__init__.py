"""The Metal shader compiler for Linux: `.metal` -> `.metallib` (an ELF shared object, see hostmetal/msl/metallib_abi.h).

Imports neither TensorFlow nor NumPy. Run it as `python -m metal_ops metal`, `python -m metal_ops.metal`, or, without
the package being installed, `python python/metal_ops/metal`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiler import CompileError, Options, compile_metallib, compile_object, link

__all__ = ["CompileError", "Options", "compile_metallib", "compile_object", "link"]


def __getattr__(name: str) -> Any:
    # The code of one kernel is made without the parts that read sources, which take longer to import.
    if name in __all__:
        from . import compiler

        return getattr(compiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
