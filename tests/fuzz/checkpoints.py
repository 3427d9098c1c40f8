"""Checkpoints of the NeRF program: the header's JSON, the arrays and the archive, mutated."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import numpy as np

from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.scenes import origin_from
from metal_ops.programs import checkpoint
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.records import configs_from
from tests.saved import make

from . import archives, engine


class CheckpointReader:
    """The parts of a checkpoint that `nerf eval` reads give a trainer's state, or a ProgramError in one
    sentence."""

    name = "checkpoint"

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self._path = self._root / checkpoint.FILE_NAME
        self._good = (make.HERE / "0.1.0" / "nerf.npz").read_bytes()
        self._members = archives.members(self._good)
        self._trainer = make.nerf_trainer()
        self._path.write_bytes(self._good)
        header, _ = checkpoint.load(self._root)
        header["history"] = [{"step": 1, "seconds": 2.0, "loss": 0.1, "psnr": 20.0}] * 2
        self._header = header
        assert self.feed(self._good) == "accepted"

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.25:
            return archives.mutate_npz(self._good, rng, self._members)
        text = engine.dump(engine.mutate_tree(self._header, rng), rng)
        if rng.random() < 0.1:
            text = engine.mutate_bytes(text.encode("utf-8", "surrogatepass"), rng).decode(
                "utf-8", "replace"
            )
        # NumPy's text has neither halves of pairs nor zeros at its end.
        array = np.array(text.encode("utf-8", "replace").decode().rstrip("\0"))
        return archives.pack({**self._members, "header.npy": archives.npy(array)})

    def feed(self, content: bytes) -> str:
        self._path.write_bytes(content)
        where = str(self._path)
        try:
            header, arrays = checkpoint.load(self._root)
            configs_from(header, where, ModelConfig, TrainConfig)
            origin_from(header, where)
            self._trainer.load(header, arrays, where)
        except ProgramError as error:
            engine.check_sentence(error, str(self._root))
            return "refused"
        trainer = self._trainer
        if not (type(trainer.step) is type(trainer.n_rays) is int and 0 <= trainer.progress <= 1):
            raise engine.Wrong(f"{trainer.step!r}, {trainer.n_rays!r}, {trainer.seconds!r}")
        return "accepted"

    def files(self, content: bytes) -> engine.Kept:
        return {checkpoint.FILE_NAME: content}

    def close(self) -> None:
        shutil.rmtree(self._root)
