"""The form of kernels that HOSTMETAL_CHECK and HOSTMETAL_SCHEDULE run: by fibers, with a call before each access of memory
and at each barrier that says where in the source it is (hostmetal/msl/lib/checks.h)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import checks_init, coverage, ir, toolchain

# Flags of the front end. Locations alone: variables would double the time.
_FLAGS = ("-D_MSL_CHECKS=1", "-gline-tables-only")
MARK = "msl kernels with checks"
_KINDS = ("read", "write", "update", "atomic read", "atomic write")

_LOCATION = re.compile(
    r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)(?:, column: (\d+))?, scope: !(\d+)(?:, inlinedAt: !(\d+))?",
    re.M,
)
_SCOPE = re.compile(
    r"^!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlock|LexicalBlockFile)\((.*)\)$", re.M
)
_FILE = re.compile(
    r'^!(\d+) = !DIFile\(filename: "((?:[^"\\]|\\.)*)", directory: "((?:[^"\\]|\\.)*)"', re.M
)
_DEBUG = re.compile(r", !dbg !(\d+)")
_MEETING = re.compile(r"(call void @_msl_checked_(?:simd_)?barrier\(.*, ptr )(?:noundef )?null\)")
_ATTRIBUTES = re.compile(r"^(attributes #\d+ = \{)", re.M)
_LOOP = re.compile(r"^(!(\d+) = distinct !\{!\2\b.*)\}$", re.M)
_UNUSED = 9999999  # number of a node of metadata
# In each object, also of functions that access nothing: linking.py looks for it.
_MARK = "".join(
    f'module asm "{line}"\n'
    for line in (
        ".pushsection .rodata.msl_checks,\\22a\\22",
        f".asciz \\22{MARK}\\22",
        ".popsection",
    )
)
_OURS = ("<kernel wrappers>", "<built-in>", "<command line>")
_SCALAR = {
    "half": 2,
    "bfloat": 2,
    "float": 4,
    "double": 8,
    "ptr": 8,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
}


def flags() -> tuple[str, ...]:
    """Flags of the front end, for the checks that this process is asked for."""
    return _FLAGS + checks_init.FLAGS * checks_init.wanted()


class _Hooks(ir.Hooks):
    """Calls of checks.h, each with a place of the source."""

    declarations = "declare ptr @_msl_access(ptr, i64, i32, ptr)\ndeclare ptr @_msl_tag_variable(ptr, i64, ptr, i32)\n"

    def __init__(self, text: str, prefix: str = ""):
        self._prefix = prefix
        self._locations = {m[1]: m.groups()[1:] for m in _LOCATION.finditer(text)}
        self._files = {m[1]: (m[2], m[3]) for m in _FILE.finditer(text)}
        self._scopes = {m[1]: m[2] for m in _SCOPE.finditer(text)}
        self._library = str(toolchain.library_root())
        self._here = (os.getcwd(), os.environ.get("PWD"))
        self._names: dict[tuple[object, ...], str] = {}
        self._globals: list[str] = []

    def access(self, pointer: str, size: str, kind: str, line: str) -> str:
        number = _KINDS.index(kind)
        return f"call ptr @_msl_access(ptr {pointer}, i64 {size}, i32 {number}, ptr {self.place(line)})"

    def variable(self, pointer: str, size: str, name: str, kind: str) -> str:
        text = self._text(_variable_name(name))
        return f"call ptr @_msl_tag_variable(ptr {pointer}, i64 {size}, ptr {text}, i32 {_element_bytes(kind)})"

    def other(self, line: str) -> str:
        return _MEETING.sub(lambda m: f"{m[1]}{self.place(line)})", line)

    def globals(self) -> str:
        """The globals that the calls name."""
        return "".join(self._globals)

    def place(self, line: str) -> str:
        """The global that says where in the source an instruction is; "null" where none does."""
        found = _DEBUG.search(line)
        at = found[1] if found else None
        calls: tuple[str, ...] = ()
        user = None
        while at is not None and at in self._locations:
            row, column, scope, parent = self._locations[at]
            calls = (*calls, row, column)
            if user is None and row != "0":
                file = self._file_of(scope)
                if file is not None:
                    user = (file, row, column)
            at = parent
        if user is None:
            return "null"
        key = ("place", *user, calls)
        if key not in self._names:
            file, row, column = user
            digest = int(toolchain.digest(repr(calls))[:8], 16) & 0x7FFFFFFF
            name = f"@_msl_place.{self._prefix}{len(self._names)}"
            self._globals.append(
                f"{name} = internal global {{ ptr, i32, i32, i32, i32 }} {{ ptr {self._text(f'{file}:{row}')}, "
                f"i32 {row}, i32 {column or 0}, i32 {digest}, i32 0 }}, align 8\n"
            )
            self._names[key] = name
        return self._names[key]

    def _file_of(self, scope: str) -> str | None:
        """The user's file that a scope is in; None for the library's."""
        while scope in self._scopes:
            words = self._scopes[scope]
            file = re.search(r"\bfile: !(\d+)", words)
            if file and file[1] in self._files:
                name, folder = self._files[file[1]]
                path = name if name.startswith("/") else f"{folder}/{name}"
                if name in _OURS or path.startswith(self._library):
                    return None
                if name == "<stdin>":
                    return "program_source"
                # clang cuts off what an absolute path shares with the working directory.
                return name if folder in self._here else path
            parent = re.search(r"\bscope: !(\d+)", words)
            if not parent:
                return None
            scope = parent[1]
        return None

    def _text(self, text: str) -> str:
        key = ("text", text)
        if key not in self._names:
            data = text.encode()
            name = f"@_msl_text.{self._prefix}{len(self._names)}"
            self._names[key] = name
            escaped = "".join(f"\\{byte:02X}" for byte in data)
            self._globals.append(
                f'{name} = private unnamed_addr constant [{len(data) + 1} x i8] c"{escaped}\\00"\n'
            )
        return self._names[key]


def _variable_name(symbol: str) -> str:
    """`shared` of @_ZZ4treeE6shared; the symbol itself where it is another."""
    plain = symbol.lstrip("@").strip('"')
    rest, last = re.sub(r"^_ZZ?N?", "", plain), ""
    at = 0
    while found := re.compile(r"[^\d]*?(\d+)").match(rest, at):
        length = int(found[1])
        word = rest[found.end() : found.end() + length]
        if re.fullmatch(r"[A-Za-z_]\w*", word) and len(word) == length:
            last = word
            at = found.end() + length
        else:
            at = found.end()
    return last or plain


def _element_bytes(kind: str) -> int:
    """The size of an array's elements; 0 where they are no scalars or vectors."""
    while found := re.fullmatch(r"\[\d+ x (.+)\]", kind):
        kind = found[1]
    vector = re.fullmatch(r"<(\d+) x (\w+)>", kind)
    number, scalar = (int(vector[1]), vector[2]) if vector else (1, kind)
    return _SCALAR.get(scalar, 0) * (4 if number == 3 else number)


def back_end(text: str, target: str, out: Path) -> None:
    """IR, with _msl_checked set, as an object whose accesses are checked."""
    # Matrices' elements are accessed where the source asks for it, and not in a function of the library.
    text = text.replace(
        "@_msl_matrices_apart = internal constant i32 0",
        "@_msl_matrices_apart = internal constant i32 1",
    )
    # The optimiser makes no access that the source does not have: a load ahead of its condition would be a race.
    text = _ATTRIBUTES.sub(r"\1 sanitize_thread", text)
    # An instruction that leaves a loop, or comes from two branches, has no line any more.
    text = _LOOP.sub(rf"\1, !{_UNUSED}}}", text) + f'!{_UNUSED} = !{{!"llvm.licm.disable"}}\n'
    apart = [
        flag
        for option in (
            "-hoist-common-insts=false",
            "-sink-common-insts=false",
            "-disable-loop-idiom-all",
        )
        for flag in ("-mllvm", option)
    ]
    march = toolchain.march(target)
    common = [toolchain.clang(), "-x", "ir", "-fPIC", "-w", "-fno-math-errno", *march, "-"]
    common += coverage.BACK if coverage.counts(text) else []
    init = checks_init.in_text(text)
    if init:
        text = checks_init.never_written(text)
    light = toolchain.run(
        [*common, *apart, "-O1", "-S", "-emit-llvm", "-o", "-"], "the optimiser", text
    )
    hooks = _Hooks(light)
    made = ir.instrument(light, hooks) + hooks.globals()
    if init:
        made = toolchain.run(
            [*common, *checks_init.BACK, "-o", "-"],
            "the shadow of values",
            checks_init.marked(made),
        )
        more = _Hooks(made, "s")
        made = checks_init.instrument(made, more.place) + more.globals()
    made += _MARK
    made = re.sub(r"(?m)^!llvm\.dbg\.cu = .*\n", "", _DEBUG.sub("", made))
    made = re.sub(r"(?m)^(define|declare) (.*?) ?!dbg !\d+", r"\1 \2", made)
    command = [
        *common,
        "-O0",
        "-Xclang",
        "-disable-llvm-passes",
        "-c",
        "-fstack-usage",
        "-ffunction-sections",
    ]
    toolchain.run([*command, "-o", str(out)], "the checks", made)
