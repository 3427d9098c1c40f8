"""Calls of public functions that sweeps over all ops make. An op's test file states in CALLS the calls that cannot
be derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tests.oracles import rays


@dataclass(frozen=True)
class Call:
    """A public function's arguments, and which of them are differentiated; the outputs come first."""

    run: Callable[..., Any]
    arrays: Callable[[], dict[str, np.ndarray]]
    sources: tuple[str, ...]
    # Outputs whose size depends on values, which a graph cannot know.
    open_ended: bool = False

    def results(self, **tensors: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            sources = [tensors[name] for name in self.sources]
            tape.watch(sources)
            outputs = tf.nest.flatten(self.run(**tensors))
        floats = [output for output in outputs if output.dtype.is_floating]
        return outputs + (tape.gradient(floats, sources) if sources else [])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def samples(dense: bool = False) -> dict[str, np.ndarray]:
    """Rays of 0 to 199 samples, or of 64."""
    random = np.random.default_rng(1)
    counts = np.full(700, 64) if dense else random.integers(0, 200, 700)
    n = int(counts.sum())
    shape = (len(counts), 64) if dense else (n,)
    starts = np.concatenate([np.arange(c) for c in counts]).astype(np.float32).reshape(shape) / 8
    given = {
        "sigmas": random.exponential(0.3, shape).astype(np.float32),
        "t_starts": starts,
        "t_ends": starts + np.float32(0.1),
    }
    return given if dense else given | {"packed_info": rays.pack(counts).astype(np.int32)}
