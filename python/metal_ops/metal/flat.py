"""The flat text: a shader with its includes inlined, edits of it within their lines, and the way back to the user's files."""

from __future__ import annotations

import re
import subprocess
from bisect import bisect_right

from . import toolchain
from .features import HEADERS
from .messages import Message, Place
from .tokens import Token, tokenize
from .toolchain import CompileError

MARKER = re.compile(r'#[ \t]*(?:line[ \t]+)?(\d+)(?:[ \t]+"((?:[^"\\]|\\.)*)")?')


def flatten(file: str, text: str | None, flags: list[str], defines: list[str]) -> str:
    """`file` with its includes inlined. `text` stands for the file's content where given.

    Raises:
      CompileError: an include is missing, or a directive is wrong.
    """
    done = _preprocessed(file, text, ["-frewrite-includes", *flags, *defines])
    if done.returncode != 0:
        said = done.stderr.replace("<stdin>", file)
        said = re.sub(
            r"'([\w/.]+)' file not found",
            lambda m: _not_found(m[1]) or m[0],
            said,
        )
        raise CompileError(re.sub(r"^\d+ errors? generated\.\n", "", said, flags=re.M).rstrip("\n"))
    return _with_own_lines(done.stdout.replace("<stdin>", file))


_CONTINUES = re.compile(r'#[ \t]*(\d+)[ \t]+"((?:[^"\\]|\\.)*)"(.*)')
_OWN_LINE = re.compile(r'[ \t]*#[ \t]*line[ \t]+(\d+)(?:[ \t]+("(?:[^"\\]|\\.)*"))?')


def _with_own_lines(flat: str) -> str:
    """Behind an include clang counts a file's lines, whatever a #line before it has said of them."""
    if not re.search(r"^[ \t]*#[ \t]*line\b", flat, re.M):
        return flat
    rows = []
    said: dict[str, tuple[int, str]] = {}  # by file: what to add to its lines, and its other name
    file, number = "", 1
    for row in flat.split("\n"):
        if continues := _CONTINUES.match(row):
            number, file = int(continues[1]), continues[2]
            if file in said:
                more, name = said[file]
                row = f"# {number + more} {name}{continues[3]}"
        else:
            number += 1
            if own := _OWN_LINE.match(row):
                name = said[file][1] if file in said else f'"{file}"'
                said[file] = (int(own[1]) - number, own[2] or name)
        rows.append(row)
    return "\n".join(rows)


def definitions(flat: str) -> str:
    """The macros of a flat text that are defined at its end, as `#define`s; "" where it cannot be told."""
    command = [toolchain.clang(), "-x", "c++", "-E", "-dM", "-nostdinc", "-nostdinc++", "-"]
    done = subprocess.run(command, input=flat, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def _not_found(header: str) -> str:
    """The message for a header that is not there; "" where it may be the user's."""
    if header in HEADERS:
        return f"'{header}': {HEADERS[header]}"
    if not re.fullmatch(r"c?\w+|\w+\.h", header):
        return ""
    return f"'{header}' file not found (Metal has no C or C++ standard library; use <metal_stdlib>)"


def preprocess(file: str, text: str | None, flags: list[str]) -> tuple[str, str]:
    """The output of `metal -E`: the text behind the preprocessor, and its messages.

    Raises:
      CompileError: an include is missing, or a directive is wrong.
    """
    done = _preprocessed(file, text, flags)
    # The library's headers are no files on a Mac, and -H does not list them there.
    own = re.compile(rf"^\.+ {re.escape(str(toolchain.library_root()))}.*\n", re.M)
    said = own.sub("", done.stderr).replace("<stdin>", file)
    if done.returncode != 0:
        raise CompileError(said.rstrip("\n"))
    return done.stdout, said


def _preprocessed(
    file: str, text: str | None, flags: list[str]
) -> subprocess.CompletedProcess[str]:
    command = [
        *(toolchain.clang(), "-x", "c++", "-E", "-nostdinc", "-nostdinc++", "-std=gnu++17"),
        *("-fno-caret-diagnostics", "-isystem", str(toolchain.library_root() / "include")),
        *flags,
        file if text is None else "-",
    ]
    return subprocess.run(command, input=text, capture_output=True, text=True)


class FlatText:
    """A flat text with edits on it, and places in either form of it as the user's."""

    def __init__(self, original: str):
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
        self.tokens = tokenize(flat)

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
        """The user's own text in a line (from 1) of the rewritten text."""
        return self._original[line - 1]

    def source_line(self, place: Place) -> str | None:
        """The text of a user's line, for the caret."""
        # The last of that number: where clang wrote an include out, its own lines before it count on in the file.
        for line in range(len(self._files), 0, -1):
            if self._files[line - 1] == (place.file, place.line):
                return self.line_text(line)
        return None

    # ---- edits

    def replace(self, start: int, end: int, text: str, directive: int = 0) -> None:
        lines = self.flat.count("\n", start, end)
        self._edits.append((start, end, text + ("\\\n" if directive else "\n") * lines))

    def insert(self, at: int, text: str) -> None:
        # Insertions at one place belong in the order in which they are made, and not into a replacement.
        self._edits.append((at, at, text))

    def error(self, token: Token, text: str) -> None:
        self.messages.append(Message(self.place_in_flat(token.start), "error", text))

    def edited(self) -> str:
        """The text with all edits."""
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

    # ---- tokens

    def matching(self, i: int) -> int:
        """Index of the bracket that closes the one at i."""
        depth = 0
        for j in range(i, len(self.tokens)):
            text = self.tokens[j].text
            depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
            if depth == 0:
                return j
        return len(self.tokens) - 1

    def statement_start(self, i: int) -> int:
        """Index of the first token of the declaration that token i is part of."""
        tokens = self.tokens
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
                j = self.matching(j) + 1
        return j
