"""Sources that are no files, kept as files in the cache: what a debugger or a report of coverage shows of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from . import cache


def kept(text: str) -> Path:
    """A file with this text; the same for the same text."""
    data = text.encode()
    path = cache.folder() / f"source-{hashlib.sha256(data).hexdigest()[:16]}.metal"
    with contextlib.suppress(OSError):
        os.utime(path)  # files in use are the last to go
        return path
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(temporary, path)
    return path


def flags(file: str, text: str | None) -> tuple[str, ...]:
    """clang's flags for a source that messages call `file`: what is said of it beside the code names the kept file."""
    return () if text is None else (f"-ffile-prefix-map={file}={kept(text)}",)
