"""Rooms include only rooms that docs/architecture.md allows."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

pytestmark = pytest.mark.house

NATIVE = (".cc", ".h", ".mm", ".metal", ".inc")
OP = "kernels/<op>/"
# The C headers of POSIX; others of the standard libraries lie in no folder.
STANDARD = "sys/"
TENSORFLOW = r"\btensorflow::|\bTF_(?!MetalStream\b)\w+"


def table() -> dict[str, list[str]]:
    """room -> the beginnings of its allowed includes."""
    rooms: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        cells = [re.findall(r"`([\w/.<>-]+)`", cell) for cell in line.split(" | ")]
        if len(cells) == 3 and cells[0] and "/" in cells[0][0]:
            inherited = rooms[OP] if OP in cells[2] else []
            for room in cells[0]:
                rooms[room] = [*inherited, *(name for name in cells[2] if name != OP)]
    return rooms


ROOMS = table()


def room_of(path: str) -> str:
    """The room that a file lies in, "" if it is none of ours."""
    named = max((room for room in ROOMS if path.startswith(room)), key=len, default="")
    return OP if not named and path.startswith("kernels/") else named


def native(path: Path, text: str) -> set[str]:
    """The includes of a source, by paths from the root, without the standard library."""
    found = set()
    for quote, name in re.findall(r'^\s*#\s*(?:include|import)\s*(["<])([^">]+)', text, re.M):
        beside = (ROOT / path.parent / name).resolve()
        if quote == '"' and beside.is_file():
            found.add(str(beside.relative_to(ROOT)))
        elif quote == '"' or ("/" in name and not name.startswith(STANDARD)):
            found.add(name)
    return found


def python(path: Path, text: str) -> set[str]:
    """The imports of a Python file, by paths where it is this package, without the standard
    library."""
    package = path.parent.parts[1:]
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names |= {f"{module}.{alias.name}" for alias in node.names}
    found = set()
    for name in names:
        first, *rest = name.split(".")
        if first == "metal_ops":
            place = Path("python", first)
            for part in rest:
                if (ROOT / place / part).is_dir():
                    place /= part
                elif (ROOT / place / f"{part}.py").is_file():
                    place /= f"{part}.py"
                    break
            found.add(str(place) if place.suffix else f"{place}/__init__.py")
        elif first not in sys.stdlib_module_names:
            found.add(first)
    return found


def forbidden(path: Path, text: str) -> list[str]:
    """The imports that the table does not allow the file's room."""
    room = room_of(str(path))
    allowed = ROOMS[room]
    included = (python if path.suffix == ".py" else native)(path, text)
    # An op's room is its own folder.
    family = str(path.parent) + "/" if room == OP else room
    wrong = [
        f"{path}: {name}"
        for name in sorted(included)
        if not (name.startswith(family) if room == OP else room_of(name) == room)
        and not name.startswith(tuple(allowed))
    ]
    if path.suffix != ".py" and not any(name.startswith("tensorflow/") for name in allowed):
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        wrong += [f"{path}: {found.group()}" for found in re.finditer(TENSORFLOW, code)]
    return wrong


def sources(*folders: str) -> list[Path]:
    return sorted(
        path.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (*NATIVE, ".py") and "__pycache__" not in path.parts
    )


EVERY = sources(
    "kernels", "ops", "graph", "hostmetal/src", "hostmetal/msl", "hostmetal/include", "device"
)
PACKAGE = [path for path in sources("python/metal_ops") if path.suffix == ".py"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_the_table(room: str):
    files = [path for path in (*EVERY, *PACKAGE) if room_of(str(path)) == room]
    assert files, "no file lies in that room"
    assert [line for path in files for line in forbidden(path, (ROOT / path).read_text())] == []


def test_every_file_has_a_room():
    assert [path for path in (*EVERY, *PACKAGE) if not room_of(str(path))] == []


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_room_is_given_it_uses(room: str):
    files = [path for path in (*EVERY, *PACKAGE) if room_of(str(path)) == room]
    included = {
        name
        for path in files
        for name in (python if path.suffix == ".py" else native)(path, (ROOT / path).read_text())
    }
    inherited = ROOMS[OP] if room != OP and set(ROOMS[OP]) <= set(ROOMS[room]) else []
    unused = [
        allowed
        for allowed in ROOMS[room]
        if allowed not in inherited and not any(name.startswith(allowed) for name in included)
    ]
    assert unused == []


@pytest.mark.parametrize(
    "path, text",
    [
        ("kernels/msl/x.h", '#include "kernels/runtime/op.h"'),
        ("kernels/simd/x.cc", '#include "kernels/runtime/op.h"'),
        ("kernels/runtime/x.h", '#include "kernels/gemm/gemm.h"'),
        ("kernels/runtime/x.cc", '#include "tensorflow/core/framework/op.h"'),
        ("kernels/gemm/x.h", '#include "kernels/rays/packed_rays.h"'),
        ("kernels/softshrink/x.cc", '#include "kernels/zero_out/x.h"'),
        ("kernels/softshrink/x.cc", '#include "tensorflow/core/framework/op.h"'),
        ("kernels/softshrink/x.cc", "#include <Metal/Metal.h>"),
        ("kernels/softshrink/x.mm", "bool is = x.dtype() == TF_FLOAT;"),
        ("kernels/rays/x.h", "tensorflow::Tensor x;"),
        ("graph/patterns/x.cc", '#include "kernels/gemm/fused_ops.h"'),
        ("hostmetal/src/x.mm", '#include "hostmetal/src/cpu/driver.h"'),
        ("hostmetal/src/cuda/x.cc", '#include "hostmetal/src/cpu/workers.h"'),
        ("hostmetal/src/x.mm", '#include "tensorflow/c/tf_status.h"'),
        ("device/x.mm", '#include "hostmetal/src/device.h"'),
        ("device/x.mm", '#include "kernels/softshrink/x.h"'),
        ("python/metal_ops/metal/x.py", "import tensorflow as tf"),
        ("python/metal_ops/metal/x.py", "from .. import device"),
        ("python/metal_ops/ops/x.py", "from metal_ops.nerf import cli"),
        ("python/metal_ops/layers/x.py", "import matplotlib.pyplot"),
    ],
)
def test_control_what_is_forbidden_is_seen(path: str, text: str):
    assert len(forbidden(Path(path), text)) == 1


@pytest.mark.parametrize(
    "path, text",
    [
        ("kernels/softshrink/x.cc", '#include <vector>\n#include "kernels/softshrink/x.h"'),
        ("kernels/softshrink/x.mm", "id<TF_MetalStream> stream;  // not of tensorflow::"),
        ("kernels/fused_conv2d/x.cc", '#include "kernels/fused_matmul/x.h"'),
        ("hostmetal/src/cpu/x.cc", '#include <sys/mman.h>\n#include "hostmetal/src/driver.h"'),
        (
            "python/metal_ops/ops/x.py",
            "import re\nfrom . import _declared\nfrom metal_ops import grid",
        ),
    ],
)
def test_control_what_is_allowed_is_not(path: str, text: str):
    assert forbidden(Path(path), text) == []
