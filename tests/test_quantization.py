"""quantize_model and quantization_report: the quantized layers, and their errors."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import QuantizationSpec, adapters, quantization_report, quantize_model
from metal_ops.layers import QuantizedConv2D, QuantizedDense, QuantizedEmbedding
from metal_ops.layers._quantized import Quantized
from tests.calls import normal

pytestmark = pytest.mark.ops


@pytest.fixture(autouse=True)
def same_weights():
    keras.utils.set_random_seed(1)


def sequential():
    layers = [
        keras.layers.Conv2D(6, 3, strides=2, activation="relu", name="conv"),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dense(5, name="out"),
    ]
    return keras.Sequential([keras.Input([9, 9, 3]), *layers]), normal(6, 9, 9, 3)


def without_input():
    model = keras.Sequential([keras.layers.Dense(40, name="first"), keras.layers.Dense(5)])
    x = normal(4, 33)
    model(x)
    return model, x


def functional():
    """Shared layers, a model in the model, layers in layers, a function, two inputs."""
    words, x = keras.Input([6], dtype="int32"), keras.Input([6, 33])
    inner = keras.Sequential([keras.Input([6, 33]), keras.layers.Dense(32, name="inner")])
    shared = keras.layers.Dense(33, name="shared")
    y = keras.layers.Embedding(20, 33, name="words")(words) + shared(x)
    y = shared(y) * keras.layers.Lambda(lambda x: tf.tanh(x))(x)
    y = keras.layers.TimeDistributed(keras.layers.Dense(33, name="timed"))(inner(y))
    y = keras.layers.MultiHeadAttention(2, 8)(y, y)
    out = {"a": keras.layers.Dense(4, name="out")(y), "b": inner(y)}
    data = [np.random.default_rng(0).integers(0, 20, (3, 6)), normal(3, 6, 33)]
    return keras.Model([words, x], out), data


@keras.saving.register_keras_serializable(package="tests")
class Block(keras.layers.Layer):
    """Layers in attributes, lists and dicts."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.first = keras.layers.Dense(units, name="first")
        self.more = [keras.layers.Dense(units, name=f"more_{i}") for i in range(2)]
        self.named = {"last": (keras.layers.Dense(units, name="last"), 3)}

    def build(self, shape):
        inner = (*shape[:-1], self.units)
        self.first.build(shape)
        for layer in (*self.more, self.named["last"][0]):
            layer.build(inner)

    def call(self, x):
        x = self.first(x)
        for layer in self.more:
            x = tf.tanh(layer(x))
        return self.named["last"][0](x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Net(keras.Model):
    """A subclassed model that is called by a function of its own."""

    def __init__(self, units=33):
        super().__init__(name="net")
        self.units = units
        self.block = Block(units, name="block")
        self.norm = keras.layers.LayerNormalization()
        self.out = keras.layers.Dense(3, name="out")

    def build(self, shape):
        self.block.build(shape)
        for layer in (self.norm, self.out):
            layer.build((None, self.units))

    @tf.function
    def call(self, x, training=False):
        return self.out(self.norm(self.block(x)))

    def get_config(self):
        return {"units": self.units}


def subclassed():
    model, x = Net(), normal(5, 20)
    model(x)
    model.norm.gamma.assign(normal(33, seed=4))
    return model, x


def with_block():
    inputs = keras.Input([20])
    return keras.Model(inputs, keras.layers.Dense(4)(Block(32, name="block")(inputs))), normal(
        5, 20
    )


MODELS = [sequential, without_input, functional, subclassed, with_block]


def quantized(model):
    return [layer for layer in model._flatten_layers() if isinstance(layer, Quantized)]


def flat(outputs):
    return [np.asarray(y) for y in tf.nest.flatten(outputs)]


def with_meant_weights(model, new):
    """The model's outputs where its layers have the floats that the codes stand for."""
    kept = [w.numpy() for w in model.weights]
    for one, other in zip(model._flatten_layers(), new._flatten_layers(), strict=True):
        if isinstance(other, QuantizedEmbedding):
            one.embeddings.assign(other.embeddings)
        elif isinstance(other, Quantized):
            one.kernel.assign(other.kernel)
    return model, kept


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("make", MODELS)
def test_models_have_the_rounded_weights_and_the_given_one_stays(make, calibrated):
    model, x = make()
    before, y = [w.numpy() for w in model.weights], flat(model(x))
    new = quantize_model(model, {"bits": 4}, calibrate=[(x, "labels")] if calibrated else None)
    assert type(new) is type(model) and new is not model
    n_dense = {sequential: 2, without_input: 2, functional: 5, subclassed: 5, with_block: 5}[make]
    assert len(quantized(new)) == n_dense and not quantized(model)
    for one, other in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(flat(model(x)), y, strict=True):
        np.testing.assert_array_equal(one, other)
    found = flat(new(x))
    twin, kept = with_meant_weights(model, new)
    assert any(np.any(a != b) for a, b in zip(kept, [w.numpy() for w in twin.weights], strict=True))
    for one, other in zip(found, flat(twin(x)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    # None of the float weights is held by the new model.
    names = {layer.name for layer in quantized(new)}
    for layer in new._flatten_layers():
        assert layer.name not in names or isinstance(layer, Quantized)
    assert sum(np.prod(w.shape) for w in new.trainable_weights) < 0.5 * sum(
        np.prod(w.shape) for w in model.trainable_weights
    )


def test_shared_layers_stay_shared():
    model, _ = functional()
    new = quantize_model(model)
    assert len({id(layer) for layer in quantized(new)}) == len(quantized(new)) == 5
    assert (
        new.get_layer("shared") is quantized(new)[[q.name for q in quantized(new)].index("shared")]
    )
    assert len(new.get_layer("shared")._inbound_nodes) == 2


def test_a_layer_in_a_model_and_beside_it_stays_one():
    inputs = keras.Input([33])
    both = keras.layers.Dense(33, name="both")
    inner = keras.Sequential([keras.Input([33]), both], name="inner")
    new = quantize_model(keras.Model(inputs, both(inner(inputs))))
    assert new.get_layer("inner").layers[0] is new.get_layer("both")


class Twice(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.left = self.right = keras.layers.Dense(33, name="both")

    def build(self, shape):
        self.left.build(shape)

    def call(self, x):
        return self.right(self.left(x))


def test_all_attributes_that_hold_a_layer_hold_the_new_one():
    model = keras.Sequential([keras.Input([33]), Twice()])
    inner = quantize_model(model).layers[0]
    assert inner.left is inner.right and isinstance(inner.left, QuantizedDense)
    assert inner._layers == [inner.left]


@pytest.mark.parametrize(
    "spec, bits",
    [
        (None, {"first": 4, "more_0": 4, "more_1": 4, "last": 4, "out": 4}),
        (QuantizationSpec(bits=8, layers="more_.*"), {"more_0": 8, "more_1": 8}),
        (dict(layers=["first", lambda layer: layer.units == 3]), {"first": 4, "out": 4}),
        (dict(skip="block", layers=keras.layers.Dense), {"out": 4}),
        (
            dict(skip="first", overrides={"more_.|out": {"bits": 8}, "more_1": {"bits": 4, "block": 64}}),
            {"more_0": 8, "more_1": 4, "last": 4, "out": 8},
        ),
    ],
)  # fmt: skip
def test_specs(spec, bits):
    model, _ = subclassed()
    new = quantize_model(model, spec)
    assert {layer.name: layer.format.bits for layer in quantized(new)} == bits
    if spec and isinstance(spec, dict) and "overrides" in spec:
        assert [layer.format.block for layer in quantized(new)] == [32, 64, 32, 32]


@pytest.mark.parametrize("make", [sequential, without_input])
def test_saves_loads_exports(make, tmp_path):
    model, x = make()
    new = quantize_model(model, {"symmetric": True})
    y = new.predict(x, verbose=0)
    new.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), y)
    assert quantized(loaded)[0].format == quantized(new)[0].format
    new.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(x), y, atol=1e-5)


def test_layers_in_layers_save_where_their_config_knows(tmp_path):
    inputs = keras.Input([6, 33])
    timed = keras.layers.TimeDistributed(keras.layers.Dense(33))(inputs)
    model, x = keras.Model(inputs, timed), normal(2, 6, 33)
    new = quantize_model(model)
    new.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(quantized(loaded)) == 1
    np.testing.assert_array_equal(loaded(x), new(x))


@pytest.mark.parametrize("make", [subclassed, with_block])
def test_what_its_config_does_not_know_saves_weights_alone(make, tmp_path):
    model, x = make()
    new = quantize_model(model)
    with pytest.raises(ValueError, match=r"\[quantize_model\] The config of .* does not know"):
        new.save(tmp_path / "model.keras")
    new.save_weights(tmp_path / "some.weights.h5")
    other, _ = make()
    for w in other.weights:
        w.assign(normal(*w.shape, seed=9))
    again = quantize_model(other)
    assert not np.allclose(again(x), new(x))
    again.load_weights(tmp_path / "some.weights.h5")
    np.testing.assert_array_equal(again(x), new(x))
    new.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(x), new(x), atol=1e-5)


def test_compiled_models_are_compiled_and_train_what_is_left():
    model, x = sequential()
    model.compile(keras.optimizers.Adam(1e-2), "mse", metrics=["mae"])
    new = quantize_model(model)
    codes = [layer.codes.numpy() for layer in quantized(new)]
    assert new.evaluate(x, normal(6, 5), verbose=0)[0] > 0
    losses = new.fit(x, normal(6, 5, seed=7) + 3, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for layer, before in zip(quantized(new), codes, strict=True):
        np.testing.assert_array_equal(layer.codes, before)


# ---- calibration ----------------------------------------------------------------------------------------------------


def blockwise_error(layer, new, x):
    """For each output and block of 32 inputs, |x (w' - w)|^2 over the rows x, in float64."""
    off = (np.asarray(new.kernel) - layer.kernel).astype(np.float64)
    size = new.format.block or off.shape[0]
    parts = range(0, off.shape[0], size)
    return np.array([np.sum((x[:, i : i + size] @ off[i : i + size]) ** 2, 0) for i in parts])


@pytest.mark.parametrize(
    "form",
    [dict(), dict(symmetric=True), dict(block=None, symmetric=True), dict(block=64, bits=8)],
    ids=str,
)
def test_no_block_is_worse_than_without_calibration(form):
    layer = keras.layers.Dense(30, name="one")
    model, x = keras.Sequential([keras.Input([100]), layer]), normal(500, 100).astype(np.float64)
    x[:, :50] *= 10 * np.arange(50)  # some inputs count
    layer.kernel.assign(
        np.sign(layer.kernel) * np.abs(layer.kernel) ** 3
    )  # and few weights are large
    plain = blockwise_error(layer, quantize_model(model, form).layers[0], x)
    new = quantize_model(model, form, x.astype(np.float32)).layers[0]
    one = blockwise_error(layer, new, x)
    assert np.all(one <= plain * 1.001 + 1e-9)
    assert np.sum(one) < (0.97 if new.format.bits == 8 else 0.9) * np.sum(plain)


def test_the_best_cut_is_found():
    """One output whose large weight has no input: the whole scale is for the others."""
    kernel = np.linspace(-0.6, 0.6, 32, dtype=np.float32)[:, None]
    kernel[5] = 1.0
    layer = keras.layers.Dense(1, use_bias=False)
    model = keras.Sequential([keras.Input([32]), layer])
    layer.kernel.assign(kernel)
    x = normal(200, 32)
    x[:, 5] = 0
    new = quantize_model(model, dict(symmetric=True), x).layers[0]
    np.testing.assert_allclose(new.scales, [[np.float16(0.6 / 7)]], rtol=1e-3)  # 40 % cut off


@pytest.mark.parametrize(
    "arguments",
    [dict(), dict(groups=2, strides=2), dict(padding="same", dilation_rate=2)],
    ids=str,
)
def test_convolutions_calibrate_on_their_patches(arguments, monkeypatch):
    """A convolution is as a Dense layer over the inputs of its own call's products, found by kernels of one 1."""
    layer = keras.layers.Conv2D(4, (3, 2), use_bias=False, **arguments)
    model, x = keras.Sequential([keras.Input([7, 6, 8]), layer]), normal(5, 7, 6, 8)
    taps = layer.kernel.shape[0] * layer.kernel.shape[1] * layer.kernel.shape[2]
    x *= (
        4.0 ** np.arange(7)[:, None, None] * 3.0 ** np.arange(6)[:, None]
    )  # each place counts otherwise
    columns = []
    for i in range(taps):
        one = np.zeros([taps, layer.filters], np.float32)
        one[i] = 1
        twin = keras.layers.Conv2D(4, (3, 2), use_bias=False, **arguments)
        twin.build(x.shape)
        twin.kernel.assign(one.reshape(layer.kernel.shape))
        columns.append(np.asarray(twin(x)).reshape(-1, layer.filters))
    monkeypatch.setattr(metal_ops._calibration, "_MOST_PATCHES", 7 * 6 * 8 * 6 * 2)
    found = quantize_model(model, dict(symmetric=True), x).layers[0]
    for group in range(layer.groups):
        here = slice(group * 4 // layer.groups, (group + 1) * 4 // layer.groups)
        rows = np.stack([column[:, here.start] for column in columns], 1)
        dense = keras.layers.Dense(here.stop - here.start, use_bias=False)
        twin = keras.Sequential([keras.Input([taps]), dense])
        dense.kernel.assign(np.reshape(layer.kernel, [taps, -1])[:, here])
        right = quantize_model(twin, dict(symmetric=True), rows).layers[0]
        np.testing.assert_array_equal(found.scales[here], right.scales)
    plain = quantize_model(model, dict(symmetric=True)).layers[0]
    assert np.any(plain.scales.numpy() != found.scales.numpy())


@pytest.mark.parametrize("block", [32, 128])
def test_embeddings_are_cut_for_their_rows(block):
    """40 numbers, so that blocks are filled."""
    model = keras.Sequential([keras.Input([3], dtype="int32"), keras.layers.Embedding(50, 40)])
    model.layers[0].embeddings.assign(normal(50, 40) ** 3)
    data = tf.data.Dataset.from_tensor_slices(tf.zeros([4, 3], tf.int32)).batch(2)
    plain, one = (quantize_model(model, {"block": block}, cut).layers[0] for cut in (None, data))
    before, after = (
        np.sum((np.asarray(q.embeddings) - model.layers[0].embeddings) ** 2, 1)
        for q in (plain, one)
    )
    assert np.all(after <= before * 1.001) and np.sum(after) < 0.9 * np.sum(before)


# ---- report ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS)
def test_report_is_what_the_layers_are_off_by(make, tmp_path):
    model, x = make()
    skipped = [layer.name for layer in model._flatten_layers() if layer.name == "shared"]
    new = quantize_model(model, {"skip": skipped})
    report = quantization_report(model, new, [x, (x, 0)])
    rows = [row for row in report.rows if row.bits is not None]
    assert [row.bits for row in rows] == [4] * len(quantized(new))
    assert [row.layer.split("/")[-1] for row in rows] == [q.name for q in quantized(new)]
    y, off = flat(model(x)), flat(new(x))
    expected = np.sqrt(
        sum(np.sum((a - b) ** 2) for a, b in zip(off, y, strict=True))
        / sum(np.sum(b**2) for b in y)
    )
    assert abs(report.error - expected) < 1e-5
    assert all(0 < row.alone < 0.3 and 0 < row.error < 0.6 for row in rows)
    assert all(row.bytes_after < row.bytes_before for row in rows)
    others = [row for row in report.rows if row.bits is None]
    assert len(others) >= len(skipped)
    assert all(row.alone is row.error is None for row in others)
    assert all(row.bytes_after == row.bytes_before > 0 for row in others)
    assert report.bytes_before == sum(row.bytes_before for row in report.rows)
    assert report.bytes_after == sum(row.bytes_after for row in report.rows)
    lines = str(report).splitlines()
    assert len(lines) == 2 + len(report.rows) and len({len(line) for line in lines}) == 1
    report.plot(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").read_bytes()[:4] == b"\x89PNG"
    for layer in (*model._flatten_layers(), *new._flatten_layers()):
        assert "call" not in vars(layer)
    assert not tf.config.functions_run_eagerly()


def test_report_of_the_first_layer_by_hand():
    model, x = without_input()
    new = quantize_model(model)
    row = quantization_report(model, new, x).rows[0]
    right, found = model.layers[0](x), new.layers[0](x)
    expected = np.linalg.norm(found - right) / np.linalg.norm(right)
    assert row.alone == row.error and abs(row.alone - expected) < 1e-6
    assert (row.bytes_before, row.bytes_after) == (4 * 34 * 40, 40 * 17 + 40 * 2 * 2 * 2 + 160)


# ---- what is refused ------------------------------------------------------------------------------------------------


class NoConfig(keras.Model):
    def __init__(self, layers):
        super().__init__(name="no_config")
        self.all = layers

    def call(self, x):
        return self.all[0](x)

    def get_config(self):
        raise NotImplementedError("none here")


class Hidden(keras.layers.Layer):
    """Its layer is in no attribute."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        layer = keras.layers.Dense(33, name="hidden")
        self._layers.append(layer)
        self._tracker.stored_ids["layers"].add(id(layer))
        self.find = lambda: layer

    def build(self, shape):
        self.find().build(shape)

    def call(self, x):
        return self.find()(x)


class Graph(keras.Model):
    """A functional model that is not made as one."""

    def __init__(self):
        inputs = keras.Input([4])
        super().__init__(inputs, keras.layers.Dense(3)(inputs), name="graph")


def built(model, size=4):
    model(tf.zeros([2, size]))
    return model


def adapted():
    model = without_input()[0]
    adapters.add(model, rank=1)
    return model


def reported(model, other, data=None):
    return quantization_report(model, other, normal(4, 33) if data is None else data)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: quantize_model(keras.layers.Dense(3)), TypeError, r"\[quantize_model\] model: .* got Dense"),
        (lambda: quantize_model(keras.Sequential([keras.layers.Dense(3)])), ValueError, r"model: .* is built"),
        (lambda: quantize_model(adapted()), ValueError, r"without adapters, got default"),
        (lambda: quantize_model(without_input()[0], {"layers": keras.layers.Conv2D}), ValueError,
         r"spec: no layer of it fits.*sequential.*/first"),
        (lambda: quantize_model(without_input()[0], 4), TypeError, r"spec: expected .* got int"),
        (lambda: quantize_model(without_input()[0], {"bit": 4}), ValueError, r"spec: expected bits, .* got 'bit'"),
        (lambda: quantize_model(without_input()[0], None, []), ValueError, r"calibrate: .* got none"),
        (lambda: quantize_model(without_input()[0], None, 3), TypeError, r"calibrate: .* got int"),
        (lambda: quantize_model(without_input()[0], None, [normal(4, 33) * np.nan]), ValueError,
         r"calibrate: .* got NaN or infinity, .* at first. Leave"),
        (lambda: quantize_model(without_input()[0], {"lookup": 4}, [normal(4, 33) + np.inf]), ValueError,
         r"calibrate: .* got NaN or infinity, .* at first. Leave"),
        (lambda: quantize_model(built(NoConfig([keras.layers.Dense(3)]))), ValueError,
         r"NoConfig 'no_config' cannot be made again from its config.*none here"),
        (lambda: quantize_model(keras.Sequential([keras.Input([4]), Hidden()])), ValueError,
         r"holds hidden neither as an attribute"),
        (lambda: quantize_model(Graph()), ValueError, r"Keras cannot make Graph 'graph' again"),
        *(
            (lambda spec=spec: quantize_model(sequential()[0], spec), ValueError,
             rf"spec.{argument}: expected names of layers, got '{name}', which is none's.* near it: ")
            for argument, name, spec in (
                ("layers", "nowhere", {"layers": [keras.layers.Dense, "nowhere"]}),
                ("skip", "logit", {"skip": "logit"}),
                ("overrides", "den", {"overrides": {"den": {"bits": 8}}}),
            )
        ),
        (lambda: QuantizationSpec(bits=3), ValueError, r"\[QuantizationSpec\] bits"),
        (lambda: QuantizationSpec(skip=3), TypeError, r"\[QuantizationSpec\] skip: expected a regular expression"),
        (lambda: QuantizationSpec(overrides={"a": {"bots": 3}}), ValueError, r"overrides: expected bits, .* 'bots'"),
        (lambda: QuantizationSpec(overrides={"a": {"block": 3}}), ValueError, r"block: expected a multiple of 32"),
        (lambda: reported(without_input()[0], sequential()[0]), ValueError, r"\[quantization_report\] quantized:"),
        (lambda: reported(*[without_input()[0]] * 2), ValueError, r"expected quantized layers, got none"),
        (lambda: reported(without_input()[0], 3), TypeError, r"quantized: expected a keras.Model, got int"),
    ],
)  # fmt: skip
def test_bad_arguments(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_an_error_in_a_call_leaves_the_model_as_it_was():
    model, _ = without_input()
    with pytest.raises(Exception, match="33"):
        quantize_model(model, None, [normal(4, 7)])
    assert not any("call" in vars(layer) for layer in model.layers)
    assert not tf.config.functions_run_eagerly()


def test_kinds():
    model, _ = sequential()
    assert [type(layer) for layer in quantized(quantize_model(model))] == [
        QuantizedConv2D,
        QuantizedDense,
    ]
