"""The contents of hostmetal/msl/metallib_abi.h, read from it: its numbers, and its structs as ctypes'. Nothing says
it again."""

from __future__ import annotations

import ast
import ctypes
import functools
import re
from pathlib import Path
from typing import Any

from . import toolchain
from .libclang import cindex
from .toolchain import CompileError

_PLAIN = {
    "CHAR_S": ctypes.c_char, "CHAR_U": ctypes.c_char, "UCHAR": ctypes.c_uint8, "USHORT": ctypes.c_uint16,
    "INT": ctypes.c_int32, "UINT": ctypes.c_uint32,
    "LONG": ctypes.c_int64, "ULONG": ctypes.c_uint64, "FLOAT": ctypes.c_float, "VOID": None,
}  # fmt: skip


class Abi:
    """One header.

    Attributes:
      numbers: constants of enums, and macros that are a number or a text, by name.
      enums: the names of an enum's constants, in order.

    Raises:
      CompileError: it cannot be read.
    """

    def __init__(self, header: Path):
        bindings = cindex()
        self._kinds, self._types = bindings.CursorKind, bindings.TypeKind
        self._structs: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}
        self.enums: dict[str, list[str]] = {}
        unit = bindings.Index.create().parse(
            str(header),
            # The library looks for clang's headers beside its own file, where they may not be.
            args=[
                *("-x", "c", "-std=c11", "-ffreestanding"),
                *("-resource-dir", str(toolchain.resources())),
            ],
            options=bindings.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD,
        )
        errors = [str(d) for d in unit.diagnostics if d.severity >= d.Error]
        if errors:
            raise CompileError(f"metal: error: {header} cannot be read: {errors[0]}")
        for cursor in unit.cursor.get_children():
            if cursor.location.file is None or cursor.location.file.name != str(header):
                continue
            if cursor.kind == self._kinds.ENUM_DECL:
                constants = list(cursor.get_children())
                self.numbers |= {c.spelling: c.enum_value for c in constants}
                self.enums[cursor.spelling] = [c.spelling for c in constants]
            elif cursor.kind == self._kinds.STRUCT_DECL:
                self._struct(cursor)
            elif cursor.kind == self._kinds.MACRO_DEFINITION:
                words = [token.spelling for token in cursor.get_tokens()]
                if len(words) == 2:
                    self.numbers[words[0]] = ast.literal_eval(
                        re.sub(r"^(0?\w+)u$", r"\1", words[1])
                    )

    def struct(self, name: str) -> Any:
        """The ctypes class of a struct."""
        return self._structs[name]

    def words(self, enum: str, prefix: str) -> tuple[str, ...]:
        """The constants of an enum that counts from 0, in lower case without their common beginning."""
        names = self.enums[enum]
        assert [self.numbers[name] for name in names] == list(range(len(names))), enum
        return tuple(name.removeprefix(prefix).lower() for name in names)

    def _struct(self, cursor: Any) -> Any:
        name = cursor.type.spelling.removeprefix("struct ")
        if name not in self._structs:
            made: Any = type(name, (ctypes.Structure,), {})
            self._structs[name] = made
            fields = [c for c in cursor.get_children() if c.kind == self._kinds.FIELD_DECL]
            made._fields_ = [(c.spelling, self._type(c.type)) for c in fields]
            where = {c.spelling: c.get_field_offsetof() // 8 for c in fields}
            assert where == {field: getattr(made, field).offset for field in where}, name
            assert ctypes.sizeof(made) == cursor.type.get_size(), name
        return self._structs[name]

    def _type(self, type_: Any) -> Any:
        type_ = type_.get_canonical()
        if type_.kind == self._types.CONSTANTARRAY:
            return self._type(type_.element_type) * type_.element_count
        if type_.kind == self._types.RECORD:
            return self._struct(type_.get_declaration())
        if type_.kind != self._types.POINTER:
            return _PLAIN[type_.kind.name]
        target = type_.get_pointee()
        if target.kind == self._types.FUNCTIONPROTO:
            arguments = map(self._type, target.argument_types())
            return ctypes.CFUNCTYPE(self._type(target.get_result()), *arguments)
        made = self._type(target)
        if made is ctypes.c_char and target.is_const_qualified():
            return ctypes.c_char_p
        if made in (None, ctypes.c_char):
            return ctypes.c_void_p
        return ctypes.POINTER(made)


@functools.cache
def abi() -> Abi:
    """The header of this installation."""
    return Abi(toolchain.library_root() / "metallib_abi.h")


@functools.cache
def number(name: str) -> int:
    """The value of METALLIB_<name>."""
    # A literal is read as text: libclang takes longer to load than a kernel to compile.
    text = (toolchain.library_root() / "metallib_abi.h").read_text()
    found = re.search(rf"^ *METALLIB_{name} =\s+(\d+)u?(?: << (\d+))?[, ]", text, re.M)
    if found:
        return int(found[1]) << int(found[2] or 0)
    return int(abi().numbers[f"METALLIB_{name}"])
