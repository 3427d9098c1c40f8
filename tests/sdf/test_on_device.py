"""`--device metal`: it learns the same as on the CPU, by the device's kernels."""

from __future__ import annotations

import json
import re

import pytest

from metal_ops.sdf import files, mesh
from tests.processes import Process

# Both in one process: with the device loaded, `--device cpu` has to keep its ops away from it.
PROGRAM = """
import ctypes, sys
import tensorflow as tf
from metal_ops import cli
from metal_ops.sdf import run, train
run.RESOLUTION, run.POINTS, run._SHOWN, train._SHOWN = 12, 64, 16, 16
tf.debugging.set_log_device_placement(True)
runs, *options = sys.argv[1:]
for device in ("metal", "cpu"):
    ctypes.CDLL(None).fflush(None)  # where TensorFlow says the placement
    print("run on", device, flush=True)
    where = ["--device", device]
    assert cli.main(["sdf", "train", *options, *where, "-o", f"{runs}/{device}"]) == 0
    assert cli.main(["sdf", "mesh", f"{runs}/{device}", "--resolution", "12", *where]) == 0
"""
SIZES = "--levels 4 --log2-hashmap-size 10 --finest-resolution 32 --neurons 16 --batch 512 --samples 512".split()
SIZES += ["--steps", "20"]
# The program's ops; each has a shader.
OPS = (
    "HashEncode HashEncodeGrad HashEncodePointGrad HashEncodeJvp HashEncodeJvpGrad FusedMlp FusedMlpGrad "
    "ResourceFusedAdam"
).split()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[dict[str, dict], str]:
    """metrics.json of each device, and where TensorFlow says that it placed the ops."""
    runs = tmp_path_factory.mktemp("runs")
    files.write(runs / "a.ply", mesh.sphere(6))
    process = Process("-c", PROGRAM, str(runs), str(runs / "a.ply"), *SIZES)
    code, out, err = process.finish(timeout=600)
    assert code == 0, out + err[-4000:]
    return {d: json.loads((runs / d / "metrics.json").read_text()) for d in ("metal", "cpu")}, out


def test_learns_the_same(both):
    metrics, _ = both
    assert (metrics["metal"]["device"], metrics["cpu"]["device"]) == ("GPU", "CPU")
    found, right = (metrics[device]["error"] for device in ("metal", "cpu"))
    assert 0 < right < 0.2 and found == pytest.approx(right, rel=0.02)


@pytest.mark.parametrize("op", OPS)
def test_runs_where_it_was_asked_to(both, op):
    _, out = both
    parts = dict(zip(("", "metal", "cpu"), out.split("run on "), strict=True))
    for device, where in (("metal", "GPU:0"), ("cpu", "CPU:0")):
        placed = set(re.findall(rf"\({op}\): \S*(?:device:)(\w+:0)", parts[device]))
        assert placed == {where}, (op, device)
