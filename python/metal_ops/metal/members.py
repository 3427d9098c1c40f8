"""The layout of a buffer's elements, for reflection and for argument encoders: text behind the argument's name.

type     number of an MTLDataType | t<texture's type>; | s (sampler) | *<r or w><size>,<alignment>:type |
         [<length>,<stride>:type | {member...} | ? (nothing that Metal has a number for)
member   name,<offset>,<argument index>:type
"""

from __future__ import annotations

import re
from typing import Any

from .integers import Integers
from .reflection import data_type
from .syntax_tree import SyntaxTree
from .textures import texture_type

DEPTH = 6  # pointers may lead in a circle
_ARRAY = re.compile(r"(?:[\w()]+ )*metal::array<.*, (\d+)\w*>")  # behind an address space
_MATRIX = re.compile(r"(float|half)([234])x([234])")
_FIRST_MATRIX = {"float": 7, "half": 20}  # MTLDataTypeFloat2x2, MTLDataTypeHalf2x2


class Members:
    """Describes types of one syntax tree."""

    def __init__(self, tree: SyntaxTree, integers: Integers):
        self._tree = tree
        self._structs: dict[tuple[int, int], tuple[str, int]] = {}
        self._integers = integers

    def describe(self, type_: Any) -> str | None:
        """The text of a struct, an array, a matrix or an enum; None where the type's name says all there is."""
        canonical = type_.get_canonical()
        if self._number(canonical) is not None:
            return None
        text, _ = self._type(canonical, DEPTH)
        return None if text == "?" else text

    def _number(self, type_: Any) -> int | None:
        """The MTLDataType that the name of a scalar or vector stands for."""
        return data_type(re.sub(r"^packed_|^atomic<(\w+)>$", r"\1", self._tree.name(type_)))

    def _type(self, type_: Any, depth: int) -> tuple[str, int]:
        """The text, and how many argument indices it takes."""
        types, tree = self._tree.types, self._tree
        if type_.kind == types.CONSTANTARRAY:
            return self._array(type_.element_type.get_canonical(), type_.element_count, depth)
        if type_.kind in (types.POINTER, types.LVALUEREFERENCE):
            return self._pointer(type_.get_pointee().get_canonical(), depth), 1
        spelling = type_.spelling
        if texture := texture_type(spelling):
            return ("s", 1) if texture == "sampler" else (f"t{texture};", 1)
        if found := _ARRAY.fullmatch(spelling):
            element = type_.get_template_argument_type(0).get_canonical()
            return self._array(element, int(found.group(1)), depth)
        if type_.kind == types.ENUM:
            type_ = type_.get_declaration().enum_type.get_canonical()
        number = self._number(type_)
        if number is not None:
            return str(number), 1
        if found := _MATRIX.fullmatch(tree.name(type_)):
            columns, rows = int(found.group(2)), int(found.group(3))
            return str(_FIRST_MATRIX[found.group(1)] + 3 * (columns - 2) + rows - 2), 1
        if type_.kind == types.RECORD and tree.is_users(type_.get_declaration()):
            key = type_.get_declaration().hash, depth
            if key not in self._structs:
                self._structs[key] = self._struct(type_, depth)
            return self._structs[key]
        return "?", 1

    def _array(self, element: Any, count: int, depth: int) -> tuple[str, int]:
        text, indices = self._type(element, depth)
        return f"[{count},{element.get_size()}:{text}", count * indices

    def _pointer(self, pointee: Any, depth: int) -> str:
        text = self._type(pointee, depth - 1)[0] if depth else "?"
        written = not pointee.is_const_qualified() and "__global_host" not in pointee.spelling
        return f"*{'w' if written else 'r'}{max(pointee.get_size(), 0)},{max(pointee.get_align(), 0)}:{text}"

    def _struct(self, type_: Any, depth: int) -> tuple[str, int]:
        fields = self._fields(type_)
        if fields is None:
            return "?", 1
        members, index, end = [], 0, 0
        for field in fields:
            own = self._tree.annotations(field).get("id")
            value = None if own is None else self._integers.value(own)
            index = end if value is None else value
            text, indices = self._type(field.type.get_canonical(), depth)
            if field.is_bitfield():
                text = "?"
            members.append(f"{field.spelling},{field.get_field_offsetof() // 8},{index}:{text}")
            end = index + indices
        return "{" + "".join(members) + "}", max(end, 1)

    def _fields(self, type_: Any) -> list[Any] | None:
        """A struct's fields, those of its base first; None with several bases: libclang does not tell where they lie."""
        kind = self._tree.kind.CXX_BASE_SPECIFIER
        bases = [c.type for c in type_.get_declaration().get_children() if c.kind == kind]
        inherited = [fields for base in bases if (fields := self._fields(base)) != []]
        if len(inherited) > 1 or None in inherited:
            return None
        return [field for fields in inherited if fields for field in fields] + list(
            type_.get_fields()
        )
