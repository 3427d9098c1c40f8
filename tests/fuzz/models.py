"""Models from files: GGUF's bytes; config.json, tokenizer.json, the index and the safetensors of a folder, mutated."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from metal_ops.lm import pretrained
from metal_ops.lm.weights import INDEX
from metal_ops.programs.errors import ProgramError
from tests.lm import families

from . import engine

_CASES = ("yarn-other", "qwen2-windows", "gemma3")


class ModelReader:
    """The files that `lm generate --model` reads give logits, or a ProgramError in one sentence.

    Args:
      kind: "gguf" or "folder".
    """

    def __init__(self, kind: str) -> None:
        self.name = f"model-{kind}"
        shared = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self._gguf = kind == "gguf"
        self._good = [self._files(name) for name in _CASES]
        for content in self._good:
            assert self.feed(content) == "accepted"

    def _files(self, name: str) -> engine.Kept:
        config = families.CASES[name]
        tensors = families.weights(config)
        if self._gguf:
            path = families.write_gguf(
                self._root / "a.gguf", config, tensors, {"rope.freq_base": 500.0}
            )
            return {"a.gguf": path.read_bytes()}
        folder = families.write(self._root / "a", config, tensors)
        shard = "model-1.safetensors"
        (folder / "model.safetensors").rename(folder / shard)
        (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(tensors, shard)}))
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        shutil.rmtree(folder)
        return found

    def make(self, rng: random.Random) -> engine.Kept:
        content = dict(rng.choice(self._good))
        name = rng.choice(sorted(content))
        data = content[name]
        if name.endswith(".json") and rng.random() < 0.9:
            text = engine.dump(engine.mutate_tree(json.loads(data), rng), rng)
            content[name] = text.encode("utf-8", "surrogatepass")
        elif name.endswith(".json"):
            content[name] = engine.mutate_bytes(data, rng)
        else:
            # Mostly in the header, which is the first part.
            end = rng.choice((64, 1024, len(data) // 8, len(data)))
            content[name] = engine.mutate_bytes(data[:end], rng) + data[end:]
        return content

    def feed(self, content: engine.Kept) -> str:
        folder = self._root / "fed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, data in content.items():
            (folder / name).write_bytes(data)
        try:
            model: Any = pretrained.load(folder / "a.gguf" if self._gguf else folder, None)[0]
        except ProgramError as error:
            engine.check_sentence(error, str(folder))
            return "refused"
        logits = model(tf.constant([[1, 2]], tf.int32)).numpy()
        if logits.shape != (1, 2, model.config.vocabulary) or logits.dtype != np.float32:
            raise engine.Wrong(f"{logits.dtype} {logits.shape}")
        return "accepted"

    def files(self, content: engine.Kept) -> engine.Kept:
        return content

    def close(self) -> None:
        shutil.rmtree(self._root)
