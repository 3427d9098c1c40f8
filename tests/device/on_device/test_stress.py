"""Many threads, many tensors alive, work that is thrown away; and Keras models that are partly on the device."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import metal_ops
from metal_ops import device
from tests import placements

pytestmark = pytest.mark.instrumented

GPU = "GPU:0"


def test_eight_threads_of_a_thousand_calls():
    failures: list[object] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            for i in range(200):  # of five calls each
                n = int(rng.integers(1, 5000))
                x = rng.uniform(-1, 1, n).astype("float32")
                with tf.device(GPU):
                    a = tf.constant(x)
                    b = a + a
                    c = b * 0.5
                    d = tf.reduce_sum(c - a)
                    e = tf.concat([b, c], 0)
                if i % 10 == 0:
                    np.testing.assert_array_equal(e.numpy(), np.concatenate([x + x, x]))
                    assert d.numpy() == 0
        except Exception as error:  # noqa: BLE001 - any of them fails the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_threads_share_a_variable():
    with tf.device(GPU):
        v = tf.Variable(tf.zeros([100]))

    def work() -> None:
        with tf.device(GPU):
            for _ in range(100):
                v.assign_add(tf.ones([100]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(v.numpy(), np.full(100, 800.0))


def test_a_thousand_tensors_alive():
    with tf.device(GPU):
        one = tf.constant(np.arange(300, dtype="f"))
        alive = [one * float(i) for i in range(1000)]
        for i in (0, 1, 500, 999):
            np.testing.assert_array_equal(alive[i], np.arange(300, dtype="f") * i)
        total = tf.add_n(alive)
        # 143 roundings to float32, one every seven inputs.
        np.testing.assert_allclose(total, np.arange(300) * 499500.0, rtol=1e-5)


def test_results_that_nobody_reads():
    with tf.device(GPU):
        x = tf.ones([100000])
        for _ in range(500):
            x + x  # noqa: B018 - the buffer is freed while its work is still queued
        np.testing.assert_array_equal(x.numpy(), np.ones(100000))
    device.synchronize()


# ---- Keras ----------------------------------------------------------------------------------------------------------


def train(where: str, optimizer: str) -> tuple[list[float], list[np.ndarray]]:
    """A hash grid, on the device if that is `where`, below dense layers."""
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(7)
    points = rng.uniform(0, 1, (256, 3)).astype("float32")
    target = np.sin(points.sum(1, keepdims=True) * 6).astype("float32")
    adam = {"keras": keras.optimizers.Adam, "metal_ops": metal_ops.optimizers.Adam}[optimizer]
    with tf.device(where):
        model = keras.Sequential(
            [
                keras.Input((3,)),
                metal_ops.layers.HashEncoding(
                    n_levels=4, log2_hashmap_size=10, finest_resolution=32, seed=1
                ),
                keras.layers.Dense(16, activation="relu"),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer=adam(1e-2), loss="mse")  # jit_compile="auto": the layer refuses XLA
        with placements.placed() as ops:
            history = model.fit(points, target, batch_size=64, epochs=6, shuffle=False, verbose=0)
    table = model.layers[0].table.value
    assert table.device.endswith(where), table.device
    # Soft placement moves ops without a kernel there; none of these may be among them. On the device the pass makes one
    # op of Keras' update; on the CPU it is off.
    keras_update = "ResourceAdamStep" if where == GPU else "AssignSubVariableOp"
    fused = {"ResourceFusedAdam" if optimizer == "metal_ops" else keras_update}
    for op in {"HashEncode", "HashEncodeGrad"} | fused:
        assert ops[op] == {where}, f"{op}: {ops[op]}"
    return history.history["loss"], [np.asarray(w) for w in model.get_weights()]


# Keras' random numbers and counters have no kernels on the device; soft placement runs them on the CPU.
@pytest.mark.parametrize("optimizer", ["keras", "metal_ops"])
def test_keras_model_trains_as_on_the_cpu(soft_placement, optimizer):
    losses, weights = train(GPU, optimizer)
    expected_losses, expected_weights = train("CPU:0", optimizer)
    assert losses[-1] < 0.5 * losses[0]
    # 24 Adam steps: rounding differences of 1e-7 grow a little each step, the table's gradient is added up in
    # another order, and Adam divides small gradients by their own size.
    np.testing.assert_allclose(losses, expected_losses, rtol=2e-3)
    for got, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-2, atol=2e-3)
