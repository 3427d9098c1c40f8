"""Scripts as they are published for any GPU, in `tests/device/scripts`: unedited they train on the device.

No op of theirs is on the CPU, and their losses are the CPU's."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from tests import suites
from tests.device.trained import SCRIPTS, losses_on_the_cpu, train
from tests.processes import ROOT, VALIDATION, Process

# These ask for the GPU before anything else runs, or choose devices themselves: they have processes of their own.
ALONE = ["training_loop", "session", "mirrored_strategy"]
# Half floats, and batch norm over eight numbers: ResNet-50 takes short steps, and after one of 1e-5 the CPU with and
# without oneDNN is 10 % apart; test_resnet50.py takes usual ones.
TOLERANCE = {"mixed_precision": 1e-2, "resnet50": 3e-2, "mobilenet_v2": 5e-3}
# Long ones, whose shaders the others have, too: a run that checks each access would take minutes.
LONG = ["mobilenet_v2", "resnet50", "unet_segmentation"]


@pytest.fixture(autouse=True)
def as_users_have_it():
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)
    tf.keras.backend.clear_session()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full("trains for long")] if name in LONG else [])
        for name in sorted({path.stem for path in SCRIPTS.glob("*.py")} - {*ALONE})
    ],
)
def test_script(name):
    if name in LONG and VALIDATION:
        pytest.skip("its shaders are validated by the shorter scripts")
    got, on_gpu, on_cpu = train(name, None)
    assert on_gpu.total() > 20
    assert not on_cpu
    tolerance = TOLERANCE.get(name, 1e-3)
    want = losses_on_the_cpu(name, tolerance, anew=suites.depth() == "all")
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol=tolerance)


# The look at graphs makes TensorFlow's devices, after which the first of them may only set what is set.
ALL_ALONE = """
import json
import tensorflow as tf
from tests.device.trained import train
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
print(json.dumps([len(gpus), {name: train(name, None) for name in %r}]))
"""


def test_scripts_that_choose_devices(tmp_path):
    """By the command line with the device, and by Python without it."""
    program = tmp_path / "all.py"
    program.write_text(ALL_ALONE % ALONE)
    found = []
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    for command in (["-m", "metal_ops", "run"], []):
        process = Process(*command, str(program), PYTHONPATH=os.pathsep.join(paths))
        code, out, err = process.finish(300)
        assert code == 0, err
        lines = out.splitlines()
        gpus, of_scripts = json.loads(lines[-1])
        assert gpus == bool(command)
        if command:
            assert "Num GPUs Available: 1" in lines
            assert any(line.endswith("True /device:GPU:0") for line in lines), out
        found.append(of_scripts)
    for name in ALONE:
        (got, on_gpu, on_cpu), (want, control, _) = (of_scripts[name] for of_scripts in found)
        assert sum(on_gpu.values()) > 20
        assert not on_cpu, name
        assert not control, "nothing of this run may be on the device"
        assert len(want) > 1
        np.testing.assert_allclose(got, want, rtol=1e-3, err_msg=name)


def test_keras_is_told_once():
    """XLA asked for by name is Keras' own warning; the device does the work that Keras has cuDNN for."""
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
