"""Names of layers, as quantization and adapters take them, and the rows of reports that have them."""

import keras
import numpy as np
import pytest

from metal_ops import QuantizationSpec, adapters, quantization_report, quantize_model
from metal_ops.layers._quantized import Quantized

pytestmark = pytest.mark.ops


def dense(name, units=32):
    return keras.layers.Dense(units, name=name)


def functional(name, *layers):
    """Keras's paths of its layers do not have its name: they are made before it."""
    y = inputs = keras.Input([32])
    for layer in layers:
        y = layer(y)
    return keras.Model(inputs, y, name=name)


def nested():
    return functional(
        "net",
        functional("one", dense("dense")),
        keras.Sequential([keras.Input([32]), dense("dense"), dense("last")], name="two"),
        functional("dense", dense("other"), dense("a+b")),
        dense("head", 4),
    )


EVERY = ["one/dense", "two/dense", "two/last", "dense/other", "dense/a+b", "head"]


@pytest.mark.parametrize(
    "pattern, chosen",
    [
        (None, EVERY),
        ("net", EVERY),
        ("one", ["one/dense"]),
        ("one/dense", ["one/dense"]),
        ("net/one/dense", ["one/dense"]),
        ("two", ["two/dense", "two/last"]),
        # The layers dense, and those in the model dense.
        ("dense", ["one/dense", "two/dense", "dense/other", "dense/a+b"]),
        ("^dense", ["one/dense", "dense/other", "dense/a+b"]),
        ("(one|two)/dense", ["one/dense", "two/dense"]),
        ("one|head", ["one/dense", "head"]),
        ("(?i)HEAD|ONE", ["one/dense", "head"]),
        ("(?x) head  # the last one", ["head"]),
        ("a+b", ["dense/a+b"]),
        ("dense/a+b", ["dense/a+b"]),
        (["head", "two/last"], ["two/last", "head"]),
    ],
    ids=str,
)  # fmt: skip
def test_names_choose_the_layers_and_those_in_models(pattern, chosen):
    model = nested()
    assert sorted(adapters.add(model, layers=pattern)) == sorted(chosen)
    for_all = isinstance(pattern, list) or pattern is None
    spec = {"layers": pattern} if for_all else {"overrides": {pattern: {"bits": 8}}}
    new = quantize_model(nested(), spec)
    rows = quantization_report(nested(), new, np.ones([2, 32], np.float32)).rows
    wanted = 4 if for_all else 8
    assert sorted(row.layer for row in rows if row.bits == wanted) == sorted(chosen)
    if pattern is not None and len(chosen) < len(EVERY):
        kept = quantize_model(nested(), {"skip": pattern})
        assert sum(isinstance(q, Quantized) for q in kept._flatten_layers()) == 6 - len(chosen)


@pytest.mark.parametrize(
    "pattern", ["", "/", "two/", "den", "net/dense/head", "one//dense", "(one|head)x"]
)
def test_names_of_no_layer(pattern):
    for argument in ("layers", "skip"):
        with pytest.raises(ValueError, match=rf"spec.{argument}: expected names of layers"):
            quantize_model(nested(), {argument: pattern})
    with pytest.raises(ValueError, match="overrides: expected names of layers"):
        quantize_model(nested(), {"overrides": {pattern: {"bits": 8}}})
    with pytest.raises(ValueError, match=r"\[adapters.add\] layers: expected names of layers"):
        adapters.add(nested(), layers=pattern)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"layers": "["}, ValueError, r"got '\[' \(unterminated character set at position 0\)"),
        ({"skip": "one)|(?:"}, ValueError, r"skip: expected a regular expression, got 'one\)\|\(\?:'"),
        ({"overrides": ["head"]}, TypeError, "overrides: expected a dict from patterns to arguments, got list"),
        ({"overrides": None}, TypeError, "overrides: expected a dict from patterns to arguments, got NoneType"),
        ({"overrides": {"head": 8}}, TypeError, r"overrides\['head'\]: expected a dict such as .*, got 8"),
    ],
)  # fmt: skip
def test_mistakes(arguments, error, words):
    with pytest.raises(error, match=words):
        QuantizationSpec(**arguments)


def test_names_in_a_quantized_model_are_those_of_the_given_one():
    new = quantize_model(nested())
    assert sorted(adapters.add(new, layers="one|two")) == ["one/dense", "two/dense", "two/last"]


class Own(keras.Model):
    """With variables of its own, a layer at two attributes, and layers in lists and dicts."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = self.again = dense("first")
        self.listed, self.named = [dense("x"), dense("x")], {"last": dense("last", 4)}
        self.scale = self.add_weight(shape=[32], name="scale", initializer="ones")

    def call(self, x):
        x = self.again(self.first(x)) * self.scale
        for layer in self.listed:
            x = layer(x)
        return self.named["last"](x)


def own():
    model = Own(name="own")
    model(np.ones([1, 32], np.float32))
    return model


def with_inputs_shared():
    """Two models that begin with the same input and layer."""
    inputs, outer = keras.Input([32]), keras.Input([32])
    y = dense("first")(inputs)
    one, other = keras.Model(inputs, y, name="one"), keras.Model(inputs, dense("k", 8)(y), name="other")  # fmt: skip
    return keras.Model(outer, [one(outer), other(outer)], name="net")


@pytest.mark.parametrize(
    "make, rows",
    [
        (nested, EVERY),
        (own, ["own", "own/first", "own/x", "own/x", "own/last"]),
        (with_inputs_shared, ["one/first", "other/k"]),
    ],
)
def test_rows_add_up(make, rows):
    model = make()
    new = quantize_model(model)
    report = quantization_report(model, new, np.ones([2, 32], np.float32))
    assert sorted(row.layer for row in report.rows) == sorted(rows)
    assert report.bytes_before == sum(row.bytes_before for row in report.rows)
    assert report.bytes_before == sum(w.numpy().nbytes for w in model.weights)
    assert report.bytes_after == sum(row.bytes_after for row in report.rows)
    assert report.bytes_after == sum(w.numpy().nbytes for w in new.weights)
