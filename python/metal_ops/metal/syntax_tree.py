"""The rewritten shader as libclang's syntax tree: its places and types in the user's words, and clang's messages."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

from .libclang import cindex
from .messages import Message, Place, in_metal
from .places import elements_around
from .source import Source
from .spellings import conditionals_around

MAIN = "shader.metal"
# Clang's messages where it needs a function of the library: spellings.helps.
HELPS = {
    re.compile("incompatible operand types "): "copied",
    re.compile("conditional expression is ambiguous; "): "beside_bfloat",
    re.compile(r"call to constructor of '[a-z]+[234]'"): "braced",
    re.compile(r"no matching constructor for initialization of '[a-z]+[234]'"): "braced",
}
# And where a pointer or a reference may lack its address space: places.elements.
PLACES = ("no matching ", "cannot initialize ", "assigning to ", "binding reference ")


class SyntaxTree:
    """One translation unit."""

    def __init__(self, source: Source, flags: list[str]):
        self.bindings = cindex()
        self.kind = self.bindings.CursorKind
        self.types = self.bindings.TypeKind
        self.source = source
        self.messages: list[Message] = list(source.messages)
        self.index = self.bindings.Index.create(excludeDecls=True)
        self.unit = self.index.parse(MAIN, args=flags, unsaved_files=[(MAIN, source.text)])
        self._said: set[tuple[Place | None, str]] = set()
        kinds = self.kind
        self._nothing = self.ids(
            kinds.INVALID_FILE, kinds.NO_DECL_FOUND, kinds.NOT_IMPLEMENTED, kinds.INVALID_CODE
        )
        self._pointer = self.types.POINTER.value
        self._classes = self.ids(kinds.STRUCT_DECL, kinds.CLASS_DECL, kinds.UNION_DECL)
        self._library = self._prototypes()
        self._visit = self._visitor()
        # Where `Source` has to help, and how: spellings.helps.
        self.helps: set[tuple[int, str]] = set()

    # ---- nodes

    def _prototypes(self) -> Any:
        """libclang's functions that are called for every node, as they are.

        Most of the time of a large file went into the bindings' overhead: a callback and a null cursor for every child,
        a comparison with that for every reference.
        """
        cursor, type_ = self.bindings.Cursor, self.bindings.Type
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int, cursor, cursor, ctypes.py_object)
        library = ctypes.CDLL(self.bindings.conf.lib._name)  # for prototypes of its own
        library.clang_visitChildren.argtypes = [cursor, self._callback, ctypes.py_object]
        library.clang_getCursorReferenced.argtypes = [cursor]
        library.clang_getCursorReferenced.restype = cursor
        library.clang_getCursorType.argtypes = [cursor]
        library.clang_getCursorType.restype = type_
        library.clang_getCanonicalType.argtypes = [type_]
        library.clang_getCanonicalType.restype = type_
        library.clang_getPointeeType.argtypes = [type_]
        library.clang_getPointeeType.restype = type_
        library.clang_getAddressSpace.argtypes = [type_]
        return library

    def _visitor(self) -> Callable[[Any, list[Any]], int]:
        """libclang's visit of a node's children, which appends them to a list."""
        library, unit = self._library, self.unit

        def take(child: Any, _: Any, into: list[Any]) -> int:
            child._tu = unit  # as the bindings do: each node keeps its file
            into.append(child)
            return 1  # CXChildVisit_Continue

        taken = self._callback(take)
        # The result of a function of ctypes has no type for mypy; int() around it would be called for every node.
        return lambda parent, into: library.clang_visitChildren(parent, taken, into)  # type: ignore[no-any-return]

    def children(self, cursor: Any) -> list[Any]:
        """A node's children."""
        found: list[Any] = []
        self._visit(cursor, found)
        return found

    def below(self, top: Any, kinds: frozenset[int]) -> list[tuple[Any, int]]:
        """The nodes of some kinds that are anywhere in a node, in the order of the text, and the kinds of their parents.

        Classes in it are left out: their called functions are functions of their own. In an assignment that clang
        defines, `T& operator=(T&&)`, libclang finds all of class T.
        """
        unit, classes = self.unit, self._classes

        def take(child: Any, parent: Any, into: list[tuple[Any, int]]) -> int:
            if child._kind_id in classes:
                return 1  # CXChildVisit_Continue
            if child._kind_id in kinds:
                child._tu = unit
                into.append((child, parent._kind_id))
            return 2  # CXChildVisit_Recurse

        found: list[tuple[Any, int]] = []
        self._library.clang_visitChildren(top, self._callback(take), found)
        return found

    def referenced(self, cursor: Any) -> Any:
        """The node that a node refers to, None if there is none."""
        target = self._library.clang_getCursorReferenced(cursor)
        if target._kind_id in self._nothing:
            return None
        target._tu = self.unit
        return target

    def pointee_space(self, cursor: Any) -> int:
        """The number of the address space that a node points to, 0 for `thread`; -1 if it is no pointer."""
        library = self._library
        type_ = library.clang_getCanonicalType(library.clang_getCursorType(cursor))
        if type_._kind_id != self._pointer:
            return -1
        return int(library.clang_getAddressSpace(library.clang_getPointeeType(type_)))

    def ids(self, *kinds: Any) -> frozenset[int]:
        """Kinds as the numbers that nodes have in `_kind_id`, which are quicker to ask for than `kind`."""
        return frozenset(kind.value for kind in kinds)

    # ---- messages

    def place(self, location: Any) -> Place | None:
        """The user's place of a location, None where it is the library's."""
        if location.file is None or location.file.name != MAIN:
            return None
        return self.source.place(location.line, location.column)

    def spelled_offset(self, location: Any) -> int:
        """Where the text lies that a message is about: inside a macro's body, not where the macro is used."""
        library = self.bindings.conf.lib
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

    def say(self, where: Any, text: str, severity: str = "error") -> None:
        """A message about a cursor, once."""
        place = self.place(where.location)
        if (place, text) not in self._said:
            self._said.add((place, text))
            self.messages.append(Message(place, severity, text))

    def say_at(self, place: Place, text: str) -> None:
        """An error at a place."""
        self.messages.append(Message(place, "error", text))

    def diagnostics(self) -> bool:
        """Takes clang's messages over; True if there are errors."""
        names = {1: "note", 2: "warning", 3: "error", 4: "error"}
        errors = False
        for diagnostic in self.unit.diagnostics:
            severity = names.get(diagnostic.severity)
            if severity is None:
                continue
            text = in_metal(diagnostic.spelling)
            if text.startswith("too many errors"):
                continue
            place = self.place(diagnostic.location)
            if severity == "error" and place:
                spelled = self.spelled_offset(diagnostic.location)
                self._help(text, spelled)
                if text.startswith(PLACES):  # in a macro's body, or in a macro's argument
                    location = diagnostic.location
                    used = self.source.flat_offset(location.line, location.column)
                    self.helps |= elements_around(self.source, spelled)
                    self.helps |= elements_around(self.source, used)
            notes = []
            for note in diagnostic.children:
                note_place = self.place(note.location)
                if note_place:
                    notes.append(Message(note_place, "note", in_metal(note.spelling)))
            if place is None:  # inside the library: the note says which line of the user's asked
                asked = [n for n in notes if n.place]
                if severity == "warning":
                    continue
                place = asked[-1].place if asked else None
            errors = errors or severity == "error"
            self.messages.append(Message(place, severity, text))
            self.messages += notes
        return errors

    def _help(self, text: str, offset: int) -> None:
        """Notes the possible cause of an error."""
        for said, how in HELPS.items():
            if said.match(text):
                self.helps.add((offset, how))
                return
        # ?: of two bfloats in different address spaces makes a float, which is no bfloat without a cast.
        if text.startswith(("no viable ", "no matching ")):
            self.helps |= {(at, "copied") for at in conditionals_around(self.source, offset)}

    def missing_name(self, diagnostic: Any) -> str:
        """The name that is not declared, of which an error speaks; "" if it is about something else."""
        quoted = re.match(
            r"(?:unknown type name|no template named|use of undeclared identifier|no type named|no member named) '(\w+)'",
            diagnostic.spelling,
        )
        if quoted:
            return quoted[1]
        if not diagnostic.spelling.startswith("expected namespace name"):
            return ""
        word = re.match(r"\w+", self.source.text[diagnostic.location.offset :])
        return word[0] if word else ""

    # ---- declarations

    def declarations(self, parent: Any) -> Iterator[Any]:
        """User declarations of the file and of its namespaces."""
        for cursor in self.children(parent):
            if not self.is_users(cursor):
                continue
            # Instantiations of templates come as declarations of their own, at the end of the file.
            if cursor.kind == self.kind.FUNCTION_DECL and self.template(cursor) is not None:
                continue
            if cursor.kind in (
                self.kind.NAMESPACE,
                self.kind.LINKAGE_SPEC,
                self.kind.UNEXPOSED_DECL,
            ):
                yield from self.declarations(cursor)
            else:
                yield cursor

    def is_users(self, cursor: Any) -> bool:
        """Whether the user wrote it, not the library."""
        file = cursor.location.file
        return file is not None and file.name == MAIN

    def template(self, cursor: Any) -> Any:
        """The template that a function is an instantiation of, or None."""
        return self.bindings.conf.lib.clang_getSpecializedCursorTemplate(cursor)

    def annotations(self, cursor: Any) -> dict[str, str]:
        """The rewriter's notes at a declaration: attribute -> its arguments' text."""
        out = {}
        for child in self.children(cursor):
            if child.kind == self.kind.ANNOTATE_ATTR and child.spelling.startswith("msl."):
                name, _, value = child.spelling[4:].partition("=")
                out[name] = value
        return out

    def qualified(self, cursor: Any) -> str:
        """The name with its namespaces and classes."""
        names = [cursor.spelling]
        parent = cursor.semantic_parent
        while parent is not None and parent.kind != self.kind.TRANSLATION_UNIT:
            if parent.spelling:
                names.append(parent.spelling)
            parent = parent.semantic_parent
        return "::".join(reversed(names))

    # ---- types and text

    def space(self, type_: Any) -> int:
        """The number of a type's address space, 0 for `thread`."""
        return type_.get_address_space()

    def name(self, type_: Any) -> str:
        """A type in MSL's words, without qualifiers."""
        qualifiers = r"\b(device|constant|threadgroup|const|volatile|metal::|struct)\s*"
        return re.sub(qualifiers, "", in_metal(type_.spelling)).strip()

    def spell(self, type_: Any) -> str:
        """A type in MSL's words, `thread` included."""
        name = in_metal(type_.spelling)
        if type_.kind == self.types.POINTER and not self.space(type_.get_pointee()):
            name = "thread " + name
        return name

    def words(self, start: int, end: int) -> str:
        """The text there; "" where that is no short piece of text."""
        return self.source.text[start:end] if 0 <= start < end < start + 2000 else ""
