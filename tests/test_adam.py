"""optimizers.Adam against keras.optimizers.Adam, over 100 steps of every option, and its own rules."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from metal_ops.optimizers import Adam

pytestmark = pytest.mark.ops

STEPS = 100
SHAPES = [(64, 8), (8,), (3, 5, 2)]


def schedule():
    return keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=7, decay_rate=0.8)


OPTIONS = {
    "defaults": lambda: dict(),
    "learning rate": lambda: dict(learning_rate=0.05),
    "schedule": lambda: dict(learning_rate=schedule()),
    "callable": lambda: dict(learning_rate=lambda: 0.02),
    "betas": lambda: dict(learning_rate=0.02, beta_1=0.7, beta_2=0.99),
    "large epsilon": lambda: dict(learning_rate=0.02, epsilon=0.1),
    "tiny epsilon": lambda: dict(learning_rate=0.01, epsilon=1e-15),
    "weight decay": lambda: dict(learning_rate=0.02, weight_decay=0.1),
    "clipnorm": lambda: dict(learning_rate=0.02, clipnorm=0.5),
    "clipvalue": lambda: dict(learning_rate=0.02, clipvalue=0.1),
    "global clipnorm": lambda: dict(learning_rate=0.02, global_clipnorm=0.5),
    "ema": lambda: dict(learning_rate=0.02, use_ema=True, ema_momentum=0.9),
    "ema that overwrites": lambda: dict(learning_rate=0.02, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7),
    "accumulation": lambda: dict(learning_rate=0.02, gradient_accumulation_steps=3),
    "loss scale": lambda: dict(learning_rate=0.02, loss_scale_factor=128.0),
    "amsgrad": lambda: dict(learning_rate=0.02, amsgrad=True),
}  # fmt: skip


def gradients(step: int) -> list[np.ndarray]:
    """Gradients of sizes from 1e-6 to 10, with a decaying mean, so that both moments and epsilon
    matter."""
    random = np.random.default_rng(step)
    return [
        (
            (random.normal(size=shape) + 0.5) * 10.0 ** random.integers(-6, 2) / (1 + step / 20)
        ).astype(np.float32)
        for shape in SHAPES
    ]


def train(optimizer, *, compiled: bool, keras_variables: bool = True, steps: int = STEPS):
    make = keras.Variable if keras_variables else tf.Variable
    random = np.random.default_rng(99)
    variables = [make(random.normal(size=shape).astype(np.float32)) for shape in SHAPES]
    optimizer.build(variables)

    def step(*gradients):
        optimizer.apply(list(gradients), variables)

    call = tf.function(step) if compiled else step
    for i in range(steps):
        call(*map(tf.constant, gradients(i)))
    return variables


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equals_keras_adam(options):
    ours, theirs = Adam(**options()), keras.optimizers.Adam(**options())
    actual = train(ours, compiled=True)
    expected = train(theirs, compiled=True)
    untouched = train(Adam(), compiled=False, steps=0)
    for a, b, start in zip(actual, expected, untouched, strict=True):
        a, b, start = a.numpy(), b.numpy(), start.numpy()
        # The same float32 formulas; the fused op only orders two products differently.
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        # The smallest rate, 0.001, moves by a tenth in 100 steps.
        assert np.max(np.abs(b - start)) > 0.02
    for a, b in zip(ours.variables, theirs.variables, strict=True):
        assert re.split("[_/]", a.path)[-1] == re.split("[_/]", b.path)[-1] and a.dtype == b.dtype
        # 1 - 0.999 in float32 is off by 1.3e-5, which the step makes good for and the moments show.
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("keras_variables", [True, False], ids=["keras.Variable", "tf.Variable"])
def test_eager_and_compiled_agree(keras_variables):
    results = [
        train(
            Adam(0.02, weight_decay=0.01),
            compiled=compiled,
            keras_variables=keras_variables,
            steps=10,
        )
        for compiled in (False, True)
    ]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_against_the_paper_in_float64():
    """Kingma and Ba 2015, section 2, the efficient order of computation: epsilon is epsilon hat."""
    optimizer = Adam(0.02, epsilon=0.3)
    variables = train(optimizer, compiled=False)
    random = np.random.default_rng(99)
    for i, shape in enumerate(SHAPES):
        x, m, v = random.normal(size=shape), 0.0, 0.0
        for step in range(STEPS):
            g = gradients(step)[i].astype(np.float64)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            alpha = 0.02 * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            x = x - alpha * m / (np.sqrt(v) + 0.3)
        # 1 - 0.999 keeps 16 of float32's 24 bits, for Keras as for us.
        np.testing.assert_allclose(variables[i].numpy(), x, rtol=1e-4, atol=1e-4)


def test_runs_the_fused_op():
    optimizer, variable = Adam(), keras.Variable(np.ones(4, np.float32))
    optimizer.build([variable])
    graph = (
        tf.function(lambda g: optimizer.apply([g], [variable]))
        .get_concrete_function(tf.ones(4))
        .graph
    )
    assert [op.type for op in graph.get_operations()].count("ResourceFusedAdam") == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_variables(dtype):
    """Float32 moments and arithmetic: at every step within one rounding of a float32 run from the same value."""
    optimizer = Adam(0.05)
    variable = keras.Variable(np.linspace(-1, 1, 32), dtype=dtype)
    optimizer.build([variable])
    assert {
        v.dtype for v in optimizer.variables if "velocity" in v.path or "momentum" in v.path
    } == {"float32"}
    m = v = 0.0
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for step in range(30):
        g = np.asarray(tf.cast(gradients(step)[0].flat[:32] * 0.1, dtype)).astype(np.float64)
        before = np.asarray(variable.value).astype(np.float64)
        optimizer.apply([tf.cast(g, dtype)], [variable])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        alpha = 0.05 * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        expected = before - alpha * m / (np.sqrt(v) + 1e-7)
        actual = np.asarray(variable.value).astype(np.float64)
        np.testing.assert_allclose(actual, expected, rtol=unit, atol=1e-6)
        assert np.any(actual != before)


def test_float64_variables():
    """All of float64's digits. (Keras' own Adam rounds beta_2 to float32 here.)"""
    variable, optimizer = keras.Variable(np.linspace(-1, 1, 32), dtype="float64"), Adam(0.25)
    optimizer.build([variable])
    x, m, v = np.linspace(-1, 1, 32), 0.0, 0.0
    for step in range(STEPS):
        g = gradients(step)[0].flat[:32].astype(np.float64)
        optimizer.apply([tf.constant(g)], [variable])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        alpha = 0.25 * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        x = x - alpha * m / (np.sqrt(v) + 1e-7)
    np.testing.assert_allclose(variable.numpy(), x, rtol=1e-10)


@pytest.mark.parametrize(
    "options",
    [{}, {"clipnorm": 0.1}, {"loss_scale_factor": 4.0}, {"gradient_accumulation_steps": 2}],
    ids=str,
)
def test_sparse_gradients_are_summed(options):
    """tf.IndexedSlices with repeated rows have the effect of the dense gradient."""
    results = []
    for sparse in (True, False):
        variable = keras.Variable(np.ones((6, 2), np.float32))
        optimizer = Adam(0.05, **options)
        optimizer.build([variable])
        for step in range(6):
            values = tf.constant(gradients(step)[1].reshape(4, 2))
            gradient = tf.IndexedSlices(values, tf.constant([1, 4, 1, step % 6]))
            if not sparse:
                gradient = tf.math.unsorted_segment_sum(values, gradient.indices, 6)
            optimizer.apply([gradient], [variable])
        results.append(variable.numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)
    assert np.all(results[0][4] != 1)


def test_embedding_trains_in_fit():
    """Keras' Embedding makes sparse gradients."""
    layers = [keras.layers.Embedding(10, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input([2]), *layers])
    model.compile(Adam(0.05), "mse")
    x = np.random.default_rng(0).integers(0, 10, (200, 2))
    losses = model.fit(x, x.sum(1) / 10.0, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.1 * losses[0]


def test_loss_scale_optimizer_skips_infinite_steps():
    inner = Adam(0.05)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0)
    variable = keras.Variable(np.ones(3, np.float32))
    optimizer.build([variable])
    optimizer.apply([tf.constant([np.inf, 0.0, 0.0])], [variable])
    np.testing.assert_array_equal(variable.numpy(), np.ones(3))
    optimizer.apply([tf.constant([8.0, -8.0, 8.0])], [variable])
    np.testing.assert_allclose(variable.numpy(), [0.95, 1.05, 0.95], rtol=1e-5)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_config_round_trip(options):
    optimizer = Adam(**options())
    if callable(optimizer._learning_rate) and not isinstance(
        optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule
    ):
        pytest.skip("Keras does not save callables")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(again) is Adam and again.get_config() == optimizer.get_config()


def test_state_round_trip_in_a_keras_file(tmp_path):
    x = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(Adam(schedule(), use_ema=True, weight_decay=1e-3), "mse")
    model.fit(x, x[:, :1], verbose=0, epochs=3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations) > 0
    for one in (model, loaded):
        one.fit(x, x[:, :1], shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_tensorflow_checkpoint(tmp_path):
    variable, optimizer = tf.Variable(np.ones(3, np.float32)), Adam(0.1)
    optimizer.build([variable])
    optimizer.apply([tf.ones(3)], [variable])
    path = tf.train.Checkpoint(v=variable, o=optimizer).save(tmp_path / "checkpoint")
    expected = []
    for _ in range(2):
        tf.train.Checkpoint(v=variable, o=optimizer).restore(path).assert_consumed()
        optimizer.apply([tf.constant([1.0, -2.0, 3.0])], [variable])
        expected.append(variable.numpy())
    np.testing.assert_array_equal(*expected)


def test_xla_compiles_it():
    """Nothing of ours is in the update, so Keras models without our layers keep XLA."""

    def one_step(jit: bool) -> np.ndarray:
        variable, optimizer = keras.Variable(np.ones(5, np.float32)), Adam(0.1)
        optimizer.build([variable])
        tf.function(lambda: optimizer.apply([tf.range(1.0, 6.0)], [variable]), jit_compile=jit)()
        return variable.numpy()

    results = [one_step(False), one_step(True)]
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_bad_arguments_are_keras_own():
    with pytest.raises(ValueError, match="Only one of"):
        Adam(clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(ValueError, match="No gradients provided"):
        Adam().apply([None], [keras.Variable([1.0])])
