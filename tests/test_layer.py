"""layers.HashEncoding: shapes, policies, training, and every way of saving it."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops.layers import HashEncoding

pytestmark = pytest.mark.ops

SMALL = dict(n_dims=3, n_levels=4, base_resolution=4, finest_resolution=32, log2_hashmap_size=10)


def points(*shape, seed=0):
    return np.random.default_rng(seed).uniform(size=shape).astype(np.float32)


@pytest.fixture
def model():
    return keras.Sequential(
        [keras.Input([3]), HashEncoding(**SMALL, seed=1), keras.layers.Dense(1)]
    )


def test_equals_the_function():
    layer = HashEncoding(**SMALL, seed=1)
    x = points(5, 7, 3)
    result = layer(x)
    expected = metal_ops.hash_encode(x, layer.table.value, metal_ops.HashGrid(**SMALL))
    np.testing.assert_array_equal(result, expected)
    assert layer.table.path.endswith("table") and layer.count_params() == np.prod(
        layer.grid.table_shape
    )
    values = layer.table.numpy()
    assert 0.99e-4 < np.abs(values).max() <= 1e-4


def test_seed_makes_the_table():
    tables = [HashEncoding(**SMALL, seed=seed) for seed in (1, 1, 2)]
    for layer in tables:
        layer.build((None, 3))
    a, b, c = (layer.table.numpy() for layer in tables)
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    free = [HashEncoding(**SMALL), HashEncoding(**SMALL)]
    for layer in free:
        layer.build((None, 3))
    assert not np.array_equal(free[0].table.numpy(), free[1].table.numpy())


@pytest.mark.parametrize("shape", [(3,), (None, 3), (None, None, 3), (4, None, 3)], ids=str)
def test_output_shape(shape):
    layer = HashEncoding(**SMALL)
    assert layer.compute_output_shape(shape) == (*shape[:-1], 8)
    symbolic = keras.Input(batch_shape=shape) if len(shape) > 1 else keras.KerasTensor(shape)
    assert layer(symbolic).shape == (*shape[:-1], 8)
    real = points(*(2 if size is None else size for size in shape))
    assert layer(real).shape == (*real.shape[:-1], 8)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (
            dict(grid=metal_ops.HashGrid(), n_dims=2),
            ValueError,
            "grid and n_dims: expected a grid or the arguments",
        ),
        (
            dict(grid="grid"),
            TypeError,
            r"\[HashEncoding\] grid: expected a metal_ops.HashGrid, got str",
        ),
        (dict(n_dims=7), ValueError, r"\[HashGrid\] n_dims"),
        (dict(dtype="float64"), TypeError, r"\[HashEncoding\] dtype: .* got float64"),
        (dict(levels=3), (TypeError, ValueError), "levels"),
    ],
)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        HashEncoding(**arguments)


def test_bad_points():
    layer = HashEncoding(**SMALL)
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 3"):
        layer(points(5, 2))
    with pytest.raises(
        TypeError, match=r"\[HashEncoding\] points: expected float32, got float16.*autocast=False"
    ):
        layer(tf.zeros([5, 3], tf.float16))


@pytest.mark.parametrize(
    "policy, variable, compute",
    [
        ("float32", "float32", "float32"),
        ("mixed_float16", "float32", "float16"),
        ("mixed_bfloat16", "float32", "bfloat16"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("float16", "float16", "float16"),
    ],
)
def test_dtype_policies_leave_the_points_alone(policy, variable, compute):
    grid = metal_ops.HashGrid(**{**SMALL, "finest_resolution": 4096, "n_levels": 8})
    layer = HashEncoding(grid, dtype=policy, seed=1)
    # Points that float16 and bfloat16 cannot hold: they are 2^-14 apart.
    x = (0.7 + np.arange(12).reshape(4, 3) * 2.0**-14).astype(np.float32)
    with tf.GradientTape() as tape:
        y = layer(x)
    assert layer.table.dtype == variable and y.dtype == compute
    expected = metal_ops.hash_encode(x, tf.cast(layer.table.value, compute), grid)
    np.testing.assert_array_equal(y, expected)
    assert len(np.unique(np.asarray(y).astype(np.float64), axis=0)) == 4
    gradient = tape.gradient(y, layer.table.value)
    assert gradient.dtype == variable and np.any(np.asarray(gradient))


def test_mixed_policy_in_a_model():
    """The next layer computes in half precision; the points reach the encoding as they were."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        inputs = keras.Input([3])
        features = HashEncoding(**SMALL, seed=1)(inputs)
        model = keras.Model(inputs, [features, keras.layers.Dense(2)(features)])
    finally:
        keras.config.set_dtype_policy("float32")
    x = (0.7 + np.arange(12).reshape(4, 3) * 2.0**-14).astype(np.float32)
    table = model.layers[1].table.value
    features, hidden = model(x)
    assert features.dtype == hidden.dtype == "float16"
    expected = metal_ops.hash_encode(x, tf.cast(table, tf.float16), model.layers[1].grid)
    np.testing.assert_array_equal(features, expected)


def test_float64_points_are_rounded():
    layer = HashEncoding(**SMALL, seed=1)
    x = points(5, 3)
    np.testing.assert_array_equal(layer(tf.constant(x, tf.float64)), layer(x))


def test_inside_tf_function_with_unknown_shape():
    layer = HashEncoding(**SMALL, seed=1)
    function = tf.function(layer, input_signature=[tf.TensorSpec([None, None, 3])])
    np.testing.assert_array_equal(function(points(2, 5, 3)), layer(points(2, 5, 3)))


def test_fit_learns_a_function(model):
    """compile(jit_compile="auto") must not choose XLA, and the table must learn."""
    x = points(512, 3)
    y = np.sin(9 * x[:, :1]) * np.cos(7 * x[:, 1:2])
    model.compile(metal_ops.optimizers.Adam(1e-2), "mse")
    assert model.jit_compile is False
    before = model.layers[0].table.numpy()
    history = model.fit(x, y, batch_size=64, epochs=12, verbose=0).history["loss"]
    assert history[-1] < 0.1 * history[0], history
    assert not np.array_equal(before, model.layers[0].table.numpy())


def test_jit_compile_is_refused_by_keras_or_by_the_op(model):
    model.compile("adam", "mse", jit_compile=True)  # Keras sees supports_jit and warns
    assert model.jit_compile is False
    with pytest.raises(tf.errors.UnimplementedError, match="XLA"):
        tf.function(model.layers[0].__call__, jit_compile=True)(points(4, 3))


def test_config_round_trip():
    for layer in (
        HashEncoding(**SMALL, seed=5, name="encoding"),
        HashEncoding(metal_ops.HashGrid(kind="dense", n_levels=2), dtype="mixed_bfloat16"),
    ):
        again = HashEncoding.from_config(layer.get_config())
        assert again.get_config() == layer.get_config()
        assert (
            again.grid == layer.grid
            and again.name == layer.name
            and again.seed == layer.seed
            and again.dtype_policy == layer.dtype_policy
        )


def test_keras_file_round_trip(tmp_path, model):
    x = points(33, 3)
    model.compile(metal_ops.optimizers.Adam(1e-2), "mse")
    model.fit(x, x[:, :1], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")  # without custom_objects
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    assert isinstance(loaded.optimizer, metal_ops.optimizers.Adam)
    for a, b in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, b)
    for one in (model, loaded):  # training goes on in the same way
        one.fit(x, x[:, :1], shuffle=False, verbose=0)
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


def test_weights_file_round_trip(tmp_path, model):
    model.save_weights(tmp_path / "model.weights.h5")
    other = keras.Sequential(
        [keras.Input([3]), HashEncoding(**SMALL, seed=9), keras.layers.Dense(1)]
    )
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(points(9, 3)), model(points(9, 3)))


def test_export_and_serve(tmp_path, model):
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    for n in (1, 7, 33):
        np.testing.assert_allclose(served.serve(points(n, 3)), model(points(n, 3)), rtol=1e-6)


def test_saved_model_with_gradients(tmp_path):
    """A SavedModel keeps the op; loaded, its encoding is still differentiable."""
    module = tf.Module()
    module.grid = metal_ops.HashGrid(**SMALL)
    module.table = tf.Variable(module.grid.init_table(seed=1))
    module.encode = tf.function(
        lambda x: metal_ops.hash_encode(x, module.table, module.grid),
        input_signature=[tf.TensorSpec([None, 3])],
    )
    expected = module.encode(points(9, 3))
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    with tf.GradientTape() as tape:
        y = loaded.encode(points(9, 3))
    np.testing.assert_array_equal(y, expected)
    assert np.any(tape.gradient(y, loaded.table).numpy())
