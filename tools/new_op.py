#!/usr/bin/env python3
"""Copies the template op, NullOp, to a new name: `make new-op NAME=my_op`, or `tools/new_op.py my_op`.

The copy builds and passes its tests as it is; from there one changes it piece by piece.
"""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "null_op"
FILES = (
    "kernels/null_op/null_op_op.cc",
    "kernels/null_op/null_op_params.h",
    "kernels/null_op/null_op.metal",
    "python/metal_ops/ops/null_op.py",
    "tests/metal_kernels/on_device/test_null_op.py",
)
# TensorFlow derives the Python name from the op's: MyOp -> my_op. Only such names come back unchanged.
WORD = "[a-z][a-z0-9]+"
# Sentences that are true of the template only.
TEMPLATE_ONLY = (
    (r", the template that `make new-op NAME=\.\.\.` copies", ""),
    (r"NullOp: the template op", "NullOp"),
)


def camel_case(name: str) -> str:
    """Turns "my_op" into "MyOp"."""
    return "".join(word.capitalize() for word in name.split("_"))


def rename(text: str, name: str) -> str:
    """Replaces the template's name in a path or a text, in all its spellings."""
    for old, new in TEMPLATE_ONLY:
        text = re.sub(old, new, text)
    for old, new in (
        (TEMPLATE, name),
        (camel_case(TEMPLATE), camel_case(name)),
        (TEMPLATE.upper(), name.upper()),
    ):
        text = text.replace(old, new)
    return text


def check(name: str) -> str:
    """The error of the name, or ""."""
    if not re.fullmatch(f"{WORD}(_{WORD})*", name) or keyword.iskeyword(name):
        return (
            f"{name!r} cannot be an op's name; use words of at least two lower-case letters or digits, each beginning "
            "with a letter, joined by '_': my_op"
        )
    taken = [rename(path, name) for path in FILES if (ROOT / rename(path, name)).exists()]
    return f"there is an op {name!r} already: {', '.join(taken)}" if taken else ""


def format_copies(paths: list[Path]) -> None:
    """Breaks lines anew, which are longer or shorter by the name; left to `make format` where there is no .venv yet."""
    tools = ROOT / ".venv" / "bin"
    python = [path for path in paths if path.suffix == ".py"]
    for command, files in (
        (["clang-format", "-i"], [path for path in paths if path not in python]),
        (["ruff", "format", "-q"], python),
    ):
        if (tools / command[0]).exists():
            subprocess.run([tools / command[0], *command[1:], *files], check=True)


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 done, 2 wrong name."""
    if len(arguments) != 1 or not arguments[0]:
        print("usage: make new-op NAME=my_op", file=sys.stderr)
        return 2
    name = arguments[0]
    if problem := check(name):
        print(f"new-op: {problem}", file=sys.stderr)
        return 2
    for path in FILES:
        target = ROOT / rename(path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rename((ROOT / path).read_text(), name))
        print(f"  {rename(path, name)}")
    format_copies([ROOT / rename(path, name) for path in FILES])
    print(f"next: make test ARGS={rename(FILES[-1], name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
