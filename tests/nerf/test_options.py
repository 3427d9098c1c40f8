"""The defaults of a GPU with memory of its own, and the options that override them."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from metal_ops.nerf import options
from metal_ops.nerf.config import ModelConfig, TrainConfig


def for_gpu(*words: str, pixels: int = 400, **model):
    parser = argparse.ArgumentParser()
    for add in (options.add_scene, options.add_budget, options.add_model):
        add(parser)
    arguments = parser.parse_args(words)
    spelt, train = options.configs(arguments)
    return options.for_gpu(arguments, dataclasses.replace(spelt, **model), train, pixels)


def changed(configs) -> dict[str, object]:
    """The differences from the defaults of any device."""
    found = {}
    for config, plain in zip(configs, (ModelConfig(), TrainConfig()), strict=True):
        for field in dataclasses.fields(config):
            if getattr(config, field.name) != getattr(plain, field.name):
                found[field.name] = getattr(config, field.name)
    return found


GPU = {**options.GPU_MODEL, **options.GPU_TRAIN}
CELLS = options.GPU_CELLS_A_PIXEL
CASES = {
    "nothing said": ([], 400, {}, {**GPU, "finest_resolution": int(CELLS * 400)}),
    "small pictures": ([], 16, {}, {**GPU, "finest_resolution": 32}),
    "large ones": ([], 30000, {}, {**GPU, "finest_resolution": 4096}),
    "a table": (
        ["--log2-hashmap-size", "15"],
        400,
        {},
        {**GPU, "log2_hashmap_size": 15, "finest_resolution": int(CELLS * 400)},
    ),
    "cells": (["--finest-resolution", "99"], 400, {}, {**GPU, "finest_resolution": 99}),
    "samples": (
        ["--samples", "4096"],
        400,
        {},
        {**GPU, "target_samples": 4096, "finest_resolution": int(CELLS * 400)},
    ),
    "float32": (
        ["--no-mixed-precision"],
        400,
        {},
        {
            k: v
            for k, v in {**GPU, "finest_resolution": int(CELLS * 400)}.items()
            if k != "mixed_precision"
        },
    ),
    "a budget and a seed": (
        ["--seconds", "5", "--seed", "3"],
        400,
        {},
        {**GPU, "seconds": 5.0, "seed": 3, "finest_resolution": int(CELLS * 400)},
    ),
    # No shaders of its own: as on any device.
    "frequencies": ([], 400, {"encoding": "frequency"}, {"encoding": "frequency"}),
    "stock ops": ([], 400, {"backend": "composite"}, {"backend": "composite"}),
}


@pytest.mark.parametrize("case", CASES)
def test_defaults_of_a_gpu(case):
    words, pixels, model, expected = CASES[case]
    assert changed(for_gpu(*words, pixels=pixels, **model)) == expected
