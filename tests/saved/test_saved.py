"""Files that earlier versions wrote still load, and give the same results: see make.py beside this."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.train import Trainer
from metal_ops.programs import checkpoint
from metal_ops.programs.records import configs_from

from . import make

VERSIONS = sorted(path.parent for path in make.HERE.glob("*/expected.npz"))
# Another processor rounds sums and exponentials elsewhere, and so may a later kernel.
CLOSE = dict(rtol=1e-4, atol=1e-5)


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def folder(request) -> Path:
    return request.param


@pytest.fixture
def expected(folder) -> dict[str, np.ndarray]:
    with np.load(folder / "expected.npz") as file:
        return dict(file)


def test_there_are_files():
    assert [path.name for path in VERSIONS][:1] == ["0.1.0"]


def test_saved_model(folder, expected):
    """Without the Python classes: the graphs, the ops' attributes and the gradients in them."""
    module = tf.saved_model.load(str(folder / "saved_model"))
    data = {name: tf.constant(value) for name, value in make.inputs().items()}
    found = {
        f"encode/{name}": value
        for name, value in module.encode(data["points"], data["directions"]).items()
    }
    before = module.table.numpy()
    found |= {f"train/{name}": value for name, value in module.train(**data).items()}
    names = {name for name in expected if name.startswith(("encode/", "train/"))}
    assert set(found) == names and len(names) == 6
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], err_msg=name, **CLOSE)
    assert np.abs(module.table.numpy() - before).max() > 0.05  # it was a step


def test_keras_model(folder, expected):
    model = keras.saving.load_model(folder / "model.keras")
    data = make.inputs()
    np.testing.assert_allclose(model(data["points"]), expected["keras"], **CLOSE)
    np.testing.assert_allclose(model.optimizer.variables[2], expected["keras/momentum"], **CLOSE)
    assert type(model.optimizer) is metal_ops.optimizers.Adam and model.optimizer.skip_zero_rows
    assert type(model.loss) is metal_ops.losses.RobustLoss
    colours = np.repeat(data["target"], 4, axis=0)
    assert np.isfinite(model.fit(data["points"], colours, verbose=0).history["loss"][0])


def test_checkpoint(folder, expected):
    files, variable, optimizer = make.checkpointed()
    assert np.any(variable.numpy() != expected["checkpoint"])
    files.read(str(folder / "checkpoint")).assert_consumed()
    np.testing.assert_array_equal(variable, expected["checkpoint"])
    np.testing.assert_array_equal(files.grid.bits, expected["checkpoint/bits"])
    optimizer.apply([tf.ones_like(variable)], [variable])
    np.testing.assert_allclose(variable, expected["checkpoint/next step"], **CLOSE)


def test_nerf_checkpoint(folder, expected):
    header, arrays = checkpoint.load(folder / "nerf.npz")
    configs = configs_from(header, "nerf.npz", ModelConfig, TrainConfig)
    trainer = Trainer(make.nerf_trainer().scene, *configs)
    trainer.load(header, arrays, "nerf.npz")
    assert trainer.step == 4 and trainer.done
    colour = trainer.renderer()(trainer.scene.test.cameras, 0).colour
    np.testing.assert_allclose(colour, expected["nerf"], atol=1e-3)  # exp of a density
    assert colour.max() > 0.1
