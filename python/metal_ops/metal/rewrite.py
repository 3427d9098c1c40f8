"""From MSL's spelling to C++ that clang reads: one flat text in, the same lines out.

`flatten` inlines the includes (macros stay as written, so lines and columns do too); `Source` replaces what C++ has no
grammar for, each time within its line, and maps places in the result back to the user's files:

    [[buffer(3)]]                                  an annotation
    template [[host_name("f")]] kernel void f<int>(...)     a constant that points to f<int>, annotated with its name
    threadgroup float x[32];                       thread-local storage of the worker
    constant bool b [[function_constant(0)]];      a thread-local that the wrapper sets
"""

from __future__ import annotations

import re
import subprocess
from bisect import bisect_right
from dataclasses import dataclass

from . import toolchain
from .toolchain import CompileError

POSITIONS = frozenset(
    """thread_position_in_grid thread_position_in_threadgroup threadgroup_position_in_grid threads_per_grid
    threads_per_threadgroup dispatch_threads_per_threadgroup threadgroups_per_grid grid_size grid_origin
    thread_index_in_threadgroup thread_index_in_simdgroup simdgroup_index_in_threadgroup threads_per_simdgroup
    thread_execution_width dispatch_simdgroups_per_threadgroup simdgroups_per_threadgroup thread_index_in_quadgroup
    quadgroup_index_in_threadgroup quadgroup_index_in_simdgroup quadgroups_per_threadgroup
    dispatch_quadgroups_per_threadgroup""".split()
)
ANNOTATED = frozenset(
    "buffer threadgroup texture sampler max_total_threads_per_threadgroup stage_in".split()
)
# Graphics attributes and those of argument buffers: no meaning here, taken out.
DROPPED = frozenset(
    """id user position attribute color point_size vertex_id instance_id front_facing sample_id flat center_perspective
    center_no_perspective visible stitchable intersection payload render_target_array_index early_fragment_tests
    point_coord raster_order_group depth stencil clip_distance invariant patch required_threads_per_threadgroup""".split()
)
SPACES = frozenset({"device", "constant", "threadgroup", "thread"})

TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\f\v]|\\\n)+)
      | (?P<newline>\n)
      | (?P<comment>//(?:[^\\\n]|\\.|\\\n)*|/\*.*?\*/)
      | (?P<string>(?:u8|[uUL])?R"(?P<raw>[^()\\\s]*)\(.*?\)(?P=raw)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*")
      | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<word>[A-Za-z_]\w*)
      | (?P<number>\.?\d(?:[eEpP][+-]|['\w.])*)
      | (?P<mark>::|->|\+\+|--|&&|\|\||\#\#|.)""",
    re.VERBOSE | re.DOTALL,
)
LITERAL = re.compile(r"(0[xX][\da-fA-F.]+[pP][+-]?\d+|\d*\.?\d*(?:[eE][+-]?\d+)?)(H|bf|BF)")
# Without a suffix: a float in MSL. clang's own switch for it forgets itself in expressions that a template repeats.
FLOAT = re.compile(
    r"(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+|0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+"
)
# A macro that gives its argument a suffix.
SUFFIXING = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\((?:[^\n]|\\\n)*?##[ \t]*[fFhH]\b", re.M)
# A macro that stands for `constant` and words beside it.
CONSTANT_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[ \t]+(?:static|constant|constexpr|const|inline))+)[ \t]*$",
    re.M,
)
# Where a text is the compiler's, and no object in constant memory.
NO_STRING_OBJECT = frozenset(
    """static_assert _Static_assert asm __asm __asm__ annotate section deprecated unavailable availability message
    _Pragma sizeof alignas __attribute__ host_name""".split()
)
MARKER = re.compile(r'#[ \t]*(?:line[ \t]+)?(\d+)(?:[ \t]+"((?:[^"\\]|\\.)*)")?')


@dataclass(slots=True)
class Token:
    """A token of the flat text: offsets, whether it is part of a directive (a macro's body), nesting before it."""

    text: str
    start: int
    end: int
    directive: int  # 0, or the number of the #define it belongs to
    braces: int = 0
    parens: int = 0
    in_function: bool = False
    class_id: int = 0  # number of the class body right around it, else 0


@dataclass(frozen=True)
class Place:
    """Where the user wrote something."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Message:
    """One diagnostic."""

    place: Place | None
    severity: str  # error, warning or note
    text: str


def flatten(file: str, text: str | None, flags: list[str], defines: list[str]) -> str:
    """`file` with its includes inlined. `text` stands for the file's content where given.

    Raises:
      CompileError: an include is missing, or a directive is wrong.
    """
    command = [
        *(
            toolchain.clang(),
            "-x",
            "c++",
            "-E",
            "-frewrite-includes",
            "-nostdinc",
            "-nostdinc++",
            "-std=gnu++17",
        ),
        *("-fno-caret-diagnostics", "-isystem", str(toolchain.library_root() / "include")),
        *flags,
        *defines,
        file if text is None else "-",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.replace("<stdin>", file)
        said = re.sub(
            r"('(?:c?\w+|\w+\.h)' file not found)",
            r"\1 (Metal has no C or C++ standard library; use <metal_stdlib>)",
            said,
        )
        raise CompileError(re.sub(r"^\d+ errors? generated\.\n", "", said, flags=re.M).rstrip("\n"))
    return done.stdout.replace("<stdin>", file)


class Source:
    """A flat text, its rewritten form (`text`), and the way back from there to the user's files."""

    def __init__(self, original: str, conditionals: frozenset[int] = frozenset()):
        # clang counts bytes: one character a byte makes its offsets and columns ours.
        flat = (
            original
            if original.isascii()
            else re.sub(r"[^\x00-\x7f]", lambda m: "?" * len(m[0].encode()), original)
        )
        self.flat = flat
        self._original = original.split("\n")
        self.messages: list[Message] = []
        self._edits: list[tuple[int, int, str]] = []
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", flat))]
        self._files: list[tuple[str, int]] = []  # of every flat line: the user's file and line
        here, number = "<command line>", 1
        for start in self._line_starts:
            marker = MARKER.match(flat, start)
            self._files.append(("", 0) if marker else (here, number))
            if marker:
                number = int(marker.group(1))
                if marker.group(2) is not None:
                    here = marker.group(2).replace("\\\\", "\\").replace('\\"', '"')
            else:
                number += 1
        self._tokens = _tokenize(flat)
        self._function_constants: set[str] = set()
        self._constant_macros = {
            name for name, words in CONSTANT_MACRO.findall(flat) if "constant" in words.split()
        }
        self._attributes()
        self._threadgroup_variables()
        self._member_spaces()
        self._array_parameters()
        self._derived_constants()
        self._literals()
        self._strings()
        self._conditionals(conditionals)
        self.text = self._apply()

    # ---- places

    def place_in_flat(self, offset: int) -> Place:
        """The user's place of an offset into the flat text."""
        line = bisect_right(self._line_starts, offset) - 1
        file, number = self._files[line]
        return Place(file, number, offset - self._line_starts[line] + 1)

    def flat_offset(self, line: int, column: int) -> int:
        """The offset into the flat text of a place in the rewritten one."""
        return self._line_starts[line - 1] + self.place(line, column).column - 1

    def place(self, line: int, column: int) -> Place:
        """The user's place of a line and column (both from 1) of the rewritten text."""
        if not 1 <= line <= len(self._files):
            return Place("<kernel wrappers>", line, column)
        file, number = self._files[line - 1]
        for new_start, new_end, old_start, old_end in self._columns.get(line, ()):
            if column - 1 < new_start:
                break
            if column - 1 < new_end:
                return Place(file, number, old_start + 1)
            shift = old_end - new_end
            if all(column - 1 < n for n, *_ in self._columns[line] if n > new_start):
                return Place(file, number, column + shift)
        return Place(file, number, column)

    def line_text(self, line: int) -> str:
        """What the user wrote in a line (from 1) of the rewritten text."""
        return self._original[line - 1]

    def source_line(self, place: Place) -> str | None:
        """The text of a user's line, for the caret."""
        try:
            return self.line_text(self._files.index((place.file, place.line)) + 1)
        except ValueError:
            return None

    # ---- edits

    def _replace(self, start: int, end: int, text: str, directive: int = 0) -> None:
        lines = self.flat.count("\n", start, end)
        self._edits.append((start, end, text + ("\\\n" if directive else "\n") * lines))

    def _insert(self, at: int, text: str) -> None:
        # Insertions at one place belong in the order in which they are made, and not into a replacement.
        self._edits.append((at, at, text))

    def _error(self, token: Token, text: str) -> None:
        self.messages.append(Message(self.place_in_flat(token.start), "error", text))

    def _apply(self) -> str:
        out: list[str] = []
        self._columns: dict[int, list[tuple[int, int, int, int]]] = {}
        at = 0
        shifts: dict[int, int] = {}
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2]):
            if start < at:
                continue  # inside something that was already replaced
            line = bisect_right(self._line_starts, start)
            old_start = start - self._line_starts[line - 1]
            old_end = (
                min(end, self.flat.find("\n", start) % (len(self.flat) + 1))
                - self._line_starts[line - 1]
            )
            new_start = old_start + shifts.get(line, 0)
            new_end = new_start + len(text.split("\n")[0].removesuffix("\\"))
            self._columns.setdefault(line, []).append((new_start, new_end, old_start, old_end))
            shifts[line] = new_end - old_end
            out += [self.flat[at:start], text]
            at = end
        out.append(self.flat[at:])
        return "".join(out)

    # ---- [[attributes]]

    def _attributes(self) -> None:
        tokens = self._tokens
        i = 0
        while i + 1 < len(tokens):
            if tokens[i].text == "template" and tokens[i + 1].text in (
                "[",
                "kernel",
                "__attribute__",
            ):
                i = self._instantiation(i)
            elif (
                tokens[i].text == "["
                and tokens[i + 1].text == "["
                and tokens[i + 1].start == tokens[i].end
            ):
                end = self._attribute_end(i)
                if end:
                    self._attribute(i, end)
                    i = end
            i += 1

    def _attribute_end(self, i: int) -> int:
        """Index of the last ] of the attribute list that starts at i, or 0 if it is none (a[[]{}()])."""
        depth = 0
        for j in range(i, min(i + 400, len(self._tokens) - 1)):
            text = self._tokens[j].text
            depth += (text in "[(") - (text in "])")
            if depth == 0:
                return j if self._tokens[j - 1].text == "]" else 0
        return 0

    def _parse_attributes(self, i: int, end: int) -> list[tuple[str, str]]:
        """(name, text of the arguments) of each attribute between [[ at i and ]] that ends at `end`."""
        out = []
        j = i + 2
        while j < end - 1:
            name = self._tokens[j].text
            j += 1
            while self._tokens[j].text == "::":
                name += "::" + self._tokens[j + 1].text
                j += 2
            arguments = ""
            if self._tokens[j].text == "(":
                close = self._matching(j)
                arguments = self.flat[self._tokens[j].end : self._tokens[close].start]
                j = close + 1
            out.append((name, re.sub(r"(\\\n|\s)+", " ", arguments).strip()))
            if self._tokens[j].text == ",":
                j += 1
        return out

    def _matching(self, i: int) -> int:
        """Index of the bracket that closes the one at i."""
        depth = 0
        for j in range(i, len(self._tokens)):
            text = self._tokens[j].text
            depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
            if depth == 0:
                return j
        return len(self._tokens) - 1

    def _attribute(self, i: int, end: int) -> None:
        tokens = self._tokens
        known = []
        found = self._parse_attributes(i, end)
        for name, arguments in found:
            if name == "kernel":
                known.append("kernel")
            elif name == "host_name":
                known.append(f'_MSL_A("host_name=" {arguments})')
            elif name in POSITIONS:
                known.append(f'_MSL_A("at={name}")')
            elif name == "function_constant":
                if tokens[i].parens == 0 and not tokens[i].in_function:
                    known.append(self._function_constant(i, arguments))
                else:
                    known.append(f'_MSL_A("enabled_by=" _MSL_STR({arguments}))')
            elif name in ANNOTATED:
                known.append(f'_MSL_A("{name}=" _MSL_STR({arguments}))')
            elif name in DROPPED or name.startswith("air."):
                known.append("")
        if known:
            # Spaces around: `x[[buffer(0)]]` touches its name.
            self._replace(
                tokens[i].start, tokens[end].end, f" {' '.join(known)} ", tokens[i].directive
            )

    def _statement_start(self, i: int) -> int:
        """Index of the first token of the declaration that token i is part of."""
        tokens = self._tokens
        j = i
        while j > 0 and tokens[j - 1].directive == tokens[i].directive:
            text = tokens[j - 1].text
            if text in (";", "{", "}") or (
                text == ":" and tokens[j - 2].text in ("public", "private", "protected")
            ):
                return j
            j -= 1
        if tokens[i].directive:  # skip `# define NAME (parameters)`
            j += 3
            if tokens[j].text == "(" and tokens[j].start == tokens[j - 1].end:
                j = self._matching(j) + 1
        return j

    def _function_constant(self, i: int, arguments: str) -> str:
        tokens = self._tokens
        name = tokens[i - 1].text
        self._function_constants.add(name)
        start = self._statement_start(i)
        self._no_definition(start, i)
        return f'_MSL_FUNCTION_CONSTANT_LABEL({name}) _MSL_A("function_constant=" _MSL_STR({arguments}))'

    def _no_definition(self, start: int, end: int) -> None:
        """Makes the declaration that tokens start to end - 1 begin one of a variable that the wrapper sets."""
        tokens = self._tokens
        for token in tokens[start:end]:
            if token.text in ("static", "constexpr"):
                self._replace(token.start, token.end, "")
            elif token.text in self._constant_macros:
                self._replace(token.start, token.end, "constant")
        self._insert(tokens[start].start, "_MSL_FUNCTION_CONSTANT ")

    def _instantiation(self, i: int) -> int:
        """`template [[host_name("n")]] [[kernel]] void f<int>(...)` at i becomes a named pointer to f<int>."""
        tokens = self._tokens
        start, host_name = i, None
        j = i + 1
        while True:
            if tokens[j].text == "[" and tokens[j + 1].text == "[":
                end = self._attribute_end(j)
                for name, arguments in self._parse_attributes(j, end):
                    host_name = arguments if name == "host_name" else host_name
                j = end + 1
            elif tokens[j].text == "kernel":
                j += 1
            elif tokens[j].text == "__attribute__":
                j = self._matching(j + 1) + 1
            else:
                break
        if host_name is None:
            self._replace(tokens[i + 1].start, tokens[j - 1].end, "", tokens[i].directive)
            return j
        # The declarator: the last name before its (parameters), or before the end, with <arguments>.
        head = j
        declarator, angle = None, 0
        while (
            j < len(tokens)
            and tokens[j].directive == tokens[i].directive
            and tokens[j].text not in (";", "{", "}")
        ):
            text = tokens[j].text
            if text == "<" and re.match(r"\w", tokens[j - 1].text):
                angle += 1
            elif text == ">" and angle:
                angle -= 1
            elif text == "(" and tokens[j - 1].text not in (
                "decltype",
                "__attribute__",
                "__typeof__",
            ):
                if angle == 0:
                    break
                j = self._matching(j)
            elif text in ("(", "["):
                j = self._matching(j)
            elif (
                angle == 0
                and re.match(r"[A-Za-z_]", text)
                and tokens[j - 1].text not in ("::", "##")
            ):
                declarator = j
            j += 1
        parameters = ""
        last = j - 1
        if j < len(tokens) and tokens[j].text == "(" and tokens[j].directive == tokens[i].directive:
            last = self._matching(j)
            parameters = self.flat[tokens[j].start : tokens[last].end]
        if declarator is None or declarator >= j:
            self._error(
                tokens[head],
                "expected the name of a kernel template in this explicit instantiation",
            )
            return j
        name = self.flat[tokens[declarator].start : tokens[j - 1].end]
        target = f"&{name}"
        if "<" not in name and parameters:  # the arguments are deduced from the parameters
            types = re.sub(r"\[\[.*?\]\]", "", parameters, flags=re.S)
            target = f"static_cast<void (*){types}>(&{name})"
        text = re.sub(r"\\\n|\n", " ", f"_MSL_INSTANCE({host_name}) = {target}")
        self._replace(tokens[start].start, tokens[last].end, text, tokens[i].directive)
        return last

    # ---- threadgroup variables

    def _threadgroup_variables(self) -> None:
        tokens = self._tokens
        for i, token in enumerate(tokens):
            if token.text != "threadgroup" or token.parens or i == 0:
                continue
            if token.class_id and not token.directive:
                continue
            before = tokens[i - 1]
            starts = before.text in (";", "{", "}", ":") or before.directive != token.directive
            if token.directive and not starts:
                starts = self._statement_start(i) == i
            if before.text in ("static", "constexpr", "const", "volatile"):
                starts = tokens[i - 2].text in (";", "{", "}")
            if before.text == ")" and not token.directive:  # alignas(16) threadgroup ...
                starts = "alignas" in [t.text for t in tokens[max(0, i - 5) : i]]
            if not starts:
                continue
            j, pointer, initialised = i + 1, False, None
            while j < len(tokens) and tokens[j].text not in (";", "{", "}"):
                text = tokens[j].text
                if text in ("(", "["):
                    if text == "(":
                        pointer = True  # a function that returns, or a pointer to an array
                    j = self._matching(j)
                elif text in ("*", "&", "&&"):
                    pointer = True
                elif text == "=":
                    initialised = j
                    break
                j += 1
            if pointer or (
                initialised is None
                and j < len(tokens)
                and tokens[j].text != ";"
                and not token.directive
            ):
                continue
            if not token.in_function and not token.directive:
                self._error(
                    token,
                    "a variable in the threadgroup address space must be declared in a kernel function",
                )
                continue
            if initialised is not None:
                self._error(
                    tokens[initialised],
                    "a variable in the threadgroup address space cannot be initialized",
                )
                continue
            self._replace(token.start, token.end, "_MSL_THREADGROUP", token.directive)

    # ---- member functions qualified with an address space

    def _member_spaces(self) -> None:
        """`T f() const device` and its twins for other spaces: one remains, as `this` accepts every space here."""
        tokens = self._tokens
        seen: set[tuple[int, str]] = set()
        if any(t.class_id and t.text in SPACES and not t.parens and tokens[i - 1].text in (")", "const")
               for i, t in enumerate(tokens)):  # fmt: skip
            seen = self._unqualified_members()
        for i, token in enumerate(tokens):
            if token.text not in SPACES or not token.class_id or token.parens or i < 2:
                continue
            j = i - 1
            while tokens[j].text in ("const", "volatile"):
                j -= 1
            if tokens[j].text != ")" or tokens[i + 1].text not in (
                "{",
                ":",
                ";",
                "noexcept",
                "->",
                "=",
                "const",
            ):
                continue
            start = self._statement_start(j)
            constant = "const" in [t.text for t in tokens[j:i]]
            words = [t.text for t in tokens[start : j + 1]]
            key = (token.class_id, " ".join(words) + (" const" if constant else ""))
            if key not in seen:
                seen.add(key)
                self._replace(token.start, token.end, "", token.directive)
                continue
            end = i
            while tokens[end].text not in (";", "{"):
                if tokens[end].text == "(":
                    end = self._matching(end)
                end += 1
                # a member initialiser with braces: x{1}
                if tokens[end].text == "{" and ":" in [t.text for t in tokens[i:end]]:
                    after = self._matching(end)
                    if tokens[after + 1].text in (",", "{"):
                        end = after + 1
            if tokens[end].text == "{":
                end = self._matching(end)
            self._replace(tokens[start].start, tokens[end].end, "", token.directive)

    def _unqualified_members(self) -> set[tuple[int, str]]:
        """Signatures of the member functions without a space, as `_member_spaces` writes them."""
        tokens = self._tokens
        found = set()
        for i, token in enumerate(tokens[:-1]):
            if token.text != ")" or not token.class_id or token.parens != 1:
                continue
            after = tokens[i + 1].text
            constant = after == "const"
            if (tokens[i + 2].text if constant else after) in (
                "{",
                ":",
                ";",
                "noexcept",
                "->",
                "=",
            ):
                words = " ".join(t.text for t in tokens[self._statement_start(i) : i + 1])
                found.add((token.class_id, words + (" const" if constant else "")))
        return found

    # ---- c ? a : b

    def _conditionals(self, offsets: frozenset[int]) -> None:
        """Wraps the operands of the conditional operators at these offsets: clang finds no common type for a vector and
        one in const device or constant memory, unless the latter is copied first."""
        tokens = self._tokens
        for i, token in enumerate(tokens):
            if token.start not in offsets or token.text != "?":
                continue
            colon = self._operand_end(i + 1)
            if tokens[colon].text != ":":
                continue
            end = self._operand_end(colon + 1)
            for first, last in ((i, colon), (colon, end)):
                self._insert(tokens[first].end, " _msl::copied(")
                self._insert(tokens[last - 1].end, ")")

    def _operand_end(self, i: int) -> int:
        """Index of the token after the operand of ?: that starts at i."""
        nested = 0
        directive = self._tokens[i].directive
        while i < len(self._tokens) and self._tokens[i].directive == directive:
            text = self._tokens[i].text
            if text in ("(", "[", "{"):
                i = self._matching(i)
            elif text == "?":
                nested += 1
            elif text == ":":
                if not nested:
                    return i
                nested -= 1
            elif text in (")", "]", "}", ",", ";"):
                return i
            i += 1
        return i

    # ---- arrays as parameters

    def _array_parameters(self) -> None:
        """`constant int shape[3]` as a parameter: clang wants the pointer that it is."""
        tokens = self._tokens
        for i, token in enumerate(tokens):
            if token.text not in ("device", "constant", "threadgroup") or not token.parens:
                continue
            j, angle = i + 1, 0
            while j + 1 < len(tokens) and tokens[j].parens >= token.parens:
                text = tokens[j].text
                angle += (text == "<") - (text == ">")
                if text in ("*", "&", "(", ")", "=", ";", "[") or (text == "," and angle == 0):
                    break
                j += 1
            name = tokens[j - 1]
            if (
                tokens[j].text != "["
                or tokens[j + 1].text == "["
                or not re.match(r"[A-Za-z_]", name.text)
                or j - 1 == i
            ):
                continue
            end = self._matching(j)
            deeper = tokens[end + 1].text == "[" and tokens[end + 2].text != "["
            self._replace(
                name.start,
                tokens[end].end,
                f"(*{name.text})" if deeper else f"*{name.text}",
                token.directive,
            )

    # ---- constants that depend on function constants

    def _derived_constants(self) -> None:
        tokens = self._tokens
        i = 0
        while i < len(tokens):
            token = tokens[i]
            if (
                (token.text != "constant" and token.text not in self._constant_macros)
                or token.directive
                or token.in_function
                or token.parens
                or token.class_id
            ):
                i += 1
                continue
            j, equals = i, None
            while j < len(tokens) and tokens[j].text not in (";", "{", "}"):
                if tokens[j].text == "(" and equals is None:
                    break
                if tokens[j].text == "=" and equals is None:
                    equals = j
                j += 1
            if equals is None or j >= len(tokens) or tokens[j].text != ";":
                i = max(j, i + 1)
                continue
            words = {t.text for t in tokens[equals + 1 : j]}
            if not words & self._function_constants and "is_function_constant_defined" not in words:
                i = j
                continue
            name = tokens[equals - 1].text
            self._function_constants.add(name)
            start = self._statement_start(i)
            self._no_definition(start, equals)
            self._replace(
                tokens[equals].start,
                tokens[equals].end,
                f'_MSL_FUNCTION_CONSTANT_LABEL({name}) _MSL_A("derived"); '
                f"static inline auto _msl_derive_{name}() {{ return",
            )
            self._replace(tokens[j].start, tokens[j].end, "; }")
            i = j

    # ---- literals

    def _literals(self) -> None:
        """1.0 is a float. 1.0H and 1.0bf have suffixes that C++ does not let a library define."""
        tokens = self._tokens
        suffixing = set(SUFFIXING.findall(self.flat))
        skip_until = 0
        for i, token in enumerate(tokens):
            if i < skip_until:
                continue
            if token.text in suffixing and i + 1 < len(tokens) and tokens[i + 1].text == "(":
                skip_until = self._matching(i + 1)
            elif FLOAT.fullmatch(token.text):
                self._insert(token.end, "f")
            elif match := LITERAL.fullmatch(token.text):
                digits, suffix = match.groups()
                text = f"{digits}h" if suffix == "H" else f"bfloat({digits}f)"
                self._replace(token.start, token.end, text)

    def _strings(self) -> None:
        """A text is an array in constant memory, where it is an argument or an initial value."""
        tokens = self._tokens
        # Macros want it as it is: for a kernel's name, for a message.
        macros = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(", self.flat, re.M))
        for i, token in enumerate(tokens):
            if not token.text.startswith('"') or i == 0:
                continue
            end = i + 1  # of a text in several pieces
            while end < len(tokens) and tokens[end].text.startswith('"'):
                end += 1
            before, after = tokens[i - 1].text, tokens[end].text if end < len(tokens) else ""
            if before == "=" and tokens[i - 2].text == "]":
                continue  # the array itself
            if before not in ("(", ",", "{", "=", "return") or after not in (")", ",", "}", ";"):
                continue
            caller = self._caller(i)
            if caller in NO_STRING_OBJECT or caller in macros:
                continue
            self._insert(tokens[end - 1].end, "_msl_text")

    def _caller(self, i: int) -> str:
        """The word before the parenthesis around token i, "" if there is none."""
        depth = 0
        for j in range(i - 1, 0, -1):
            text = self._tokens[j].text
            if text in (";", "{", "}") and depth == 0:
                return ""
            depth += (text in ")]}") - (text in "([{")
            if depth < 0:
                return self._tokens[j - 1].text
        return ""


def _tokenize(flat: str) -> list[Token]:
    """Tokens without comments and directives other than #define, with their nesting."""
    tokens: list[Token] = []
    braces: list[str] = []
    class_ids: list[int] = []
    parens = 0
    saved: list[tuple[list[str], list[int], int]] = []
    defines = classes = 0
    at_line_start = True
    position = 0
    head = 0  # index of the first token of the current declaration

    def add(text: str, start: int, end: int) -> None:
        nonlocal parens, classes, head
        token = Token(text, start, end, 0, len(braces), parens)
        token.in_function = "function" in braces
        token.class_id = class_ids[-1] if class_ids and braces[-1] == "class" else 0
        tokens.append(token)
        if text in ("(", "["):
            parens += 1
        elif text in (")", "]"):
            parens = max(0, parens - 1)
        elif text == "{":
            words = [t.text for t in tokens[head:-1] if not t.directive]
            if "function" in braces:
                kind = "function"
            elif "namespace" in words or ("extern" in words and len(words) == 2):
                kind = "namespace"
            elif {"class", "struct", "union"} & set(_outside_angles(words)) and ")" not in words[
                -1:
            ]:
                kind = "class"
            elif "(" in words:
                kind = "function"
            else:
                kind = "other"
            braces.append(kind)
            classes += kind == "class"
            class_ids.append(classes if kind == "class" else 0)
            head = len(tokens)
        elif text == "}":
            if braces:
                braces.pop()
                class_ids.pop()
            head = len(tokens)
        elif text == ";" and parens == 0:
            head = len(tokens)

    while position < len(flat):
        if (
            at_line_start
            and flat[position] == "#"
            or (at_line_start and re.match(r"[ \t]*#", flat[position : position + 80]))
        ):
            end = position
            while True:
                end = flat.find("\n", end)
                if end < 0:
                    end = len(flat)
                    break
                if flat[end - 1] != "\\":
                    break
                end += 1
            word = re.match(r"[ \t]*#[ \t]*(\w*)", flat[position:end])
            name = word.group(1) if word else ""
            if name == "define":
                defines += 1
                tokens += _define_tokens(flat, position, end, defines)
            elif name in ("if", "ifdef", "ifndef"):
                saved.append((braces[:], class_ids[:], parens))
            elif name in ("else", "elif", "elifdef", "elifndef") and saved:
                braces[:], class_ids[:], parens = saved[-1][0][:], saved[-1][1][:], saved[-1][2]
            elif name == "endif" and saved:
                saved.pop()
            position = end
            at_line_start = False
            continue
        match = TOKEN.match(flat, position)
        assert match
        position = match.end()
        kind = match.lastgroup
        if kind == "newline":
            at_line_start = True
        elif kind == "comment" or kind == "space":
            at_line_start = at_line_start and kind == "space"
        else:
            at_line_start = False
            add(match.group(), match.start(), match.end())
    return tokens


def _outside_angles(words: list[str]) -> list[str]:
    """Words outside <...>, so that `template <class T> void f()` is no class."""
    out, depth = [], 0
    for word in words:
        if word == "<":
            depth += 1
        elif word == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            out.append(word)
    return out


def _define_tokens(flat: str, start: int, end: int, number: int) -> list[Token]:
    """The tokens of a #define: nesting counts from the start of its body."""
    out: list[Token] = []
    position, braces, parens = start, 0, 0
    while position < end:
        match = TOKEN.match(flat, position, end)
        if not match:
            break
        position = match.end()
        if match.lastgroup in ("space", "newline", "comment"):
            continue
        text = match.group()
        token = Token(text, match.start(), match.end(), number, braces, parens)
        if text in ("(", "["):
            parens += 1
        elif text in (")", "]"):
            parens = max(0, parens - 1)
        braces += (text == "{") - (text == "}")
        out.append(token)
    return out
