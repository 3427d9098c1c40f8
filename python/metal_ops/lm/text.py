"""The text to learn: a file, or the documentation strings of Python's standard library."""

from __future__ import annotations

import ast
import sys
import sysconfig
from pathlib import Path

import numpy as np

from metal_ops.programs.errors import ProgramError
from metal_ops.programs.reading import kind_of, open_file

# Held back at the end, to measure on.
_HELD_OUT = 0.05
_MOST_BYTES = 1 << 31
STANDARD_LIBRARY = "the documentation strings of Python's standard library"


class TextError(ProgramError):
    """A text that cannot be read or is too short."""


def load(data: str | None, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes to train on and bytes that are held back, uint8.

    Args:
      data: A file, or None for the documentation strings.
      context: Bytes that are seen at once; each part has more.

    Raises:
      TextError: If it cannot be read or is too short.
    """
    if data is None:
        content = documentation()
    else:
        path = Path(data)
        if not kind_of(path, TextError):
            raise TextError(f"{path}: no such file; give a file of text by --data.")
        if path.stat().st_size > _MOST_BYTES:
            raise TextError(
                f"{path}: has {path.stat().st_size} bytes, at most {_MOST_BYTES} are read; give a part of it."
            )
        with open_file(path, TextError) as file:
            content = file.read()
    held = max(int(len(content) * _HELD_OUT), context + 1)
    if len(content) < held + context + 1:
        raise TextError(
            f"{data}: has {len(content)} bytes, at least {2 * context + 2} are needed; give more text, or a shorter "
            "--context."
        )
    found = np.frombuffer(content, np.uint8)
    return found[:-held], found[-held:]


def documentation() -> bytes:
    """All documentation strings of the standard library's modules, in the order of their names. Nothing is imported."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for name in sorted(sys.stdlib_module_names):
        place = root / name
        files = sorted(place.glob("*.py")) if place.is_dir() else [root / f"{name}.py"]
        for file in files:
            try:
                tree = ast.parse(file.read_bytes())
            except (OSError, SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(
                    node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
                ):
                    text = ast.get_docstring(node)
                    if text:
                        texts.append(text)
    if not texts:
        raise TextError(
            f"{root}: holds no sources of Python's standard library; give a file of text by --data."
        )
    return "\n\n".join(texts).encode()
