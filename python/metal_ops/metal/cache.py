"""The compiler's disk cache: objects that are linked and run later, so no other user may write to it.

An entry is a digest of its name and content, then the content. An entry that does not agree with its digest counts as
missing.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

from .errors import CompileError

LIMIT = 1 << 30  # bytes; the oldest entries go first
_MAGIC = b"metal_ops cache 1\n"
_NEW = ".new-"  # not complete yet


def read(name: str) -> bytes | None:
    """The content of an entry; None where it is missing, cut off or changed."""
    path = folder() / name
    try:
        # No link is followed and no pipe waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as file:
            data = file.read()
        head = _MAGIC + _digest(name, data[len(_MAGIC) + 32 :])
        if not data.startswith(head):
            return None
        with contextlib.suppress(OSError):
            os.utime(handle)  # the ones in use go last
    finally:
        os.close(handle)
    return data[len(head) :]


def write(name: str, data: bytes) -> None:
    """Keeps an entry, in one step: other processes see all of it or nothing.

    A disk that is full is no reason to fail, as the caller has the content: it is said once, and nothing is left.
    """
    place = folder()
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=place, prefix=_NEW)
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _digest(name, data))
            file.write(data)
        os.replace(temporary, place / name)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _say_once(
            f"metal: warning: nothing is kept in the cache {place}: {error.strerror}; make room there or set "
            "METAL_OPS_CACHE"
        )
    else:
        _prune(place)


@functools.cache
def folder() -> Path:
    """METAL_OPS_CACHE, else $XDG_CACHE_HOME/metal_ops, ~/.cache/metal_ops or a folder of the user's in /tmp.

    Raises:
      CompileError: others could write there, or no folder can be written.
    """
    if asked := os.environ.get("METAL_OPS_CACHE"):
        try:
            return _own(Path(asked))
        except OSError as error:
            raise CompileError(
                f"metal: error: the cache {asked} (METAL_OPS_CACHE) cannot be used: {error.strerror}"
            ) from None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for place in (
        Path(home) / "metal_ops",
        Path(tempfile.gettempdir()) / f"metal_ops-{os.getuid()}",
    ):
        try:
            return _own(place)
        except OSError:  # no home, or one that is read-only or another user's
            continue
    raise CompileError("metal: error: no folder for the cache can be written; set METAL_OPS_CACHE")


def _own(place: Path) -> Path:
    """The folder `place`/msl of this user alone, made where it is missing."""
    place = Path(os.path.abspath(place))
    result = place / "msl"
    there = next(path for path in (result, *result.parents) if os.path.lexists(path))
    _check(there, place)
    place.parent.mkdir(parents=True, exist_ok=True)
    for path in (place, result):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
    _check(result, place)
    if stat.S_IMODE(result.stat().st_mode) != 0o700:  # others could read it, no more
        result.chmod(0o700)
    if not os.access(result, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(result))
    return result


def _check(folder: Path, place: Path) -> None:
    """Only this user and root can put another folder in the place of `folder`, or a file into it."""
    us = os.getuid()
    # The path as it is written, and as links in it lead: both could be bent by who may write on the way.
    chain = dict.fromkeys([folder, *folder.parents])
    real = folder.resolve()
    for path in [*chain, *dict.fromkeys([real, *real.parents])]:
        ours = path == place or place in path.parents
        if ours and path.is_symlink():
            raise _refused(path, "is a symbolic link", "name the folder that it leads to")
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        for owner in (path.lstat().st_uid, status.st_uid):
            if owner != us and (ours or owner not in (0, _unmapped_user())):
                raise PermissionError(errno.EACCES, f"{path} belongs to user {owner}", str(path))
        # In a sticky folder, such as /tmp, no other user can rename our files.
        if status.st_mode & 0o022 and (ours or not status.st_mode & stat.S_ISVTX):
            raise _refused(
                path,
                f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})",
                f"run 'chmod go-w {path}'",
            )


@functools.cache
def _unmapped_user() -> int:
    """The owner, in a container of a user without rights, of the folders outside of it."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 0


def _refused(path: Path, why: str, remedy: str) -> CompileError:
    return CompileError(
        f"metal: error: the cache holds code that is run, but {path} {why}; {remedy}, or set METAL_OPS_CACHE to a "
        "folder of your own"
    )


def _digest(name: str, data: bytes) -> bytes:
    digest = hashlib.sha256(name.encode() + b"\0")
    digest.update(data)
    return digest.digest()


@functools.cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr)


def _prune(place: Path) -> None:
    entries = []
    for entry in os.scandir(place):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # another process was faster
            continue
        # Left by a killed process; a running one takes seconds.
        if entry.name.startswith(_NEW) and status.st_mtime < time.time() - 3600:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
            continue
        entries.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= LIMIT:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
