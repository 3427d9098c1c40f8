"""Reads kernels and function constants out of the syntax tree."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from .abi import number
from .calls import Calls
from .features import refused
from .integers import Integers
from .members import Members
from .messages import Message, Place
from .reflection import (
    Argument,
    Constant,
    Kernel,
    Reflection,
    attribute_of,
    constant_of,
    data_type,
    limits,
)
from .rules import Rules
from .syntax_tree import SyntaxTree
from .textures import texture_type

DERIVE = "_msl_derive_"  # declarations.py: the function that makes a derived constant's value
LARGEST_CONSTANT = 16  # bytes: metallib_constant_value

_SAID = {"TABLE": "table of functions"}
_TENSOR = re.compile(r"(?:const )?metal::tensor<(.*), metal::extents<.*>, metal::tensor_handle>")
_TABLE = re.compile(r"(?:const )?metal::visible_function_table<.*>")
_TEXTURES = re.compile(r"(?:const )?metal::array<(metal::(?:texture|depth)\w+<.*>), (\d+)\w*>")


def reflect(tree: SyntaxTree, std: tuple[int, int]) -> Reflection:
    """Everything that the tree holds, checked by the rules of MSL `std`; kernels are empty if clang found errors."""
    instead = refused(tree)
    if instead:
        return Reflection([], [], instead)
    if tree.diagnostics():
        return Reflection([], [], tree.messages)
    return _Reader(tree, std).read()


class _Reader:
    """Reads one syntax tree."""

    def __init__(self, tree: SyntaxTree, std: tuple[int, int]):
        self._tree = tree
        self._rules = Rules(tree, std)
        self._integers = Integers(tree)
        self._members = Members(tree, self._integers)
        self._constants: list[Constant] = []
        self._hashes: dict[str, int] = {}  # of the nodes of constants

    def read(self) -> Reflection:
        """Everything."""
        tree = self._tree
        kernels: dict[str, Kernel] = {}
        calls = Calls(tree, self._rules)
        roots: list[tuple[Kernel, Any]] = []
        visible: list[Any] = []
        derivations: dict[str, Any] = {}
        for cursor in tree.declarations(tree.unit.cursor):
            annotations = tree.annotations(cursor)
            if "function_constant" in annotations or "derived" in annotations:
                self._function_constant(cursor, annotations)
                calls.constants[cursor.hash] = cursor.spelling
                self._hashes[cursor.spelling] = cursor.hash
            elif "kernel" in annotations and cursor.kind == tree.kind.FUNCTION_DECL:
                if cursor.is_definition():
                    name = annotations.get("host_name", cursor.spelling)
                    roots.append((self._kernel(name, cursor, cursor), cursor))
            elif cursor.spelling.startswith(DERIVE) and cursor.kind == tree.kind.FUNCTION_DECL:
                derivations[cursor.spelling.removeprefix(DERIVE)] = cursor
            elif "visible" in annotations and cursor.kind == tree.kind.FUNCTION_DECL:
                if cursor.is_definition():
                    visible.append(cursor)
            elif "host_name" in annotations and cursor.kind == tree.kind.VAR_DECL:
                function = self._instance(cursor)
                if function is None:
                    tree.say(cursor, "the explicit instantiation names no kernel template")
                    continue
                roots.append((self._kernel(annotations["host_name"], function, cursor), function))
            self._rules.forbidden(cursor)
        calls.derived = {self._hashes[name]: cursor for name, cursor in derivations.items()}
        roots += [(kernel, f) for f in visible if (kernel := self._visible(f, calls))]
        for kernel, function in roots:
            if kernel.host_name in kernels:
                tree.say_at(kernel.place, f"duplicate kernel name '{kernel.host_name}'")
            kernels[kernel.host_name] = kernel
            calls.follow(kernel, function, self._conditions(kernel))
            if kernel.static_bytes > number("MAX_THREADGROUP_MEMORY"):
                wrong = (
                    f"kernel '{kernel.host_name}' uses {kernel.static_bytes} bytes of threadgroup memory; the limit "
                    f"is {number('MAX_THREADGROUP_MEMORY')}: no pipeline can be made of it"
                )
                tree.messages.append(Message(kernel.place, "warning", wrong))
        return Reflection([kernel for kernel, _ in roots], self._constants, tree.messages)

    def _function_constant(self, cursor: Any, annotations: dict[str, str]) -> None:
        found = self._constant(cursor, annotations)
        if found.index is not None:
            for same in self._constants:
                if same.index == found.index:
                    self._tree.say(cursor, f"function constant index {same.index} is used by '{same.name}' and "
                                   f"'{cursor.spelling}'")  # fmt: skip
                    break
        self._constants.append(found)

    def _conditions(self, kernel: Kernel) -> list[int]:
        """The constants on which arguments of a kernel depend."""
        names = {constant_of(a.enabled_by) for a in kernel.arguments if a.enabled_by is not None}
        return [self._hashes[name] for name in names if name in self._hashes]

    def _visible(self, function: Any, calls: Calls) -> Kernel | None:
        """A function for tables; None, and a warning, for one that works where it is called by name alone."""
        place = self._tree.place(function.location) or Place("?", 0, 0)
        name = self._tree.annotations(function).get("host_name", function.spelling)
        made = Kernel(name, "::" + self._tree.qualified(function), place, 0, visible=True)
        calls.follow(made, function)
        if made.fibers:
            wrong = "meets other threads (a barrier, a simd_ or a quad_ function)"
        elif made.reads | made.asks:
            wrong = f"reads function constant '{next(iter(made.reads | made.asks))}'"
        else:
            return made
        sentence = f"visible function '{function.spelling}' {wrong}: kernels may call it by name, and no table has it"
        self._tree.messages.append(Message(place, "warning", sentence))
        return None

    def _instance(self, variable: Any) -> Any:
        for cursor in variable.walk_preorder():
            if cursor.kind == self._tree.kind.DECL_REF_EXPR and cursor.referenced is not None:
                if cursor.referenced.kind == self._tree.kind.FUNCTION_DECL:
                    return cursor.referenced
        return None

    def _kernel(self, name: str, function: Any, where: Any) -> Kernel:
        """A kernel of this function; `where`: the function or the instantiation of its template."""
        place = self._tree.place(where.location) or Place("?", 0, 0)
        kernel = Kernel(name, "::" + self._tree.qualified(where), place, number("MAX_THREADS"))
        annotations = self._tree.annotations(function)
        if function.result_type.get_canonical().kind != self._tree.types.VOID:
            self._tree.say(function, f"kernel '{name}' must have void return type")
        if "max_total_threads_per_threadgroup" in annotations:
            value = self._integers.value(
                annotations["max_total_threads_per_threadgroup"], self._template_values(function)
            )
            if value is None or value < 1:
                self._tree.say(
                    function,
                    "'max_total_threads_per_threadgroup' needs a positive integer constant",
                )
            else:
                kernel.max_threads = min(value, kernel.max_threads)
        taken: dict[tuple[str, int], str] = {}
        waiting: list[Argument] = []
        for position, parameter in enumerate(function.get_arguments()):
            own = self._tree.annotations(parameter)
            if "at" in own:
                self._position(kernel, position, parameter, own["at"])
                continue
            argument = self._argument(position, parameter, own)
            if argument is None:
                continue
            kernel.arguments.append(argument)
            if argument.index < 0:
                waiting.append(argument)
                continue
            for key in _keys(argument):
                if key in taken:
                    self._tree.say(
                        parameter,
                        f"{key[0]} index {key[1]} is used by '{taken[key]}' and '{argument.name}'",
                    )
                taken[key] = argument.name
        for argument in waiting:  # MSL: the next index that no other parameter has
            while argument.index < 0 or any(key in taken for key in _keys(argument)):
                argument.index += 1
            taken.update(dict.fromkeys(_keys(argument), argument.name))
        kernel.arguments = [
            replace(argument, index=argument.index + k, element=k)
            for argument in kernel.arguments
            for k in range(argument.elements)
        ]
        for argument in kernel.arguments:
            limit = limits()[attribute_of(argument.kind)]
            if argument.index >= limit:
                self._tree.say(where, f"kernel '{name}': index {argument.index} of '{argument.name}' is above "
                          f"{limit - 1}")  # fmt: skip
        kernel.n_parameters = len(list(function.get_arguments()))
        return kernel

    def _position(self, kernel: Kernel, position: int, parameter: Any, attribute: str) -> None:
        spelled = parameter.type.get_canonical().spelling.removeprefix("const ")
        match = re.fullmatch(
            r"(?:metal::vec<)?(unsigned int|unsigned short|unsigned long|int|short)(?:, ([23])>)?",
            spelled,
        )
        scalar = not (match and match.group(2))
        indices = (
            "_index_in_",
            "threads_per_simdgroup",
            "thread_execution_width",
            "groups_per_threadgroup",
        )
        if not match or (not scalar and any(word in attribute for word in indices)):
            self._tree.say(
                parameter,
                f"'{parameter.spelling}': attribute '{attribute}' needs ushort or uint"
                + (
                    ""
                    if any(word in attribute for word in indices)
                    else ", or a vector of 2 or 3 of them"
                ),
            )
        kernel.positions[position] = attribute

    def _argument(self, position: int, parameter: Any, own: dict[str, str]) -> Argument | None:
        type_ = parameter.type
        name = parameter.spelling
        reference = type_.kind == self._tree.types.LVALUEREFERENCE
        canonical = type_.get_canonical()
        if canonical.kind in (self._tree.types.CONSTANTARRAY, self._tree.types.INCOMPLETEARRAY):
            pointee = canonical.element_type
        elif canonical.kind in (self._tree.types.POINTER, self._tree.types.LVALUEREFERENCE):
            pointee = canonical.get_pointee()
        elif texture := texture_type(canonical.spelling):
            return self._texture(position, parameter, own, texture)
        elif found := _TEXTURES.fullmatch(canonical.spelling):
            first = self._texture(position, parameter, own, texture_type(found.group(1)) or "")
            return first and replace(first, elements=int(found.group(2)))
        elif _TABLE.fullmatch(canonical.spelling):
            return self._by_value(
                position, parameter, own, "TABLE", self._tree.name(canonical), False
            )
        elif found := _TENSOR.fullmatch(canonical.spelling):
            written = not found.group(1).startswith("const ")
            name_ = self._tree.name(canonical)
            return self._by_value(position, parameter, own, "TENSOR", name_, written)
        else:
            self._tree.say(
                parameter,
                f"invalid type '{self._tree.name(type_)}' for input '{name}' of a kernel function: it needs an attribute such "
                "as [[thread_position_in_grid]], or to be a pointer or reference into device, constant or threadgroup "
                "memory",
            )
            return None
        spelled = pointee.spelling
        spaces = (
            ("__global_device", "DEVICE"),
            ("__global_host", "CONSTANT"),
            ("__local", "THREADGROUP"),
        )
        kind = next((k for word, k in spaces if re.search(rf"{word}(?!.*\*)", spelled)), None)
        if kind is None:
            self._tree.say(parameter, f"kernel argument '{name}' must point into the device, constant or threadgroup "
                      "address space")  # fmt: skip
            return None
        for attribute in (limits().keys() - {attribute_of(kind)}) & own.keys():
            self._tree.say(
                parameter,
                f"attribute '{attribute}' cannot be applied to '{name}' in the {kind.lower()} address space",
            )
        if pointee.kind == self._tree.types.POINTER:
            self._tree.say(parameter, f"kernel argument '{name}' is a pointer to a pointer")
            return None
        if self._is_only_declared(pointee):
            self._tree.say(
                parameter,
                f"kernel argument '{name}' points to '{self._tree.name(pointee)}', which is only declared; define it, so that "
                "a buffer's size is known",
            )
            return None
        if self._is_empty(pointee):
            self._tree.say(
                parameter,
                f"kernel argument '{name}' points to '{self._tree.name(pointee)}', a struct without members, which no buffer "
                "may hold; give it a member, or leave the argument out",
            )
            return None
        index = self._index(parameter, own, kind)
        if index is None:
            return None
        return Argument(
            position, name, kind, index, self._tree.name(pointee), kind != "CONSTANT" and not pointee.is_const_qualified(),
            reference, own.get("enabled_by"),
            members=None if kind == "THREADGROUP" else self._members.describe(pointee),
            restrict=type_.is_restrict_qualified(),
        )  # fmt: skip

    def _is_only_declared(self, type_: Any) -> bool:
        """Whether it is a struct that the source does not define, nor the template that it is made of."""
        declared = type_.get_canonical().get_declaration()
        if type_.get_canonical().kind != self._tree.types.RECORD or declared.get_definition():
            return False
        if not self._tree.is_users(declared):
            return False  # packed_vec<T, 3> is a specialisation of a template that is only declared
        template = self._tree.template(declared)
        return template is None or template.get_definition() is None

    def _is_empty(self, type_: Any) -> bool:
        """Whether it is a struct of which no byte is a value."""
        canonical = type_.get_canonical()
        if canonical.kind != self._tree.types.RECORD or canonical.get_size() != 1:
            return False
        bases = (
            child.type
            for child in canonical.get_declaration().get_children()
            if child.kind == self._tree.kind.CXX_BASE_SPECIFIER
        )
        return not any(True for _ in canonical.get_fields()) and all(map(self._is_empty, bases))

    def _index(self, parameter: Any, own: dict[str, str], kind: str) -> int | None:
        """The number in the attribute; -1 without one, None after a message."""
        text = own.get(attribute_of(kind))
        if text is None:
            return -1
        value = self._integers.value(text)
        if value is None or value < 0:
            self._tree.say(
                parameter,
                f"the index of '{parameter.spelling}', '{text}', is not an integer constant",
            )
            return None
        return value

    def _texture(
        self, position: int, parameter: Any, own: dict[str, str], type_name: str
    ) -> Argument | None:
        """A texture or sampler."""
        kind = "SAMPLER" if type_name == "sampler" else "TEXTURE"
        written = type_name.endswith(("access::write>", "access::read_write>"))
        return self._by_value(position, parameter, own, kind, type_name, written)

    def _by_value(
        self,
        position: int,
        parameter: Any,
        own: dict[str, str],
        kind: str,
        type_name: str,
        written: bool,
    ) -> Argument | None:
        """Arguments that kernels take by value and not by address."""
        for attribute in (limits().keys() - {attribute_of(kind)}) & own.keys():
            self._tree.say(
                parameter,
                f"attribute '{attribute}' cannot be applied to '{parameter.spelling}', a {_SAID.get(kind, kind.lower())}",
            )
        index = self._index(parameter, own, kind)
        if index is None:
            return None
        return Argument(
            position,
            parameter.spelling,
            kind,
            index,
            type_name,
            written,
            False,
            own.get("enabled_by"),
        )

    def _template_values(self, function: Any) -> dict[str, int]:
        """The integers that an instantiation has for its template's parameters."""
        template = self._tree.template(function)
        if template is None:
            return {}
        kinds = (
            self._tree.kind.TEMPLATE_TYPE_PARAMETER,
            self._tree.kind.TEMPLATE_NON_TYPE_PARAMETER,
        )
        parameters = [c for c in template.get_children() if c.kind in kinds]
        return {
            p.spelling: function.get_template_argument_value(i)
            for i, p in enumerate(parameters)
            if p.kind == self._tree.kind.TEMPLATE_NON_TYPE_PARAMETER
            and i < function.get_num_template_arguments()
        }

    def _constant(self, cursor: Any, annotations: dict[str, str]) -> Constant:
        name = self._tree.name(cursor.type.get_canonical())
        index = None
        if "function_constant" in annotations:
            index = self._integers.value(annotations["function_constant"])
            if index is None or not 0 <= index <= 65535:
                self._tree.say(
                    cursor, f"function constant '{cursor.spelling}' needs an index from 0 to 65535"
                )
                index = 0
        if data_type(name) is None and index is not None:
            self._tree.say(cursor, f"function constant '{cursor.spelling}' cannot have type '{name}': scalars and vectors of "
                      "bool, integers, half and float can be")  # fmt: skip
        size = cursor.type.get_canonical().get_size()
        if size > LARGEST_CONSTANT and data_type(name) is not None and index is not None:
            self._tree.say(cursor, f"function constant '{cursor.spelling}' has {size} bytes ('{name}'); "
                      f"{LARGEST_CONSTANT} are the most here: give two constants, or a buffer")  # fmt: skip
        return Constant(cursor.spelling, "::" + self._tree.qualified(cursor), index, name, size)


def _keys(argument: Argument) -> list[tuple[str, int]]:
    """The indices that an argument takes."""
    space = attribute_of(argument.kind)
    return [(space, argument.index + k) for k in range(argument.elements)]
