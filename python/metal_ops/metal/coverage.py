"""--coverage: clang's coverage mapping, led back to the user's files, and the report that llvm-cov makes of a run.

clang maps the flat, rewritten text that it reads, and honours no line markers. Its output is documented as "LLVM Code
Coverage Mapping Format": for each function its files, and regions with counters, in LEB128. Files and places are
replaced here, counters stay. A function's name gets the source's digest, so that kernels of one name in two sources are
two.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

from . import toolchain
from .flat import FlatText
from .toolchain import CompileError

FRONT = ["-fprofile-instr-generate", "-fcoverage-mapping"]
BACK = ["-fprofile-instr-generate", "-fprofile-update=atomic"]  # many workers count
SUFFIXES = (".profraw", ".metallib")  # what a run leaves in its folder
# The library's own headers and generated code, of which a report says nothing.
NOT_OURS = r"/msl/lib/|<kernel wrappers>|<command line>|/llvm-19/|/usr/include/"

_RECORD = re.compile(
    r"^(@__covrec_\w+ = .*? constant <\{ i64, i32, i64, i64, \[)(\d+)( x i8\] \}> <\{ i64 )(-?\d+)"
    r'(, i32 )\d+(, i64 -?\d+, i64 )-?\d+(, \[)\d+( x i8\] c)"(.*?)"( \}>.*)$',
    re.M,
)
_MAPPING = re.compile(
    r"^(@__llvm_coverage_mapping = private constant \{ \{ i32, i32, i32, i32 \}, \[)\d+( x i8\] \} "
    r'\{ \{ i32, i32, i32, i32 \} \{ i32 0, i32 )\d+(, i32 0, i32 \d+ \}, \[)\d+( x i8\] c)"(.*?)"( \}.*)$',
    re.M,
)
_NAME = re.compile(r'^(@__profn_\S+ = private constant \[)(\d+)( x i8\] c)"(.*?)"', re.M)


def wanted() -> bool:
    """Whether HOSTMETAL_COVERAGE names a folder: whatever is compiled then counts."""
    return bool(os.environ.get("HOSTMETAL_COVERAGE"))


def profile_list(work: Path) -> str:
    """clang's flag that leaves the library's functions without counters."""
    path = work / "profile.list"
    path.write_text(f"[clang]\ndefault:allow\nsource:{toolchain.library_root()}/*=skip\n")
    return f"-fprofile-list={path}"


def counts(text: str) -> bool:
    """Whether a module has counters."""
    return "@llvm.instrprof.increment(" in text


def _bytes(literal: str) -> bytes:
    """A text of IR: a backslash is two, or begins a byte's two digits."""
    return re.sub(
        rb"\\(\\|[0-9A-F]{2})",
        lambda m: m[1] if m[1] == b"\\" else bytes([int(m[1], 16)]),
        literal.encode("latin-1"),
    )


def _literal(data: bytes) -> str:
    return "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in data)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.md5(data).digest()[:8], "little")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _leb(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _numbers(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def in_users_files(text: str, source: FlatText, file: str, kept: Path | None) -> str:
    """A module whose mapping names the user's files.

    Args:
      text: what the front end made.
      source: the text that it read, with the way back.
      file: what messages call the source.
      kept: the file that has its text, where it is none itself.
    """
    digest = hashlib.sha256((file + source.flat).encode()).hexdigest()[:12].encode()
    whole = _MAPPING.search(text)
    if not whole:
        return text
    names = _files(_bytes(whole[5]))
    table = _Files(names[0])

    def record(match: re.Match[str]) -> str:
        data = _moved(_bytes(match[9]), names, table, source, file, kept)
        own = by_hash.get(int(match[4]), int(match[4]))
        size = len(data)
        return (
            f'{match[1]}{size}{match[3]}{own}{match[5]}{size}{match[6]}@FILES@{match[7]}{size}{match[8]}"{_literal(data)}"'
            f"{match[10]}"
        )

    by_hash: dict[int, int] = {}

    def name(match: re.Match[str]) -> str:
        old = _bytes(match[4])
        new = digest + b";" + old
        by_hash[_signed(_hash(old))] = _signed(_hash(new))
        return f'{match[1]}{len(new)}{match[3]}"{_literal(new)}"'

    text = _NAME.sub(name, text)
    text = _RECORD.sub(record, text)
    blob = table.encoded()
    text = text.replace("@FILES@", str(_signed(_hash(blob))))
    return _MAPPING.sub(
        lambda m: (
            f'{m[1]}{len(blob)}{m[2]}{len(blob)}{m[3]}{len(blob)}{m[4]}"{_literal(blob)}"{m[6]}'
        ),
        text,
    )


class _Files:
    """The files of a module: the folder that relative names are of, then names."""

    def __init__(self, folder: str):
        self._names = [folder]

    def number(self, name: str) -> int:
        if not name.startswith("<"):
            name = os.path.abspath(name)
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def encoded(self) -> bytes:
        names = b"".join(_leb(len(n.encode())) + n.encode() for n in self._names)
        return _leb(len(self._names)) + _leb(len(names)) + _leb(0) + names


def _files(data: bytes) -> list[str]:
    numbers = _numbers(data)
    count, size, packed = next(numbers), next(numbers), next(numbers)
    at = len(_leb(count) + _leb(size) + _leb(packed))
    names = zlib.decompress(data[at : at + packed]) if packed else data[at : at + size]
    out = []
    while names:
        length = next(_numbers(names))
        start = len(_leb(length))
        out.append(names[start : start + length].decode())
        names = names[start + length :]
    assert len(out) == count
    return out


_CODE, _SKIPPED, _BRANCH, _DECISION, _MCDC = 0, 2, 4, 5, 6


def _moved(
    data: bytes, names: list[str], table: _Files, source: FlatText, file: str, kept: Path | None
) -> bytes:
    """One function's mapping in the user's files."""
    numbers = _numbers(data)

    def take() -> int:
        return next(numbers)

    files = [take() for _ in range(take())]
    expressions = [(take(), take()) for _ in range(take())]
    out = [_leb(len(expressions))] + [_leb(a) + _leb(b) for a, b in expressions]
    kinds: list[int] = []
    for number in files:
        regions, line = [], 0
        for _ in range(take()):
            head = [take()]
            if head[0] & 7 == 0 and head[0] >> 3 == _BRANCH:
                head += [take(), take()]
            line += take()
            column, end, last = take(), line + 0, 0
            end += take()
            last = take()
            regions.append((head, line, column, end, last))
        main = names[number].endswith(("-", "<stdin>")) or number == 1
        name, places = names[number], [(r[1], r[2], r[3], r[4]) for r in regions]
        if main:
            name, places = _users(places, source, file, kept)
        kinds.append(table.number(name))
        body, before = [_leb(len(regions))], 0
        moved = sorted(zip(places, regions, strict=True), key=lambda pair: pair[0][:2])
        for (line, column, end, last), (head, *_) in moved:
            body += [
                *map(_leb, head),
                _leb(line - before),
                _leb(column),
                _leb(end - line),
                _leb(last),
            ]
            before = line
        out += body
    return b"".join([_leb(len(files)), *map(_leb, kinds), *out])


def _users(
    places: list[tuple[int, int, int, int]], source: FlatText, file: str, kept: Path | None
) -> tuple[str, list[tuple[int, int, int, int]]]:
    """Regions of the flat text in the file where the first of them lies; those that end elsewhere end where they begin."""
    name, out = "", []
    for line, column, end, last in places:
        gap, last = last & 1 << 31, last & ~(1 << 31)
        begin, close = source.place(line, column), source.place(end, last)
        name = name or begin.file
        if close.file != begin.file or (close.line, close.column) < (begin.line, begin.column):
            close = begin
        out.append((begin.line, begin.column, close.line, close.column | gap))
    if name == file and kept is not None:
        name = str(kept)
    return name, out


def report(folder: Path, libraries: list[str]) -> str:
    """llvm-cov's report of the runs that left their counts in a folder; its HTML and lcov go there.

    Args:
      folder: HOSTMETAL_COVERAGE of the runs.
      libraries: `.metallib`s beside those in the folder.

    Raises:
      CompileError: there are no counts, or llvm-cov is not installed.
    """
    profdata = toolchain.program("llvm-profdata-19", "METAL_OPS_LLVM_PROFDATA", "llvm-19")
    cov = toolchain.program("llvm-cov-19", "METAL_OPS_LLVM_COV", "llvm-19")
    raw = sorted(map(str, folder.glob("*.profraw")))
    libraries = [*sorted(map(str, folder.glob("*.metallib"))), *libraries]
    if not raw or not libraries:
        raise CompileError(
            f"metal: error: --coverage-report={folder}: no kernel compiled with --coverage, or with HOSTMETAL_COVERAGE set, "
            "left counts there; set HOSTMETAL_COVERAGE to that folder for the run, whose processes have to end by exit()"
        )
    merged = str(folder / "merged.profdata")
    listed = folder / "profraw.list"
    listed.write_text("\n".join(raw) + "\n")
    toolchain.run(
        [profdata, "merge", "-sparse", f"--input-files={listed}", "-o", merged], "llvm-profdata"
    )
    objects = [libraries[0], *(word for name in libraries[1:] for word in ("-object", name))]
    common = [*objects, f"-instr-profile={merged}", f"-ignore-filename-regex={NOT_OURS}"]
    html = ["-format=html", f"-output-dir={folder / 'html'}", "-show-branches=count"]
    toolchain.run([cov, "show", *common, *html], "llvm-cov")
    lcov = toolchain.run([cov, "export", "-format=lcov", *common], "llvm-cov")
    (folder / "lcov.info").write_text(lcov)
    done = subprocess.run([cov, "report", *common], capture_output=True, text=True, check=True)
    return done.stdout
