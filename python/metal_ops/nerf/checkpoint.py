"""Checkpoints: one .npz file with every array of a run and a JSON header, replaced atomically."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError
from .files import atomic

FILE_NAME = "checkpoint.npz"
_FORMAT = 1
_HEADER = "header"


def save(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Writes a checkpoint; the file that was there stays until the new one is complete.

    Args:
        path: The .npz file.
        header: Plain values: configuration, counters, history.
        arrays: Parameters and states by name.
    """
    text = json.dumps({"format": _FORMAT, **header})
    with atomic(path) as temporary:
        np.savez(temporary, **{_HEADER: np.array(text)}, **arrays)  # type: ignore[arg-type]


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads a checkpoint.

    Args:
        path: The file, or the run folder that holds it.

    Returns:
        header and arrays as they were given to `save`.

    Raises:
        CheckpointError: If it is missing, damaged or of another format.
    """
    path = path / FILE_NAME if path.is_dir() else path
    if not path.exists():
        raise CheckpointError(f"{path}: no such checkpoint; `nerf train` makes one.")
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file[_HEADER][()]))
            arrays = {name: file[name] for name in file if name != _HEADER}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: not a readable checkpoint: {error}.") from None
    if header.get("format") != _FORMAT:
        raise CheckpointError(
            f"{path}: field 'format' is {header.get('format')!r}, this version reads {_FORMAT}; train again."
        )
    return header, arrays
