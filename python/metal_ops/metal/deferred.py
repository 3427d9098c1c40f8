"""Objects that describe their kernels and have no code, and the code of one kernel when a pipeline asks for it.

A build from source compiles few of the thousands of kernels that a program uses. `metal -c --deferred` reads a source and
keeps its IR beside the object, in `<object>.deferred`: a line of JSON that says where each definition lies, and the
definitions, compressed one by one. The library that `metallib` makes of such objects has a text that says in which file
each kernel is (METALLIB_DEFERRED_SYMBOL). The runtime gives it to `metal --from-deferred` with the name of a kernel.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import cache, toolchain
from .linking import link
from .toolchain import CompileError

if TYPE_CHECKING:
    from . import ir
    from .compiler import Options

# Modules that compile are imported where they are called: importing takes longer than finding a kernel in the cache.

SUFFIX = ".deferred"
FORMAT = 2  # of these files; the cache has them by it


def compile_deferred(
    file: str, options: Options, text: str | None = None
) -> tuple[bytes, bytes, str]:
    """One .metal file as an object of tables, the content of its `.deferred` file, and the warnings.

    Args:
      file: its path, which messages name.
      text: its content, if not that of the file.

    Raises:
      CompileError: with the messages.
    """
    from . import cpu, ir
    from .compiler import attach_gpu, unit
    from .wrappers import wrappers

    one = unit(file, options, text)
    entry = f"{one.key}-{FORMAT}{SUFFIX}"
    kept = cache.read(entry)
    if kept is not None:
        line, _, rest = kept.partition(b"\n")
        size, said = json.loads(line)
        data, code = rest[:size], rest[size:]
    else:
        with tempfile.TemporaryDirectory(prefix="metal-") as folder:
            work = Path(folder)
            flags = one.flags(work)
            source, reflection, said = one.read(flags)
            names = [kernel.host_name for kernel in reflection.kernels]
            whole = ir.pieces(cpu.front_end(wrappers(reflection).behind(source.text), flags))
            tables = ir.without_code(whole) + ir.mark_names(names)
            data = cpu.compile_tables(tables, one.target, ("plain",), work)
        head = {
            "digest": one.key,
            "file": file,
            "source": one.source,
            "options": {f.name: getattr(options, f.name) for f in fields(options)},
            "names": names,
            "constants": [constant.name for constant in reflection.constants],
            "target": one.target,
            "wide": one.wide and one.target in toolchain.NARROW,
        }
        code = _packed(head, whole)
        cache.write(entry, json.dumps([len(data), said]).encode() + b"\n" + data + code)
    return attach_gpu(data, file, options, text), code, said


def _packed(head: dict[str, Any], whole: ir.Pieces) -> bytes:
    from . import cpu

    blocks, places, at = [], {}, 0
    for name, text in [("", whole.frame), *whole.definitions.items()]:
        blocks.append(zlib.compress(text.encode(), 1))
        places[name] = [at, len(blocks[-1])]
        at += len(blocks[-1])
    parts = [numbers for numbers, _ in whole.parts(sorted(whole.entries), cpu.KERNELS_PER_PART)]
    head |= {"entries": whole.entries, "places": places, "parts": parts}
    return b"".join([json.dumps(head).encode(), b"\n", *blocks])


class _Definitions(dict[str, str]):
    """The definitions of a module, each read when it is asked for."""

    def __init__(self, data: bytes, places: dict[str, list[int]], start: int):
        super().__init__(dict.fromkeys(places, ""))
        self._data, self._places, self._start = data, places, start

    def __getitem__(self, name: str) -> str:
        at, size = self._places[name]
        begin = self._start + at
        return zlib.decompress(self._data[begin : begin + size]).decode()


class _File:
    """A `.deferred` file, if it is still the one that a library was made with, where its digest is known."""

    def __init__(self, path: Path, digest: str | None = None):
        try:
            self._data = path.read_bytes()
        except OSError as error:
            raise CompileError(
                f"metal: error: the kernels' code would be made of '{path}', which cannot be read: {error.strerror}; run "
                "'make metal' again, or build with METAL_OPS_TARGETS=all, which leaves no kernel for later"
            ) from None
        line, _, _ = self._data.partition(b"\n")
        self.head: dict[str, Any] = json.loads(line)
        self._start = len(line) + 1
        if digest not in (None, self.head["digest"]):
            raise CompileError(
                f"metal: error: '{path}' was built anew after the library was loaded; start the program again"
            )

    def variant(self, checked: bool, widest: bool) -> tuple[str, str]:
        """The kind of code to make, and its processor."""
        wide = widest and self.head["wide"] and not checked
        kind = "checked" if checked else "widened" if wide else "plain"
        return kind, toolchain.WIDE if wide else self.head["target"]

    def key(self, variant: str, numbers: Sequence[int]) -> str:
        """The cache's name for the code of some kernels."""
        fibers = "-fibers" * (os.environ.get("METAL_OPS_FIBERS", "0") not in ("", "0"))
        names = hashlib.sha256(repr(list(numbers)).encode()).hexdigest()[:16]
        return f"{self.head['digest']}-{variant}{fibers}-{names}.o"

    def compiled(self, variant: str, numbers: Sequence[int]) -> bytes:
        """The object of some kernels, which the cache has from then on."""
        from . import cpu

        head = self.head
        with tempfile.TemporaryDirectory(prefix="metal-") as folder:
            parts = self.pieces().parts(numbers, cpu.KERNELS_PER_PART)
            data = cpu.compile_parts(
                parts, head["names"], head["constants"], head["target"], (variant,), Path(folder)
            )
        cache.write(self.key(variant, numbers), data)
        return data

    def checked_tables(self) -> bytes:
        """The object that describes the kernels of METAL_DEVICE_WRAPPER_TYPE=1."""
        from . import cpu, ir

        key = f"{self.head['digest']}-checked-tables.o"
        data = cache.read(key)
        if data is None:
            with tempfile.TemporaryDirectory(prefix="metal-") as folder:
                whole = self.pieces()
                whole.definitions = {name: whole.definitions[name] for name in whole.definitions}
                text = ir.without_code(whole)
                data = cpu.compile_tables(text, self.head["target"], ("checked",), Path(folder))
            cache.write(key, data)
        return data

    def pieces(self) -> ir.Pieces:
        """The module."""
        from . import ir

        definitions = _Definitions(self._data, self.head["places"], self._start)
        frame = definitions[""]
        del definitions[""]
        entries = {int(number): name for number, name in self.head["entries"].items()}
        return ir.Pieces(frame, definitions, entries)


def index(objects: Sequence[str]) -> str:
    """Where the code of kernels is that objects lack; "" where all have their code.

    Raises:
      CompileError: some have their code and others do not: validation would find the former without checked kernels.
    """
    found = [file for file in objects if os.path.exists(file + SUFFIX)]
    if not found:
        return ""
    if len(found) < len(objects):
        other = next(file for file in objects if file not in found)
        raise CompileError(
            f"metallib: error: {found[0]} was compiled with --deferred and {other} was not; compile both in one way"
        )
    files: list[list[str]] = []
    kernels: dict[str, list[int]] = {}
    for number, file in enumerate(found):
        with open(file + SUFFIX, "rb") as opened:
            head = json.loads(opened.readline())
        files.append([os.path.abspath(file + SUFFIX), head["digest"]])
        kernels |= {name: [number, i] for i, name in enumerate(head["names"])}
    # Sources are named as the compiler was told of them: from the folder where it ran, and this does.
    return json.dumps({"files": files, "kernels": kernels, "folder": os.getcwd()})


def code(
    text: str, kernels: Sequence[str], checked: bool, widest: bool, checks: bool = False
) -> bytes:
    """A .metallib of these kernels alone.

    Args:
      text: The result of index().
      kernels: their names.
      checked: whether their accesses are checked.
      widest: whether this processor has AVX-512, for shaders that ask for it.
      checks: the kernels of HOSTMETAL_CHECK instead, made of their sources.

    Raises:
      CompileError: their sources are not there any more.
    """
    contents = json.loads(text)
    wanted: dict[int, list[int]] = {}
    for name in kernels:
        if name not in contents["kernels"]:
            raise CompileError(f"metal: error: --kernel={name}: the library has no such kernel")
        file, number = contents["kernels"][name]
        wanted.setdefault(file, []).append(number)
    objects, target = [], ""
    for file, numbers in wanted.items():
        place, digest = contents["files"][file]
        if checks:
            head = _File(Path(place), digest).head
            if "source" not in head:  # of a compiler that did not keep it
                raise CompileError(
                    "metal: error: HOSTMETAL_CHECK compiles kernels from their sources, which the library does not name; "
                    "run 'make metal' again"
                )
            names = [name for name in kernels if contents["kernels"][name][0] == file]
            objects += _with_checks(head, contents["folder"], names)
            continue
        data, used = _code_of(Path(place), digest, sorted(numbers), checked, widest)
        objects.append(data)
        target = max(target, used)  # x86-64-v4 after x86-64-v3
    return link(objects, target or None)


def _with_checks(head: dict[str, Any], folder: str, kernels: Sequence[str]) -> list[bytes]:
    """The objects of some kernels of one file for HOSTMETAL_CHECK, or one that was made ahead and has them. The IR that is
    kept does not know where in the source it comes from."""
    from .compiler import Options, unit
    from .on_demand import _index, compile_objects

    given: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in head["options"].items()
    }
    file = head["file"]
    with contextlib.chdir(folder):
        try:
            same = unit(file, Options(**given), None).source == head["source"]
        except CompileError:
            same = False
        if not same:
            raise CompileError(
                f"metal: error: HOSTMETAL_CHECK compiles '{os.path.join(folder, file)}' anew, which is not as it was when the "
                "library was built; run 'make metal' again"
            )
        options = Options(**{**given, "checks": True})
        wanted = {head["names"].index(name) for name in kernels}
        for entry, numbers in _index(unit(file, options, None)):
            if wanted <= {*numbers} and (data := cache.read(entry)):
                return [data]
        return compile_objects(file, options, None, kernels)[0]


def checks_ahead(objects: Sequence[str], kernels: Sequence[str], folder: str) -> None:
    """Makes the code of HOSTMETAL_CHECK of these kernels, some dozen at a time, which takes less than one by one.

    Args:
      folder: where the compiler was told of the sources.
    """
    from concurrent.futures import ProcessPoolExecutor

    jobs = []
    for path in objects:
        with open(path + SUFFIX, "rb") as opened:
            head = json.loads(opened.readline())
        of_file = [name for name in head["names"] if name in {*kernels}]
        jobs += [(head, folder, of_file)] * bool(of_file)
    # A file's parts by one process: two would both write down what the cache has of it.
    jobs.sort(key=lambda job: -len(job[2]))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(_checks_of, jobs):
            pass


def _checks_of(job: tuple[dict[str, Any], str, list[str]]) -> None:
    from . import cpu

    head, folder, kernels = job
    for first in range(0, len(kernels), cpu.KERNELS_PER_PART):
        _with_checks(head, folder, kernels[first : first + cpu.KERNELS_PER_PART])


def _code_of(
    path: Path, digest: str, numbers: list[int], checked: bool, widest: bool
) -> tuple[bytes, str]:
    """The object of some kernels of one file, or of the part that was made ahead and has them; and its processor."""
    module = _File(path, digest)
    variant, target = module.variant(checked, widest)
    for part in module.head["parts"]:
        if set(numbers) <= set(part) and (data := cache.read(module.key(variant, part))):
            return data, target
    return cache.read(module.key(variant, numbers)) or module.compiled(variant, numbers), target


def ahead(objects: Sequence[str], widest: bool) -> None:
    """Makes the code of all kernels of objects, some dozen at a time, which takes less than one by one."""
    from concurrent.futures import ProcessPoolExecutor

    jobs = []
    for file in objects:
        module = _File(Path(file + SUFFIX))
        variant, _ = module.variant(False, widest)
        for part in module.head["parts"]:
            if not cache.read(module.key(variant, part)):
                jobs.append((file + SUFFIX, variant, part))
    # Processes, as a third of the work is Python's own.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(_make, jobs):
            pass


def with_code(objects: Sequence[str], widest: bool) -> tuple[list[bytes], str]:
    """Objects with the code of all kernels, whose checked kernels are still for later, and their processor."""
    ahead(objects, widest)
    out, target = [], ""
    for file in objects:
        module = _File(Path(file + SUFFIX))
        variant, used = module.variant(False, widest)
        for part in module.head["parts"]:
            out.append(cache.read(module.key(variant, part)) or module.compiled(variant, part))
        out.append(module.checked_tables())
        target = max(target, used)
    return out, target


def _make(job: tuple[str, str, list[int]]) -> None:
    file, variant, part = job
    _opened(file).compiled(variant, part)


@functools.lru_cache(maxsize=1)  # the parts of a file come one after the other
def _opened(file: str) -> _File:
    return _File(Path(file))


def has_wide_vectors() -> bool:
    """Whether this processor is one of toolchain.WIDE, as the runtime asks."""
    if os.environ.get("HOSTMETAL_WIDE") == "0":
        return False
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return words >= {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def main(argv: Sequence[str] | None = None) -> int:
    """`metal --from-deferred <output> plain|checked|widest|checks <kernel>...`, what index() said as standard input."""
    out, kind, *kernels = (sys.argv if argv is None else argv)[2:]
    try:
        text = sys.stdin.read()
        kinds = [kind == name for name in ("checked", "widest", "checks")]
        Path(out).write_bytes(code(text, kernels, *kinds))
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        place = error.filename or tempfile.gettempdir()
        print(f"metal: error: {error.strerror}: {place!r}", file=sys.stderr)
        return 1
    return 0
