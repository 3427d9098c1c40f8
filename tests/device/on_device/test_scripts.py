"""Scripts as they are published for any GPU, in `tests/device/scripts`: unedited they train on the device.

No op of theirs is on the CPU, and their losses are the CPU's."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from metal_ops._placement import functions, short
from tests.processes import VALIDATION

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
# These ask for the GPU before anything else runs, or choose devices themselves: they have processes of their own.
ALONE = ["training_loop", "session", "mirrored_strategy"]
# Half floats, and batch norm over eight numbers: ResNet-50 takes short steps, and after one of 1e-5 the CPU with and
# without oneDNN is 10 % apart.
TOLERANCE = {"mixed_precision": 1e-2, "resnet50": 3e-2, "mobilenet_v2": 5e-3}
# Long ones, whose shaders the others have, too: a run that checks each access would take minutes.
LONG = ["mobilenet_v2", "resnet50", "unet_segmentation"]
# What hands tensors over, and the pipeline of the data.
NO_WORK = {"IteratorGetNext", "Const", "Identity", "NoOp", "Shape"}


def computed(nodes: list, device: str) -> Counter[str]:
    """Ops that compute floats on a device. Shapes, integers in host memory on any GPU, are computed on the CPU."""
    return Counter(
        node.op
        for node in nodes
        if short(node.device) == device
        and not node.op.startswith("_")
        and node.op not in NO_WORK
        and any(tf.as_dtype(a.type).is_floating for a in node.attr.values() if a.type)
    )


def train(script: Path, device: str | None) -> tuple[list[float], Counter[str], Counter[str]]:
    """A script's losses, and what it computed on the GPU and on the CPU in functions that use a GPU at all."""
    with functions() as ran, tf.device(device):
        losses = runpy.run_path(str(script), run_name="__main__")["losses"]
    on_gpu, on_cpu = Counter(), Counter()
    for nodes in ran:
        here = computed(nodes, "GPU:0")
        on_gpu += here
        if here:
            on_cpu += computed(nodes, "CPU:0")
    return losses, on_gpu, on_cpu


@pytest.fixture(autouse=True)
def as_users_have_it():
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)
    tf.keras.backend.clear_session()


@pytest.mark.parametrize("name", sorted({path.stem for path in SCRIPTS.glob("*.py")} - {*ALONE}))
def test_script(name):
    if name in LONG and VALIDATION:
        pytest.skip("its shaders are validated by the shorter scripts")
    script = SCRIPTS / f"{name}.py"
    got, on_gpu, on_cpu = train(script, None)
    assert on_gpu.total() > 20
    assert not on_cpu
    want, on_gpu, _ = train(script, "CPU:0")
    assert not on_gpu, "the control: nothing of this run may be on the device"
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol=TOLERANCE.get(name, 1e-3))


ALL_ALONE = """
import json, runpy, sys
import tensorflow as tf
losses = {name: runpy.run_path(f"%s/{name}.py", run_name="__main__")["losses"] for name in %r}
print(json.dumps([len(tf.config.list_physical_devices("GPU")), losses]))
"""


def test_scripts_that_choose_devices(tmp_path):
    """By the command line with the device, and by Python without it."""
    program = tmp_path / "all.py"
    program.write_text(ALL_ALONE % (SCRIPTS, ALONE))
    found = []
    for command in (["-m", "metal_ops", "run"], []):
        done = subprocess.run(
            [sys.executable, *command, str(program)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        gpus, losses = json.loads(lines[-1])
        assert gpus == bool(command)
        if command:
            assert "Num GPUs Available: 1" in lines
            assert any(line.endswith("True /device:GPU:0") for line in lines), done.stdout
        found.append(losses)
    got, want = found
    for name in ALONE:
        assert len(want[name]) > 1
        np.testing.assert_allclose(got[name], want[name], rtol=1e-3, err_msg=name)


def test_keras_is_told_once():
    """XLA asked for by name is Keras' own warning; what it has cuDNN for the device does."""
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    assert model.jit_compile is False
    with pytest.warns(UserWarning, match="jit_compile"):
        model.compile("sgd", "mse", jit_compile=True)
    assert keras.layers.LSTM(4, use_cudnn=True)(tf.zeros((1, 2, 3))).shape == (1, 4)


def test_tf_keras_asks_for_no_xla():
    """Nor do models that are compiled for it: tf_keras asks TensorFlow whether a device is a plugin."""
    import tf_keras

    model = tf_keras.Sequential([tf_keras.layers.Dense(2, input_shape=(3,))])
    for asked in (None, "auto", True):
        model.compile("sgd", "mse", jit_compile=asked)
        assert not model.jit_compile
        model.fit(np.ones((4, 3), "f"), np.ones((4, 2), "f"), verbose=0)
