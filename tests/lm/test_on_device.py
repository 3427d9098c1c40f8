"""`--device metal`: it learns the same as on the CPU, by the device's kernels."""

from __future__ import annotations

import json
import re

import pytest

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
    assert cli.main(["lm", "train", *options, *where, "--runs", runs, "--name", device]) == 0
    for dynamic in ([], ["--dynamic"]):  # one run's weights, by both devices
        ctypes.CDLL(None).fflush(None)
        print(flush=True)
        few = ["--bytes", "8", "--bits", "8", "--temperature", "0", *dynamic]
        assert cli.main(["lm", "generate", f"{runs}/metal", "one, two", *where, *few]) == 0
"""
SIZES = "--width 32 --layers 1 --heads 4 --kv-heads 2 --hidden 48 --context 32 --batch 4 --steps 8".split()
# The program's ops; each has a shader.
OPS = (
    "ScaledDotProductAttention ScaledDotProductAttentionGrad RowNorm RowNormGrad Rope Swiglu SwigluGrad MatMul "
    "ResourceFusedAdam ResourceCacheRows MetalQuantizedMatMul MetalDynamicMatMul"
).split()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[dict[str, dict], str]:
    """metrics.json of each device, and the output: the written text, and TensorFlow's record of the ops' placement."""
    runs = tmp_path_factory.mktemp("runs")
    data = runs / "text"
    data.write_bytes(b"one, two, three and four. " * 200)
    arguments = [str(runs), *SIZES, "--data", str(data)]
    process = Process("-c", PROGRAM, *arguments)
    code, out, err = process.finish(timeout=600)
    assert code == 0, out + err[-4000:]
    return (
        {d: json.loads((runs / d / "metrics.json").read_text()) for d in ("metal", "cpu")},
        out,
    )


def test_learns_the_same(both):
    metrics, _ = both
    assert (metrics["metal"]["device"], metrics["cpu"]["device"]) == ("GPU", "CPU")
    found, right = (metrics[device]["bits_a_byte"] for device in ("metal", "cpu"))
    assert right < 7.5 and found == pytest.approx(right, rel=1e-3)


def test_writes_the_same(both):
    """With weights of 8 bits, and with 8 bits on both sides of the products."""
    # The ops' placement is logged in between, after the last word of the text before it.
    out = re.sub(r"[\w/.<>-]*: \(\w+\): /job:\S+\n", "", both[1])
    texts = re.findall("\n(one, .*)", out)
    assert len(texts) == 4 and texts[:2] == texts[2:] and len(texts[0]) > len("one, ")


@pytest.mark.parametrize("op", OPS)
def test_runs_where_it_was_asked_to(both, op):
    parts = dict(zip(("", "metal", "cpu"), both[1].split("run on "), strict=True))
    for device, where in (("metal", "GPU:0"), ("cpu", "CPU:0")):
        placed = set(re.findall(rf"\({op}\): \S*(?:device:)(\w+:0)", parts[device]))
        assert placed == {where}, (op, device)
