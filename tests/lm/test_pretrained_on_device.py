"""`--device metal` with a model from a file: the logits of the CPU, by the device's kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.lm import families
from tests.lm.files import oracle, random_model, write_gguf
from tests.processes import Process

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from metal_ops import cli, device
from metal_ops.lm import pretrained
tf.debugging.set_log_device_placement(True)
folder = Path(sys.argv[1])
for path in sorted(folder.glob("*/config.json")):
    with tf.device(f"/{device.load().name}"):
        model, _ = pretrained.load(path.parent, None)
        tokens = tf.constant([np.load(folder / "prompt.npy")], tf.int32)
        np.save(f"{path.parent}.npy", tf.function(model)(tokens).numpy()[0])
for kind in sys.argv[2:]:
    options = ["--model", str(folder / f"{kind}.gguf"), "--tokens", "6", "--device", "metal"]
    assert cli.main(["lm", "generate", "a", *options]) == 0
    with tf.device(f"/{device.load().name}"):
        model, _ = pretrained.load(folder / f"{kind}.gguf", None)
        tokens = tf.constant([[5, 300, 17, 2]], tf.int32)
        np.save(folder / f"{kind}.npy", tf.function(model)(tokens).numpy()[0])
"""
# Norms of heads, GELU, soft caps and windows; frequencies that depend on the length, and biases.
FAMILIES = ("gemma3", "longrope-prompt", "biases")
KINDS = ("F32", "Q4_0", "Q8_0")
OPS = "ScaledDotProductAttention RowNorm Rope Swiglu MetalQuantizedMatMul ResourceCacheRows".split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder, the files' values, and where TensorFlow placed the ops."""
    folder = tmp_path_factory.mktemp("models")
    meant = {kind: write_gguf(folder / f"{kind}.gguf", random_model(), kind) for kind in KINDS}
    for name in FAMILIES:
        config = families.CASES[name]
        families.write(folder / name, config, families.weights(config))
    np.save(folder / "prompt.npy", families.prompt())
    process = Process("-c", PROGRAM, str(folder), *KINDS)
    code, out, err = process.finish(timeout=600)
    assert code == 0, out + err[-4000:]
    return folder, meant, out


@pytest.mark.parametrize("kind", KINDS)
def test_logits(run, kind):
    folder, meant, _ = run
    found, right = np.load(folder / f"{kind}.npy"), oracle(meant[kind], [5, 300, 17, 2])
    assert np.linalg.norm(found - right) < 2e-3 * np.linalg.norm(right)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_of_families(run, name):
    expected = np.load(families.EXPECTED)[f"{name} logits"]
    found = np.load(run[0] / f"{name}.npy")[list(families.LOOKED_AT)]
    assert np.abs(found - expected).max() < 1e-3


@pytest.mark.parametrize("op", OPS)
def test_runs_where_it_was_asked_to(run, op):
    placed = set(re.findall(rf"\({op}\): \S*(?:device:)(\w+:0)", run[2]))
    assert placed == {"GPU:0"}, op
