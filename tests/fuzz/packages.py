"""Packages: the manifest's JSON and the archive, mutated. A graph is read only if it agrees with its hash."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from metal_ops import package

from . import archives, engine

NAME = "fuzzed.mpkg"


class PackageReader:
    """The files that `package.load` and `package.inspect` read give a function, or a PackageError in one
    sentence."""

    name = "package"

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self._path = self._root / NAME
        table = tf.constant(np.arange(5000, dtype=np.int32))
        package.save(
            lambda x, i: {"y": [x * 2.0, tf.gather(table, i)]},
            self._path,
            shapes={"x": [None, 3], "i": tf.TensorSpec([2], tf.int32)},
        )
        self._good = self._path.read_bytes()
        self._members = archives.members(self._good)
        self._manifest = json.loads(self._members["manifest.json"])
        assert self.feed(self._good) == "accepted"

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.3:
            return self._archive(rng)
        text = engine.dump(engine.mutate_tree(self._manifest, rng), rng)
        data = text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.1:
            data = engine.mutate_bytes(data, rng)
        return archives.pack({**self._members, "manifest.json": data})

    def _archive(self, rng: random.Random) -> bytes:
        kind = rng.randrange(6)
        if kind < 2:
            return engine.mutate_bytes(self._good, rng)
        content = dict(self._members)
        name = rng.choice([*content])
        if kind == 2:
            content[name] = engine.mutate_bytes(content[name], rng)
        elif kind == 3:
            del content[name]
        elif kind == 4:
            content[rng.choice(("../a", "/a", "é", "a" * 500, "shaders/a.metallib"))] = b"a"
        else:
            return archives.pack(content, zipfile.ZIP_DEFLATED)
        return archives.pack(content)

    def feed(self, content: bytes) -> str:
        self._path.write_bytes(content)
        try:
            package.inspect(self._path)
            loaded = package.load(self._path, warm=False)
        except package.PackageError as error:
            engine.check_sentence(error, str(self._root))
            return "refused"
        if not (isinstance(loaded.name, str) and len(loaded.inputs) and len(loaded.outputs)):
            raise engine.Wrong(repr(loaded))
        return "accepted"

    def files(self, content: bytes) -> engine.Kept:
        return {NAME: content}

    def close(self) -> None:
        shutil.rmtree(self._root)
