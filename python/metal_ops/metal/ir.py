"""Edits of LLVM's textual IR between clang's front end and its optimiser, and the instrumentation of the checked library.

The text is clang 19's own output, one instruction per line; the patterns match its output for these headers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import toolchain
from .abi import number as number_of

_LINKAGE = r"(?:(?:weak_odr|linkonce_odr|linkonce|weak|hidden|dso_local|internal|available_externally|protected)\s+)*"
_DEFINE = re.compile(rf"^define {_LINKAGE}", re.M)
_GLOBAL = re.compile(
    r"^(@\S+ = )(?:(?:weak_odr|linkonce_odr|linkonce|weak|hidden|dso_local|protected) )*"
    r"(?=(?:(?:local_)?unnamed_addr |thread_local(?:\(\w+\))? |addrspace\(3\) )*(?:constant|global|alias) )",
    re.M,
)
_COMDAT = re.compile(r"^\$\S+ = comdat any\n", re.M)
_DIVIDE = re.compile(
    r"^( *)(%\S+) = ([us])(div|rem) (?:exact )?i(8|16|32|64) (\S+), (%[^,\s]+)(.*)$", re.M
)


# Stands for the bytes of stack in a module and the object that it becomes, where they are known at last.
STACK_MARK = 0x6D736C2D73746163


def prepare(text: str, constants: list[str]) -> str:
    """Makes every function internal, so that only functions that kernels reach are compiled, and divisions safe.

    Division by zero and of the lowest integer by -1 trap on x86; a GPU gives some value: they give x / 1 here.
    """
    # SYCL's front end marks all functions convergent and norecurse. The first holds for none here: fibers are
    # sequential programs. The second is wrong: behind a barrier, another fiber is in the same function.
    text = re.sub(
        r"(?m)^(?:; Function Attrs:|attributes #\d+ = \{).*$",
        lambda m: re.sub(r"\b(convergent|norecurse) ", "", m[0]),
        text,
    )
    # The annotations were for the syntax tree. They would keep a copy of every kernel besides the inlined one.
    text = re.sub(
        r"(?m)^@llvm\.global\.annotations = .*\n|^  call void @llvm\.var\.annotation\b.*\n",
        "",
        text,
    )
    text = internal_globals(_DEFINE.sub("define internal ", text))
    text = re.sub(
        r"^@_msl_stack_bytes = .*$",
        f"@_msl_stack_bytes = internal externally_initialized global i64 {STACK_MARK}, align 8",
        text,
        flags=re.M,
    )
    text = re.sub(
        r"(?m)^@_msl_matrices_apart = .*$",
        "@_msl_matrices_apart = internal constant i32 0, align 4",
        text,
    )
    # gdb finds arguments where a function begins by the usual code of "clang ", which distributions put their names
    # before.
    text = re.sub(r'(\bproducer: ")[^"]*?(?=clang version )', r"\1", text)
    return guard_divisions(text) + "".join(map(_constant_storage, constants))


def internal_globals(text: str) -> str:
    """Makes every variable internal, and takes entities that several objects could share apart."""
    text = _COMDAT.sub("", _GLOBAL.sub(r"\1internal ", text))
    return re.sub(r",? comdat(\(\$[^)]*\))?(?=[ ,\n])", "", text)


def guard_divisions(text: str) -> str:
    """Division by zero and of the lowest integer by -1: x / 1."""
    return _DIVIDE.sub(_guard, text)


def _constant_storage(name: str) -> str:
    """16 bytes of value and, behind them, whether it is defined. Two labels: shaders read the first as immutable, the
    wrapper writes through the second. In assembly, as a definition in the module would make the first mutable."""
    lines = ['.pushsection .tbss,\\22awT\\22,@nobits', ".p2align 4", f"_msl_fc_{name}:", f"_msl_fcw_{name}:", ".zero 32",
             ".popsection"]  # fmt: skip
    return "".join(f'module asm "{line}"\n' for line in lines)


def _guard(match: re.Match[str]) -> str:
    indent, result, sign, operation, bits, left, right, rest = match.groups()
    name = "%.guard" + result[1:].strip('"')
    lines = [f"{name}.zero = icmp eq i{bits} {right}, 0"]
    bad = f"{name}.zero"
    if sign == "s":
        lowest = -(1 << int(bits) - 1)
        lines += [
            f"{name}.one = icmp eq i{bits} {right}, -1",
            f"{name}.low = icmp eq i{bits} {left}, {lowest}",
            f"{name}.over = and i1 {name}.one, {name}.low",
            f"{name}.bad = or i1 {name}.over, {name}.zero",
        ]
        bad = f"{name}.bad"
    lines += [
        f"{name}.by = select i1 {bad}, i{bits} 1, i{bits} {right}",
        f"{result} = {sign}{operation} i{bits} {left}, {name}.by{rest}",
    ]
    return "\n".join(indent + line for line in lines)


_ALIGNED = re.compile(
    r"^( *(?:%\S+ = load |store )(?!atomic )(?:volatile )?)([^,]*)(.*), align (8|16|32|64|128)\b",
    re.M,
)
_ALIGNED_ARGUMENT = re.compile(r"(?<!\)) align (?:2|4|8|16|32|64|128)(?= )")
_CALL = re.compile(r"^(?:define|declare) .*$|^ *(?:%\S+ = )?(?:tail )?(?:call|invoke) .*$", re.M)


def unaligned(text: str) -> str:
    """Accesses through pointers to vectors and structs assume the alignment of their scalars and no more.

    A shader casts pointers: `(device float4*)(row + 1)`. A GPU loads that, and so do this processor's instructions for
    memory that is not aligned, which are as fast where it is. Variables keep their alignment: the optimiser sees them.
    """

    def scalar(match: re.Match[str]) -> str:
        head, kind, rest, align = match.groups()
        size = 8 if re.search(r"\b(?:i64|double|ptr)\b", kind) else 4
        return f"{head}{kind}{rest}, align {min(int(align), size)}"

    text = _ALIGNED.sub(scalar, text)
    # Arguments: those of memcpy, and references, of which `this` is one. Not byval, which is a matter of the call.
    return _CALL.sub(lambda m: _ALIGNED_ARGUMENT.sub(" align 1", m[0]), text)


def mark_names(names: list[str]) -> str:
    """A symbol for each kernel, so that the linker sees when two objects have one of the same name."""
    lines = [".pushsection .rodata.msl_names,\\22a\\22"]
    for name in names:
        symbol = "\\22" + toolchain.NAME_MARK + re.sub(r'[\\"]', "?", name) + "\\22"
        lines += [f".globl {symbol}", f".hidden {symbol}", f"{symbol}:", ".byte 0"]
    return "".join(f'module asm "{line}"\n' for line in [*lines, ".popsection"])


_ENTRY = re.compile(r"^(@\w*_msl_entry(\d+)) = ", re.M)
_SYMBOL = re.compile(r"@(?:\"[^\"]+\"|[\w.$-]+)")
_FUNCTION = re.compile(r"^define [^@]*(@(?:\"[^\"]+\"|[\w.$-]+))\(.*?^}\n", re.M | re.S)
_VARIABLE = re.compile(r"^(@(?:\"[^\"]+\"|[\w.$-]*[A-Za-z_.$-][\w.$-]*)) = .*\n", re.M)
_USED = re.compile(r"^@llvm(?:\.compiler)?\.used = .*\n", re.M)


@dataclass
class Pieces:
    """A module, definition by definition.

    Attributes:
      frame: The text that belongs to every part: types, declarations, attributes.
      definitions: functions and variables by name.
      entries: the variable that makes a kernel part of the library, by the kernel's number.
    """

    frame: str
    definitions: dict[str, str]
    entries: dict[int, str]
    _reaches: dict[str, set[str]] = field(default_factory=dict, repr=False)

    def part(self, numbers: Sequence[int]) -> str:
        """A module of these kernels and the functions they reach."""
        names = [self.entries[number] for number in numbers]
        kept, ahead = set(names), list(names)
        while ahead:
            name = ahead.pop()
            if name not in self._reaches:
                self._reaches[name] = self._names(self.definitions[name])
            new = self._reaches[name] - kept
            kept |= new
            ahead += new
        used = ", ".join(f"ptr {name}" for name in names)
        body = "".join(self.definitions[name] for name in self.definitions if name in kept)
        return (
            f"{self.frame}{body}@llvm.compiler.used = appending global [{len(names)} x ptr] [{used}], "
            'section "llvm.metadata"\n'
        )

    def parts(self, numbers: Sequence[int], per_part: int) -> list[tuple[list[int], str]]:
        """Modules of about as many of these kernels. Those with barriers are compiled in another way, and apart."""
        meet = [number for number in numbers if f"@_msl_by_lanes{number}" in self.definitions]
        others = [number for number in numbers if number not in {*meet}]
        cut = [part for kind in (others, meet) if kind for part in groups(kind, per_part)]
        return [(part, self.part(part)) for part in cut]

    def _names(self, text: str) -> set[str]:
        """The definitions that a text names."""
        return {*_SYMBOL.findall(text)} & self.definitions.keys()


def pieces(text: str) -> Pieces:
    """Takes a module apart."""
    definitions: dict[str, str] = {}

    def take(match: re.Match[str]) -> str:
        definitions[match[1]] = match[0]
        return ""

    frame = _VARIABLE.sub(take, _USED.sub("", _FUNCTION.sub(take, text)))
    # Kept small, as every part has it: thousands of empty lines were left between the definitions.
    frame = _COMDAT.sub("", re.sub(r"(?m)^; Function Attrs:.*\n", "", frame))
    frame = re.sub(r"\n{2,}", "\n", frame)
    return Pieces(frame, definitions, _entries(text))


def _entries(text: str) -> dict[int, str]:
    return {int(number): name for name, number in _ENTRY.findall(text)}


_WITH_CODE = re.compile(
    r"(%struct\.metallib_kernel \{ ptr [^,]+, i32 )(\d+)(, .*), ptr [^,]+, ptr [^ ]+ \}"
)


def without_code(module: Pieces) -> str:
    """The descriptions of a module's kernels, each without its code (METALLIB_KERNEL_ABSENT)."""
    absent = number_of("KERNEL_ABSENT")

    def describe(text: str) -> str:
        return _WITH_CODE.sub(
            lambda m: f"{m[1]}{int(m[2]) | absent}{m[3]}, ptr null, ptr null }}", text
        )

    definitions = {name: describe(text) for name, text in module.definitions.items()}
    return Pieces(module.frame, definitions, module.entries).part(sorted(module.entries))


def groups(numbers: Sequence[int], per_part: int) -> list[list[int]]:
    """Kernels in parts of about as many; a few too many for a part do not make another."""
    n_parts = max(1, round(len(numbers) / per_part))
    edges = [len(numbers) * i // n_parts for i in range(n_parts + 1)]
    return [list(numbers[begin:end]) for begin, end in itertools.pairwise(edges)]


def split(text: str, per_part: int) -> list[tuple[list[int], str]]:
    """Cuts a module between its kernels, for as many optimisers: each part has some kernels and the functions they
    reach.

    Returns the numbers of each part's kernels, and its text.
    """
    numbers = sorted(_entries(text))
    if len(numbers) < 1.5 * per_part and len(meeting(text) & {*numbers}) in (0, len(numbers)):
        return [(numbers, text)]
    return pieces(text).parts(numbers, per_part)


def by_thread(text: str) -> bool:
    """Whether a module's kernels run thread by thread: what one writes into a log says which thread it was, and a debugger
    shows one."""
    # The front end leaves calls out where os_log is not compiled. In lanes of a loop, all would be counted.
    called = ("call void @_msl_log(", "call void @llvm.instrprof.increment(")
    return any(call in text for call in called) or for_debugger(text)


def for_debugger(text: str) -> bool:
    """Whether a module was compiled with -g."""
    return "\n!llvm.dbg.cu = " in text


_DEBUGGED = re.compile(r"^(define [^\n]*) !dbg (!\d+)( \{\n.*?^\}\n)", re.M | re.S)


def with_users_lines(text: str) -> str:
    """A module whose debug information is of the user's functions alone.

    A debugger passes by functions that have no lines, and code inlined from them has the line of the call. The loop
    over threads keeps its own.
    """
    files = dict(re.findall(r'^(!\d+) = !DIFile\(filename: "([^"]*)"', text, re.M))
    found = re.findall(
        r'^(!\d+) = distinct !DISubprogram\(name: "([^"]*)".*?\bfile: (!\d+)', text, re.M
    )
    own = {
        node
        for node, name, file in found
        if "/msl/lib/" in files.get(file, "") and not name.startswith("run_loop")
    }

    def strip(match: re.Match[str]) -> str:
        if match[2] not in own:
            return match[0]
        body = re.sub(r"^ +#dbg_\w+\(.*\n|,? !dbg !\d+", "", match[3], flags=re.M)
        return match[1] + body

    return _DEBUGGED.sub(strip, text)


def meeting(text: str) -> set[int]:
    """The kernels of a module, or of its part, that have barriers."""
    return {int(number) for number in re.findall(r"(?m)^@_msl_by_lanes(\d+) = ", text)}


def unchecked(text: str) -> str:
    """The library's normal variant."""
    return re.sub(
        r"^@_msl_checked = .*$",
        "@_msl_checked = internal constant i32 0, align 4",
        text,
        flags=re.M,
    )


def widened(text: str, attributes: str) -> str:
    """For wider vectors; `attributes` are those of a function of the processors that have them."""
    return re.sub(r'"target-cpu"="[^"]*" "target-features"="[^"]*"', attributes, unchecked(text))


def wide(text: str) -> str:
    """Kernels for wider vectors, beside the plain ones of one library."""
    return text.replace('section "msl_kernels"', 'section "msl_kernels_wide"')


def checked(text: str) -> str:
    """The variant with _msl_checked set; to be optimised lightly, then given to `instrument`."""
    text = re.sub(
        r"^@_msl_checked = .*$",
        "@_msl_checked = internal constant i32 1, align 4",
        text,
        flags=re.M,
    )
    return text.replace('section "msl_kernels"', 'section "msl_kernels_checked"')


_TYPE = r"(?:<\d+ x [\w.]+>|\[\d+ x [^=]+?\]|\{[^=]*?\}|[\w.]+|%\"[^\"]+\"|%[\w.:]+)"
_POINTER = r"(?:%\"[^\"]+\"|%[\w.$-]+|@\"[^\"]+\"|@[\w.$-]+|getelementptr .*?\)|null)"
_VECTOR = re.compile(r"<(\d+) x (half|bfloat|float|double|ptr|i\d+)>")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_LOAD = re.compile(rf"^(\s*%\S+ = load (?:atomic )?(?:volatile )?)({_TYPE}), ptr ({_POINTER})(.*)$")
_STORE = re.compile(
    rf"^(\s*store (?:atomic )?(?:volatile )?)({_TYPE}) (.+), ptr ({_POINTER})((?: [a-z].*)?(?:, .*)?)$"
)
_RMW = re.compile(rf"^(\s*%\S+ = atomicrmw (?:volatile )?\w+ ptr )({_POINTER})(, )({_TYPE})( .*)$")
_EXCHANGE = re.compile(
    rf"^(\s*%\S+ = cmpxchg (?:weak )?(?:volatile )?ptr )({_POINTER})(, )({_TYPE})( .*)$"
)
_MEMORY = re.compile(r"^(\s*(?:tail )?call void @llvm\.(mem\w+)\.\S*?\()(.*)$")
_TLS = re.compile(
    r"^(\s*)(%\S+) = ((?:tail )?call \S*\s*(?:\S+ )?ptr @llvm\.threadlocal\.address\.p0\(ptr .*?(@\S+?)\).*)$"
)
_TLS_GLOBAL = re.compile(
    r"^(@\S+) = internal thread_local(?:\(\w+\))? (?:(?:local_)?unnamed_addr )?global (.+?) "
    r"(?:zeroinitializer\b|undef\b|null\b|false\b|0(?:\.0+e\+00|x[HR]0+)?(?=,|$))",
    re.M,
)


class Hooks:
    """The calls before each access of memory: _msl_check, which validation needs."""

    declarations = (
        "declare ptr @_msl_check(ptr, i64, i32)\ndeclare ptr @_msl_tag_static(ptr, i64)\n"
    )

    def access(self, pointer: str, size: str, kind: str, line: str) -> str:
        """The call of which the pointer comes that is used instead.

        Args:
          kind: "read", "write", "update" (atomic), "atomic read" or "atomic write".
          line: the instruction.
        """
        write = kind in ("write", "update", "atomic write")
        return f"call ptr @_msl_check(ptr {pointer}, i64 {size}, i32 {int(write)})"

    def variable(self, pointer: str, size: str, name: str, kind: str) -> str:
        """The call that gives the address of a threadgroup variable, of a type."""
        return f"call ptr @_msl_tag_static(ptr {pointer}, i64 {size})"

    def other(self, line: str) -> str:
        """Any other line."""
        return line


def instrument(text: str, hooks: Hooks | None = None) -> str:
    """Passes the pointer of every load, store and atomic, and of memory intrinsics, through a function of `hooks`."""
    hooks = hooks or Hooks()
    statics = dict(_TLS_GLOBAL.findall(text))
    out = []
    count = 0

    def pointer_check(pointer: str, size: str, kind: str, line: str) -> tuple[str, str]:
        nonlocal count
        count += 1
        name = f"%.msl{count}"
        return name, f"  {name} = {hooks.access(pointer, size, kind, line)}"

    def size_of(kind: str) -> str:
        return f"ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64)"

    def bytes_of(kind: str) -> str:
        """The bytes that an access touches: three halves are 6 bytes, though an array of them takes 8 for each."""
        if vector := _VECTOR.fullmatch(kind):
            number, width = int(vector[1]), _BITS.get(vector[2]) or int(vector[2][1:])
            return str((number * width + 7) // 8)
        return size_of(kind)

    for line in text.split("\n"):
        if (
            " = load " in line
            or line.lstrip().startswith("store ")
            or "atomicrmw" in line
            or "cmpxchg" in line
        ):
            if m := _LOAD.match(line):
                head, kind, pointer, rest = m.groups()
                if pointer[0] == "%":
                    how = "atomic read" if "load atomic" in head else "read"
                    name, call = pointer_check(pointer, bytes_of(kind), how, line)
                    out.append(call)
                    line = f"{head}{kind}, ptr {name}{rest}"
            elif m := _STORE.match(line):
                head, kind, value, pointer, rest = m.groups()
                if pointer[0] == "%":
                    how = "atomic write" if "store atomic" in head else "write"
                    name, call = pointer_check(pointer, bytes_of(kind), how, line)
                    out.append(call)
                    line = f"{head}{kind} {value}, ptr {name}{rest}"
            elif m := _RMW.match(line) or _EXCHANGE.match(line):
                head, pointer, comma, kind, rest = m.groups()
                name, call = pointer_check(pointer, bytes_of(kind), "update", line)
                out.append(call)
                line = f"{head}{name}{comma}{kind}{rest}"
        elif "@llvm.mem" in line and (m := _MEMORY.match(line)):
            line = _memory(m, pointer_check, out)
        elif "@llvm.threadlocal.address" in line and (m := _TLS.match(line)):
            indent, result, call, variable = m.groups()
            if variable in statics and not variable.startswith("@_msl_"):
                count += 1
                out.append(f"{indent}%.msl{count} = {call}")
                kind = statics[variable]
                made = hooks.variable(f"%.msl{count}", size_of(kind), variable, kind)
                line = f"{indent}{result} = {made}"
        else:
            line = hooks.other(line)
        out.append(line)
    out.append(hooks.declarations)
    return "\n".join(out)


def _memory(match: re.Match[str], pointer_check, out: list[str]) -> str:  # type: ignore[no-untyped-def]
    """memcpy, memmove, memset: the target is written, the source read, both for the length given."""
    head, name, rest = match.groups()
    arguments, depth, start = [], 0, 0
    for i, c in enumerate(rest):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0 or depth < 0:
            arguments.append(rest[start:i].strip())
            start = i + 1
            if depth < 0:
                tail = rest[i:]
                break
    length = arguments[2].removeprefix("i64 ")
    for i in (0, 1) if name != "memset" else (0,):
        words = arguments[i].split()
        if words[-1][0] == "%":
            how = "write" if i == 0 else "read"
            checked_name, call = pointer_check(words[-1], length, how, match[0])
            out.append(call)
            arguments[i] = " ".join([*words[:-1], checked_name])
    return head + ", ".join(arguments) + tail
