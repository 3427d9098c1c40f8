"""The shader functions of this library: kernels that are one template's instances count as one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs/checked_shaders.jsonl"
# A part of all functions: those that no call reaches yet. The aim is 0.02.
MOST_LEFT = 0.3
# The folders of the objects that each library is made of.
LIBRARIES = {"kernels": "build/kernels", "device": "build/device"}
_DTYPE = re.compile(r"(?<=_)(?:half|bfloat|float2?|double|u?char|u?short|u?int|u?long|bool)(?=_|$)")
_NUMBER = re.compile(r"(?<=_)-?\d+(?=_|$)")
Function = tuple[str, str]  # file, name
# Kernels for these are instances of templates, as kernels for other dtypes are.
_RARE = re.compile(r"(?<=_)(?:half|bfloat|u?char|u?short|uint|ulong)(?=_|$)")


def function_of(kernel: str) -> str:
    """`add_T_N` of `add_float_11`."""
    return _NUMBER.sub("N", _DTYPE.sub("T", kernel))


def objects(library: str, root: Path = ROOT) -> list[str]:
    """Objects of `make metal`, whose kernels are described beside them."""
    return [
        str(path)[: -len(".deferred")]
        for path in sorted((root / LIBRARIES[library]).rglob("*.deferred"))
    ]


def kernels(library: str, root: Path = ROOT) -> dict[str, str]:
    """The file of each kernel."""
    found: dict[str, str] = {}
    for path in objects(library, root):
        with open(path + ".deferred", "rb") as opened:
            head = json.loads(opened.readline())
        found |= dict.fromkeys(head["names"], head["file"])
    return found


def of_each(library: str, root: Path = ROOT) -> dict[Function, list[str]]:
    """The kernels of each function."""
    found: dict[Function, list[str]] = {}
    for kernel, file in kernels(library, root).items():
        found.setdefault((file, function_of(kernel)), []).append(kernel)
    return found


def common(library: str, root: Path = ROOT) -> list[str]:
    """The kernels that calls with common dtypes launch, of each function."""
    return [
        kernel
        for names in of_each(library, root).values()
        for kernel in [name for name in names if not _RARE.search(name)] or names[:1]
    ]


def recorded() -> list[dict[str, Any]]:
    """A row for each file: its functions that calls reach, and those that are left."""
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def reached_by(calls: Iterable[Iterable[tuple[str, str]]], root: Path = ROOT) -> set[Function]:
    """The functions of the kernels, each with its library, that calls have launched."""
    files = {library: kernels(library, root) for library in LIBRARIES}
    return {
        (files[library][kernel], function_of(kernel))
        for launched in calls
        for library, kernel in launched
        if kernel in files[library]
    }


def record(reached: set[Function], root: Path = ROOT) -> None:
    """Writes the rows of a whole run."""
    rows: dict[str, dict[str, Any]] = {}
    for library in LIBRARIES:
        for file, name in sorted(of_each(library, root)):
            row = rows.setdefault(file, {"file": file, "reached": [], "left": []})
            row["reached" if (file, name) in reached else "left"].append(name)
    RECORD.write_text("".join(json.dumps(rows[file]) + "\n" for file in sorted(rows)))
