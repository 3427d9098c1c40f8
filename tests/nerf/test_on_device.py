"""`--device metal`: the program's ops run on the Metal device, and it learns the same as on the CPU."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from metal_ops.programs import checkpoint
from tests.processes import Process
from tests.suites import at_depth

# Both runs in one process: with the device loaded, `--device cpu` has to keep its ops away from it. On a GPU, too, in
# the steps that the CPU makes; a GPU's own steps are for test_packed.py.
PROGRAM = """
import ctypes, json, pathlib, sys
import tensorflow as tf
from metal_ops import cli
from metal_ops.nerf import packed, scenes, train
from tests.nerf.conftest import few_views
packed.has_own_memory = train.has_own_memory = lambda device: False
scenes.procedural_scene = few_views
tf.debugging.set_log_device_placement(True)
runs, steps = sys.argv[1:]
options = ("--size 32 --levels 6 --log2-hashmap-size 12 --samples 1024 --frames 1 --eval-views 3 --seed 3 "
           f"--runs {runs} --steps {steps}").split()
train_step = train.Trainer.train_step
def kept(trainer):
    found = train_step(trainer)
    losses[device].append(found.loss)
    if trainer.step == 1:
        trainer.save(pathlib.Path(runs, f"{device}-1.npz"))
    return found
losses, train.Trainer.train_step = {"metal": [], "cpu": []}, kept
for device in ("metal", "cpu"):
    ctypes.CDLL(None).fflush(None)  # where TensorFlow says the placement
    print("run on", device, flush=True)
    assert cli.main(["nerf", "train", *options, "--device", device, "--name", device]) == 0
pathlib.Path(runs, "losses").write_text(json.dumps(losses))
"""
STEPS = at_depth(40, 200)
# The program's ops; each has a shader.
OPS = (
    "RayMarch PackOccupancy PackRayIndices HashEncode HashEncodeGrad ShEncode MatMul VolumeRender VolumeRenderGrad "
    "RenderWeights ResourceFusedAdam"
).split()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, str]:
    """The folder of the runs, and their output, in which TensorFlow says where it placed the ops."""
    runs = tmp_path_factory.mktemp("runs")
    process = Process("-c", PROGRAM, str(runs), str(STEPS))
    code, out, err = process.finish(timeout=600)
    assert code == 0, out + err[-4000:]
    return runs, out


def metrics(runs: Path, device: str) -> dict:
    return json.loads((runs / device / "metrics.json").read_text())


def test_the_same_gradients_on_both(both):
    """After one step Adam's moments are parts of the gradients and their squares: sums in another order."""
    runs, _ = both
    metal, cpu = (checkpoint.load(runs / f"{device}-1.npz")[1] for device in ("metal", "cpu"))
    moments = [name for name in cpu if name.startswith("optimizer/") and cpu[name].ndim]
    assert len(moments) >= 10 and metal.keys() == cpu.keys()
    for name in moments:
        size = np.abs(cpu[name]).max()
        assert size > 0, name
        np.testing.assert_allclose(
            metal[name], cpu[name], rtol=2e-5, atol=2e-5 * size, err_msg=name
        )


def test_the_same_psnr_on_both(both):
    """The same seed. Sums in another order, then steps of a chaotic system: 0.005 dB were seen after 200."""
    runs, out = both
    metal, cpu = (metrics(runs, device) for device in ("metal", "cpu"))
    assert (metal["device"], cpu["device"]) == ("GPU", "CPU")
    assert metal["steps"] == cpu["steps"] == STEPS
    for losses in json.loads((runs / "losses").read_text()).values():
        assert len(losses) == STEPS and np.mean(losses[-10:]) < 0.8 * np.mean(
            losses[:4]
        )  # it learns
    assert abs(metal["psnr"] - cpu["psnr"]) < 0.03
    assert abs(metal["samples"] - cpu["samples"]) < 0.01 * cpu["samples"]
    assert "METAL device" in out.split(f"{STEPS} steps in")[0]


def test_ops_run_on_the_device(both):
    _, log = both
    on_metal, on_cpu = log.split("run on metal")[1].split("run on cpu")
    for part, device in ((on_metal, "GPU:0"), (on_cpu, "CPU:0")):
        placed = defaultdict(set)
        for op, where in re.findall(r"\((\w+)\): /job:\S+/device:(\w+:\d)", part):
            placed[op].add(where)
        assert {op: placed[op] for op in OPS} == {op: {device} for op in OPS}


def test_a_device_that_is_not_there_is_one_sentence(tmp_path):
    """In a process whose TensorFlow has made its devices already, none can be added."""
    program = (
        "import sys, tensorflow as tf; tf.zeros([]); from metal_ops import cli; "
        "sys.exit(cli.main(['nerf', 'train', '--device', 'metal', '--size', '16', '--runs', sys.argv[1]]))"
    )
    process = Process("-c", program, str(tmp_path / "runs"))
    code, _, err = process.finish()
    assert code == 2 and "nerf: --device metal: metal_ops: TensorFlow has made its devices" in err
    assert not (tmp_path / "runs").exists()


# The partitions of the training step's graph: the ops that TensorFlow runs on the host, and the tensors it sends there.
PARTITIONS = """
import json, sys
import tensorflow as tf
from tensorflow.python.eager import context
from metal_ops import device
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.scenes.procedural import procedural_scene
from metal_ops.nerf.train import Trainer
device.load()
scene = procedural_scene(size=16, train_views=4, test_views=1, supersample=1)
config = TrainConfig(seconds=None, steps=9, target_samples=256, packed=False)
with tf.device("GPU:0"):
    trainer = Trainer(scene, ModelConfig(n_levels=4, log2_hashmap_size=10), config)
    context.enable_run_metadata()
    trainer._train(tf.constant(trainer.n_rays), tf.constant(trainer.step))
    metadata = context.export_run_metadata()
parts = {"CPU": [], "GPU": []}
for graph in metadata.partition_graphs:
    for node in graph.node:
        kind = node.attr["tensor_type"].type or node.attr["T"].type or node.attr["dtype"].type
        name = tf.as_dtype(kind).name if kind else ""
        parts[node.device.split(":")[-2]].append((node.op, name, node.name))
print(json.dumps(parts))
"""
# Shapes, seeds, the step's number and the learning rate: a few numbers each.
BOOKKEEPING = set(
    "Const Identity NoOp _Arg _Retval _Send _Recv _HostSend _HostRecv Pack ExpandDims StridedSlice Prod ReadVariableOp "
    "AssignVariableOp AddV2 Cast".split()
)


def test_the_step_runs_on_the_device():
    """On the host: numbers that it has anyway. Only sizes come back to it; RayMarch and Where wait for theirs."""
    process = Process("-c", PARTITIONS)
    parts = process.result()
    device = {op for op, _, _ in parts["GPU"]}
    assert device >= {*OPS, "GatherV2", "StatelessRandomUniformV2", "StatelessRandomUniformIntV2", "Where",
                      "Greater"} - {"PackOccupancy"}  # fmt: skip
    host = {op for op, _, _ in parts["CPU"]}
    assert host <= BOOKKEEPING
    # Floating-point work on the host is the learning rate's conversion, once per variable.
    work = [
        (op, kind) for op, kind, _ in parts["CPU"] if not op.startswith("_") and "float" in kind
    ]
    assert {op for op, _ in work} <= {"Cast", "Const", "Identity", "ReadVariableOp"}
    # An edge that only says "after this" carries an empty float.
    received = [
        (kind, name) for op, kind, name in parts["CPU"] if op == "_Recv" and "pivot" not in name
    ]
    assert {kind for kind, _ in received} <= {"int32", "int64"}, received
