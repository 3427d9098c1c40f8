"""Libraries of many kernels whose code is made when a pipeline asks for it; the kernels' descriptions are there at
once.

Only the cache is kept between the calls: the rewritten source, from which the front end makes IR of the kernels that
are asked for, and each object that was made, which the next library of the same source has from the beginning.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cache, cpu, ir, toolchain
from .compiler import Options, Unit, link, unit
from .toolchain import CompileError
from .wrappers import Wrappers, wrappers


def compile_library(
    file: str, options: Options, text: str | None = None, kernels: Sequence[str] = ()
) -> tuple[bytes, str]:
    """A .metallib of one source, and the warnings.

    A library of few kernels has the code of all of them. One of many has the descriptions (METALLIB_KERNEL_ABSENT) of
    those that were not asked for so far.

    Args:
      file: the source's path, which messages name.
      text: its content, if not that of the file.
      kernels: makes the code of these, and a library of nothing else.

    Raises:
      CompileError: with the messages.
    """
    objects, said = compile_objects(file, options, text, kernels)
    return link(objects, options.target), said


def compile_objects(
    file: str, options: Options, text: str | None = None, kernels: Sequence[str] = ()
) -> tuple[list[bytes], str]:
    """The objects of that library, and the warnings."""
    one = unit(file, options, text)
    made = one.kept()
    if made is not None:
        return [made[0]], made[1]
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        work = Path(folder)
        kept = cache.read(f"{one.key}.source")
        if kept is not None:
            module = _Module(**json.loads(kept))
        else:
            flags = one.flags(work)
            source, reflection, said = one.read(flags)
            if len(reflection.kernels) <= cpu.KERNELS_PER_PART or options.coverage or options.debug:
                return [one.compile(source, reflection, said, flags, work)], said
            behind = wrappers(reflection)
            module = _Module(
                source.text,
                vars(behind),
                cpu.front_end(behind.described(source.text), flags),
                [kernel.host_name for kernel in reflection.kernels],
                [constant.name for constant in reflection.constants],
                said,
            )
            cache.write(f"{one.key}.source", json.dumps(vars(module)).encode())
        objects = _of(module, one, kernels, work) if kernels else _all(module, one, work)
    return objects, module.said


@dataclass
class _Module:
    """The parsed source, as the cache keeps it.

    Attributes:
      text: the rewritten source.
      wrappers: the fields of Wrappers.
      tables: IR of the kernels' descriptions.
      names: those of the kernels.
      constants: the names of the function constants.
      said: the warnings.
    """

    text: str
    wrappers: dict[str, Any]
    tables: str
    names: list[str]
    constants: list[str]
    said: str


def _of(module: _Module, one: Unit, kernels: Sequence[str], work: Path) -> list[bytes]:
    """The object of some kernels."""
    numbers = {name: number for number, name in enumerate(module.names)}
    missing = [name for name in kernels if name not in numbers]
    if missing:
        raise CompileError(
            f"metal: error: --kernel={missing[0]}: {one.file} has no kernel of that name; it has "
            f"{', '.join(module.names[:10])}{', ...' * (len(module.names) > 10)}"
        )
    wanted = sorted(numbers[name] for name in set(kernels))
    entry = f"{one.key}-{toolchain.cache_key(*map(str, wanted))[:16]}.o"
    data = cache.read(entry)
    if data is None:
        text = Wrappers(**module.wrappers).some(module.text, wanted)
        whole = ir.pieces(cpu.front_end(text, one.flags(work)))
        parts = whole.parts(wanted, cpu.KERNELS_PER_PART)
        variants = one.variants
        data = cpu.compile_parts(parts, module.names, module.constants, one.target, variants, work)
        cache.write(entry, data)
        # Two processes at once may forget the other's objects: they are made again then.
        cache.write(f"{one.key}.index", json.dumps([*_index(one), [entry, wanted]]).encode())
    return [data]


def _all(module: _Module, one: Unit, work: Path) -> list[bytes]:
    """The objects of all kernels that were asked for at any time, and the tables of the others."""
    absent = set(range(len(module.names)))
    objects = []
    for entry, numbers in _index(one):
        if absent.issuperset(numbers) and (data := cache.read(entry)) is not None:
            absent.difference_update(numbers)
            objects.append(data)
    if absent:
        variants = one.variants
        text = ir.pieces(module.tables).part(sorted(absent))
        tables = cpu.compile_tables(text, one.target, variants, work)
        objects.append(tables)
    return objects


def _index(one: Unit) -> list[tuple[str, list[int]]]:
    """The objects that were made of a source: their entries in the cache, and their kernels."""
    kept = cache.read(f"{one.key}.index")
    return json.loads(kept) if kept else []
