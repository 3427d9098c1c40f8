"""`device.report` about functions whose ops run on the device, on the CPU, or on both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import _placement, device
from tests import doctests

pytestmark = [
    pytest.mark.release,
    pytest.mark.usefixtures("soft_placement"),
]


def solve(x: tf.Tensor) -> tf.Tensor:
    return tf.linalg.inv(x @ x) + 1.0  # no kernel for the device in the middle


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["function", "tf.function"])
def test_what_falls_back_and_what_it_copies(wrap) -> None:
    x = tf.eye(5) * 2.0
    report = device.report(wrap(solve), x)
    assert report.ops == {"GPU:0": {"MatMul": 1, "AddV2": 1}, "CPU:0": {"MatrixInverse": 1}}
    assert {(c.source, c.destination, c.shape, c.bytes) for c in report.copies} == {
        ("GPU:0", "CPU:0", (5, 5), 100),
        ("CPU:0", "GPU:0", (5, 5), 100),
    }
    assert report.copied_bytes == 200
    np.testing.assert_allclose(report.result, np.eye(5) / 4 + 1, rtol=1e-6)
    assert str(report).splitlines()[:3] == [
        "GPU:0  2 ops: AddV2, MatMul",
        "CPU:0  1 ops: MatrixInverse",
        "2 copies between devices, 200 bytes:",
    ]


def test_what_stays_on_one_device() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ x)

    report = device.report(f, tf.eye(3))
    assert set(report.ops) == {"GPU:0"} and report.copies == ()
    assert str(report).endswith("nothing is copied between devices")
    with tf.device("CPU:0"):
        x = tf.eye(3)

    def on_cpu(x: tf.Tensor) -> tf.Tensor:
        with tf.device("CPU:0"):
            return f(x)

    report = device.report(on_cpu, x)
    assert set(report.ops) == {"CPU:0"} and report.copies == ()


def test_a_model_and_its_variables() -> None:
    model = tf.keras.Sequential([tf.keras.Input([6]), tf.keras.layers.Dense(4, "relu")])
    x = tf.ones([2, 6])
    expected = model(x)
    report = device.report(model, x, training=False)
    assert set(report.ops) == {"GPU:0"}, str(report)
    np.testing.assert_allclose(report.result, expected, rtol=1e-6)


def test_a_size_that_only_the_run_knows() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.unique(tf.boolean_mask(x, x > 0.0))[0] * 2.0

    report = device.report(f, tf.constant([1.0, -1.0, 1.0, 3.0]))
    unknown = [copy for copy in report.copies if copy.bytes is None]
    assert unknown and all(copy.shape is None for copy in unknown)
    assert "of a size that is known when it runs" in str(report)
    assert report.result.numpy().tolist() == [2.0, 6.0]


def test_what_cannot_be_told() -> None:
    with pytest.raises(TypeError, match=r"\[device.report\] function: expected .* got int"):
        device.report(3)
    tf.config.run_functions_eagerly(True)
    try:
        with pytest.raises(RuntimeError, match="run_functions_eagerly"):
            device.report(solve, tf.eye(2))
    finally:
        tf.config.run_functions_eagerly(False)

    def bad(x: tf.Tensor) -> tf.Tensor:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        device.report(bad, tf.eye(2))
    assert device.report(solve, tf.eye(2)).copies  # and tracing has ended


def test_examples_run() -> None:
    doctests.run(Path(_placement.__file__))
