"""optimizers.SGD and AdamW against Keras' over 100 steps of every option, and the tests that all fused
optimizers share."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from metal_ops.optimizers import SGD, Adam, AdamW
from tests.oracles import optimizers as oracle

pytestmark = pytest.mark.ops

STEPS = 100
SHAPES = [(64, 8), (8,), (3, 5, 2)]


def schedule():
    return keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=7, decay_rate=0.8)


SHARED = {
    "schedule": lambda: dict(learning_rate=schedule()),
    "clipnorm": lambda: dict(clipnorm=0.5),
    "clipvalue": lambda: dict(clipvalue=0.1),
    "global clipnorm": lambda: dict(global_clipnorm=0.5),
    "ema": lambda: dict(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7),
    "accumulation": lambda: dict(gradient_accumulation_steps=3, weight_decay=0.05),
    "loss scale": lambda: dict(loss_scale_factor=128.0),
}
OPTIONS = {
    SGD: {
        "plain": dict,
        "momentum": lambda: dict(momentum=0.9),
        "nesterov": lambda: dict(momentum=0.9, nesterov=True),
        "weight decay": lambda: dict(momentum=0.5, weight_decay=0.3),
        "plain weight decay": lambda: dict(weight_decay=0.3),
        **{name: lambda o=o: {"momentum": 0.9, **o()} for name, o in SHARED.items()},
    },
    AdamW: {
        "defaults": dict,
        "strong": lambda: dict(weight_decay=0.4),
        "amsgrad": lambda: dict(weight_decay=0.2, amsgrad=True, beta_2=0.8),
        **SHARED,
    },
}
THEIRS = {SGD: keras.optimizers.SGD, AdamW: keras.optimizers.AdamW}
CASES = [(ours, name) for ours, options in OPTIONS.items() for name in options]


def gradients(step):
    random = np.random.default_rng(step)
    return [
        ((random.normal(size=shape) + 0.5) / (1 + step / 20)).astype(np.float32) for shape in SHAPES
    ]


def train(optimizer, steps=STEPS, exclude=()):
    random = np.random.default_rng(99)
    variables = [
        keras.Variable(random.normal(size=shape).astype(np.float32), name=f"weight_{i}")
        for i, shape in enumerate(SHAPES)
    ]
    if exclude:
        optimizer.exclude_from_weight_decay(var_names=list(exclude))
    optimizer.build(variables)
    step = tf.function(lambda *g: optimizer.apply(list(g), variables))
    for i in range(steps):
        step(*map(tf.constant, gradients(i)))
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("ours, name", CASES, ids=lambda x: getattr(x, "__name__", x))
def test_equals_keras(ours, name):
    theirs = THEIRS[ours]

    def make(kind):
        return kind(**{"learning_rate": 0.02, **OPTIONS[ours][name]()})

    mine, reference = make(ours), make(theirs)
    actual, expected = train(mine), train(reference)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    for a, b in zip(mine.variables, reference.variables, strict=True):
        assert a.path.split("/")[-1] == b.path.split("/")[-1] and a.dtype == b.dtype
    assert np.max(np.abs(actual[0] - train(make(ours), steps=0)[0])) > 0.01


@pytest.mark.parametrize("ours", [Adam, AdamW, SGD])
def test_loss_scaling_equals_keras(ours):
    """LossScaleOptimizer around ours, with overflows at some steps, which leave variable and state as they were."""

    def scaled(kind):
        variable = keras.Variable(np.ones((9, 3), np.float32))
        optimizer = keras.optimizers.LossScaleOptimizer(
            kind(0.05), initial_scale=2.0**15, dynamic_growth_steps=10
        )
        optimizer.build([variable])
        for step in range(STEPS):
            scale = optimizer.scale_loss(tf.constant(1.0))
            gradient = np.random.default_rng(step).normal(size=(9, 3)).astype(np.float32)
            if step % 11 == 3:
                gradient[4, 1] = np.inf
            optimizer.apply([tf.constant(gradient) * scale], [variable])
        assert optimizer.dynamic_scale.numpy() != 2.0**15
        return variable.numpy()

    theirs = {Adam: keras.optimizers.Adam, **THEIRS}[ours]
    expected = scaled(theirs)
    assert np.isfinite(expected).all() and np.max(np.abs(expected - 1)) > 0.01
    np.testing.assert_allclose(scaled(ours), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ours", [SGD, AdamW])
def test_variables_excluded_from_weight_decay(ours):
    theirs = THEIRS[ours]
    options = dict(learning_rate=0.02, weight_decay=0.5)
    actual = train(ours(**options), 20, exclude=["weight_1"])
    expected = train(theirs(**options), 20, exclude=["weight_1"])
    everywhere = train(ours(**options), 20)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert np.max(np.abs(actual[1] - everywhere[1])) > 0.01


@pytest.mark.parametrize("kind", [Adam, AdamW, SGD])
def test_one_op_a_variable(kind):
    variables = [keras.Variable(np.ones(4, np.float32)) for _ in range(2)]
    optimizer = kind(0.1, weight_decay=0.1)
    optimizer.build(variables)
    step = tf.function(lambda g: optimizer.apply([g, g], variables))
    types = [op.type for op in step.get_concrete_function(tf.ones(4)).graph.get_operations()]
    fused = "ResourceFusedSgd" if kind is SGD else "ResourceFusedAdam"
    assert types.count(fused) == 2 and "Mul" not in types and "AssignSubVariableOp" not in types


@pytest.mark.parametrize("kind", [Adam, SGD])
def test_rows_without_gradient_are_left_alone(kind):
    """As instant-ngp treats its hash table: no drift by momentum, no weight decay."""
    options = dict(momentum=0.9) if kind is SGD else {}
    x, steps = np.ones((6, 2), np.float32), []
    variable = keras.Variable(x)
    optimizer = kind(0.1, weight_decay=0.2, skip_zero_rows=True, **options)
    optimizer.build([variable])
    for step in range(8):
        gradient = np.zeros((6, 2), np.float32)
        gradient[step % 4] = [1.0, 0.0]
        optimizer.apply([tf.constant(gradient)], [variable])
        steps.append(gradient)
    rule = oracle.sgd if kind is SGD else oracle.adam
    expected = rule(x, steps, 0.1, weight_decay=0.2, skip_zero_rows=True, **options)[0]
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(variable.numpy()[4:], 1)
    again = kind.from_config(optimizer.get_config())
    assert again.skip_zero_rows and again.get_config() == optimizer.get_config()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype):
    variable = keras.Variable(np.linspace(-1, 1, 32), dtype=dtype)
    optimizer = SGD(0.0625, momentum=0.9)  # Keras keeps the learning rate in float32
    optimizer.build([variable])
    state = "float64" if dtype == "float64" else "float32"
    assert optimizer.momentums[0].dtype == state
    # For the variable: the state is not rounded, and each step is compared from where the variable
    # was.
    half_unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}[dtype]
    of_state = 1e-15 if dtype == "float64" else 1e-6
    m = 0.0
    for step in range(10):
        g = tf.cast(gradients(step)[0].flat[:32], dtype)
        before = np.asarray(variable.value).astype(np.float64)
        optimizer.apply([g], [variable])
        m = 0.9 * m - 0.0625 * np.asarray(g).astype(np.float64)
        actual = np.asarray(variable.value).astype(np.float64)
        np.testing.assert_allclose(actual, before + m, rtol=half_unit * 1.01, atol=of_state)
        assert np.max(np.abs(m)) > 0.1


@pytest.mark.parametrize("kind", [AdamW, SGD])
def test_xla_takes_keras_update(kind):
    def one_step(jit):
        variable, optimizer = keras.Variable(np.ones(5, np.float32)), kind(0.1, weight_decay=0.5)
        optimizer.build([variable])
        tf.function(lambda: optimizer.apply([tf.range(1.0, 6.0)], [variable]), jit_compile=jit)()
        return variable.numpy()

    np.testing.assert_allclose(one_step(False), one_step(True), rtol=1e-6)
    variable, optimizer = keras.Variable(np.ones(5, np.float32)), kind(0.1, skip_zero_rows=True)
    optimizer.build([variable])
    with pytest.raises(
        tf.errors.UnimplementedError, match="skip_zero_rows=True cannot be compiled"
    ):
        tf.function(lambda: optimizer.apply([tf.ones(5)], [variable]), jit_compile=True)()


@pytest.mark.parametrize("kind", [AdamW, SGD])
def test_state_round_trip_in_a_keras_file(kind, tmp_path):
    x = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4), keras.layers.Dense(1)])
    options = dict(momentum=0.9) if kind is SGD else dict(amsgrad=True)
    model.compile(
        kind(schedule(), weight_decay=1e-3, skip_zero_rows=True, **options),
        "mse",
        jit_compile=False,
    )
    model.fit(x, x[:, :1], verbose=0, epochs=3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is kind and loaded.optimizer.skip_zero_rows
    for one in (model, loaded):
        one.compile(one.optimizer, "mse", jit_compile=False)
        one.fit(x, x[:, :1], shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_under_a_distribution_strategy():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        variable = keras.Variable(np.ones(3, np.float32))
        optimizer = SGD(0.5, momentum=0.5)
        optimizer.build([variable])
    strategy.run(lambda: optimizer.apply([tf.ones(3)], [variable]))
    np.testing.assert_allclose(variable.numpy(), 0.5)


def test_bad_arguments():
    with pytest.raises(ValueError, match="weight_decay: expected a number, got None"):
        AdamW(weight_decay=None)
    with pytest.raises(ValueError, match="momentum"):
        SGD(momentum=2.0)
