"""Reads the rewritten shader with libclang: its messages, its kernels and constants, and what MSL forbids and C++ allows."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from . import toolchain
from .rewrite import Message, Place, Source
from .toolchain import CompileError

MAIN = "shader.metal"
# How many arguments of a kind there may be, and the attribute that numbers them.
LIMITS = {"buffer": 31, "threadgroup": 31, "texture": 128, "sampler": 16}
MAX_THREADGROUP_BYTES = 32768

# What clang says, in MSL's words.
WORDS = [
    (re.compile(r"\b__global_device\b"), "device"),
    (re.compile(r"\bconst __global_host\b"), "constant"),
    (re.compile(r"\b__global_host\b"), "constant"),
    (re.compile(r"\b__local\b"), "threadgroup"),
    (re.compile(r"\b__thread\b"), "threadgroup"),
    (re.compile(r"\b_Float16\b"), "half"),
    (re.compile(r"\bunsigned (char|short|int|long)\b"), r"u\1"),
    (re.compile(r"\b(?:metal::)?vec<(\w+), (\d)>"), r"\1\2"),
    (re.compile(r"\b(?:metal::)?packed_vec<(\w+), (\d)>"), r"packed_\1\2"),
    (re.compile(r"\b(?:metal::)?matrix<(\w+), (\d), (\d)>"), r"\1\2x\3"),
    (re.compile(r"'(\w+)' \(aka '\1'\)"), r"'\1'"),
    (re.compile(r"^no setter defined for property '(\w+)'"), r"swizzle '\1' repeats a component and cannot be assigned"),
    (re.compile(r"^(unknown type name|no template named) '((?:texture|depth|imageblock|visible_function|tensor)\w*)'"),
     r"\1 '\2': this compute compiler has 1D, 2D and 3D textures, arrays of 1D and 2D ones, and texture_buffer; no cubes, "
     "depth or multisample textures, image blocks, tensors or function tables"),
    (re.compile(r"\bmetal::access::"), "access::"),
    (re.compile(r"^automatic variable qualified with an address space"),
     "a local variable cannot be declared in the device or constant address space"),
    (re.compile(r"^use of (\w+) requires -frtti"), r"\1 is not supported in Metal"),
]  # fmt: skip


@dataclass
class Argument:
    """A kernel parameter that is bound by index."""

    position: int
    name: str
    kind: str  # DEVICE, CONSTANT, THREADGROUP, TEXTURE or SAMPLER
    index: int
    type_name: str
    written: bool
    reference: bool
    enabled_by: str | None


@dataclass
class Kernel:
    """A kernel function or an instantiation of a kernel template."""

    host_name: str
    callee: str  # how the wrapper names it
    place: Place
    arguments: list[Argument] = field(default_factory=list)
    positions: dict[int, str] = field(default_factory=dict)  # parameter -> attribute
    n_parameters: int = 0
    max_threads: int = 1024
    static_bytes: int = 0
    fibers: bool = False


@dataclass
class Constant:
    """A function constant, or (index None) one derived from others."""

    name: str
    qualified: str
    index: int | None
    type_name: str
    size: int


@dataclass
class Reflection:
    """What the wrappers need to know, and the messages."""

    kernels: list[Kernel]
    constants: list[Constant]
    messages: list[Message]


@dataclass
class _Function:
    """One function body, scanned."""

    callees: list[Any] = field(default_factory=list)
    fibers: bool = False
    static_bytes: int = 0


def _cindex() -> Any:
    try:
        import clang.cindex as cindex
    except ImportError as error:
        raise CompileError(
            "metal: error: Python's clang bindings are missing; run 'pip install libclang' in this interpreter"
        ) from error
    if not cindex.Config.loaded:
        cindex.Config.set_library_file(toolchain.libclang())
        # The bindings may be a release older than the library: kinds that they do not know are unexposed ones.
        for kinds in (cindex.CursorKind, cindex.TypeKind):
            _tolerate(kinds)
    return cindex


def _tolerate(kinds: Any) -> None:
    original = kinds.from_id.__func__
    fallback = kinds.UNEXPOSED_EXPR if hasattr(kinds, "UNEXPOSED_EXPR") else kinds.UNEXPOSED

    def from_id(cls: Any, number: int) -> Any:
        try:
            return original(cls, number)
        except ValueError:
            return fallback

    kinds.from_id = classmethod(from_id)


class Reflector:
    """One translation unit."""

    def __init__(self, source: Source, flags: list[str], std: tuple[int, int]):
        self.cindex = _cindex()
        self.kind = self.cindex.CursorKind
        self.types = self.cindex.TypeKind
        self.source = source
        self.std = std
        self.messages: list[Message] = list(source.messages)
        index = self.cindex.Index.create(excludeDecls=True)
        self.unit = index.parse(MAIN, args=flags, unsaved_files=[(MAIN, source.text)])
        self._functions: dict[int, _Function] = {}
        self._said: set[tuple[Place | None, str]] = set()
        self._values: dict[str, int] | None = None
        self.conditionals: set[int] = set()  # offsets of ?: that `Source` has to help with
        # Macros that stand for an address space, for headers that C++ reads too.
        spaces = r"device|constant|threadgroup|thread"
        named = re.findall(
            rf"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(?:{spaces})[ \t]*$", source.text, re.M
        )
        self._space_words = re.compile(rf"\b({'|'.join([spaces, *named])}|_MSL_\w+)\b")

    # ---- messages

    def _place(self, location: Any) -> Place | None:
        if location.file is None or location.file.name != MAIN:
            return None
        return self.source.place(location.line, location.column)

    def _spelled_offset(self, location: Any) -> int:
        """Where the text lies that a message is about: inside a macro's body, not where the macro is used."""
        library = self.cindex.conf.lib
        file, line, column, offset = (
            ctypes.c_void_p(),
            ctypes.c_uint(),
            ctypes.c_uint(),
            ctypes.c_uint(),
        )
        library.clang_getSpellingLocation(
            location,
            ctypes.byref(file),
            ctypes.byref(line),
            ctypes.byref(column),
            ctypes.byref(offset),
        )
        return self.source.flat_offset(line.value, column.value)

    def _say(self, where: Any, text: str, severity: str = "error") -> None:
        place = self._place(where.location)
        if (place, text) not in self._said:
            self._said.add((place, text))
            self.messages.append(Message(place, severity, text))

    def _diagnostics(self) -> bool:
        """Takes clang's messages over; True if there are errors."""
        names = {1: "note", 2: "warning", 3: "error", 4: "error"}
        errors = False
        for diagnostic in self.unit.diagnostics:
            severity = names.get(diagnostic.severity)
            if severity is None:
                continue
            text = diagnostic.spelling
            if text.startswith("too many errors"):
                continue
            for pattern, word in WORDS:
                text = pattern.sub(word, text)
            if re.fullmatch(r"incompatible operand types .*", text):
                self.conditionals.add(self._spelled_offset(diagnostic.location))
            place = self._place(diagnostic.location)
            notes = []
            for note in diagnostic.children:
                note_place = self._place(note.location)
                said = note.spelling
                for pattern, word in WORDS:
                    said = pattern.sub(word, said)
                if note_place:
                    notes.append(Message(note_place, "note", said))
            if (
                place is None
            ):  # inside the library: the note says which line of the user's asked for it
                asked = [n for n in notes if n.place]
                if severity == "warning":
                    continue
                place = asked[-1].place if asked else None
            errors = errors or severity == "error"
            self.messages.append(Message(place, severity, text))
            self.messages += notes
        return errors

    # ---- the whole

    def reflect(self) -> Reflection:
        """Everything; kernels are empty if there are errors."""
        if self._diagnostics():
            return Reflection([], [], self.messages)
        kernels: list[Kernel] = []
        constants: list[Constant] = []
        roots: list[tuple[Kernel, Any]] = []
        for cursor in self._declarations(self.unit.cursor):
            annotations = self._annotations(cursor)
            if "function_constant" in annotations or "derived" in annotations:
                constants.append(self._constant(cursor, annotations))
                same = [
                    c
                    for c in constants[:-1]
                    if c.index is not None and c.index == constants[-1].index
                ]
                if same:
                    self._say(cursor, f"function constant index {same[0].index} is used by '{same[0].name}' and "
                              f"'{cursor.spelling}'")  # fmt: skip
            elif (
                cursor.kind == self.kind.FUNCTION_DECL
                and "kernel" in annotations
                and cursor.is_definition()
            ):
                name = annotations.get("host_name", cursor.spelling)
                roots.append(
                    (
                        self._kernel(
                            name, "::" + self._qualified(cursor), cursor, cursor, annotations
                        ),
                        cursor,
                    )
                )
            elif cursor.kind == self.kind.VAR_DECL and "host_name" in annotations:
                function = self._instance(cursor)
                if function is None:
                    self._say(cursor, "the explicit instantiation names no kernel template")
                    continue
                own = self._annotations(function)
                callee = "::" + self._qualified(cursor)
                roots.append(
                    (
                        self._kernel(annotations["host_name"], callee, function, cursor, own),
                        function,
                    )
                )
            self._forbidden(cursor)
        names: dict[str, Kernel] = {}
        for kernel, function in roots:
            if kernel.host_name in names:
                self._say_at(kernel.place, f"duplicate kernel name '{kernel.host_name}'")
            names[kernel.host_name] = kernel
            self._reach(kernel, function)
            if kernel.static_bytes > MAX_THREADGROUP_BYTES:
                self._say_at(
                    kernel.place,
                    f"kernel '{kernel.host_name}' uses {kernel.static_bytes} bytes of threadgroup memory; the limit "
                    f"is {MAX_THREADGROUP_BYTES}",
                )
            kernels.append(kernel)
        return Reflection(kernels, constants, self.messages)

    def _say_at(self, place: Place, text: str) -> None:
        self.messages.append(Message(place, "error", text))

    def _declarations(self, parent: Any) -> Iterator[Any]:
        """User declarations of the file and of its namespaces."""
        for cursor in parent.get_children():
            file = cursor.location.file
            if file is None or file.name != MAIN:
                continue
            # Instantiations of templates come as declarations of their own, at the end of the file.
            if cursor.kind == self.kind.FUNCTION_DECL and self._template(cursor) is not None:
                continue
            if cursor.kind in (
                self.kind.NAMESPACE,
                self.kind.LINKAGE_SPEC,
                self.kind.UNEXPOSED_DECL,
            ):
                yield from self._declarations(cursor)
            else:
                yield cursor

    def _template(self, cursor: Any) -> Any:
        """The template that a function is an instantiation of, or None."""
        return self.cindex.conf.lib.clang_getSpecializedCursorTemplate(cursor)

    def _annotations(self, cursor: Any) -> dict[str, str]:
        out = {}
        for child in cursor.get_children():
            if child.kind == self.kind.ANNOTATE_ATTR and child.spelling.startswith("msl."):
                name, _, value = child.spelling[4:].partition("=")
                out[name] = value
        return out

    def _qualified(self, cursor: Any) -> str:
        names = [cursor.spelling]
        parent = cursor.semantic_parent
        while parent is not None and parent.kind != self.kind.TRANSLATION_UNIT:
            if parent.spelling:
                names.append(parent.spelling)
            parent = parent.semantic_parent
        return "::".join(reversed(names))

    def _instance(self, variable: Any) -> Any:
        for cursor in variable.walk_preorder():
            if cursor.kind == self.kind.DECL_REF_EXPR and cursor.referenced is not None:
                if cursor.referenced.kind == self.kind.FUNCTION_DECL:
                    return cursor.referenced
        return None

    # ---- kernels

    def _kernel(
        self, name: str, callee: str, function: Any, where: Any, annotations: dict[str, str]
    ) -> Kernel:
        place = self._place(where.location) or Place("?", 0, 0)
        kernel = Kernel(name, callee, place)
        if function.result_type.get_canonical().kind != self.types.VOID:
            self._say(function, f"kernel '{name}' must have void return type")
        if "max_total_threads_per_threadgroup" in annotations:
            value = self._integer(
                annotations["max_total_threads_per_threadgroup"], self._template_values(function)
            )
            if value is None or value < 1:
                self._say(
                    function,
                    "'max_total_threads_per_threadgroup' needs a positive integer constant",
                )
            else:
                kernel.max_threads = min(value, 1024)
        taken: dict[tuple[str, int], str] = {}
        waiting: list[Argument] = []
        for position, parameter in enumerate(function.get_arguments()):
            own = self._annotations(parameter)
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
            key = (_attribute_of(argument.kind), argument.index)
            if key in taken:
                self._say(
                    parameter,
                    f"{key[0]} index {argument.index} is used by '{taken[key]}' and '{argument.name}'",
                )
            taken[key] = argument.name
        for argument in waiting:  # MSL: the next index that no other parameter has
            space = _attribute_of(argument.kind)
            argument.index = next(i for i in range(1000) if (space, i) not in taken)
            taken[space, argument.index] = argument.name
        for argument in kernel.arguments:
            limit = LIMITS[_attribute_of(argument.kind)]
            if argument.index >= limit:
                self._say(where, f"kernel '{name}': index {argument.index} of '{argument.name}' is above "
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
            self._say(
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
        reference = type_.kind == self.types.LVALUEREFERENCE
        canonical = type_.get_canonical()
        if canonical.kind in (self.types.CONSTANTARRAY, self.types.INCOMPLETEARRAY):
            pointee = canonical.element_type
        elif canonical.kind in (self.types.POINTER, self.types.LVALUEREFERENCE):
            pointee = canonical.get_pointee()
        elif found := re.fullmatch(
            r"(?:const )?metal::(texture\w+|sampler)(?:<(.*)>)?", canonical.spelling
        ):
            return self._texture(position, parameter, own, *found.groups())
        else:
            self._say(
                parameter,
                f"invalid type '{self._name(type_)}' for input '{name}' of a kernel function: it needs an attribute such "
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
            self._say(parameter, f"kernel argument '{name}' must point into the device, constant or threadgroup "
                      "address space")  # fmt: skip
            return None
        for attribute in (LIMITS.keys() - {_attribute_of(kind)}) & own.keys():
            self._say(
                parameter,
                f"attribute '{attribute}' cannot be applied to '{name}' in the {kind.lower()} address space",
            )
        if pointee.kind == self.types.POINTER:
            self._say(parameter, f"kernel argument '{name}' is a pointer to a pointer")
            return None
        index = self._index(parameter, own, kind)
        if index is None:
            return None
        return Argument(
            position, name, kind, index, self._name(pointee), kind != "CONSTANT" and not pointee.is_const_qualified(),
            reference, own.get("enabled_by"),
        )  # fmt: skip

    def _index(self, parameter: Any, own: dict[str, str], kind: str) -> int | None:
        """What the attribute says; -1 without one, None after a message."""
        text = own.get(_attribute_of(kind))
        if text is None:
            return -1
        value = self._integer(text)
        if value is None or value < 0:
            self._say(
                parameter,
                f"the index of '{parameter.spelling}', '{text}', is not an integer constant",
            )
            return None
        return value

    def _texture(
        self, position: int, parameter: Any, own: dict[str, str], class_: str, inside: str | None
    ) -> Argument | None:
        """A texture or sampler, which kernels take by value; `inside`: the template's arguments."""
        kind = "SAMPLER" if class_ == "sampler" else "TEXTURE"
        for attribute in (LIMITS.keys() - {_attribute_of(kind)}) & own.keys():
            self._say(
                parameter,
                f"attribute '{attribute}' cannot be applied to '{parameter.spelling}', a {kind.lower()}",
            )
        index = self._index(parameter, own, kind)
        if index is None:
            return None
        type_name, written = class_, False
        if inside is not None:
            component, _, access = inside.partition(", ")
            access = access or "access::sample"  # the default, which clang leaves out
            for pattern, word in WORDS:
                component, access = pattern.sub(word, component), pattern.sub(word, access)
            type_name = f"{class_}<{component}, {access}>"
            written = access in ("access::write", "access::read_write")
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

    def _name(self, type_: Any) -> str:
        name = type_.spelling
        for pattern, word in WORDS:
            name = pattern.sub(word, name)
        return re.sub(
            r"\b(device|constant|threadgroup|const|volatile|metal::|struct)\s*", "", name
        ).strip()

    def _template_values(self, function: Any) -> dict[str, int]:
        """The integers that an instantiation has for its template's parameters."""
        template = self._template(function)
        if template is None:
            return {}
        kinds = (self.kind.TEMPLATE_TYPE_PARAMETER, self.kind.TEMPLATE_NON_TYPE_PARAMETER)
        parameters = [c for c in template.get_children() if c.kind in kinds]
        return {
            p.spelling: function.get_template_argument_value(i)
            for i, p in enumerate(parameters)
            if p.kind == self.kind.TEMPLATE_NON_TYPE_PARAMETER
            and i < function.get_num_template_arguments()
        }

    def _integer(self, text: str, known: dict[str, int] | None = None) -> int | None:
        """Value of an integer constant expression, of which `known` has names."""
        names = set(
            re.findall(r"[A-Za-z_]\w*", re.sub(r"\b0[xX][0-9a-fA-F]+|\b\d+[uUlL]*", "", text))
        )
        if names and self._values is None:
            self._values = self._named_values()
        expression = re.sub(r"\b(\d\w*?)[uUlL]+\b", r"\1", text).replace("::", "_SCOPE_")
        scope: dict[str, int] = dict(known or {})
        for name in re.findall(r"[A-Za-z_]\w*", expression):
            value = (self._values or {}).get(name.rsplit("_SCOPE_", 1)[-1])
            if value is not None:
                scope.setdefault(name, value)
        if not re.fullmatch(r"[\w\s()+\-*/%<>|&^~]*", expression):
            return None
        try:
            value = eval(
                expression.replace("/", "//"), {"__builtins__": {}}, scope
            )  # only digits, names, operators
        except Exception:
            return None
        return int(value)

    def _named_values(self) -> dict[str, int]:
        values: dict[str, int] = {}

        class Evaluated(ctypes.c_void_p):
            pass

        library = self.cindex.conf.lib
        library.clang_Cursor_Evaluate.argtypes = [self.cindex.Cursor]
        library.clang_Cursor_Evaluate.restype = Evaluated
        library.clang_EvalResult_getAsLongLong.argtypes = [Evaluated]
        library.clang_EvalResult_getAsLongLong.restype = ctypes.c_longlong
        library.clang_EvalResult_dispose.argtypes = [Evaluated]
        for cursor in self._declarations(self.unit.cursor):
            if cursor.kind == self.kind.ENUM_DECL:
                for value in cursor.get_children():
                    if value.kind == self.kind.ENUM_CONSTANT_DECL:
                        values[value.spelling] = value.enum_value
            elif cursor.kind == self.kind.VAR_DECL and "function_constant" not in self._annotations(
                cursor
            ):
                result = library.clang_Cursor_Evaluate(cursor)
                if result:
                    values[cursor.spelling] = library.clang_EvalResult_getAsLongLong(result)
                    library.clang_EvalResult_dispose(result)
        return values

    # ---- function constants

    def _constant(self, cursor: Any, annotations: dict[str, str]) -> Constant:
        name = self._name(cursor.type.get_canonical())
        index = None
        if "function_constant" in annotations:
            index = self._integer(annotations["function_constant"])
            if index is None or not 0 <= index <= 65535:
                self._say(
                    cursor, f"function constant '{cursor.spelling}' needs an index from 0 to 65535"
                )
                index = 0
        if data_type(name) is None and index is not None:
            self._say(cursor, f"function constant '{cursor.spelling}' cannot have type '{name}': scalars and vectors of "
                      "bool, integers, half and float can be")  # fmt: skip
        size = cursor.type.get_canonical().get_size()
        return Constant(cursor.spelling, "::" + self._qualified(cursor), index, name, size)

    # ---- what kernels reach: barriers, threadgroup memory, recursion, address spaces inside templates

    def _reach(self, kernel: Kernel, root: Any) -> None:
        done: set[int] = set()
        path: list[int] = []

        def visit(function: Any, is_kernel: bool) -> None:
            key = function.hash
            if key in path:
                self._say(
                    function,
                    f"recursive call of '{function.spelling}': recursion is not supported in Metal",
                )
                return
            if key in done:
                return
            done.add(key)
            path.append(key)
            if key not in self._functions:
                self._functions[key] = self._scan(function, is_kernel)
            scanned = self._functions[key]
            kernel.fibers |= scanned.fibers
            kernel.static_bytes += scanned.static_bytes
            for callee in scanned.callees:
                visit(callee, False)
            path.pop()

        visit(root, True)

    def _scan(self, function: Any, is_kernel: bool) -> _Function:
        out = _Function()
        seen: set[int] = set()
        kind = self.kind
        stack = [(child, False) for child in function.get_children()]
        while stack:
            cursor, is_object = stack.pop()
            # What lies left of . and -> may be anywhere: member functions accept every address space.
            stack.extend(
                (child, cursor.kind == kind.MEMBER_REF_EXPR) for child in cursor.get_children()
            )
            if cursor.kind in (kind.CALL_EXPR, kind.DECL_REF_EXPR, kind.MEMBER_REF_EXPR):
                target = cursor.referenced
                if target is None:
                    continue
                if target.kind in (kind.FUNCTION_DECL, kind.CXX_METHOD, kind.CONSTRUCTOR, kind.CONVERSION_FUNCTION,
                                   kind.DESTRUCTOR):  # fmt: skip
                    user = target.location.file is not None and target.location.file.name == MAIN
                    if not user:
                        out.fibers = out.fibers or _synchronises(target)
                    else:
                        target = target.get_definition() or target
                        if target.hash not in seen:
                            seen.add(target.hash)
                            out.callees.append(target)
                if cursor.kind == kind.CALL_EXPR and target is not None:
                    self._check_call(cursor, target)
            elif cursor.kind == kind.VAR_DECL:
                if "threadgroup" in self._annotations(cursor):
                    out.static_bytes += (max(cursor.type.get_size(), 0) + 15) // 16 * 16
                    if not is_kernel:
                        self._say(cursor, "a variable in the threadgroup address space must be declared in a kernel "
                                  "function")  # fmt: skip
                else:
                    self._check_binding(cursor, cursor.type, list(cursor.get_children())[-1:])
            elif cursor.kind == kind.UNEXPOSED_EXPR and not is_object:
                self._check_pointer(cursor)
        return out

    def _space(self, type_: Any) -> int:
        return type_.get_address_space()

    def _check_pointer(self, cursor: Any) -> None:
        """An implicit conversion from device T* to T*, which here is thread T*."""
        type_ = cursor.type.get_canonical()
        if type_.kind != self.types.POINTER or self._space(type_.get_pointee()):
            return
        for child in cursor.get_children():
            inner = child.type.get_canonical()
            if inner.kind == self.types.POINTER and self._space(inner.get_pointee()):
                self._say(cursor, f"cannot convert '{self._spell(inner)}' to '{self._spell(type_)}': the address spaces "
                          "differ")  # fmt: skip

    def _check_call(self, call: Any, target: Any) -> None:
        user = target.location.file is not None and target.location.file.name == MAIN
        if not user or target.kind == self.kind.CONSTRUCTOR:
            return
        for parameter, argument in zip(target.get_arguments(), call.get_arguments(), strict=False):
            if argument is not None:
                self._check_binding(argument, parameter.type, [argument])

    def _check_binding(self, where: Any, type_: Any, values: list[Any]) -> None:
        """thread T& must not be bound to an object elsewhere. const T& may: to a copy."""
        if type_.kind != self.types.LVALUEREFERENCE:
            return
        pointee = type_.get_pointee()
        if pointee.is_const_qualified() or self._space(pointee):
            return
        for value in values:
            while True:
                if value.kind.is_expression() and self._space(value.type):
                    self._say(where, f"cannot bind 'thread {self._name(pointee)} &' to an object of type "
                              f"'{self._spell(value.type)}': the address spaces differ")  # fmt: skip
                    break
                inner = list(value.get_children())
                if value.kind != self.kind.UNEXPOSED_EXPR or len(inner) != 1:
                    break
                value = inner[0]

    def _spell(self, type_: Any) -> str:
        """A type in MSL's words, `thread` included."""
        name = type_.spelling
        for pattern, word in WORDS:
            name = pattern.sub(word, name)
        if type_.kind == self.types.POINTER and not self._space(type_.get_pointee()):
            name = "thread " + name
        return name

    # ---- what C++ allows and MSL does not, in all code that the user wrote

    def _forbidden(self, top: Any) -> None:
        kind = self.kind
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
            elif k in methods:
                if k != kind.FUNCTION_TEMPLATE or cursor.result_type.kind != self.types.INVALID:
                    self._check_type(cursor, cursor.result_type)
                    self._check_space(cursor, cursor.result_type, until=cursor.location.offset)
                if k == kind.CXX_METHOD and cursor.is_virtual_method():
                    self._say(cursor, "virtual functions are not supported in Metal")
                if k == kind.FUNCTION_TEMPLATE and "kernel" not in self._annotations(cursor):
                    continue
            elif k in (
                kind.CSTYLE_CAST_EXPR,
                kind.CXX_REINTERPRET_CAST_EXPR,
                kind.CXX_STATIC_CAST_EXPR,
            ):
                self._check_type(cursor, cursor.type)
                self._check_space(cursor, cursor.type, cast=True)
            elif k in (kind.GOTO_STMT, kind.INDIRECT_GOTO_STMT):
                self._say(cursor, "'goto' is not supported in Metal")
            elif k in (kind.CXX_NEW_EXPR, kind.CXX_DELETE_EXPR):
                self._say(cursor, "'new' and 'delete' are not supported in Metal")
            elif k in (kind.CXX_THROW_EXPR, kind.CXX_TRY_STMT):
                self._say(cursor, "exceptions ('throw', 'try') are not supported in Metal")
            elif k in (kind.ASM_STMT, kind.MS_ASM_STMT):
                self._say(cursor, "inline assembly is not supported in Metal")
            elif k == kind.LAMBDA_EXPR and self.std < (3, 2):
                self._say(cursor, "lambda expressions need Metal 3.2 (-std=metal3.2)")

    def _check_type(self, cursor: Any, type_: Any) -> None:
        canonical = type_.get_canonical()
        while canonical.kind in (self.types.POINTER, self.types.LVALUEREFERENCE):
            canonical = canonical.get_pointee()
        while canonical.kind == self.types.CONSTANTARRAY:
            canonical = canonical.element_type
        if (
            canonical.kind in (self.types.DOUBLE, self.types.LONGDOUBLE)
            or "<double" in canonical.spelling
        ):
            self._say(cursor, "'double' is not supported in Metal; use float")
        elif canonical.kind in (self.types.INT128, self.types.UINT128):
            self._say(cursor, "128-bit integers are not supported in Metal")

    def _check_variable(self, cursor: Any) -> None:
        text = self._text(cursor.extent.start.offset, cursor.location.offset)
        if re.search(r"\bthread_local\b|\b__thread\b", text):
            self._say(cursor, "'thread_local' is not supported in Metal")
        canonical = cursor.type.get_canonical()
        if (
            canonical.kind == self.types.POINTER
            and canonical.get_pointee().kind == self.types.FUNCTIONPROTO
        ):
            if "host_name" not in self._annotations(cursor):
                self._say(cursor, "pointers to functions are not supported in Metal")
        parent = cursor.semantic_parent
        outside = parent is not None and parent.kind in (
            self.kind.TRANSLATION_UNIT,
            self.kind.NAMESPACE,
        )
        if outside and not self._space(cursor.type) and not self._annotations(cursor):
            element = canonical
            while element.kind == self.types.CONSTANTARRAY:
                element = element.element_type
            if not self._space(element) and "constexpr" not in text:
                self._say(
                    cursor,
                    f"program scope variable '{cursor.spelling}' must reside in the constant address space",
                )

    def _text(self, start: int, end: int) -> str:
        return self.source.text[start:end] if 0 <= start < end < start + 2000 else ""

    def _check_space(
        self, cursor: Any, type_: Any, until: int | None = None, cast: bool = False
    ) -> None:
        """A pointer or reference whose declaration names no address space."""
        pointers = (self.types.POINTER, self.types.LVALUEREFERENCE, self.types.RVALUEREFERENCE)
        if type_.kind not in pointers:
            return
        pointee = type_.get_pointee()
        if self._space(pointee) or pointee.kind in (
            self.types.FUNCTIONPROTO,
            self.types.MEMBERPOINTER,
        ):
            return
        start = cursor.extent.start.offset
        end = until if until is not None else cursor.location.offset
        if cast:
            close = ">" if cursor.kind != self.kind.CSTYLE_CAST_EXPR else ")"
            end = self.source.text.find(close, start, start + 300) + 1
        elif end <= start:
            end = cursor.extent.end.offset
        # `thread` expands to nothing, so it may lie before the start.
        lead = (
            None
            if cast
            else re.search(r"[^(,;{}<>]*$", self.source.text[max(0, start - 200) : start])
        )
        text = self._text(start - len(lead.group() if lead else ""), end)
        if not re.search(r"[*&]", text) or "(" in text.strip("( ") or re.search(r"\bauto\b", text):
            return
        if self._space_words.search(text):
            return
        what = "pointer" if type_.kind == self.types.POINTER else "reference"
        self._say(cursor, f"{what} type must have explicit address space qualifier")


def _attribute_of(kind: str) -> str:
    """Which attribute numbers arguments of this kind."""
    return "buffer" if kind in ("DEVICE", "CONSTANT") else kind.lower()


def _synchronises(function: Any) -> bool:
    name = function.spelling
    if (
        name.startswith(("simd_", "quad_", "simdgroup_", "__metal_simd_"))
        or name == "threadgroup_barrier"
    ):
        return True
    return "simdgroup_matrix" in function.type.spelling


_SCALAR_TYPES = {"float": 3, "half": 16, "int": 29, "uint": 33, "unsigned int": 33, "short": 37, "ushort": 41,
                 "unsigned short": 41, "char": 45, "uchar": 49, "unsigned char": 49, "bool": 53, "long": 81,
                 "ulong": 85, "unsigned long": 85, "bfloat": 121}  # fmt: skip


def data_type(name: str) -> int | None:
    """The MTLDataType of a scalar or vector type, None for others."""
    match = re.fullmatch(r"([a-z ]+?)([234]?)", name)
    if not match or match.group(1) not in _SCALAR_TYPES:
        return None
    return _SCALAR_TYPES[match.group(1)] + (int(match.group(2)) - 1 if match.group(2) else 0)
