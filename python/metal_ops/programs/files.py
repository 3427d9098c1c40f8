"""Files that are either there in full or not at all, and the folders of runs."""

from __future__ import annotations

import fcntl
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from .errors import OutputError, ProgramError
from .reading import kind_of


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    A crash, a full disk or a Ctrl-C inside the block leaves the old file as it was.

    Example:
      >>> import tempfile, pathlib
      >>> target = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
      >>> with atomic(target) as temporary:
      ...     _ = temporary.write_text("all of it")
      >>> target.read_text()
      'all of it'

    Raises:
      OutputError: If it cannot be written.
    """
    # The suffix stays the last one: writers choose the format by it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror or error}); make room, or give another folder by --runs."
        ) from error


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """As `np.savez`, which leaves a file open on a full disk, and the interpreter complains when it ends."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON atomically; infinities become null, which JSON has no word for."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(_plain(content), indent=1) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def run_folder(runs: Path, name: str | None, default: str, overwrite: bool = False) -> Path:
    """The folder for a new run; it is not made yet.

    Args:
      runs: Folder of all runs.
      name: The user's name for it; None takes `default`, numbered if that exists.
      default: A name made from the scene.
      overwrite: Whether a named run may replace an older one.

    Raises:
      ProgramError: If the named run exists and must not be replaced, or nothing can be written there.
    """
    _try_out(runs)
    if name is not None:
        folder = runs / name
        kind = kind_of(folder, OutputError)
        if kind == "file":
            raise ProgramError(f"{folder}: is a file; give another --name.")
        if not kind and folder.is_symlink():
            raise ProgramError(
                f"{folder}: is a link to {os.readlink(folder)}, which is not there; make that folder, or give another "
                "--name."
            )
        if kind and any(folder.iterdir()) and not overwrite:
            raise ProgramError(
                f"{folder}: exists already; give another --name, --overwrite to replace it, or --resume {folder} to go "
                "on with it."
            )
        return folder
    folder, number = runs / default, 1
    while folder.exists():
        number += 1
        folder = runs / f"{default}-{number}"
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder of a run, which is made, for this process: two that write into it would mix their files.

    Raises:
      ProgramError: Another process holds it.
    """
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be written ({error.strerror or error}); give another folder by --runs."
        ) from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProgramError(
                f"{folder}: another process is writing this run; wait for its end, or give another --name."
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(held)
        with suppress(OSError):  # as they are after an error before the first file
            for empty in (folder, *made):
                empty.rmdir()


def _try_out(runs: Path) -> None:
    """Writes a file and takes it away again: better now than after the training."""
    made = []
    try:
        made = [folder for folder in (runs, *runs.parents) if not folder.exists()]
        runs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=runs):
            pass
    except OSError as error:
        raise OutputError(
            f"{runs}: cannot be written ({error.strerror or error}); give another folder by --runs."
        ) from error
    for folder in made:
        with suppress(OSError):  # another run may have begun to use it
            folder.rmdir()
