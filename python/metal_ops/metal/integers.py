"""Integer constants: the values of the expressions in attributes."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from .syntax_tree import SyntaxTree

_INTEGER = 1  # CXEval_Int


class _Evaluated(ctypes.c_void_p):
    """CXEvalResult."""


class Integers:
    """The named integers of one file, and expressions of them."""

    def __init__(self, tree: SyntaxTree):
        self._tree = tree
        self._named: dict[str, int] | None = None
        self._known: dict[tuple[str, tuple[tuple[str, int], ...]], int | None] = {}

    def value(self, text: str, names: dict[str, int] | None = None) -> int | None:
        """The value of an expression, None if it is no integer constant; `names` take precedence over the file's."""
        if re.fullmatch(r"\s*(0|[1-9]\d{0,17})[uUlL]*\s*", text):
            return int(text.strip().rstrip("uUlL"))
        key = text, tuple((names or {}).items())
        if key not in self._known:
            self._known[key] = self._compute(text, names or {})
        return self._known[key]

    def _compute(self, text: str, names: dict[str, int]) -> int | None:
        # Constants are known by their last name.
        text = re.sub(r"(?:[A-Za-z_]\w*)?\s*::\s*(?=[A-Za-z_])", "", text)
        if self._named is None:
            self._named = self._read_names()
        known = self._named | names
        lines = [
            f"constexpr long long {name} = {known[name]};\n"
            for name in sorted(set(re.findall(r"\b[A-Za-z_]\w*", text)) & known.keys())
        ]
        # clang knows C's precedence and overflows; braces refuse values that are no integers.
        unit = self._tree.index.parse(
            "value.cc",
            args=["-std=c++17"],
            unsaved_files=[("value.cc", f"{''.join(lines)}constexpr long long value{{{text}}};\n")],
        )
        if any(d.severity >= d.Error for d in unit.diagnostics):
            return None
        *_, last = unit.cursor.get_children()
        return self._evaluate(last)

    def _evaluate(self, variable: Any) -> int | None:
        library = self._tree.bindings.conf.lib
        library.clang_Cursor_Evaluate.argtypes = [self._tree.bindings.Cursor]
        library.clang_Cursor_Evaluate.restype = _Evaluated
        library.clang_EvalResult_getKind.argtypes = [_Evaluated]
        library.clang_EvalResult_getAsLongLong.argtypes = [_Evaluated]
        library.clang_EvalResult_getAsLongLong.restype = ctypes.c_longlong
        library.clang_EvalResult_dispose.argtypes = [_Evaluated]
        result = library.clang_Cursor_Evaluate(variable)
        if not result:
            return None
        is_integer = library.clang_EvalResult_getKind(result) == _INTEGER
        number = int(library.clang_EvalResult_getAsLongLong(result)) if is_integer else None
        library.clang_EvalResult_dispose(result)
        return number

    def _read_names(self) -> dict[str, int]:
        tree = self._tree
        values: dict[str, int] = {}
        for cursor in tree.declarations(tree.unit.cursor):
            if cursor.kind == tree.kind.ENUM_DECL:
                for value in cursor.get_children():
                    if value.kind == tree.kind.ENUM_CONSTANT_DECL:
                        values[value.spelling] = value.enum_value
            elif cursor.kind == tree.kind.VAR_DECL and "function_constant" not in tree.annotations(
                cursor
            ):
                number = self._evaluate(cursor)
                if number is not None:
                    values[cursor.spelling] = number
        return values
