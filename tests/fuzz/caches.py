"""Files on disk that are linked or loaded: the compiler's cache, and .metallib files, whose code is run."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

from metal_ops.metal import cache, seal

from . import engine


class CacheReader:
    """An entry of the shader cache is the written one, or it is not there; so is a .metallib."""

    name = "cache"

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self._root.chmod(0o700)
        self._before = os.environ.get("METAL_OPS_CACHE")
        os.environ["METAL_OPS_CACHE"] = str(self._root)
        cache.folder.cache_clear()
        self._data = b"\x7fELF" + random.Random(1).randbytes(3000)
        self._sealed = seal.sealed(self._data)
        cache.write("a.air", self._data)
        self._path = cache.folder() / "a.air"
        self._entry = self._path.read_bytes()
        assert cache.read("a.air") == self._data and seal.is_whole(self._sealed)

    def make(self, rng: random.Random) -> tuple[str, bytes]:
        kind = rng.choice(("a.air", "b.air", "metallib"))
        good = self._sealed if kind == "metallib" else self._entry
        return kind, good if rng.random() < 0.1 else engine.mutate_bytes(good, rng)

    def feed(self, content: tuple[str, bytes]) -> str:
        kind, data = content
        if kind == "metallib":
            whole = seal.is_whole(data)
            if whole != (data == self._sealed):
                raise engine.Wrong(f"{whole} of a library that was changed")
            return "accepted" if whole else "refused"
        (self._path.parent / kind).write_bytes(data)
        found = cache.read(kind)
        # Under another name not even the right bytes count.
        if found is not None and (found != self._data or kind != "a.air"):
            raise engine.Wrong(f"{len(found)} bytes that nobody wrote")
        if found is None and kind == "a.air" and data == self._entry:
            raise engine.Wrong("a good entry is not read")
        return "refused" if found is None else "accepted"

    def files(self, content: tuple[str, bytes]) -> engine.Kept:
        return {content[0]: content[1]}

    def close(self) -> None:
        shutil.rmtree(self._root)
        if self._before is None:
            del os.environ["METAL_OPS_CACHE"]
        else:
            os.environ["METAL_OPS_CACHE"] = self._before
        cache.folder.cache_clear()
