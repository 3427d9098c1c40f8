"""Families and rotary positions: logits and likeliest tokens of transformers, from folders and from GGUF."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from metal_ops.lm import pretrained
from metal_ops.lm.llama import Llama
from metal_ops.lm.passes import Pass
from tests.lm import families
from tests.lm.families import CASES, LOOKED_AT, PROMPT, WRITTEN, prompt

EXPECTED = np.load(families.EXPECTED)


def loaded(folder, name: str, context: int = 160) -> Llama:
    config = CASES[name]
    path = families.write(folder / name, config, families.weights(config))
    return pretrained.load(path, context)[0]


def written(model: Llama, pieces: tuple[int, ...] = (PROMPT,)) -> list[int]:
    """The likeliest tokens, by caches that are told the prompt in pieces."""
    caches, tokens, at = model.caches(model.config.context), prompt(), 0
    for n in pieces:
        logits = Pass(model, caches, n)(tf.constant([tokens[at : at + n]], tf.int32))
        at += n
    found, one = [], Pass(model, caches, 1)
    for _ in range(WRITTEN):
        found.append(int(np.argmax(logits[0])))
        logits = one(tf.constant([found[-1:]], tf.int32))
    return found


@pytest.mark.parametrize("name", CASES)
def test_as_transformers(name, tmp_path):
    model = loaded(tmp_path, name)
    logits = model(tf.constant([prompt()], tf.int32)).numpy()[0, list(LOOKED_AT)]
    assert np.abs(logits - EXPECTED[f"{name} logits"]).max() < 1e-3
    assert written(model) == EXPECTED[f"{name} written"].tolist()
