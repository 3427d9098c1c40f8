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
optimizers = keras.optimizers
# The optimizer, its name in explain, and the op.
OPTIMIZERS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "momentum": (
        lambda: optimizers.SGD(0.1, momentum=0.9),
        "Momentum",
        "ResourceApplyKerasMomentum",
    ),
    "nesterov": (
        lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
        "Nesterov",
        "ResourceApplyKerasMomentum",
    ),
    "adam": (lambda: optimizers.Adam(0.1), "Adam", "ResourceAdamStep"),
    "amsgrad": (lambda: optimizers.Adam(0.1, amsgrad=True), "AMSGrad", "ResourceAdamStep"),
    "adamw-clipped": (
        lambda: optimizers.AdamW(0.1, weight_decay=0.1, clipnorm=0.5),
        "Adam",
        "ResourceAdamStep",
    ),
    "rmsprop": (lambda: optimizers.RMSprop(0.02), "RMSprop", "ResourceRmspropStep"),
    "rmsprop-momentum": (
        lambda: optimizers.RMSprop(0.02, momentum=0.8),
        "RMSprop",
        "ResourceRmspropStep",
    ),
    "rmsprop-centered": (
        lambda: optimizers.RMSprop(0.02, centered=True),
        "CenteredRMSprop",
        "ResourceRmspropStep",
    ),
    "rmsprop-centered-momentum": (
        lambda: optimizers.RMSprop(0.02, centered=True, momentum=0.8),
        "CenteredRMSprop",
        "ResourceRmspropStep",
    ),
    "adagrad": (lambda: optimizers.Adagrad(0.1), "Adagrad", "ResourceAdagradStep"),
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
    make, shown, op = OPTIMIZERS[name]
    plain, _ = trained(make, fused=False)
    before = metal_ops.fusion.status()
    fused, step = trained(make, fused=True)
    after = metal_ops.fusion.status()
    assert after.errors == before.errors
    assert after.fused - before.fused == len(SHAPES)
    for a, b in zip(plain, fused, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=STEPS * tolerance("float32", 1.0))
    seen = look(step, GRADIENTS[0])
    assert seen.fused == [[shown]] * len(SHAPES) and not seen.explanation.missed
    assert {fusion.fused_op for fusion in seen.explanation.fused} == {op}
    assert sum(node.op == op for node in seen.explanation.after) == len(SHAPES)


@pytest.mark.parametrize("name", ["nesterov", "amsgrad", "rmsprop-centered-momentum"])
def test_training_with_keras(name: str):
    """The whole of fit's function, which computes the gradients and counts: as many updates as variables."""
    losses = []
    x = np.asarray(values((24, 5), seed=3))
    y = np.asarray(values((24, 2), seed=4))
    for fused in (False, True):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Dense(7, "tanh"), keras.layers.Dense(2)])
        model.compile(OPTIMIZERS[name][0](), "mse", jit_compile=False, steps_per_execution=2)
        before = metal_ops.fusion.status()
        patterns = [
            pattern.name for pattern in metal_ops.fusion.patterns() if pattern.kind == "update"
        ]
        with metal_ops.fusion.enabled(patterns, cpu=True) if fused else metal_ops.fusion.disabled():
            history = model.fit(x, y, batch_size=6, epochs=3, shuffle=False, verbose=0)
        after = metal_ops.fusion.status()
        assert after.errors == before.errors
        assert after.fused - before.fused >= 4 * fused
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[1][-1] < 0.9 * losses[1][0]


class Given:
    """Weights, an optimizer's state of them and a number, and one step with something else in it."""

    shown = "Momentum"

    def __init__(self) -> None:
        self.w = tf.Variable(values((4, 3), seed=1))
        self.m = tf.Variable(tf.abs(values((4, 3), seed=2)))
        self.other = tf.Variable(values((4, 3), seed=3))
        self.v = tf.Variable(tf.abs(values((4, 3), seed=4)))
        self.rate = tf.Variable(0.1)

    def step(
        self,
        gradient: tf.Tensor,
        rate: Any = None,
        before: Callable[[], Any] = lambda: None,
        between: Callable[[], Any] = lambda: None,
        after: Callable[[], Any] = lambda: None,
        keep: Callable[[tf.Tensor], Any] = lambda m: None,
        delta: Callable[[tf.Tensor], tf.Tensor] = lambda m: m,
    ) -> Any:
        """Tensors computed before, between and after the assignments are returned, as copies of the value."""
        seen = [before()]
        new = self.begin(gradient, self.rate if rate is None else rate)
        seen.append(between())
        self.end(gradient, self.rate if rate is None else rate, delta)
        seen += [after(), keep(new)]
        return [each for each in seen if each is not None]

    def begin(self, gradient: tf.Tensor, rate: Any) -> tf.Tensor:
        """Changes the state of the weights; the new m."""
        new = self.m * 0.9 - gradient * rate
        self.m.assign(new)
        return new

    def end(self, gradient: tf.Tensor, rate: Any, delta: Callable[[tf.Tensor], tf.Tensor]) -> None:
        """Changes the weights."""
        self.w.assign_add(delta(self.m.read_value()))


class Adam(Given):
    shown = "Adam"
    squared: Callable[[tf.Tensor], tf.Tensor] = staticmethod(tf.square)

    def begin(self, gradient: tf.Tensor, rate: Any) -> tf.Tensor:
        new = 0.1 * (gradient - self.m)
        self.m.assign_add(new)
        self.v.assign_add((self.squared(gradient) - self.v) * 0.01)
        return new

    def size(self) -> tf.Tensor:
        return tf.sqrt(self.v)

    def end(self, gradient: tf.Tensor, rate: Any, delta: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.w.assign_sub(delta(rate * self.m / (1e-3 + self.size())))


class Amsgrad(Adam):
    shown = "AMSGrad"

    def size(self) -> tf.Tensor:
        self.other.assign(tf.maximum(self.v, self.other))
        return tf.sqrt(self.other)


class Rmsprop(Given):
    """Centred. Its m is the mean of squares, its momentum is `v`."""

    shown = "CenteredRMSprop"
    rho = 0.9

    def begin(self, gradient: tf.Tensor, rate: Any) -> tf.Tensor:
        new = self.m * 0.9 + gradient * gradient * 0.1
        self.m.assign(new)
        return new

    def end(self, gradient: tf.Tensor, rate: Any, delta: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.other.assign(0.1 * gradient + self.other * self.rho)
        size = self.m.read_value() - tf.square(self.other.read_value())
        step = gradient * rate / tf.sqrt(4.0 + size)
        self.v.assign(step + 0.8 * self.v)
        self.w.assign_sub(delta(self.v.read_value()))


class Adagrad(Given):
    shown = "Adagrad"

    def begin(self, gradient: tf.Tensor, rate: Any) -> tf.Tensor:
        new = gradient * gradient
        self.m.assign_add(new)
        return new

    def end(self, gradient: tf.Tensor, rate: Any, delta: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.w.assign_sub(delta(gradient * rate / tf.sqrt(1e-3 + self.m)))


KINDS = {kind.__name__.lower(): kind for kind in (Given, Adam, Amsgrad, Rmsprop, Adagrad)}


def run(step: Callable[..., Any], fused: bool, kind: type[Given] = Given) -> list[np.ndarray]:
    """The results of two steps, and the variables after them."""
    given = kind()
    function = tf.function(lambda gradient: step(given, gradient), autograph=False)
    with metal_ops.fusion.enabled(cpu=True) if fused else metal_ops.fusion.disabled():
        returned = [function(values((4, 3), seed=seed)) for seed in (5, 6)]
    kept = [given.w, given.m, given.v, given.other]
    return [np.asarray(v) for v in tf.nest.flatten([returned, kept])]


def check(step: Callable[..., Any], fused: int, kind: type[Given] = Given) -> Any:
    """That the results are those without the pass, and how many updates were fused."""
    before = metal_ops.fusion.status()
    got = run(step, fused=True, kind=kind)
    after = metal_ops.fusion.status()
    assert after.errors == before.errors and after.fused - before.fused == fused
    for a, b in zip(run(step, fused=False, kind=kind), got, strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=tolerance("float32", 2.0))
    given = kind()
    return look(lambda gradient: step(given, gradient), values((4, 3), seed=5))


# Reads and writes around an update, which keep their order with it.
AROUND: dict[str, Callable[[Given, tf.Tensor], Any]] = {
    "nothing": lambda given, g: given.step(g),
    "m-read-before": lambda given, g: given.step(g, before=given.m.read_value),
    "m-read-after": lambda given, g: given.step(g, after=given.m.read_value),
    "m-read-between": lambda given, g: given.step(g, between=given.m.read_value),
    "weights-read-before": lambda given, g: given.step(g, before=given.w.read_value),
    "weights-read-between": lambda given, g: given.step(g, between=given.w.read_value),
    "weights-read-after": lambda given, g: given.step(g, after=given.w.read_value),
    "weights-written-before": lambda given, g: given.step(
        g, before=lambda: given.w.assign(given.w * 0.5) * 1.0
    ),
    "weights-written-between": lambda given, g: given.step(
        g, between=lambda: given.w.assign(given.w * 0.5) * 1.0
    ),
    "m-written-after": lambda given, g: given.step(
        g, after=lambda: given.m.assign(given.m * 0.5) * 1.0
    ),
    "another-written-between": lambda given, g: given.step(
        g, between=lambda: given.other.assign_add(g) * 1.0
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", AROUND)
def test_order_is_kept(name: str, kind: str):
    assert check(AROUND[name], 1, KINDS[kind]).fused == [[KINDS[kind].shown]]


# Two updates one after another of the same variables: each waits for the other one's nodes.
@pytest.mark.parametrize("kind", KINDS)
def test_two_steps_in_one_function(kind: str):
    def twice(given: Given, g: tf.Tensor) -> Any:
        given.step(g)
        return given.step(-2.0 * g, after=given.w.read_value)

    assert check(twice, 2, KINDS[kind]).fused == [[KINDS[kind].shown]] * 2


def m_comes_between(given: Given, g: tf.Tensor) -> Any:
    """The weights wait for a tensor computed from the new m."""

    def change() -> None:
        given.w.assign(given.w + 0.5 * given.m.read_value())

    return given.step(g, between=change)


REFUSED: dict[str, tuple[str, Callable[[Given, tf.Tensor], Any]]] = {
    "between": ("between", m_comes_between),
    "value-returned": ("fetched", lambda given, g: given.step(g, keep=lambda m: m)),
    "value-used": ("one_consumer", lambda given, g: given.step(g, keep=lambda m: m * 2.0)),
    "rate-of-each-weight": (
        "one_number",
        lambda given, g: given.step(g, rate=tf.abs(given.other)),
    ),
    "broadcast-gradient": ("gradient_shape", lambda given, g: given.step(g[:1])),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REFUSED)
def test_near_misses(name: str, kind: str):
    if (name, kind) == ("broadcast-gradient", "adagrad"):
        pytest.skip("TensorFlow refuses to add it to the accumulator")
    condition, step = REFUSED[name]
    seen = check(step, 0, KINDS[kind])
    assert seen.conditions == {condition}
    assert "'" in seen.reason(condition) and seen.reason(condition).endswith(".")


@pytest.mark.parametrize(
    "delta",
    [lambda m: 2.0 * m, lambda m: -m, lambda m: tf.tanh(m)],
    ids=["twice", "ascent", "tanh"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_other_steps_are_nobodys(delta: Callable[[tf.Tensor], tf.Tensor], kind: str):
    seen = check(lambda given, g: given.step(g, delta=delta), 0, KINDS[kind])
    assert not seen.fused and not seen.conditions


def test_a_nesterov_step_of_another_rate():
    def step(given: Given, g: tf.Tensor) -> Any:
        return given.step(g, delta=lambda m: m * 0.9 - g * (given.rate * 2.0))

    assert check(step, 0).conditions == {"two_steps"}


class AnotherGradient(Adam):
    squared = staticmethod(lambda gradient: tf.square(2.0 * gradient))


class AnotherMean(Rmsprop):
    rho = 0.8


class WithNesterov(Adam):
    """m is not the variable's alone."""

    def end(self, gradient: tf.Tensor, rate: Any, delta: Callable[[tf.Tensor], tf.Tensor]) -> None:
        ahead = 0.9 * self.m + 0.1 * gradient
        self.w.assign_sub(rate * ahead / (1e-3 + self.size()))


class EpsilonBelow(Adam):
    def size(self) -> tf.Tensor:
        return tf.sqrt(self.v + 1e-3)


class EpsilonBehind(Adagrad):
    def end(self, gradient: tf.Tensor, rate: Any, delta: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.w.assign_sub(gradient * rate / (1e-3 + tf.sqrt(self.m)))


class OfItself(Adagrad):
    """The weights are their own accumulator."""

    def __init__(self) -> None:
        super().__init__()
        self.w = self.m


@pytest.mark.parametrize(
    "kind, condition",
    [
        (AnotherGradient, "two_gradients"),
        (AnotherMean, "two_means"),
        (WithNesterov, None),
        (EpsilonBelow, None),
        (EpsilonBehind, None),
        (OfItself, None),
    ],
)
def test_other_formulas(kind: type[Given], condition: str | None):
    seen = check(lambda given, g: given.step(g), 0, kind)
    assert seen.conditions == ({condition} if condition else set())


@pytest.mark.parametrize("kind", KINDS)
def test_switched_off(kind: str):
    given = KINDS[kind]()
    off = {"given": "momentum", "amsgrad": "adam"}.get(kind, kind)
    names = {pattern.name for pattern in metal_ops.fusion.patterns()} - {off}
    seen = look(given.step, values((4, 3)), patterns=names)
    assert not seen.fused and seen.conditions == {"pattern_off"}
