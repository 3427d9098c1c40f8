"""Ops that TensorFlow has removed, and runs in graphs of that time only."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.device.on_device.test_elementwise import wide
from tests.device.on_device.test_ops import numpy_type, random


def run(
    op: str, inputs: dict[str, np.ndarray], device: str, dtype: str, **attributes
) -> np.ndarray:
    """The op in a graph of version 8, TensorFlow 0.6's."""
    with tf.Graph().as_default() as graph, tf.device(device):
        for name, x in inputs.items():
            tf.compat.v1.placeholder(x.dtype, name=name)
    old = graph.as_graph_def()
    old.versions.producer = 8
    node = old.node.add(op=op, name="result", input=inputs, device=old.node[0].device)
    node.attr["T"].type = tf.as_dtype(dtype).as_datatype_enum
    for name, value in attributes.items():
        setattr(node.attr[name], "b" if isinstance(value, bool) else "f", value)
    with tf.Graph().as_default():
        tf.import_graph_def(old, name="")
        with tf.compat.v1.Session() as session:
            return session.run("result:0", {f"{name}:0": x for name, x in inputs.items()})


def batch_norm(device: str, dtype: str, shape, scaled: bool, **other) -> np.ndarray:
    channels = shape[-1]
    inputs = {"t": random(shape, dtype), "m": random((channels,), dtype, 1)}
    inputs["v"] = np.abs(random((channels,), dtype, 2))
    inputs |= {"beta": random((channels,), dtype, 3), "gamma": random((channels,), dtype, 4)}
    return run("BatchNormWithGlobalNormalization", inputs | other, device, dtype, variance_epsilon=0.01,
               scale_after_normalization=scaled)  # fmt: skip


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batch_norm(dtype, scaled):
    """As the frozen Inception of 2015 has it."""
    for shape in [(2, 3, 4, 5), (1, 1, 1, 1), (0, 2, 2, 3), (3, 7, 5, 33)]:
        expected = batch_norm("CPU:0", dtype, shape, scaled)
        for _ in range(2):
            got = batch_norm("GPU:0", dtype, shape, scaled)
            assert got.shape == shape and got.dtype == numpy_type(dtype)
            size = np.abs(wide(expected)).max(initial=1)
            error = {"float32": 1e-6, "float16": 4e-3}[dtype]
            np.testing.assert_allclose(wide(got), wide(expected), rtol=error, atol=error * size)


@pytest.mark.parametrize(
    ("shape", "other", "message"),
    [
        ((2, 3), {}, r"input must be 4-dimensional, got .2, ?3."),
        (
            (1, 2, 2, 3),
            {"m": np.zeros(2, "float32")},
            r"m must have .* channels, 3, got shape \[2\]",
        ),
    ],
)
def test_shapes_are_checked(shape, other, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        batch_norm("GPU:0", "float32", shape, True, **other)
