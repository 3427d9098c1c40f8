"""`--device metal`: it learns the same as on the CPU, by the device's kernels."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from PIL import Image

from tests.processes import Process

# Both in one process: with the device loaded, `--device cpu` has to keep its ops away from it.
PROGRAM = """
import ctypes, sys
import tensorflow as tf
from metal_ops import cli
tf.debugging.set_log_device_placement(True)
runs, *options = sys.argv[1:]
for device in ("metal", "cpu"):
    ctypes.CDLL(None).fflush(None)  # where TensorFlow says the placement
    print("run on", device, flush=True)
    where = ["--device", device]
    assert cli.main(["image", "fit", *options, *where, "-o", f"{runs}/{device}"]) == 0
    assert cli.main(["image", "render", f"{runs}/{device}", *where]) == 0
"""
SIZES = "--levels 4 --log2-hashmap-size 10 --neurons 16 --batch 1024 --steps 20".split()
# The program's ops; each has a shader.
OPS = "HashEncode HashEncodeGrad FusedMlp FusedMlpGrad ResourceFusedAdam".split()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[dict[str, dict], str]:
    """metrics.json of each device, and where TensorFlow says that it placed the ops."""
    runs = tmp_path_factory.mktemp("runs")
    y, x = np.mgrid[:40, :60]
    picture = np.stack([4 * x, 6 * y, 2 * x + 3 * y], -1).astype(np.uint8)
    Image.fromarray(picture).save(runs / "a.png")
    process = Process("-c", PROGRAM, str(runs), str(runs / "a.png"), *SIZES)
    code, out, err = process.finish(timeout=600)
    assert code == 0, out + err[-4000:]
    return {d: json.loads((runs / d / "metrics.json").read_text()) for d in ("metal", "cpu")}, out


def test_learns_the_same(both):
    metrics, _ = both
    assert (metrics["metal"]["device"], metrics["cpu"]["device"]) == ("GPU", "CPU")
    found, right = (metrics[device]["psnr"] for device in ("metal", "cpu"))
    assert right > 14 and found == pytest.approx(right, abs=0.05)


@pytest.mark.parametrize("op", OPS)
def test_runs_where_it_was_asked_to(both, op):
    _, out = both
    parts = dict(zip(("", "metal", "cpu"), out.split("run on "), strict=True))
    for device, where in (("metal", "GPU:0"), ("cpu", "CPU:0")):
        placed = set(re.findall(rf"\({op}\): \S*(?:device:)(\w+:0)", parts[device]))
        assert placed == {where}, (op, device)
