"""Python's bindings of libclang, bound to clang 19's library."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from . import toolchain
from .toolchain import CompileError


def cindex() -> Any:
    """The module clang.cindex.

    Raises:
      CompileError: The bindings or the library are missing.
    """
    try:
        import clang.cindex as bindings
    except ImportError as error:
        raise CompileError(
            "metal: error: Python's clang bindings are missing; run 'pip install libclang' in this interpreter"
        ) from error
    if not bindings.Config.loaded:
        bindings.Config.set_library_file(_opened(toolchain.libclang()))
        # The bindings may be a release older than the library: kinds that they do not know are unexposed ones.
        for kinds in (bindings.CursorKind, bindings.TypeKind):
            _tolerate(kinds)
    return bindings


def _opened(library: str) -> str:
    """Opens it such that it calls the LLVM that it came with: TensorFlow, from 2.21 on, shows the process its own."""
    deep = getattr(os, "RTLD_DEEPBIND", 0)
    if deep and "asan" not in os.environ.get("LD_PRELOAD", ""):  # which ends a process that does so
        ctypes.CDLL(library, mode=os.RTLD_LAZY | deep)
    return library


def _tolerate(kinds: Any) -> None:
    original = kinds.from_id.__func__
    fallback = kinds.UNEXPOSED_EXPR if hasattr(kinds, "UNEXPOSED_EXPR") else kinds.UNEXPOSED

    def from_id(cls: Any, number: int) -> Any:
        try:
            return original(cls, number)
        except ValueError:
            return fallback

    kinds.from_id = classmethod(from_id)
