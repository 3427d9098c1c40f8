"""Checkpoints: one .npz file with every array of a run and a JSON header, replaced atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError, printable, short
from .files import atomic, write_npz
from .reading import MOST_JSON, check_memory, kind_of, open_npz, parse_json

FILE_NAME = "checkpoint.npz"
_FORMAT = 1
_HEADER = "header"


def save(path: Path, program: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Writes a checkpoint; the file that was there stays until the new one is complete.

    Args:
      path: The .npz file.
      program: The command whose run it is, such as nerf.
      header: Plain values: configuration, counters, history.
      arrays: Parameters and states by name.
    """
    text = json.dumps({"format": _FORMAT, "program": program, **header})
    with atomic(path) as temporary:
        write_npz(temporary, {_HEADER: np.array(text), **arrays})


def load_run(folder: Path, program: str) -> tuple[dict[str, Any], dict[str, np.ndarray], str]:
    """The header and arrays of a run's checkpoint, and how errors name the header.

    Raises:
      CheckpointError: If the folder is a file, or the run of another program; or as `load`.
    """
    if kind_of(folder, CheckpointError) == "file":
        raise CheckpointError(f"{folder}: is a file; give the folder of the run.")
    header, arrays = load(folder, "fit" if program == "image" else "train")
    other = header.get("program", program)  # checkpoints of before 0.9 do not name theirs
    if other != program:
        raise CheckpointError(
            f"{folder}: expected a run of `{program}`, got one of {short(other)}; give another folder, or use "
            f"`python -m metal_ops {printable(str(other))}`."
        )
    return header, arrays, f"{folder / FILE_NAME}: header"


def load(path: Path, maker: str = "train") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads a checkpoint.

    Args:
      path: The file, or the run folder that holds it.
      maker: The command that makes one, for a sentence.

    Returns:
      header and arrays as they were given to `save`.

    Raises:
      CheckpointError: If it is missing, damaged or of another format.
    """
    if kind_of(path, CheckpointError) == "folder":
        path = path / FILE_NAME
    if not kind_of(path, CheckpointError):
        raise CheckpointError(f"{path}: no such checkpoint; `{maker}` makes one.")
    with open_npz(path, CheckpointError, "checkpoint") as file:
        if _HEADER not in file.headers:
            raise CheckpointError(f"{path}: array '{_HEADER}' is missing; it is no checkpoint.")
        shape, dtype = file.headers[_HEADER]
        if shape != () or dtype.kind != "U" or dtype.itemsize > 4 * MOST_JSON:
            raise CheckpointError(
                f"{path}: array '{_HEADER}' must be one text, got {short(list(shape))} of {dtype}."
            )
        check_memory(
            2 * file.bytes(*file.headers), str(path), "it is no checkpoint", CheckpointError
        )
        header = parse_json(str(file.read(_HEADER)[()]), f"{path}: header", CheckpointError)
        if not isinstance(header, dict):
            raise CheckpointError(
                f"{path}: header: expected a JSON object, got {type(header).__name__}."
            )
        if header.get("format") != _FORMAT:
            raise CheckpointError(
                f"{path}: field 'format' is {short(header.get('format'))}, this version reads {_FORMAT}; train again."
            )
        arrays = {name: file.read(name) for name in file.headers if name != _HEADER}
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise CheckpointError(
                f"{path}: array {short(name)} must hold finite numbers; train again."
            )
    return header, arrays
