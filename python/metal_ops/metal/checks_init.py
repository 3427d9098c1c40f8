"""HOSTMETAL_CHECK=init: LLVM's MemorySanitizer, in the form that calls functions for its shadow, beside the calls of
checks.py. hostmetal/msl/lib/checks_init.h has these functions.

A variable without an initialiser begins as the result of a function that the optimiser does not know, in the place of
an undefined value, of which it would make something. Behind it, that is a load from _msl_never_written, whose shadow says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

FLAGS = ("-ftrivial-auto-var-init=pattern", "-D_MSL_CHECKS_INIT=1")
# -O0: the accesses stay as the optimiser has left them.
BACK = ("-O0", "-fsanitize=kernel-memory", "-S", "-emit-llvm")
_MARK = "_msl_never_written"
_BYTES = 4096  # of that variable
_VARIABLE = f"@{_MARK} = external hidden global [{_BYTES} x i8], align 16\n"

_NODE = re.compile(r'^!(\d+) = !\{!"auto-init"\}$', re.M)
_STORE = re.compile(
    r"^( *)store (<\d+ x \w+>|[\w.]+) (inttoptr \(.*?\)|<.*?>|splat \(.*?\)|\S+), ptr (\S+), (align \d+)(.*), "
    r"!annotation !(\d+)$",
    re.M,
)
_FILL = re.compile(
    r"^( *)call void @llvm\.memset\.p0\.i64\(ptr (align \d+ )?(\S+), i8 \S+, i64 (\d+), i1 false\)(.*), !annotation !(\d+)$",
    re.M,
)  # fmt: skip
_CALL = re.compile(
    rf"^( *%\S+ = )(?:tail )?call (.*?) @{_MARK}\.\d+\(i32 \S+\)(?: #\d+)?(.*)$", re.M
)
_COPY = "declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg)"
_ATTRIBUTES = re.compile(r"^(attributes #\d+ = \{)", re.M)
_WARNING = re.compile(r"^( *)call void @__msan_warning\(i32 (\S+)\)(.*)$")
_ALLOCA = re.compile(r"^( *)call void @__msan_poison_alloca\(ptr (\S+), i64 (\S+), ptr \S+\)(.*)$")
_NEVER = re.compile(
    r"^( *%\S+ = )call \{ ptr, ptr \} @__msan_metadata_ptr_for_load_(?:\d+|n)\(ptr @_msl_never_written.*?\)(.*)$"
)
# The library writes through the last argument.
_OUT = re.compile(
    r"^ *(?:%\S+ = )?(?:tail )?call .*@(?:_msl_texture_(?:read|sample|gather)\w*|(?:frexp|modf)f?)\(.*\bptr [^,]*?(%[\w.]+)\)"
)
_BRANCH = re.compile(r"^ *(?:br i1|switch) ")


def wanted() -> bool:
    """Whether this process is asked for it: HOSTMETAL_CHECK has the word, or nothing is asked for and all checks may be."""
    words = os.environ.get("HOSTMETAL_CHECK")
    return "init" in words.split(",") if words else not os.environ.get("HOSTMETAL_SCHEDULE")


def in_text(text: str) -> bool:
    """Whether a module was compiled with FLAGS."""
    return _NODE.search(text) is not None or "@_msl_init_wanted" in text


def never_written(text: str) -> str:
    """The front end's IR, whose variables without an initialiser begin as values that were never written."""
    found = _NODE.search(text)
    if not found:
        return text
    count = 0
    functions: dict[str, str] = {}

    def load(match: re.Match[str]) -> str:
        nonlocal count
        indent, kind, _, pointer, align, rest, node = match.groups()
        if node != found[1]:
            return match[0]
        count += 1
        name = f"%.never{count}"
        function = functions.setdefault(kind, f"@{_MARK}.{len(functions)}")
        return (
            f"{indent}{name} = call {kind} {function}(i32 {count}){rest}\n"
            f"{indent}store {kind} {name}, ptr {pointer}, {align}{rest}"
        )

    def copy(match: re.Match[str]) -> str:
        indent, align, pointer, size, rest, node = match.groups()
        if node != found[1]:
            return match[0]
        if int(size) > _BYTES:
            return ""  # it stays in memory, whose shadow says it
        return f"{indent}call void @llvm.memcpy.p0.p0.i64(ptr {align or ''}{pointer}, ptr @{_MARK}, i64 {size}, i1 false){rest}"

    text = _FILL.sub(copy, _STORE.sub(load, text))
    if "@llvm.memcpy.p0.p0.i64(ptr noalias" not in text:
        text += _COPY + "\n"
    for kind, function in functions.items():
        text += f"declare {kind} {function}(i32) nounwind willreturn memory(none)\n"
    return text + _VARIABLE


def marked(text: str) -> str:
    """A module whose functions all have a shadow."""
    text = _CALL.sub(rf"\1load \2, ptr @{_MARK}, align 1\3", text)
    if not re.search(rf"(?m)^@{_MARK} = ", text):
        text += _VARIABLE
    return _ATTRIBUTES.sub(r"\1 sanitize_memory", text)


def instrument(text: str, place: Callable[[str], str]) -> str:
    """The result of the pass, with places of the source in its calls."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if "@__msan_" not in line:
            if found := _OUT.match(line):
                written = 16 if "_msl_texture_" in line else 4
                lines[number] += f"\n  call void @_msl_init_written(ptr {found[1]}, i64 {written})"
            continue
        if found := _WARNING.match(line):
            indent, origin, rest = found.groups()
            # A label and the use follow.
            ahead = (each for each in lines[number + 1 : number + 12] if each.startswith("  "))
            next(ahead, None)
            branch = bool(_BRANCH.match(next(ahead, "")))
            lines[number] = (
                f"{indent}call void @_msl_init_used(i32 {origin}, i32 {int(branch)}, ptr {place(line)})"
            )
        elif found := _ALLOCA.match(line):
            indent, pointer, size, rest = found.groups()
            lines[number] = (
                f"{indent}call void @_msl_init_variable(ptr {pointer}, i64 {size}, ptr {place(line)})"
            )
        elif found := _NEVER.match(line):
            head, rest = found.groups()
            lines[number] = f"{head}call {{ ptr, ptr }} @_msl_init_never(ptr {place(line)})"
    declarations = (
        "declare void @_msl_init_used(i32, i32, ptr)\n"
        "declare void @_msl_init_variable(ptr, i64, ptr)\n"
        "declare { ptr, ptr } @_msl_init_never(ptr)\n"
        "declare void @_msl_init_written(ptr, i64)\n"
    )
    return "\n".join(lines) + declarations
