"""`explain`, its object, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import cli, fusion
from tests.fusion.harness import values

X = values((2, 5, 5, 4), seed=1)
W = values((3, 3, 4, 4), seed=2)


@pytest.fixture(autouse=True)
def on_the_cpu():
    with fusion.enabled(cpu=True):
        yield


def block(x):
    y = tf.nn.relu(tf.nn.conv2d(x, W, strides=[1, 2, 2, 1], padding="SAME", name="first"))
    z = tf.nn.conv2d(x, W, strides=1, padding="SAME", name="second")
    return y, z, tf.nn.max_pool2d(z, 2, 2, "VALID")


def test_what_is_said():
    found = fusion.explain(block, tf.TensorSpec([None, 5, 5, 4]))
    assert found.function == "block"
    (fused,) = found.fused
    assert (fused.pattern, fused.root) == ("conv2d+activation", "first")
    assert (fused.fused_op, fused.fused_ops) == ("MetalFusedConv2D", ["Relu"])
    assert (fused.removed, fused.node) == (["first", "Relu"], "Relu")
    (missed,) = found.missed
    assert (missed.root, missed.op, missed.condition) == ("second", "Conv2D", "fetched")
    assert missed.reason == "The function returns 'second' (Conv2D)."


def test_graphs_before_and_after():
    found = fusion.explain(block, tf.TensorSpec([None, 5, 5, 4]))
    before = {node.name: node for node in found.before}
    after = {node.name: node for node in found.after}
    assert set(before) - set(after) == {"first"} and set(after) <= set(before)
    conv = before["first"]
    assert (conv.op, conv.device, conv.dtype) == ("Conv2D", "CPU:0", "float32")
    assert conv.shapes == ["[?, 3, 3, 4]"]
    assert conv.attrs["strides"] == "[1, 2, 2, 1]" and conv.attrs["padding"] == '"SAME"'
    fused = after["Relu"]
    assert (fused.op, fused.shapes, fused.dtype) == ("MetalFusedConv2D", conv.shapes, conv.dtype)
    assert fused.inputs == conv.inputs and fused.attrs["fused_ops"] == '["Relu"]'
    for graph in (before, after):  # complete: every input is there
        for node in graph.values():
            assert {name.lstrip("^").split(":")[0] for name in node.inputs} <= set(graph)


def test_helpers_are_named():
    b, s = values((4,), seed=3), values((4,), seed=4)
    found = fusion.explain(lambda x: (tf.nn.conv2d(x, W, 1, "SAME") + b) * s + b, X)
    (fused,) = found.fused
    assert fused.pattern == "conv2d+bias+batch_norm_decomposed" and len(fused.added) == 2
    ops = {node.name: node.op for node in found.after}
    assert [ops[name] for name in fused.added] == ["Mul", "AddV2"]


def test_what_used_the_chain_in_vain_goes_with_it():
    def wasteful(x):
        y = tf.nn.conv2d(x, W, strides=1, padding="SAME", name="root")
        tf.exp(tf.negative(y, name="unused"), name="unused_too")
        return tf.nn.relu(y, name="last")

    found = fusion.explain(wasteful, X)
    (fused,) = found.fused
    assert (fused.removed[0], fused.removed[-1]) == ("root", "last")
    assert sorted(fused.removed) == ["last", "root", "unused", "unused_too"]
    before, after = ({node.name for node in graph} for graph in (found.before, found.after))
    assert before - after == {"root", "unused", "unused_too"}


def test_chains_are_listed_in_the_order_of_their_roots():
    def several(x):
        for i in range(4):
            x = tf.nn.relu(tf.nn.conv2d(x, W, strides=1, padding="SAME", name=f"root{7 - i}"))
            x = tf.nn.softmax(tf.nn.conv2d(x, W, strides=1, padding="SAME", name=f"alone{7 - i}"))
        return x

    found = fusion.explain(several, X)
    place = {node.name: i for i, node in enumerate(found.before)}
    for chains in (found.fused, found.missed):
        roots = [place[chain.root] for chain in chains]
        assert len(roots) == 4 and roots == sorted(roots)


def test_nothing_runs():
    """Explaining a function with an effect leaves the effect out."""
    count = tf.Variable(0)

    @tf.function
    def fn(x):
        count.assign_add(1)
        return tf.nn.relu(tf.nn.conv2d(x, W, 1, "SAME"))

    assert len(fusion.explain(fn, X).fused) == 1
    assert int(count) == 0


def test_a_device_that_is_not_there():
    """A function that was written for another machine is placed as TensorFlow places functions: softly."""

    def fn(x):
        with tf.device("GPU:7"):
            return tf.nn.relu(tf.nn.conv2d(x, W, 1, "SAME"))

    assert [fused.fused_ops for fused in fusion.explain(fn, X).fused] == [["Relu"]]


@pytest.mark.parametrize("how", ["function", "tf.function", "concrete", "keras", "layer"])
def test_what_can_be_explained(how):
    def fn(x):
        return tf.nn.relu(tf.nn.conv2d(x, W, 1, "SAME"))

    layer = keras.layers.Conv2D(4, 3, activation="relu")
    layer.build(X.shape)
    things = {
        "function": (fn, (X.numpy(),)),
        "tf.function": (tf.function(fn), (X,)),
        "concrete": (tf.function(fn).get_concrete_function(X), ()),
        "keras": (keras.Sequential([keras.Input(X.shape[1:]), layer]), (X,)),
        "layer": (layer, (X,)),
    }
    thing, args = things[how]
    assert [fused.fused_ops[-1] for fused in fusion.explain(thing, *args).fused] == ["Relu"]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="expected a function, got int"):
        fusion.explain(3)
    with pytest.raises(TypeError, match="has its arguments already; got 1 more"):
        fusion.explain(tf.function(lambda x: x).get_concrete_function(X), X)
    with pytest.raises(ValueError, match="patterns: no pattern 'swoosh'; expected some of conv2d"):
        fusion.enable("bias,swoosh")
    assert fusion.status().patterns == [pattern.name for pattern in fusion.patterns()]
    with pytest.raises(RuntimeError, match="metal_ops.fusion: the request is not a GraphDef"):
        fusion._explain._native.explain(b"\xff\xff")


def test_repr_and_json():
    found = fusion.explain(block, tf.TensorSpec([None, 5, 5, 4]))
    lines = repr(found).splitlines()
    assert lines[0] == "block: 1 of 2 candidates fused: 2 nodes became 1 MetalFusedConv2D"
    assert any("first" in line and "MetalFusedConv2D[Relu]" in line for line in lines)
    assert any(line.startswith("second") and "The function returns" in line for line in lines)
    assert fusion.Explanation.from_json(found.to_json()) == found
    assert all(len(line) <= 180 for line in lines)


def test_names_and_reasons_are_whole():
    """All readers and all patterns that were nearly one are named; the last op of a chain has a reason, too."""
    long = "/".join(["a_model_with_a_long_name"] * 4)

    def many(x):
        with tf.name_scope(long):
            y = tf.nn.conv2d(x, W, 1, "SAME", name="conv")
        return tf.nn.relu(y), tf.tanh(y), tf.exp(y), tf.sin(y), tf.cos(y)

    found = fusion.explain(many, X)
    (missed,) = found.missed
    assert "has 5 consumers" in missed.reason and "Cos" in missed.reason
    assert "..." not in missed.reason
    assert f"{long}/conv" in repr(found).splitlines()  # on a line of its own
    chained = fusion.explain(lambda x: tf.nn.relu(tf.nn.conv2d(x, W, 1, "SAME")), X)
    assert chained.fused[0].reason.endswith("(Relu) is the last op that can be fused.")
    assert not chained.fused[0].condition


def test_save(tmp_path: Path):
    found = fusion.explain(block, X)
    page = found.save(tmp_path / "page.html").read_text()
    assert "<html" in page and "MetalFusedConv2D" in page
    assert json.loads(found.save(tmp_path / "all.json").read_text())["function"] == "block"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    module = tf.Module()
    module.w = tf.Variable(W)
    module.f = tf.function(
        lambda x: {"y": tf.nn.relu(tf.nn.conv2d(x, module.w, 1, "SAME") + module.w[0, 0, 0])},
        input_signature=[tf.TensorSpec([None, 5, 5, 4], name="x")],
    )
    tf.saved_model.save(
        module, str(folder), signatures={"serving_default": module.f, "b": module.f}
    )
    return folder


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = cli.main(["fusion", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_command_explains_a_saved_model(saved, tmp_path, capsys):
    page, data = tmp_path / "m.html", tmp_path / "m.json"
    code, out, _ = run(capsys, "explain", saved, "--device", "cpu", "--html", page, "--json", data)
    assert code == 0
    assert "1 of 1 candidates fused" in out and "MetalFusedConv2D[BiasAdd, Relu]" in out
    assert "MetalFusedConv2D" in page.read_text()
    assert json.loads(data.read_text())["fused"][0]["fused_ops"] == ["BiasAdd", "Relu"]
    assert run(capsys, "explain", saved, "--device", "cpu", "--signature", "b")[0] == 0


def test_command_says_what_is_wrong(saved, tmp_path, capsys):
    code, _, err = run(capsys, "explain", tmp_path)
    assert code == 1 and "is no SavedModel: it has no saved_model.pb" in err
    code, _, err = run(capsys, "explain", saved, "--device", "cpu", "--signature", "c")
    assert code == 1 and "has no signature 'c'; it has: " in err and "serving_default" in err
    code, _, err = run(capsys, "list", "swoosh")
    assert code == 1 and "no pattern 'swoosh'" in err
    # TensorFlow has made its devices in this process.
    code, _, err = run(capsys, "explain", saved)
    assert code == 1 and "Or say --device cpu." in err


def test_command_lists_patterns(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0 and len(out.splitlines()) == len(fusion.patterns())
    code, out, _ = run(capsys, "list", "residual")
    assert code == 0 and "AddV2 | Add | AddN" in out


def test_counts():
    before = fusion.status()
    tf.function(block)(X)
    after = fusion.status()
    assert (after.graphs, after.fused) == (before.graphs + 1, before.fused + 1)
    assert isinstance(after.patterns, list) and np.all([isinstance(p, str) for p in after.patterns])
    assert metal_ops.fusion is fusion
