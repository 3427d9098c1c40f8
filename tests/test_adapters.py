"""metal_ops.adapters: adding, training, merging and saving, against the sum of weights in float64."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import adapters, layers
from tests.calls import normal

pytestmark = pytest.mark.ops


@pytest.fixture(autouse=True)
def same_weights():
    keras.utils.set_random_seed(1)


def pixels(**arguments):
    arguments = dict(strides=2, padding="same", activation="tanh") | arguments
    return keras.layers.Conv2D(6, (3, 2), **arguments)


# name -> (a layer, its inputs)
KINDS = {
    "dense": lambda: (keras.layers.Dense(7, activation="gelu"), normal(3, 5, 20)),
    "einsum": lambda: (
        keras.layers.EinsumDense("abc,cde->adbe", (4, None, 6), activation="tanh", bias_axes="e"),
        normal(2, 5, 8),
    ),
    "einsum of two": lambda: (keras.layers.EinsumDense("...de,dec->...c", 7), normal(3, 5, 4, 6)),
    "conv2d": lambda: (pixels(), normal(2, 9, 8, 10)),
    "conv2d, dilated": lambda: (pixels(strides=1, dilation_rate=2), normal(2, 9, 8, 10)),
    "conv1d": lambda: (keras.layers.Conv1D(6, 3, strides=2, padding="same"), normal(2, 9, 10)),
    "conv1d, causal": lambda: (
        keras.layers.Conv1D(6, 3, dilation_rate=2, padding="causal", activation="tanh"),
        normal(2, 9, 10),
    ),
    "conv3d": lambda: (keras.layers.Conv3D(6, (2, 3, 1), activation="tanh"), normal(2, 4, 5, 3, 4)),
    "embedding": lambda: (
        keras.layers.Embedding(30, 12),
        np.random.default_rng(0).integers(0, 30, (4, 6)),
    ),
}
QUANTIZED = {
    "dense": layers.QuantizedDense, "conv2d": layers.QuantizedConv2D, "embedding": layers.QuantizedEmbedding
}  # fmt: skip


def only(layer, name="default"):
    return layer._metal_ops_adapters.adapters[name]


def train_a_little(layer, name="default"):
    """B is no longer zero."""
    b = only(layer, name).b
    b.assign(normal(*b.shape, seed=len(name)) / 3)


def assert_near(found, expected, step=1e-5):
    found, expected = (np.asarray(tf.cast(t, tf.float32)) for t in (found, expected))
    assert np.max(np.abs(found - expected)) <= step * max(1.0, np.max(np.abs(expected)))


@pytest.mark.parametrize("kind", KINDS)
def test_is_the_sum_of_weights(kind):
    layer, x = KINDS[kind]()
    before = layer(x).numpy()
    weights = layer.weights[0]
    assert adapters.add(layer, rank=3, alpha=6.0) == [layer.path]
    np.testing.assert_array_equal(layer(x), before)  # while B is zero
    adapter = only(layer)
    assert [v.path for v in layer.trainable_variables] == [adapter.a.path, adapter.b.path]
    assert adapter.a.shape[-1] == adapter.b.shape[0] == 3
    train_a_little(layer)
    # 2 A B in the shape of the weights: of one axis that the layer sums over and one that it gives.
    a, b = (np.float64(v.numpy()) for v in (adapter.a, adapter.b))
    delta = 2 * (a.reshape(-1, 3) @ b.reshape(3, -1)).reshape(weights.shape)
    twin = type(layer).from_config(layer.get_config())
    twin(x)
    twin.set_weights([w.numpy() for w in layer.weights[:-2]])
    twin.weights[0].assign(weights + delta.astype(np.float32))
    assert np.abs(twin(x) - before).max() > 0.05
    assert_near(layer(x), twin(x))
    assert_near(tf.function(layer)(x), twin(x))
    # Merged it is the same, and unmerged as it was.
    kept = weights.numpy()
    adapters.merge(layer)
    assert not layer.trainable_variables
    assert_near(weights, twin.weights[0])
    assert_near(layer(x), twin(x))
    adapters.unmerge(layer)
    np.testing.assert_array_equal(weights, kept)
    assert_near(layer(x), twin(x))
    adapters.use(layer, None)
    assert not layer.trainable_variables
    np.testing.assert_array_equal(layer(x), before)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    layer, x = KINDS[kind]()
    layer(x)
    adapters.add(layer, rank=2)
    train_a_little(layer)
    adapter = only(layer)

    def loss(a, b):
        adapter.a.assign(a)
        adapter.b.assign(b)
        return float(tf.reduce_sum(layer(x) * into))

    into = normal(*layer(x).shape, seed=5)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(layer(x) * into)
        found = tape.gradient(y, [adapter.a.value, adapter.b.value])
        return [tf.convert_to_tensor(gradient) for gradient in found]

    found = gradients()
    a, b = adapter.a.numpy(), adapter.b.numpy()
    for part, gradient in enumerate(found):
        gradient = gradient.numpy()
        direction = normal(*gradient.shape, seed=8)
        ends = [[a, b], [a, b]]
        for end, sign in zip(ends, (1, -1), strict=True):
            end[part] = end[part] + np.float32(sign * 1e-3) * direction
        slope = (loss(*ends[0]) - loss(*ends[1])) / 2e-3
        assert abs(slope - np.sum(gradient * direction)) < 0.02 * abs(slope) + 0.3, part


@pytest.mark.parametrize("kind", QUANTIZED)
def test_beside_codes(kind):
    layer, x = KINDS[kind]()
    layer(x)
    new = QUANTIZED[kind].from_layer(layer, bits=8)
    before = new(x).numpy()
    adapters.add(new, rank=2)
    np.testing.assert_array_equal(new(x), before)
    train_a_little(new)
    # As beside floats, except for the codes' errors.
    adapters.add(layer, rank=2)
    for part in ("a", "b"):
        getattr(only(layer), part).assign(getattr(only(new), part))
    assert np.abs(new(x) - before).max() > 0.05
    assert_near(new(x), layer(x), 0.02)
    assert [v.name for v in new.trainable_variables] == ["a", "b"]
    with pytest.raises(ValueError, match=r"\[adapters.merge\] model: the weights of .* are codes"):
        adapters.merge(new)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_dtype_policies(policy):
    layer = keras.layers.Dense(7, dtype=policy)
    x = normal(3, 20)
    before = layer(x)
    adapters.add(layer)
    assert only(layer).a.dtype == only(layer).b.dtype == "float32"
    np.testing.assert_array_equal(tf.cast(layer(x), tf.float32), tf.cast(before, tf.float32))
    train_a_little(layer)
    assert layer(x).dtype == before.dtype
    a, b = only(layer).a.numpy(), only(layer).b.numpy()
    expected = tf.cast(before, tf.float32) + 2 * x @ a @ b
    assert_near(layer(x), expected, 0.05)
    merged = layer(x)
    adapters.merge(layer)
    assert_near(layer(x), merged, 0.05)


@functools.cache
def classifier_data():
    random = np.random.default_rng(0)
    x = random.normal(size=(256, 6, 8)).astype(np.float32)
    return x, [x[..., 0].sum(1) > 0, x[:, 0, 1] > x[:, 1, 1], np.abs(x[:, 2, 2]) > 0.6]


def base(attention=keras.layers.MultiHeadAttention):
    inputs = keras.Input([6, 8])
    x = keras.layers.Dense(16, activation="relu", name="in")(inputs)
    x = attention(2, 8, name="attention")(x, x) + x
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Dense(32, activation="relu", name="mid")(keras.layers.Flatten()(x))
    return keras.Model(inputs, keras.layers.Dense(2, name="out")(x))


def accuracy(model, x, labels):
    return np.mean(np.argmax(model.predict(x, verbose=0), -1) == labels)


@pytest.mark.full("trains four models")
def test_three_adapters_on_one_base_for_three_tasks(tmp_path):
    model, (x, tasks) = base(), classifier_data()
    untrained = model.predict(x, verbose=0)
    frozen = [(w, w.numpy()) for w in model.weights]
    names = ["sums", "order", "sizes"]
    for name, labels in zip(names, tasks, strict=True):
        paths = adapters.add(model, rank=8, alpha=16, name=name)
        assert len(paths) == 7 and "attention/query" in " ".join(paths)
        np.testing.assert_array_equal(model.predict(x, verbose=0), untrained)
        assert len(model.trainable_variables) == 14
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=False)
        model.fit(x, labels, epochs=12, batch_size=32, verbose=0)
    assert adapters.names(model) == names
    for weights, before in frozen:  # the moving averages as well
        np.testing.assert_array_equal(weights, before)
    # In turns.
    right = []
    for name, labels in [*zip(names, tasks, strict=True)] * 2:
        adapters.use(model, name)
        assert accuracy(model, x, labels) > 0.9, name
        right.append(model.predict(x, verbose=0))
        others = [accuracy(model, x, other) for other in tasks if other is not labels]
        assert max(others) < 0.8
    np.testing.assert_array_equal(right[:3], right[3:])
    adapters.use(model, None)
    np.testing.assert_array_equal(model.predict(x, verbose=0), untrained)
    # One per row, in one call.
    mixed = [*names, None] * 2
    adapters.use(model, mixed)
    assert len(model.trainable_variables) == 42
    expected = [[*right[:3], untrained][row % 4][row] for row in range(8)]
    assert_near(model(x[:8]), np.stack(expected), 1e-4)
    assert_near(model.predict(x[:8], verbose=0), np.stack(expected), 1e-4)
    with pytest.raises(ValueError, match="one for each of 8 rows, but in is called with 9"):
        model(x[:9])
    called = tf.function(model, input_signature=[tf.TensorSpec([None, 6, 8])])
    assert_near(called(x[:8]), np.stack(expected), 1e-4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is called with another number"):
        called(x[:9])
    # Merged into the base, which can be saved so.
    adapters.use(model, "order")
    adapters.merge(model, "order")
    assert_near(model.predict(x, verbose=0), right[1], 1e-4)
    model.save(tmp_path / "merged.keras")
    again = keras.models.load_model(tmp_path / "merged.keras", compile=False)
    assert adapters.names(again) == []
    assert_near(again.predict(x, verbose=0), right[1], 1e-4)
    for call in (adapters.use, adapters.merge):
        with pytest.raises(ValueError, match=r"'order' is merged. Call metal_ops.adapters.unmerge"):
            call(model, "sums")
    with pytest.raises(ValueError, match="is merged"):
        adapters.add(model, name="fourth")
    adapters.unmerge(model)
    for weights, before in frozen:
        np.testing.assert_array_equal(weights, before)
    np.testing.assert_array_equal(model.predict(x, verbose=0), right[1])


def trained(name="default", **arguments):
    model = base()
    adapters.add(model, name=name, **arguments)
    for one in adapters._all(model):
        train_a_little(one.layer, name)
    return model


@pytest.mark.parametrize("quantized", [False, True], ids=["floats", "codes"])
def test_ragged_indices(quantized):
    """As the recurrent layers take an Embedding's outputs."""
    layer = keras.layers.Embedding(30, 12)
    layer.build(None)
    if quantized:
        layer = layers.QuantizedEmbedding.from_layer(layer)
    for name in ("a", "b"):
        adapters.add(layer, rank=2, name=name)
        train_a_little(layer, name)
    only(layer, "b").a.assign(only(layer, "b").a.value + 1.0)  # of another sign and size
    dense = np.random.default_rng(1).integers(0, 30, (3, 4))
    ragged = tf.RaggedTensor.from_tensor(dense, lengths=[4, 0, 2])
    deep = tf.RaggedTensor.from_row_lengths(ragged, [2, 1, 0])  # two ragged axes
    for used in (None, "a", ["b", None, "a"]):
        adapters.use(layer, used)
        for call in (layer, tf.function(layer)):
            found = call(ragged)
            assert found.shape.as_list() == [3, None, 12]
            expected = tf.RaggedTensor.from_tensor(layer(dense), lengths=[4, 0, 2])
            assert_near(found.flat_values, expected.flat_values)
            found = call(deep)
            assert_near(found[0, 0], layer(tf.tile(dense[:1], [3, 1]))[0])
    with pytest.raises(
        ValueError, match="one for each of 3 rows, but embedding.* is called with 2"
    ):
        layer(ragged[:2])


def test_saved_alone_and_loaded_beside_another_copy(tmp_path):
    x, model = classifier_data()[0][:20], trained("mine", rank=3, alpha=5, layers="attention|out")
    right = model.predict(x, verbose=0)
    path = tmp_path / "mine.adapter"
    path.write_text("what was there")
    adapters.save(model, path, "mine")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.adapter"]
    of_model = sum(np.prod(w.shape) for w in model.trainable_weights)
    with np.load(path) as file:
        assert sum(file[key].size for key in file.files) == of_model + 1  # and its own description
    # The model itself is saved without: another copy of it gets them from the file.
    model.save(tmp_path / "model.keras")
    other = keras.models.load_model(tmp_path / "model.keras")
    assert adapters.names(other) == [] and len(other.weights) == len(base().weights)
    adapters.use(model, None)
    np.testing.assert_array_equal(other.predict(x, verbose=0), model.predict(x, verbose=0))
    assert len(adapters.load(other, path, "theirs")) == 5
    assert adapters.names(other) == ["theirs"]
    np.testing.assert_array_equal(other.predict(x, verbose=0), right)
    # Weights of the base go into a model that has adapters.
    model.save_weights(tmp_path / "base.weights.h5")
    base().load_weights(tmp_path / "base.weights.h5")
    other.load_weights(tmp_path / "base.weights.h5")
    np.testing.assert_array_equal(other.predict(x, verbose=0), right)


def test_exported_with_what_is_used(tmp_path):
    x, model = classifier_data()[0][:5], trained()
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    assert_near(served.serve(x), model(x))


def test_files_that_do_not_fit_change_nothing(tmp_path, monkeypatch):
    model, path = trained(rank=2), tmp_path / "a"
    adapters.save(model, path)
    whole = path.read_bytes()
    wrong = keras.Sequential([keras.Input([8]), keras.layers.Dense(16), keras.layers.Dense(16)])
    with pytest.raises(
        ValueError, match=r"\[adapters.load\] model: expected the architecture .* in place 1"
    ):
        adapters.load(wrong, path)
    assert adapters.names(wrong) == [] and len(wrong.trainable_variables) == 4
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:200] + b"\0" * 99 + whole[299:]):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"\[adapters.load\] path: expected a file that adapters.save"
        ):
            adapters.load(base(), path)
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match=r"expected a file that adapters.save"):
        adapters.load(base(), tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        adapters.load(base(), tmp_path / "none")
    # A disk that is full leaves the old file, and nothing beside it.
    path.write_bytes(whole)
    monkeypatch.setattr(
        np.lib.format, "write_array", lambda file, *_, **__: file.write(b"half") and 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        adapters.save(model, path)
    assert path.read_bytes() == whole and not list(tmp_path.glob("*.tmp"))


def test_dropout_in_training_alone():
    layer = keras.layers.Dense(7)
    x = normal(3, 400)
    layer(x)
    adapters.add(layer, dropout=0.5)
    train_a_little(layer)
    np.testing.assert_array_equal(layer(x), layer(x))
    first, second = (layer(x, training=True).numpy() for _ in range(2))
    assert not np.allclose(first, second, atol=1e-3)
    mean = np.mean([layer(x, training=True) for _ in range(400)], axis=0)
    assert np.abs(mean - layer(x)).mean() < 0.2 * np.abs(first - layer(x)).mean()


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [keras.layers.Dense(8, activation="relu") for _ in range(2)]
        self.attention = layers.MultiHeadAttention(2, 4)
        self.normalization = keras.layers.BatchNormalization()

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.normalization(self.attention(x, x), training=training)


def test_subclassed_models_and_the_op_of_attention():
    model, x = Subclassed(), normal(4, 5, 8)
    before = model(x).numpy()
    paths = adapters.add(model, layers=keras.layers.EinsumDense)
    assert len(paths) == 4
    np.testing.assert_array_equal(model(x), before)
    assert len(model.trainable_variables) == 8
    np.testing.assert_array_equal(model(x, training=True), before)  # normalizes as in inference
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    losses = model.fit(x, normal(4, 5, 8, seed=2), epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


def test_which_layers():
    def chosen(pattern):
        return [path.split("/")[-1] for path in adapters.add(base(), layers=pattern)]

    everything = ["in", "query", "key", "value", "attention_output", "mid", "out"]
    assert sorted(chosen(None)) == sorted(everything)
    assert chosen("^mid$") == ["mid"]
    assert sorted(chosen(["query|value", "out$"])) == ["out", "query", "value"]
    assert chosen("mid") == ["mid"] and sorted(chosen("attention")) == sorted(everything[1:5])
    assert sorted(chosen(keras.layers.Dense)) == ["in", "mid", "out"]
    assert chosen(lambda layer: getattr(layer, "units", 0) == 32) == ["mid"]


class Doubled(keras.layers.Dense):
    def call(self, inputs):
        return 2 * super().call(inputs)


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(model="model"), TypeError, r"\[adapters.add\] model: expected a Keras model or layer, got str"),
        (dict(model=keras.Sequential([keras.layers.Dense(3)])), ValueError, r"expected one that is built"),
        (dict(rank=0), ValueError, r"rank: expected 1 or more, got 0"),
        (dict(rank=1.5), TypeError, r"rank: expected an integer"),
        (dict(alpha="much"), TypeError, r"alpha"),
        (dict(alpha=float("nan")), ValueError, r"alpha: expected a finite number, got nan"),
        (dict(dropout=1), ValueError, r"dropout: expected a number in \[0, 1\)"),
        (dict(name="a/b"), ValueError, r"name: expected letters, digits"),
        (dict(layers="nowhere"), ValueError, r"layers: expected names of layers, got 'nowhere', .*; near it: "),
        (dict(layers=3), TypeError, r"layers: expected a regular expression, a class"),
        (dict(layers="mid("), ValueError, r"\[adapters.add\] layers: expected a regular expression, got 'mid\('"),
        (dict(layers=keras.layers.BatchNormalization), ValueError, r"layers: none fits"),
    ],
)  # fmt: skip
def test_bad_add(change, error, words):
    model = base()
    with pytest.raises(error, match=words):
        adapters.add(**{"model": model, **change})
    assert adapters.names(model) == [] and len(model.trainable_variables) == len(
        base().trainable_variables
    )


def test_layers_that_can_have_none():
    grouped = pixels(groups=2)
    grouped.build((None, 9, 8, 10))
    own = Doubled(3)
    own.build((None, 4))
    of_keras = keras.layers.Dense(3)
    of_keras.build((None, 4))
    of_keras.quantize("int8")
    each = keras.layers.EinsumDense("abc,bcd->abd", (5, 6))
    each.build((None, 5, 4))
    for layer in (grouped, own, of_keras, each):
        with pytest.raises(ValueError, match="Those that can have one: none of this model"):
            adapters.add(layer)


def test_bad_names():
    model = trained("a")
    with pytest.raises(ValueError, match=r"name: the model has an adapter 'a' already"):
        adapters.add(model, name="a")
    for call in (adapters.use, adapters.merge, lambda m, n: adapters.save(m, "never", n)):
        with pytest.raises(ValueError, match=r"name: the model has no adapter 'b'. It has: a"):
            call(model, "b")
    with pytest.raises(ValueError, match=r"has no adapter 'b'"):
        adapters.use(model, ["a", "b"])
    with pytest.raises(TypeError, match=r"\[adapters.use\] names: expected a name, None or a list"):
        adapters.use(model, 3)
    with pytest.raises(
        ValueError, match=r"\[adapters.unmerge\] model: expected one with a merged adapter"
    ):
        adapters.unmerge(model)


def test_public():
    assert metal_ops.adapters is adapters
