"""Fused Adam and SGD on the Metal device: against the float64 oracle, the CPU kernels, and Keras' optimizers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from metal_ops.optimizers import SGD, Adam, AdamW
from tests.oracles import optimizers as oracle
from tests.placements import copied_to_host, functions

GPU, CPU = "GPU:0", "CPU:0"
DTYPES = ("float32", "float16", "bfloat16")
# One rounding of the variable a step; the state is float32.
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# A handful of float32 roundings a step, which the next steps carry on.
TOLERANCE = 2e-6

# Odd and empty sizes; rows of one element, of a hash table, of more than a thread's work, of more than a threadgroup's.
SHAPES = ((), (0,), (1,), (7,), (0, 3), (37, 2), (33, 1), (1031, 8), (5, 33), (4, 1500), (3, 4, 5))
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "adam": ("adam", {}),
    "adam with decay": ("adam", dict(weight_decay=0.4, beta_1=0.5)),
    "amsgrad": ("adam", dict(amsgrad=True, beta_2=0.5, epsilon=1e-3)),
    "sgd": ("sgd", {}),
    "sgd with decay": ("sgd", dict(weight_decay=0.3)),
    "momentum": ("sgd", dict(momentum=0.9, weight_decay=0.1)),
    "nesterov": ("sgd", dict(momentum=0.9, nesterov=True)),
}


def arrays(
    shape: tuple[int, ...], dtype: str, steps: int, zero_rows: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A variable's value and gradients; with `zero_rows`, two of five rows of each gradient are zero."""
    random = np.random.default_rng(len(shape) + sum(shape))
    kind = tf.as_dtype(dtype).as_numpy_dtype
    x = np.asarray(random.normal(size=shape)).astype(kind)
    gradients = np.asarray(random.normal(size=(steps, *shape)) + 0.3).astype(kind)
    if zero_rows and shape:
        gradients[random.uniform(size=gradients.shape[:2]) < 0.4] = 0
        if len(shape) > 1:  # the first element being zero is no reason to skip a row
            gradients.reshape(steps, shape[0], int(np.prod(shape[1:])))[:, ::3, :1] = 0
    return x, gradients


def run(
    where: str, rule: str, x: np.ndarray, gradients: np.ndarray, **options: Any
) -> list[np.ndarray]:
    """Variable and state after a step for each gradient."""
    names = ("m", "v", "hat") if rule == "adam" else ("m",)
    with tf.device(where):
        variable = tf.Variable(x)
        state = [tf.Variable(tf.zeros(x.shape), name=name) for name in names]
        assert variable.device.endswith(where)
        for step, gradient in enumerate(gradients, start=1):
            g = tf.constant(gradient)
            if rule == "adam":
                settings = dict(options)
                hat = state[2] if settings.pop("amsgrad", False) else None
                metal_ops.fused_adam(
                    variable, *state[:2], g, step=step, learning_rate=0.05, v_hat=hat, **settings
                )
            else:
                m = state[0] if "momentum" in options else None
                metal_ops.fused_sgd(variable, g, learning_rate=0.05, m=m, **options)
    return [value.numpy() for value in (variable, *state)]


@pytest.mark.parametrize("skip_zero_rows", [False, True], ids=["all rows", "used rows"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_sweep(rule: str, shape: tuple[int, ...], dtype: str, skip_zero_rows: bool) -> None:
    name, options = RULES[rule]
    options = {**options, "skip_zero_rows": skip_zero_rows}
    # Half-precision variables are rounded at each step, which the oracle does not know: one step.
    x, gradients = arrays(shape, dtype, 4 if dtype == "float32" else 1, skip_zero_rows)
    actual = run(GPU, name, x, gradients, **options)
    on_cpu = run(CPU, name, x, gradients, **options)
    formula = oracle.adam if name == "adam" else oracle.sgd
    expected = formula(x, gradients, 0.05, **options)
    used = 1 + ("momentum" in options) if name == "sgd" else 3 + options.get("amsgrad", False)
    for i in range(used):
        rounding = 1.01 * UNIT[dtype] if i == 0 else 0
        got, same = actual[i].astype(np.float64), on_cpu[i].astype(np.float64)
        np.testing.assert_allclose(
            got, expected[i], rtol=rounding + TOLERANCE, atol=rounding * 0.01 + TOLERANCE
        )
        # One formula in one order: the results may differ where a compiler fuses a product with a sum.
        np.testing.assert_allclose(
            got, same, rtol=(2 * rounding if i == 0 else 0) + 1e-6, atol=1e-7
        )
    for i in range(used, len(actual)):
        assert not np.any(actual[i])


@pytest.mark.parametrize("rule", ["adam", "amsgrad"])
def test_nan_and_infinity_stay_where_they_are(rule: str) -> None:
    x, gradients = arrays((40,), "float32", 3, False)
    _, options = RULES[rule]
    clean = run(GPU, "adam", x, gradients, **options)
    gradients[1, 7], gradients[1, 30] = np.nan, np.inf
    spoilt = run(GPU, "adam", x, gradients, **options)
    for a, b in zip(spoilt[: len(spoilt) if rule == "amsgrad" else 3], clean, strict=False):
        np.testing.assert_array_equal(np.delete(a, [7, 30]), np.delete(b, [7, 30]))
        assert np.isnan(a[7]) and not np.isfinite(a[30])


def test_a_row_of_nothing_but_nan_is_used() -> None:
    x, gradients = np.ones((4, 2), np.float32), np.zeros((1, 4, 2), np.float32)
    gradients[0, 2] = np.nan
    got = run(GPU, "sgd", x, gradients, skip_zero_rows=True)[0]
    np.testing.assert_array_equal(np.isnan(got[:, 0]), [False, False, True, False])


def test_the_same_bits_every_time() -> None:
    x, gradients = arrays((3001, 2), "float32", 5, True)
    options = dict(amsgrad=True, skip_zero_rows=True, weight_decay=0.1)
    first = run(GPU, "adam", x, gradients, **options)
    for _ in range(3):
        for a, b in zip(run(GPU, "adam", x, gradients, **options), first, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_was_read_before_does_not_change() -> None:
    """A variable's memory is shared with its readers until it is written, also with work not yet done."""
    with tf.device(GPU):
        variable, m, v = (tf.Variable(tf.ones(100_003)) for _ in range(3))
        alias = tf.identity(variable)
        before = variable.read_value()
        sums = []
        for _ in range(20):
            sums.append(variable.read_value() + 1.0)  # read by a shader that has not run yet
            metal_ops.fused_sgd(variable, tf.ones(100_003), learning_rate=1.0)
        metal_ops.fused_adam(variable, m, v, tf.ones(100_003), step=1, learning_rate=0.5)
    for seen in (before, alias):
        assert np.all(seen.numpy() == 1)
    for i, total in enumerate(sums):
        assert np.all(total.numpy() == 2 - i)
    assert np.all(variable.numpy() < -19)


def test_updates_in_place() -> None:
    """A step needs no second copy of the variables."""
    from metal_ops import device

    with tf.device(GPU):
        variable, m, v, g = (tf.Variable(tf.ones(1 << 20)) for _ in range(4))
        gradient = g.read_value()
        metal_ops.fused_adam(variable, m, v, gradient, step=1, learning_rate=0.1)
        device.synchronize()
        before = device.memory()["in_use"]
        for step in range(2, 6):
            metal_ops.fused_adam(variable, m, v, gradient, step=step, learning_rate=0.1)
            assert device.memory()["in_use"] <= before + 4096


def test_order_in_a_function_is_the_programs() -> None:
    with tf.device(GPU):
        variable, m = tf.Variable([1.0]), tf.Variable([0.0])

        @tf.function
        def steps() -> tf.Tensor:
            metal_ops.fused_sgd(variable, [1.0], learning_rate=1.0)
            first = variable.read_value()
            variable.assign([10.0])
            metal_ops.fused_sgd(
                variable, [1.0], learning_rate=1.0, weight_decay=0.5, m=m, momentum=0.5
            )
            return first

        for _ in range(2):
            m.assign([0.0])
            variable.assign([1.0])
            assert steps().numpy() == [0.0] and variable.numpy() == [4.0]


@pytest.mark.instrumented
def test_updates_from_many_threads_are_all_made() -> None:
    with tf.device(GPU):
        variable = tf.Variable(tf.zeros(5000))

    def work() -> None:
        with tf.device(GPU):
            for _ in range(25):
                metal_ops.fused_sgd(variable, tf.ones(5000), learning_rate=1.0)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(variable, np.full(5000, -200.0))


# Errors at run time: changed arguments of fused_adam.
INVALID: dict[str, Callable[[], dict[str, Any]]] = {
    "shape of m": lambda: dict(m=tf.Variable(tf.zeros(3))),
    "dtype of v": lambda: dict(v=tf.Variable([0.0, 0.0], dtype=tf.float16)),
    "shape of the gradient": lambda: dict(gradient=tf.ones(3)),
    "one variable twice": lambda: dict(twice=True),
    "beta": lambda: dict(beta_1=1.0),
    "step": lambda: dict(step=0),
    "not a scalar": lambda: dict(learning_rate=[0.1, 0.2]),
}


@pytest.mark.instrumented
@pytest.mark.parametrize("changes", INVALID.values(), ids=INVALID)
def test_invalid_arguments(changes: Callable[[], dict[str, Any]]) -> None:
    messages = []
    for where in (CPU, GPU):
        with tf.device(where):
            arguments: dict[str, Any] = dict(
                variable=tf.Variable([1.0, 2.0]), m=tf.Variable([0.0, 0.0]),
                v=tf.Variable([0.0, 0.0]), gradient=tf.ones(2), step=1, learning_rate=0.1,
            )  # fmt: skip
            before = arguments["variable"].numpy()
            arguments.update(changes())
            if arguments.pop("twice", False):
                arguments["v"] = arguments["m"]
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                metal_ops.fused_adam(**arguments)
            np.testing.assert_array_equal(arguments["variable"].numpy(), before)
        messages.append(caught.value.message.replace(where, "<device>"))
    assert messages[0] == messages[1]  # one voice for all devices


def test_no_such_variable() -> None:
    with tf.device(GPU):
        nothing = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="never made")
        with pytest.raises(tf.errors.OpError):
            raw_ops.resource_fused_sgd(
                nothing, [], *(tf.constant(0.5, tf.float64) for _ in range(3)), tf.ones(2)
            )


def test_float64_has_no_kernel_there() -> None:
    with tf.device(GPU), pytest.raises(tf.errors.InvalidArgumentError, match="ResourceFusedSgd"):
        metal_ops.fused_sgd(tf.Variable([1.0], dtype=tf.float64), [1.0], learning_rate=0.1)


# ---- Keras ----------------------------------------------------------------------------------------------------------

STEPS = 100
KERAS_SHAPES = ((64, 8), (8,), (3, 5, 2))
OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "weight decay": lambda: dict(weight_decay=0.3),
    "schedule": lambda: dict(
        learning_rate=keras.optimizers.schedules.ExponentialDecay(0.05, 7, 0.8)
    ),
    "clipnorm": lambda: dict(clipnorm=0.5),
    "clipvalue": lambda: dict(clipvalue=0.1),
    "global clipnorm": lambda: dict(global_clipnorm=0.5),
    "ema": lambda: dict(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7),
    "accumulation": lambda: dict(gradient_accumulation_steps=3, weight_decay=0.05),
    "loss scale": lambda: dict(loss_scale_factor=128.0),
}
OWN: dict[Any, dict[str, Callable[[], dict[str, Any]]]] = {
    Adam: {"amsgrad": lambda: dict(amsgrad=True, beta_2=0.8)},
    AdamW: {"amsgrad": lambda: dict(amsgrad=True, beta_2=0.8, weight_decay=0.2)},
    SGD: {
        "momentum": lambda: dict(momentum=0.9),
        "nesterov": lambda: dict(momentum=0.9, nesterov=True, weight_decay=0.1),
    },
}
# `make test` has each option with one of the three in turn; all derive from one class.
IN_TURN = {
    (kind, name) for n, name in enumerate(OPTIONS) for k, kind in enumerate(OWN) if k == n % 3
}
CASES = [
    pytest.param(
        kind,
        name,
        marks=[] if name in own or (kind, name) in IN_TURN else [pytest.mark.full("as another")],
    )
    for kind, own in OWN.items()
    for name in (*OPTIONS, *own)
]


def gradients_of(step: int) -> list[np.ndarray]:
    random = np.random.default_rng(step)
    return [
        ((random.normal(size=shape) + 0.5) / (1 + step / 20)).astype(np.float32)
        for shape in KERAS_SHAPES
    ]


def train(where: str, make: Callable[[], Any], steps: int = STEPS) -> list[np.ndarray]:
    """Variables after `steps` steps of an optimizer, all of it placed on one device."""
    with tf.device(where):
        random = np.random.default_rng(99)
        variables = [
            keras.Variable(random.normal(size=shape).astype(np.float32)) for shape in KERAS_SHAPES
        ]
        optimizer = make()
        optimizer.build(variables)
        step = tf.function(lambda *g: optimizer.apply(list(g), variables))
        for i in range(steps):
            step(*map(tf.constant, gradients_of(i)))
    assert all(variable.value.device.endswith(where) for variable in variables)
    return [variable.numpy() for variable in variables]


# Soft placement: Keras' clipping, averages and accumulation are stock ops, some of which only the CPU has.
@pytest.mark.parametrize(("ours", "name"), CASES, ids=lambda x: getattr(x, "__name__", x))
def test_equals_keras(soft_placement: None, ours: Any, name: str) -> None:
    theirs = {
        Adam: keras.optimizers.Adam,
        AdamW: keras.optimizers.AdamW,
        SGD: keras.optimizers.SGD,
    }[ours]
    options = {"learning_rate": 0.02, **({**OPTIONS, **OWN[ours]}[name])()}
    actual = train(GPU, lambda: ours(**options))
    expected = train(CPU, lambda: theirs(**options))
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    start = train(GPU, lambda: ours(**options), steps=0)
    assert (
        np.max(np.abs(actual[0] - start[0])) > 1e-3
    )  # a loss scale of 128 makes 128 times smaller steps of SGD's


@pytest.mark.parametrize("kind", [Adam, AdamW, SGD])
def test_runs_with_soft_placement_off(kind: Any) -> None:
    """Everything that a plain step needs is there: nothing goes through the CPU except the
    scalars."""
    actual = train(GPU, lambda: kind(0.02), 5)
    expected = train(CPU, lambda: kind(0.02), 5)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rate", ["number", "schedule"])
@pytest.mark.parametrize("kind", [Adam, SGD])
def test_nothing_comes_back_to_the_host(kind: Any, rate: str) -> None:
    """A copy to the host waits for all work before it: the step's number and the learning rate stay there."""
    decay = keras.optimizers.schedules.ExponentialDecay(0.02, 2, 0.5)
    with functions() as called:
        train(GPU, lambda: kind(0.02 if rate == "number" else decay), 2)
    assert any(node.op.startswith("ResourceFused") for nodes in called for node in nodes)
    assert [name for nodes in called for name in copied_to_host(nodes)] == []


@pytest.mark.parametrize("kind", [Adam, SGD])
def test_rows_without_gradient_are_left_alone(kind: Any) -> None:
    """As instant-ngp treats its hash table: no drift by momentum, no weight decay."""
    options: dict[str, Any] = dict(momentum=0.9) if kind is SGD else {}
    x, steps = np.ones((50, 2), np.float32), []
    with tf.device(GPU):
        variable = keras.Variable(x)
        optimizer = kind(0.1, weight_decay=0.2, skip_zero_rows=True, **options)
        optimizer.build([variable])
        for step in range(8):
            steps.append(np.zeros(x.shape, np.float32))
            steps[-1][step % 4 :: 10] = [1.0, 0.0]
            optimizer.apply([tf.constant(steps[-1])], [variable])
        assert variable.value.device.endswith(GPU)
    rule = oracle.sgd if kind is SGD else oracle.adam
    expected = rule(x, steps, 0.1, weight_decay=0.2, skip_zero_rows=True, **options)[0]
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(variable.numpy().reshape(5, 10, 2)[:, 4:], 1)


def test_loss_scaling(soft_placement: None) -> None:
    """LossScaleOptimizer around ours, with overflows at some steps, which leave variable and state as they were."""

    def scaled(where: str, kind: Any) -> np.ndarray:
        with tf.device(where):
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

    expected = scaled(CPU, keras.optimizers.Adam)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(scaled(GPU, Adam), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [Adam, SGD])
def test_saved_and_loaded(soft_placement: None, kind: Any, tmp_path: Path) -> None:
    """Variables and optimizer state on the device go to a file and back; both continue alike."""
    x = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    with tf.device(GPU):
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4), keras.layers.Dense(1)])
        options = dict(momentum=0.9) if kind is SGD else dict(amsgrad=True)
        rate = keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=2, decay_rate=0.8)
        optimizer = kind(rate, weight_decay=1e-3, use_ema=True, skip_zero_rows=True, **options)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x, x[:, :1], verbose=0, epochs=3)
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert all(variable.value.device.endswith(GPU) for variable in loaded.trainable_variables)
        assert len(loaded.optimizer.variables) == len(model.optimizer.variables) > 2
        assert loaded.optimizer.skip_zero_rows
        assert loaded.optimizer.get_config() == optimizer.get_config()
        for a, b in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        for one in (model, loaded):
            one.compile(one.optimizer, "mse", jit_compile=False)
            one.fit(x, x[:, :1], shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_checkpoint(soft_placement: None, tmp_path: Path) -> None:
    def make() -> tuple[keras.Variable, Any]:
        with tf.device(GPU):
            variable = keras.Variable(np.ones((5, 2), np.float32))
            optimizer = Adam(0.1)
            optimizer.build([variable])
        return variable, optimizer

    def step(variable: keras.Variable, optimizer: Any, seed: int) -> None:
        gradient = np.random.default_rng(seed).normal(size=(5, 2)).astype(np.float32)
        with tf.device(GPU):
            optimizer.apply([tf.constant(gradient)], [variable])

    def checkpoint(variable: keras.Variable, optimizer: Any) -> tf.train.Checkpoint:
        state = {str(i): v.value for i, v in enumerate(optimizer.variables)}
        return tf.train.Checkpoint(x=variable.value, **state)

    first = make()
    for seed in range(3):
        step(*first, seed)
    path = checkpoint(*first).write(str(tmp_path / "checkpoint"))
    second = make()
    checkpoint(*second).read(path).assert_consumed()
    for one in (first, second):
        step(*one, 7)
    np.testing.assert_array_equal(first[0].numpy(), second[0].numpy())
