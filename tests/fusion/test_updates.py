"""Optimizers in elementary ops, as Keras 3 writes them, become one op a variable; nearly the same graphs do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from tests.fusion.harness import look, tolerance, values

SHAPES: tuple[tuple[int, ...], ...] = ((4, 3), (3,), ())
STEPS = 5
OPTIMIZERS: dict[str, tuple[Callable[[], Any], str]] = {
    "Momentum": (
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        "ResourceApplyKerasMomentum",
    ),
    "Nesterov": (
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        "ResourceApplyKerasMomentum",
    ),
}
GRADIENTS = [[values(shape, seed=10 + step) for shape in SHAPES] for step in range(STEPS)]


def trained(
    make: Callable[[], Any], fused: bool
) -> tuple[list[np.ndarray], tf.types.experimental.GenericFunction]:
    """All variables after some steps, the optimizer's too; and the function of a step."""
    weights = [keras.Variable(values(shape, seed=1)) for shape in SHAPES]
    optimizer = make()
    optimizer.build(weights)

    @tf.function(jit_compile=False)
    def step(gradients):
        optimizer.apply(gradients, weights)

    with metal_ops.fusion.enabled(cpu=True) if fused else metal_ops.fusion.disabled():
        for gradients in GRADIENTS:
            step(gradients)
    return [np.asarray(v) for v in [*weights, *optimizer.variables]], step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_keras_optimizer(name: str):
    make, op = OPTIMIZERS[name]
    plain, _ = trained(make, fused=False)
    before = metal_ops.fusion.status()
    fused, step = trained(make, fused=True)
    after = metal_ops.fusion.status()
    assert after.errors == before.errors
    assert after.fused - before.fused == len(SHAPES)
    for a, b in zip(plain, fused, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=STEPS * tolerance("float32", 1.0))
    seen = look(step, GRADIENTS[0])
    assert seen.fused == [[name]] * len(SHAPES) and not seen.explanation.missed
    assert {fusion.fused_op for fusion in seen.explanation.fused} == {op}
    assert sum(node.op == op for node in seen.explanation.after) == len(SHAPES)


def test_training_with_keras():
    """The whole of fit's function, which computes the gradients and counts: as many updates as variables."""
    losses = []
    x = np.asarray(values((24, 5), seed=3))
    y = np.asarray(values((24, 2), seed=4))
    for fused in (False, True):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Dense(7, "tanh"), keras.layers.Dense(2)])
        model.compile(OPTIMIZERS["Nesterov"][0](), "mse", jit_compile=False, steps_per_execution=2)
        before = metal_ops.fusion.status()
        patterns = ["momentum"]
        with metal_ops.fusion.enabled(patterns, cpu=True) if fused else metal_ops.fusion.disabled():
            history = model.fit(x, y, batch_size=6, epochs=3, shuffle=False, verbose=0)
        after = metal_ops.fusion.status()
        assert after.errors == before.errors
        assert after.fused - before.fused >= 4 * fused
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[1][-1] < 0.9 * losses[1][0]


class Given:
    """Weights, what an optimizer keeps of them and a number, and one step with something else in it."""

    def __init__(self) -> None:
        self.w = tf.Variable(values((4, 3), seed=1))
        self.m = tf.Variable(values((4, 3), seed=2))
        self.other = tf.Variable(values((4, 3), seed=3))
        self.rate = tf.Variable(0.1)

    def momentum(
        self,
        gradient: tf.Tensor,
        rate: Any = None,
        before: Callable[[], Any] = lambda: None,
        between: Callable[[], Any] = lambda: None,
        after: Callable[[], Any] = lambda: None,
        keep: Callable[[tf.Tensor], Any] = lambda m: None,
        delta: Callable[[tf.Tensor], tf.Tensor] = lambda m: m,
    ) -> Any:
        """What happens before, between and after the two assignments is returned, as what is kept of the value."""
        seen = [before()]
        new = self.m * 0.9 - gradient * (self.rate if rate is None else rate)
        self.m.assign(new)
        seen.append(between())
        self.w.assign_add(delta(self.m.read_value()))
        seen += [after(), keep(new)]
        return [each for each in seen if each is not None]


def run(step: Callable[..., Any], fused: bool) -> list[np.ndarray]:
    """What two steps return, and the variables after them."""
    given = Given()
    function = tf.function(lambda gradient: step(given, gradient), autograph=False)
    with metal_ops.fusion.enabled(cpu=True) if fused else metal_ops.fusion.disabled():
        returned = [function(values((4, 3), seed=seed)) for seed in (5, 6)]
    return [np.asarray(v) for v in tf.nest.flatten([returned, given.w, given.m, given.other])]


def check(step: Callable[..., Any], fused: int) -> Any:
    """That the results are those without the pass, and how many updates were fused."""
    before = metal_ops.fusion.status()
    got = run(step, fused=True)
    after = metal_ops.fusion.status()
    assert after.errors == before.errors and after.fused - before.fused == fused
    for a, b in zip(run(step, fused=False), got, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=tolerance("float32", 2.0))
    given = Given()
    return look(lambda gradient: step(given, gradient), values((4, 3), seed=5))


# Reads and writes around an update, which keep their order with it.
AROUND: dict[str, Callable[[Given, tf.Tensor], Any]] = {
    "nothing": lambda given, g: given.momentum(g),
    "m-read-before": lambda given, g: given.momentum(g, before=given.m.read_value),
    "m-read-after": lambda given, g: given.momentum(g, after=given.m.read_value),
    "m-read-between": lambda given, g: given.momentum(g, between=given.m.read_value),
    "weights-read-before": lambda given, g: given.momentum(g, before=given.w.read_value),
    "weights-read-between": lambda given, g: given.momentum(g, between=given.w.read_value),
    "weights-read-after": lambda given, g: given.momentum(g, after=given.w.read_value),
    "weights-written-before": lambda given, g: given.momentum(
        g, before=lambda: given.w.assign(given.w * 0.5) * 1.0
    ),
    "weights-written-between": lambda given, g: given.momentum(
        g, between=lambda: given.w.assign(given.w * 0.5) * 1.0
    ),
    "m-written-after": lambda given, g: given.momentum(
        g, after=lambda: given.m.assign(given.m * 0.5) * 1.0
    ),
    "another-written-between": lambda given, g: given.momentum(
        g, between=lambda: given.other.assign_add(g) * 1.0
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_order_is_kept(name: str):
    assert check(AROUND[name], 1).fused == [["Momentum"]]


# Two updates one after another of the same variables: each waits for the other one's nodes.
def test_two_steps_in_one_function():
    def twice(given: Given, g: tf.Tensor) -> Any:
        given.momentum(g)
        return given.momentum(-2.0 * g, after=given.w.read_value)

    assert check(twice, 2).fused == [["Momentum"]] * 2


def m_comes_between(given: Given, g: tf.Tensor) -> Any:
    """The weights wait for what is computed from the new m."""

    def change() -> None:
        given.w.assign(given.w + 0.5 * given.m.read_value())

    return given.momentum(g, between=change)


REFUSED: dict[str, tuple[str, Callable[[Given, tf.Tensor], Any]]] = {
    "between": ("between", m_comes_between),
    "value-returned": ("fetched", lambda given, g: given.momentum(g, keep=lambda m: m)),
    "value-used": ("one_consumer", lambda given, g: given.momentum(g, keep=lambda m: m * 2.0)),
    "rate-of-each-weight": (
        "one_number",
        lambda given, g: given.momentum(g, rate=tf.abs(given.other)),
    ),
    "broadcast-gradient": ("gradient_shape", lambda given, g: given.momentum(g[:1])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_near_misses(name: str):
    condition, step = REFUSED[name]
    seen = check(step, 0)
    assert seen.conditions == {condition}
    assert "'" in seen.reason(condition) and seen.reason(condition).endswith(".")


@pytest.mark.parametrize(
    "delta",
    [lambda m: 2.0 * m, lambda m: -m, lambda m: tf.tanh(m)],
    ids=["twice", "ascent", "tanh"],
)
def test_other_steps_are_nobodys(delta: Callable[[tf.Tensor], tf.Tensor]):
    seen = check(lambda given, g: given.momentum(g, delta=delta), 0)
    assert not seen.fused and not seen.conditions


def test_a_nesterov_step_of_another_rate():
    def step(given: Given, g: tf.Tensor) -> Any:
        return given.momentum(g, delta=lambda m: m * 0.9 - g * (given.rate * 2.0))

    assert check(step, 0).conditions == {"two_steps"}


def test_switched_off():
    given = Given()
    names = {pattern.name for pattern in metal_ops.fusion.patterns()} - {"momentum"}
    seen = look(given.momentum, values((4, 3)), patterns=names)
    assert not seen.fused and seen.conditions == {"pattern_off"}
