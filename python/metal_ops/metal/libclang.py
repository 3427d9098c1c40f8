"""Python's bindings of libclang, bound to clang 19's library."""

from __future__ import annotations

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
        bindings.Config.set_library_file(toolchain.libclang())
        # The bindings may be a release older than the library: kinds that they do not know are unexposed ones.
        for kinds in (bindings.CursorKind, bindings.TypeKind):
            _tolerate(kinds)
    return bindings


def _tolerate(kinds: Any) -> None:
    original = kinds.from_id.__func__
    fallback = kinds.UNEXPOSED_EXPR if hasattr(kinds, "UNEXPOSED_EXPR") else kinds.UNEXPOSED

    def from_id(cls: Any, number: int) -> Any:
        try:
            return original(cls, number)
        except ValueError:
            return fallback

    kinds.from_id = classmethod(from_id)
