"""Where a source can be broken, and how. Both languages are formatted by program, which makes patterns enough: a binary
operator has a space on either side, a pointer's star and a template's bracket have none. universalmutator 1.14.1, whose
rules take these for operators, gave 17 places of 24 drawn in a shader and a SIMD file that do not compile, each at the
cost of a compilation; mull breaks code that clang compiles for the processor, which shaders and Python are not.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.mutation import rooms

SWAPS = {
    "relational": {
        "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
    },
    "arithmetic": {"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("*",), "//": ("*",), "**": ("*",)},
    "assignment": {"+=": ("-=",), "-=": ("+=",), "*=": ("/=",), "/=": ("*=",), "|=": ("&=",), "&=": ("|=",)},
    "bits": {"&": ("|",), "|": ("&",), "^": ("|",), "<<": (">>",), ">>": ("<<",)},
    "logical": {"&&": ("||",), "||": ("&&",), "and": ("or",), "or": ("and",)},
}  # fmt: skip
# Words, and the names of operators in vector code.
WORDS = {
    "true": "false", "false": "true", "True": "False", "False": "True", "YES": "NO", "NO": "YES",
    "min": "max", "max": "min", "fmin": "fmax", "fmax": "fmin", "floor": "ceil", "ceil": "floor",
    "Min": "Max", "Max": "Min", "Add": "Sub", "Sub": "Add", "MulAdd": "MulSub", "Lt": "Le", "Le": "Lt",
    "Gt": "Ge", "Ge": "Gt", "And": "Or", "Or": "And", "minimum": "maximum", "maximum": "minimum",
    "break": "continue", "continue": "break",
}  # fmt: skip
OPERATOR = re.compile(
    r"(?<= )(<=|>=|==|!=|<<|>>|\+=|-=|\*=|/=|\|=|&=|&&|\|\||//|\*\*|[-+*/%<>&|^]|and|or)(?= )"
)
WORD = re.compile(rf"\b({'|'.join(WORDS)})\b(?=\(|[ ;,)\]}}:]|$)", re.M)
NUMBER = re.compile(r"(?<![\w.])(\d+\.?\d*|\.\d+)(?=(?:f|u|UL?|L?L|ull)?(?![\w.]))")
ARGUMENTS = re.compile(r"(?<=\w\()([\w.]+), ([\w.]+)(?=\))")
IF = re.compile(r"\bif \(")
# A call or an assignment that fills a line by itself, after a line that is complete.
STATEMENT = re.compile(
    r"(?<=[;{}]\n)( +)((?:\[.*\]|\*?[\w:.\[\]>-]+(?:\(.*\)| [-+*/|&]?= .*));)$", re.M
)
NO_STATEMENT = re.compile(r"(return|using|delete|case|goto|throw|static_assert)\b")


def _digest(*parts: object) -> str:
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Mutant:
    """One place, broken in one way. Offsets are in the file's text, as it is now."""

    room: str
    path: str
    line: int
    start: int
    end: int
    before: str
    after: str
    operator: str
    id: str = ""  # of the line and its mutation, wherever that is now
    rank: float = field(default=0.0, compare=False)  # from 0 to 1; the lowest of a room are tried

    def apply(self, text: str) -> str:
        if text[self.start : self.end] != self.before:
            raise ValueError(f"{self.path} has changed since the place was drawn; draw anew.")
        return text[: self.start] + self.after + text[self.end :]

    def as_dict(self) -> dict[str, Any]:
        said = asdict(self)
        return {"id": said.pop("id"), **{k: said[k] for k in said if k not in ("start", "end")}}


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", "~", text)


def mask_cpp(text: str) -> str:
    """The text with everything that is no code blotted out, at the same offsets."""
    literals = r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|@?\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'"
    text = re.sub(literals, lambda m: _blank(m[0]), text, flags=re.S)
    # Code for macOS cannot be tried here.
    apple = r"^#if defined\(__APPLE__\).*?^#(?:else|endif)"
    text = re.sub(apple, lambda m: _blank(m[0]), text, flags=re.S | re.M)
    # The buffer that an argument is bound to: the launch layer asks by name.
    text = re.sub(r"\[\[\w+(?:\(\w+\))?\]\]", lambda m: _blank(m[0]), text)
    directives = r"^ *#(?! *define\b)(?:[^\n]*\\\n)*[^\n]*|^ *# *define \w+(?:\([^)]*\))?|\bstatic_assert\(.*?;"
    return re.sub(directives, lambda m: _blank(m[0]), text, flags=re.S | re.M)


def _offsets(text: str) -> list[int]:
    offsets = [0]
    for line in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def mask_python(text: str) -> str:
    """As mask_cpp; annotations count as no code either."""
    starts = _offsets(text)
    spans = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            spans.append(
                (
                    starts[token.start[0] - 1] + token.start[1],
                    starts[token.end[0] - 1] + token.end[1],
                )
            )
    for node in ast.walk(ast.parse(text)):
        types = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        spans += [_span(text, starts, kind) for kind in types if kind is not None]
    for start, end in spans:
        text = text[:start] + _blank(text[start:end]) + text[end:]
    return text


def _span(text: str, starts: list[int], node: Any) -> tuple[int, int]:
    # ast counts bytes, which matters where a line is not ASCII.
    def offset(line: int, column: int) -> int:
        whole = text[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(whole.encode()[:column].decode())

    return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)


Change = tuple[str, int, int, str]  # operator, start, end, the new text there


def _common(masked: str) -> Iterator[Change]:
    for found in OPERATOR.finditer(masked):
        if masked[found.end() + 1] == "~":  # a stream's text
            continue
        for name, table in SWAPS.items():
            for other in table.get(found[0], ()):
                yield name, *found.span(), other
    for found in WORD.finditer(masked):
        yield "word", *found.span(), WORDS[found[0]]
    for found in NUMBER.finditer(masked):
        value = found[0]
        other = str(int(value) + 1) if value.isdigit() else str(float(value) + 1)
        yield "constant", *found.span(), other
    for found in ARGUMENTS.finditer(masked):
        if found[1] != found[2]:
            yield "arguments", *found.span(), f"{found[2]}, {found[1]}"


def _cpp(text: str, masked: str) -> Iterator[Change]:
    yield from _common(masked)
    for found in IF.finditer(masked):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(masked[end], 0)
            end += 1
        yield "condition", found.end(), end - 1, f"!({text[found.end() : end - 1]})"
    for found in STATEMENT.finditer(masked):
        if not NO_STATEMENT.match(found[2]):
            yield "statement", *found.span(2), ";"


def _python(text: str, masked: str) -> Iterator[Change]:
    yield from _common(masked)
    starts = _offsets(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.If | ast.IfExp):
            start, end = _span(text, starts, node.test)
            if "TYPE_CHECKING" not in text[start:end]:
                yield "condition", start, end, f"(not ({text[start:end]}))"
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Raise | ast.Expr | ast.AugAssign | ast.Delete) and not is_docstring:
            yield "statement", *_span(text, starts, node), "pass"
        if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
            yield "statement", *_span(text, starts, node), "pass"


def changes(path: Path) -> tuple[str, list[Change]]:
    """The file's text and everything that can be done to it."""
    text = path.read_text()
    if path.suffix == ".py":
        return text, list(_python(text, mask_python(text)))
    return text, list(_cpp(text, mask_cpp(text)))


def surroundings(lines: list[str], number: int) -> str:
    """A line and those that are not empty on either side, by which a place is known."""
    around = [number - 1, number, number + 1]
    while around[0] >= 0 and not lines[around[0]].strip():
        around[0] -= 1
    while around[2] < len(lines) and not lines[around[2]].strip():
        around[2] += 1
    return "\n".join(lines[i].strip() if 0 <= i < len(lines) else "" for i in around)


def _lines(root: Path, room: str, patterns: list[str]) -> Iterator[list[Mutant]]:
    """Every line of a room that can be broken: all that can be done to it."""
    seen: Counter[str] = Counter()  # lines that are the same, with the same neighbours
    for path in sorted({p for pattern in patterns for p in root.glob(pattern) if p.is_file()}):
        name = str(path.relative_to(root))
        if name.startswith(rooms.ELSEWHERE):
            continue
        text, found = changes(path)
        lines, starts = text.splitlines(), _offsets(text)
        by_line: dict[int, list[Change]] = {}
        for change in found:
            by_line.setdefault(text.count("\n", 0, change[1]), []).append(change)
        for number, here in sorted(by_line.items()):
            known_by = surroundings(lines, number)
            place = _digest(known_by, seen[known_by])
            seen[known_by] += 1
            indent = len(lines[number]) - len(lines[number].lstrip())
            mutants = []
            for operator, start, end, after in here:
                before, column = text[start:end], start - starts[number] - indent
                id = _digest(place, operator, column, " ".join(before.split()), after)
                mutants.append(
                    Mutant(room, name, number + 1, start, end, before, after, operator, id)
                )
            yield mutants


def _chance(*parts: object) -> float:
    return int(_digest(*parts), 16) / 256**6


def draw(
    root: Path, rooms: dict[str, list[str]], seed: int, results: Mapping[str, Any] | None = None
) -> dict[str, list[Mutant]]:
    """All lines of each room that can be broken, in random order, each broken in one way.

    A line's place in the order, and its mutation, follow from the seed and from its text. A result keeps those that it
    was drawn with.
    """
    drawn: dict[str, list[Mutant]] = {}
    for room, patterns in rooms.items():
        drawn[room] = []
        for here in _lines(root, room, patterns):
            known = [m for m in here if m.id in (results or {})]
            chosen = known[0] if known else min(here, key=lambda m: _chance(seed, "how", m.id))
            line = _digest(*(m.id for m in here))
            old = (results or {}).get(chosen.id, {})
            drawn[room].append(replace(chosen, rank=old.get("rank", _chance(seed, room, line))))
        drawn[room].sort(key=lambda m: m.rank)
    return drawn
