"""Writes subscripts of Objective-C objects, `array[0]` and `dictionary[@"key"] = value`, as the messages that they are.

clang compiles them for newer Objective-C runtimes only, not for GCC's. It still parses them for one of those: from that
syntax tree come the places, and the text between them stays as it is, on its lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Said of array[0] and dictionary[@"key"].
_SUBSCRIPT = re.compile(
    r"array subscript is not an integer|(?:lvalue of|receiver|expression of|from incompatible|to incompatible) .*'NS\w*"
    r"(?:Array|Dictionary)|'NS\w*(?:Array|Dictionary)(?:<.*>)?' (?:invalid|is a pointer)"
)

# What the Objective-C runtime of Linux lacks, where the compiler's words do not say so.
_HINTS = (
    (
        r"array subscript is not an integer|(?:lvalue of|receiver) type 'NS\w*(?:Array|Dictionary)'",
        "If that is an NSArray or NSDictionary in a macro or a header: GCC's Objective-C runtime has no subscripts, "
        "which are replaced in sources only; call objectAtIndex: or objectForKey: there.",
    ),
    (
        "-Wobjc-property-implementation",
        "GCC's Objective-C runtime does not synthesize properties by itself; declare the variable in the @interface "
        "and add @synthesize.",
    ),
    (
        "inconsistent number of instance variables|instance variables may not be placed in|"
        "conflicting instance variable names",
        "GCC's Objective-C runtime wants instance variables in the @interface, not in the @implementation or in a "
        "class extension; move them there.",
    ),
)

# Of clang's TypeKind: BOOL to INT128, by name.
_INTEGERS = frozenset(
    "BOOL CHAR_U UCHAR USHORT UINT ULONG ULONGLONG CHAR_S SCHAR SHORT INT LONG LONGLONG ENUM".split()
)


def amiss(said: str) -> bool:
    """Whether the compiler's words are about subscripts of objects."""
    return bool(_SUBSCRIPT.search(said))


def hints(said: str) -> list[str]:
    """What to do about what the runtime lacks, one sentence each."""
    return [hint for pattern, hint in _HINTS if re.search(pattern, said)]


def overlay(source: Path, text: bytes, scratch: Path) -> list[str]:
    """Options by which the compiler reads `text` where it is told to read `source`, which all messages name.

    Args:
      source: the file.
      text: what `rewritten` returned.
      scratch: an empty folder, which has to be there while the compiler runs.
    """
    copy, names = scratch / f"text{source.suffix}", scratch / "overlay.json"
    copy.write_bytes(text)
    entry = {"name": str(source.absolute()), "type": "file", "external-contents": str(copy)}
    names.write_text(json.dumps({"version": 0, "use-external-names": False, "roots": [entry]}))
    return ["-ivfsoverlay", str(names)]


def rewritten(source: Path, options: Sequence[str]) -> bytes | None:
    """The text of an Objective-C++ source without subscripts of objects.

    Args:
      source: the file, in Objective-C or Objective-C++.
      options: the compiler's, for this file.

    Returns:
      The text, on the same lines; None where nothing is to be done, or the parser cannot say.
    """
    from metal_ops.metal import libclang  # where Metal is Apple's, it is not installed

    cindex = libclang.cindex()
    arguments = [
        "-fobjc-runtime=gnustep-1.7" if option == "-fobjc-runtime=gcc" else option
        for option in options
    ]
    unit = cindex.Index.create(excludeDecls=True).parse(str(source), args=arguments)
    text = source.read_bytes()
    variable = b"auto" if "objective-c++" in options else b"__auto_type"
    edits: list[tuple[int, int, bytes]] = []
    stack = [c for c in unit.cursor.get_children() if _in(c, source)]
    while stack:
        cursor = stack.pop()
        children = list(cursor.get_children())
        stack += children
        if cursor.kind == cindex.CursorKind.BINARY_OPERATOR and len(children) == 2:
            if (
                _is_subscript(cindex, children[0], text)
                and _between(children[0], children[1], text).strip() == b"="
            ):
                edits += _store(cursor, children[0], children[1], variable)
                stack.remove(children[0])
                stack += list(children[0].get_children())
                continue
        if _is_subscript(cindex, cursor, text):
            edits += _load(cursor)
    if not edits:
        return None
    out, at = [b""], 0
    # What encloses was found first: where several end at one place, it comes last.
    ordered = sorted(
        enumerate(edits), key=lambda e: (e[1][:2], -e[0] if e[1][2].startswith(b")") else e[0])
    )
    for _, (start, end, new) in ordered:
        out += [text[at:start], new]
        at = end
    return b"".join([*out, text[at:]])


def _in(cursor: Any, source: Path) -> bool:
    return cursor.location.file is not None and cursor.location.file.name == str(source)


def _range(cursor: Any) -> tuple[int, int]:
    return cursor.extent.start.offset, cursor.extent.end.offset


def _between(left: Any, right: Any, text: bytes) -> bytes:
    return text[_range(left)[1] : _range(right)[0]]


def _is_subscript(cindex: Any, cursor: Any, text: bytes) -> bool:
    """libclang has no kind for these: two operands, the first an object, and a bracket at the end."""
    if cursor.kind != cindex.CursorKind.UNEXPOSED_EXPR:
        return False
    children = list(cursor.get_children())
    if len(children) != 2 or cursor.type.kind != cindex.TypeKind.UNEXPOSED:
        return False
    objects = (cindex.TypeKind.OBJCOBJECTPOINTER, cindex.TypeKind.OBJCID)
    start, end = _range(cursor)
    return (
        (
            children[0].type.get_canonical().kind in objects
            or _is_subscript(cindex, _inner(cindex, children[0]), text)
        )
        and text[end - 1 : end] == b"]"
        and b"[" in _between(children[0], children[1], text)
        and start == _range(children[0])[0]
    )


def _inner(cindex: Any, cursor: Any) -> Any:
    """What conversions, which libclang has no kind for either, are of."""
    while cursor.kind == cindex.CursorKind.UNEXPOSED_EXPR:
        children = list(cursor.get_children())
        if len(children) != 1:
            break
        cursor = children[0]
    return cursor


def _by_index(cursor: Any) -> bool:
    return cursor.type.get_canonical().kind.name in _INTEGERS


def _load(cursor: Any) -> list[tuple[int, int, bytes]]:
    """object[key] -> [object objectAtIndexedSubscript:(key)]"""
    container, key = cursor.get_children()
    name = b"objectAtIndexedSubscript" if _by_index(key) else b"objectForKeyedSubscript"
    (start, end), after, before = _range(cursor), _range(container)[1], _range(key)[0]
    return [
        (start, start, b"["),
        (after, before, b" " + name + b":("),
        (end - 1, end, b")]"),
    ]


def _store(
    assignment: Any, target: Any, value: Any, variable: bytes
) -> list[tuple[int, int, bytes]]:
    """object[key] = value -> [object setObject:(value) atIndexedSubscript:(key)], the operands in their order."""
    container, key = target.get_children()
    keyed = b"atIndexedSubscript" if _by_index(key) else b"forKeyedSubscript"
    start, end = _range(assignment)
    # The key comes before the value in the text: a statement expression gives each its place.
    return [
        (start, start, b"({ " + variable + b" _metal_ops_container = ("),
        (_range(container)[1], _range(key)[0], b"); " + variable + b" _metal_ops_key = ("),
        (
            _range(target)[1] - 1,
            _range(value)[0],
            b"); id _metal_ops_value = (",
        ),
        (
            end,
            end,
            b"); [_metal_ops_container setObject:_metal_ops_value "
            + keyed
            + b":_metal_ops_key]; [_metal_ops_value self]; })",
        ),
    ]
