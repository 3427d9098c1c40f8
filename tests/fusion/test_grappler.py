"""The grappler optimizer `metal_fusion`, named in a RewriterConfig: in sessions and in functions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context  # a test: the package itself has no use for it

import metal_ops
from tests.fusion.harness import values

pytestmark = pytest.mark.release

X = values((2, 5, 5, 4), seed=1).numpy()
W = values((3, 3, 4, 4), seed=2).numpy() / 4.0
B = values((4,), seed=3).numpy()


def config(*optimizers: str) -> tf.compat.v1.ConfigProto:
    proto = tf.compat.v1.ConfigProto()
    rewrite = proto.graph_options.rewrite_options
    rewrite.optimizers.extend(optimizers)
    rewrite.meta_optimizer_iterations = 1
    rewrite.min_graph_nodes = -1  # also graphs as small as these
    return proto


class Session:
    """conv -> bias -> relu, in a session with these optimizers."""

    def __init__(self, *optimizers: str, shape_is_checked: bool = True):
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device("/CPU:0"):
            self.x = tf.compat.v1.placeholder(tf.float32, X.shape, name="x")
            # The shape of a fed tensor proves nothing: a conv behind it might be a grouped one.
            known = tf.ensure_shape(self.x, X.shape) if shape_is_checked else self.x
            self.conv = tf.nn.conv2d(known, W, strides=1, padding="SAME", name="conv")
            self.bias = tf.nn.bias_add(self.conv, B, name="bias")
            self.relu = tf.nn.relu(self.bias, name="relu")
        self.session = tf.compat.v1.Session(graph=self.graph, config=config(*optimizers))

    def ops_run(self, fetches, feeds):
        """Result, and the ops of the graph that ran."""
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        result = self.session.run(fetches, feeds, options=options, run_metadata=metadata)
        # oneDNN's layout pass, which comes last, renames and merges the rest.
        return result, " ".join(
            node.op for graph in metadata.partition_graphs for node in graph.node
        )


@pytest.fixture(autouse=True)
def on_the_cpu():
    with metal_ops.fusion.enabled(cpu=True):
        yield


def test_session():
    session = Session("metal_fusion")
    expected, plain = Session("pruning").ops_run("relu:0", {"x:0": X})
    got, ops = session.ops_run("relu:0", {"x:0": X})
    assert "Conv2D" in plain and "Metal" not in plain
    assert "MetalFusedConv2D" in ops and "Relu" not in ops and "Bias" not in ops
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_before_the_remapper():
    got, ops = Session("metal_fusion", "remap").ops_run("relu:0", {"x:0": X})
    assert "MetalFusedConv2D" in ops
    _, ops = Session("remap", "metal_fusion").ops_run("relu:0", {"x:0": X})
    assert "MetalFusedConv2D" not in ops  # as documented: nothing is left to fuse
    np.testing.assert_allclose(got, Session("pruning").ops_run("relu:0", {"x:0": X})[0], atol=1e-5)


@pytest.mark.parametrize(
    ("fetches", "fused"),
    [
        ("relu:0", ["BiasAdd", "Relu"]),
        (["relu:0", "bias:0"], ["BiasAdd"]),  # fetched: the chain ends there
        (["bias:0", "relu"], ["BiasAdd"]),  # an op is fetched
        (["relu:0", "conv:0"], None),
    ],
    ids=str,
)
def test_fetched_nodes_stay(fetches, fused):
    expected, _ = Session("pruning").ops_run(fetches, {"x:0": X})
    got, ops = Session("metal_fusion").ops_run(fetches, {"x:0": X})
    assert ("MetalFusedConv2D" in ops) == (fused is not None)
    assert ("Relu" in ops) == (fused is None or "Relu" not in fused)
    for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(got), strict=True):
        if a is not None:
            np.testing.assert_allclose(b, a, rtol=0, atol=1e-5)


def test_shape_is_asked_of_the_fused_node():
    session = Session("metal_fusion")
    with session.graph.as_default(), tf.device("/CPU:0"):
        tf.raw_ops.ShapeN(input=[session.x, session.conv], name="asked")
    (got, asked), ops = session.ops_run(["relu:0", "asked:1"], {"x:0": X})
    assert "MetalFusedConv2D" in ops and "Relu" not in ops
    np.testing.assert_array_equal(asked, X.shape)
    np.testing.assert_allclose(got, Session("pruning").ops_run("relu:0", {"x:0": X})[0], atol=1e-5)


def test_shape_of_what_is_fed_proves_nothing():
    got, ops = Session("metal_fusion", shape_is_checked=False).ops_run("relu:0", {"x:0": X})
    assert "MetalFusedConv2D" not in ops
    np.testing.assert_allclose(got, Session("pruning").ops_run("relu:0", {"x:0": X})[0], atol=1e-5)


@pytest.mark.parametrize("fed", ["conv:0", "bias:0"])
def test_fed_nodes_stay(fed):
    """The value that is fed counts, not the one that the node would compute."""
    session = Session("metal_fusion")
    (got, _), ops = session.ops_run(["relu:0", "x:0"], {fed: -X, "x:0": X})
    (expected, _), _ = Session("pruning").ops_run(["relu:0", "x:0"], {fed: -X, "x:0": X})
    assert "MetalFusedConv2D" not in ops
    np.testing.assert_array_equal(got, expected)


def test_residual_with_a_default_of_the_right_shape():
    """One row may be fed for it all the same, and is broadcast."""
    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        x = tf.ensure_shape(tf.compat.v1.placeholder(tf.float32, X.shape, name="x"), X.shape)
        r = tf.compat.v1.placeholder_with_default(X, [None, *X.shape[1:]], name="r")
        tf.add(tf.nn.conv2d(x, W, 1, "SAME"), r, name="sum")
    results = []
    for optimizer in ("pruning", "metal_fusion"):
        with tf.compat.v1.Session(graph=graph, config=config(optimizer)) as session:
            feeds = ({}, {"r:0": X}, {"r:0": X[:1]})
            results.append([session.run("sum:0", {"x:0": X, **feed}) for feed in feeds])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_function():
    """In a tf.function the pass has been there before; with it off nothing else would fuse."""
    function = tf.function(lambda x: tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, W, 1, "SAME"), B)))
    eager = context.context()
    before = metal_ops.fusion.status()
    old = eager.function_call_options
    try:
        eager.function_call_options = type(old)(
            executor_type=None, config_proto=config("metal_fusion")
        )
        got = function(X)
    finally:
        eager.function_call_options = old
    after = metal_ops.fusion.status()
    assert after.fused == before.fused + 1 and after.errors == before.errors
    np.testing.assert_allclose(got, Session("pruning").ops_run("relu:0", {"x:0": X})[0], atol=1e-5)


def test_switched_off():
    with metal_ops.fusion.disabled():
        _, ops = Session("metal_fusion").ops_run("relu:0", {"x:0": X})
    assert "Conv2D" in ops
