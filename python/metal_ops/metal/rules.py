"""Constructs that C++ allows and MSL does not, in all code that the user wrote, and their error messages."""

from __future__ import annotations

import re
from typing import Any

from .syntax_tree import SyntaxTree


class Rules:
    """The rules of one version of the language, on one syntax tree."""

    def __init__(self, tree: SyntaxTree, std: tuple[int, int]):
        self._tree = tree
        self._types = tree.types
        self._std = std
        # Macros that stand for an address space, for headers that C++ reads too.
        spaces = r"device|constant|threadgroup|thread"
        named = re.findall(
            rf"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(?:{spaces})[ \t]*$", tree.source.text, re.M
        )
        self._space_words = re.compile(rf"\b({'|'.join([spaces, *named])}|_MSL_\w+)\b")

    def forbidden(self, top: Any) -> None:
        """Looks at a declaration and all that is in it."""
        kind = self._tree.kind
        methods = (
            kind.CXX_METHOD,
            kind.FUNCTION_DECL,
            kind.FUNCTION_TEMPLATE,
            kind.CONVERSION_FUNCTION,
        )
        stack = [top]
        while stack:
            cursor = stack.pop()
            stack.extend(cursor.get_children())
            k = cursor.kind
            if k in (kind.PARM_DECL, kind.VAR_DECL, kind.FIELD_DECL):
                self._check_type(cursor, cursor.type)
                self._check_space(cursor, cursor.type)
                if k == kind.VAR_DECL:
                    self._check_variable(cursor)
                elif k == kind.FIELD_DECL:
                    self._check_field(cursor)
            elif k in methods:
                if k != kind.FUNCTION_TEMPLATE or cursor.result_type.kind != self._types.INVALID:
                    self._check_type(cursor, cursor.result_type)
                    self._check_space(cursor, cursor.result_type, until=cursor.location.offset)
                if k == kind.CXX_METHOD and cursor.is_virtual_method():
                    self._tree.say(cursor, "virtual functions are not supported in Metal")
                if k == kind.FUNCTION_TEMPLATE and "kernel" not in self._tree.annotations(cursor):
                    continue
            elif k in (
                kind.CSTYLE_CAST_EXPR,
                kind.CXX_REINTERPRET_CAST_EXPR,
                kind.CXX_STATIC_CAST_EXPR,
            ):
                self._check_type(cursor, cursor.type)
                self._check_space(cursor, cursor.type, cast=True)
            elif k in (kind.GOTO_STMT, kind.INDIRECT_GOTO_STMT):
                self._tree.say(cursor, "'goto' is not supported in Metal")
            elif k in (kind.CXX_NEW_EXPR, kind.CXX_DELETE_EXPR):
                self._tree.say(cursor, "'new' and 'delete' are not supported in Metal")
            elif k in (kind.CXX_THROW_EXPR, kind.CXX_TRY_STMT):
                self._tree.say(cursor, "exceptions ('throw', 'try') are not supported in Metal")
            elif k in (kind.ASM_STMT, kind.MS_ASM_STMT):
                if not _is_nothing([token.spelling for token in cursor.get_tokens()]):
                    self._tree.say(cursor, "inline assembly is not supported in Metal")
            elif k == kind.LAMBDA_EXPR and self._std < (3, 2):
                self._tree.say(cursor, "lambda expressions need Metal 3.2 (-std=metal3.2)")

    def _check_type(self, cursor: Any, type_: Any) -> None:
        canonical = type_.get_canonical()
        while canonical.kind in (self._types.POINTER, self._types.LVALUEREFERENCE):
            canonical = canonical.get_pointee()
        while canonical.kind == self._types.CONSTANTARRAY:
            canonical = canonical.element_type
        if (
            canonical.kind in (self._types.DOUBLE, self._types.LONGDOUBLE)
            or "<double" in canonical.spelling
        ):
            self._tree.say(cursor, "'double' is not supported in Metal; use float")
        elif canonical.kind in (self._types.LONGLONG, self._types.ULONGLONG):
            self._tree.say(cursor, "'long long' is not supported in Metal; use long")
        elif canonical.kind in (self._types.INT128, self._types.UINT128):
            self._tree.say(cursor, "128-bit integers are not supported in Metal")

    def _check_field(self, cursor: Any) -> None:
        if "visible_function_table<" in cursor.type.get_canonical().spelling:
            self._tree.say(
                cursor,
                f"'{cursor.spelling}': a table of functions cannot be in a struct here; make it an argument of the kernel",
            )

    def _check_variable(self, cursor: Any) -> None:
        text = self._tree.words(cursor.extent.start.offset, cursor.location.offset)
        if re.search(r"\bthread_local\b|\b__thread\b", text):
            self._tree.say(cursor, "'thread_local' is not supported in Metal")
        parent = cursor.semantic_parent
        outside = parent is not None and parent.kind in (
            self._tree.kind.TRANSLATION_UNIT,
            self._tree.kind.NAMESPACE,
        )
        canonical = cursor.type.get_canonical()
        if (
            canonical.kind == self._types.POINTER
            and canonical.get_pointee().kind == self._types.FUNCTIONPROTO
        ):
            # `auto f = g<3>;` in a function is another name for g.
            named = re.search(r"\bauto\b", text) and not outside
            if "host_name" not in self._tree.annotations(cursor) and not named:
                self._tree.say(cursor, "pointers to functions are not supported in Metal")
        if outside and not self._tree.space(cursor.type) and not self._tree.annotations(cursor):
            element = canonical
            while element.kind == self._types.CONSTANTARRAY:
                element = element.element_type
            if not self._tree.space(element) and "constexpr" not in text:
                self._tree.say(
                    cursor,
                    f"program scope variable '{cursor.spelling}' must reside in the constant address space",
                )

    def _check_space(
        self, cursor: Any, type_: Any, until: int | None = None, cast: bool = False
    ) -> None:
        """A pointer or reference whose declaration names no address space."""
        pointers = (self._types.POINTER, self._types.LVALUEREFERENCE, self._types.RVALUEREFERENCE)
        if type_.kind not in pointers:
            return
        pointee = type_.get_pointee()
        if self._tree.space(pointee) or pointee.kind in (
            self._types.FUNCTIONPROTO,
            self._types.MEMBERPOINTER,
        ):
            return
        start = cursor.extent.start.offset
        end = until if until is not None else cursor.location.offset
        if cast:
            close = ">" if cursor.kind != self._tree.kind.CSTYLE_CAST_EXPR else ")"
            end = self._tree.source.text.find(close, start, start + 300) + 1
        elif end <= start:
            end = cursor.extent.end.offset
        # `thread` expands to nothing, so it may lie before the start.
        lead = (
            None
            if cast
            else re.search(r"[^(,;{}<>]*$", self._tree.source.text[max(0, start - 200) : start])
        )
        text = self._tree.words(start - len(lead.group() if lead else ""), end)
        if not re.search(r"[*&]", text) or "(" in text.strip("( ") or re.search(r"\bauto\b", text):
            return
        if self._space_words.search(text):
            return
        what = "pointer" if type_.kind == self._types.POINTER else "reference"
        self._tree.say(cursor, f"{what} type must have explicit address space qualifier")

    def check_pointer(self, cursor: Any) -> None:
        """An implicit conversion to T*, which here is thread T*: not from device T*."""
        for child in self._tree.children(cursor):
            if self._tree.pointee_space(child) > 0:
                inner, outer = (node.type.get_canonical() for node in (child, cursor))
                self._tree.say(cursor, f"cannot convert '{self._tree.spell(inner)}' to '{self._tree.spell(outer)}': the address spaces "
                          "differ")  # fmt: skip

    def check_call(self, call: Any, target: Any) -> None:
        """The arguments of a call of a function that the user wrote."""
        if target.kind == self._tree.kind.CONSTRUCTOR:
            return
        for parameter, argument in zip(target.get_arguments(), call.get_arguments(), strict=False):
            if argument is not None:
                self.check_binding(argument, parameter.type, [argument])

    def check_binding(self, where: Any, type_: Any, values: list[Any]) -> None:
        """thread T& must not be bound to an object elsewhere. const T& may: to a copy."""
        if type_.kind != self._types.LVALUEREFERENCE:
            return
        pointee = type_.get_pointee()
        if pointee.is_const_qualified() or self._tree.space(pointee):
            return
        for value in values:
            while True:
                if value.kind.is_expression() and self._tree.space(value.type):
                    self._tree.say(where, f"cannot bind 'thread {self._tree.name(pointee)} &' to an object of type "
                              f"'{self._tree.spell(value.type)}': the address spaces differ")  # fmt: skip
                    break
                inner = self._tree.children(value)
                if value.kind != self._tree.kind.UNEXPOSED_EXPR or len(inner) != 1:
                    break
                value = inner[0]


def _is_nothing(words: list[str]) -> bool:
    """Whether assembly has no instruction and no operand: `__asm__("")`, which generators put into endless loops."""
    end = (
        words.index(")") if ")" in words else 0
    )  # behind a macro's use come words that are not the statement's
    said = "".join(word.strip("_") if word[0] == "_" else word for word in words[:end])
    return re.fullmatch(r"asm(volatile|inline)*\((\"\")+(:*|:::\"memory\")", said) is not None
